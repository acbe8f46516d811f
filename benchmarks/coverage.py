"""How much is seen and cut: ``python benchmarks/coverage.py [--generate | --lens | --libraries]``.

Every model class that `AutoModel` knows is built from its configuration, made tiny by shrinking
whatever the configuration has of sizes, with weights drawn large enough that attention is far from
uniform. What cannot be built or run on plain inputs is counted and left out. For each model, with
its default and with eager attention: whether watching leaves every output as it is, bit for bit;
whether attention is seen; whether the weights that the model itself reports, and those of every
softmax that really ran, are those of the looks; whether a cut link has weight 0; and whether
watching works under bfloat16 autocast.

With ``--generate``, models that write text, each greedily and with its cache: whether the tokens
are the same, and whether every step's looks are right. With ``--lens``, text models: whether
`Lens.explain` explains a word, or says in a sentence why it cannot. With ``--libraries``, models of
other libraries (`libraries.py`). ``--part 2/4`` runs the second quarter, ``--only NAME`` what has
this in its name; ``-v`` prints a line for each model.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import signal
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
import transformers
from oracle import softmaxes, unmatched
from tiny_models import architectures, build, draw, inputs_for, tokenizer
from torch import Tensor, nn

import regard
from regard.errors import RegardError

SECONDS = 60
"""After so long a model is given up."""
TEXT = "the cat saw that it was too tired"
NEW = 6
"""How many tokens are generated."""
Row = tuple[str, str, str]
"""A line of the table: what it is called, what is counted, and of what."""

MODELS: tuple[Row, ...] = (
    ("watched: same bits", "same bits", "seen"),
    ("seen, of those with attention", "seen", "attends"),
    ("of these, a module named in `missed`", "missed", "seen"),
    ("every softmax that ran has a look, within 1e-5", "every softmax", "seen"),
    ("every look is a softmax that ran, within 1e-5", "every look", "seen"),
    ("weights that the model reports within 1e-5", "reported", "reports"),
    ("cut right", "cut", "seen"),
    ("bfloat16 autocast: same bits", "autocast same", "autocast"),
    ("watching raised", "raised", "ran"),
)
GENERATION: tuple[Row, ...] = (
    ("generated: same tokens", "same tokens", "seen"),
    ("every softmax of every step has a look, within 1e-5", "every softmax", "seen"),
    ("joined looks are those of one pass over the text", "one pass", "seen"),
    ("both: looks right step by step", "right", "seen"),
    ("watching raised", "raised", "ran"),
)
LENS: tuple[Row, ...] = (
    ("`Lens.explain` explains a word", "explained", "ran"),
    ("says in a sentence why it cannot", "sentence", "ran"),
    ("raises anything else", "raw", "ran"),
)
LIBRARIES: tuple[Row, ...] = (
    *MODELS[:5],
    ("fully seen: both, and nothing in `missed`", "fully seen", "attends"),
    MODELS[6],
    ("watching raised", "raised", "ran"),
)


def tensors(result: object) -> list[Tensor]:
    """All tensors in a result."""
    if isinstance(result, Tensor):
        return [result]
    if isinstance(result, dict):
        result = list(result.values())
    return [x for one in result for x in tensors(one)] if isinstance(result, list | tuple) else []


def same(one: object, other: object) -> bool:
    """Whether two results are the same, bit for bit."""
    pairs = list(zip(tensors(one), tensors(other), strict=True))
    return bool(pairs) and all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in pairs)


class Subject:
    """A model and what it is called with, from the same random state each time."""

    def __init__(self, model: nn.Module, given: dict[str, Any] | tuple[Any, ...]) -> None:
        self.model, self.given = model, given

    def __call__(self, **options: Any) -> Any:
        torch.manual_seed(2)
        with torch.no_grad():
            if isinstance(self.given, dict):
                return self.model(**self.given, **options)
            return self.model(*self.given, **options)

    def attends(self) -> bool:
        """Whether a module says so by its name."""
        return any(re.search("atten|attn", type(x).__name__.lower()) for x in self.model.modules())


def looked(subject: Subject, found: Counter[str]) -> regard.lens.Seen | None:
    """What is seen when the model runs, and what is true of it; None if nothing is."""
    plain = subject()
    found["ran"] = 1
    with softmaxes() as real:
        subject()
    try:
        with regard.watch(subject.model) as seen:
            watched = subject()
    except RegardError as error:
        unseen = "ran, but made no call" in str(error)
        found["attends"] = int(unseen and subject.attends())
        found["raised"] = int(not unseen)
        return None
    found["seen"] = found["attends"] = 1
    found["missed"] = int(bool(seen.missed))
    found["same bits"] = int(same(plain, watched))
    left, lonely = unmatched(real, weights_of(seen))
    found["every softmax"], found["every look"] = int(not left), int(not lonely)
    found["fully seen"] = int(not left and not lonely and not seen.missed)
    return seen


def weights_of(seen: regard.lens.Seen) -> list[Tensor]:
    """The weights of every call."""
    return [look.weights() for name in seen for look in seen.calls(name)]


def cuts(subject: Subject, seen: regard.lens.Seen) -> bool:
    """Whether a link of each kind can be cut, in every module, in the softmaxes that really run."""
    for kind in {seen.kind(name) for name in seen}:
        first = next(name for name in seen if seen.kind(name) == kind)
        weights = seen.calls(first)[0].weights().flatten(0, -3).amax(0)
        query, key = divmod(int((weights * (weights < 0.999)).argmax()), weights.shape[-1])
        with softmaxes() as before:
            subject()
        missing = len(unmatched(before, weights_of(seen))[0])
        try:
            links = regard.cut(subject.model, [(query, key)], kind=kind)
            with softmaxes() as real, links, regard.watch(subject.model) as slow:
                subject()
            links = regard.cut(subject.model, [(query, key)], kind=kind)
            with links, regard.watch(subject.model) as fast:
                subject()
        except RegardError:
            return False
        if len(unmatched(real, weights_of(slow))[0]) > missing:
            return False
        for cut in (slow, fast):
            for weights in weights_of_kind(cut, kind):
                inside = weights.shape[-2] > query and weights.shape[-1] > key
                if inside and weights[..., query, key].nan_to_num().any():
                    return False
    return True


def weights_of_kind(seen: regard.lens.Seen, kind: str) -> list[Tensor]:
    """The weights of every module of self-attention, or of cross-attention, its calls joined."""
    found = []
    for name in seen:
        if seen.kind(name) == kind:
            try:
                found.append(seen[name].weights())
            except RegardError:  # calls of unlike sizes
                found += [look.weights() for look in seen.calls(name)]
    return found


def check_model(kind: type[Any], config: type[Any], attention: str | None) -> Counter[str]:
    """What can be said of one model of transformers, as counts of what is true."""
    model = build(kind, config, attention)
    subject = None
    for candidate in inputs_for(model):
        with contextlib.suppress(Exception):
            one = Subject(model, candidate)
            one()
            subject = one
            break
    if subject is None:
        raise ValueError("no inputs found")
    found: Counter[str] = Counter()
    seen = looked(subject, found)
    if seen is None:
        return found
    eager = model if attention == "eager" else build(kind, config, "eager")
    theirs, ours = reported(Subject(eager, subject.given)), weights_of(seen)
    if theirs:
        found["reports"] = 1
        found["reported"] = int(all(any(close(w, o) for o in ours) for w in theirs))
    found["cut"] = int(cuts(subject, seen))
    with torch.autocast("cpu", torch.bfloat16), contextlib.suppress(Exception):
        low = subject()
        found["autocast"] = 1
        with contextlib.suppress(RegardError, RuntimeError), regard.watch(model):
            found["autocast same"] = int(same(low, subject()))
    return found


def reported(subject: Subject) -> list[Tensor]:
    """The weights that an eager model itself returns."""
    with contextlib.suppress(Exception):
        result = subject(output_attentions=True)
        found = [
            x for name, value in result.items() if "attentions" in name for x in tensors(value)
        ]
        return [x for x in found if x.dim() == 4]
    return []


def close(weights: Tensor, ours: Tensor, tolerance: float = 1e-5) -> bool:
    """Whether weights are the same, in rows that look at anything."""
    if weights.shape != ours.shape:
        return False
    there = weights.sum(-1) > 0.5
    return not there.any() or bool((weights - ours).nan_to_num().abs()[there].amax() < tolerance)


def check_generation(kind: type[Any], config: type[Any], attention: str | None) -> Counter[str]:
    """What can be said of one model that writes text."""
    model = build(kind, config, attention)
    torch.manual_seed(1)
    ids = torch.randint(5, 90, (2, 5))

    def write() -> Tensor:
        torch.manual_seed(2)
        written: Tensor = model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, num_beams=1,
            min_new_tokens=NEW, max_new_tokens=NEW, pad_token_id=0,
        )  # fmt: skip
        return written

    plain = write()
    found: Counter[str] = Counter(ran=1)
    with softmaxes() as real:
        write()
    try:
        with regard.watch(model) as seen:
            watched = write()
    except RegardError as error:
        found["raised"] = int("ran, but made no call" not in str(error))
        return found
    found["seen"] = 1
    found["same tokens"] = int(torch.equal(plain, watched))
    left, lonely = unmatched(real, weights_of(seen))
    found["every softmax"] = int(not left and not lonely)
    found["one pass"] = int(as_in_one_pass(model, ids, watched, seen))
    found["right"] = found["every softmax"] * found["one pass"]
    return found


def as_in_one_pass(model: Any, ids: Tensor, written: Tensor, seen: regard.lens.Seen) -> bool:
    """Whether the looks of generation are those of one pass over what was written.

    Joined, with a cache; where there is none, the last call reads the whole text itself.
    """
    given = {"input_ids": written[:, :-1]}
    if model.config.is_encoder_decoder:
        given = {"input_ids": ids, "decoder_input_ids": written[:, :-1]}
    with torch.no_grad(), regard.watch(model) as once:
        model(**given, use_cache=False)
    for name in seen:
        if name not in once or seen.kind(name) != once.kind(name):
            return False
        found = [seen.calls(name)[-1]]
        with contextlib.suppress(RegardError):  # calls of unlike sizes
            found.append(seen[name])
        if not any(close(once[name].weights(), look.weights(), 1e-4) for look in found):
            return False
    return True


def check_lens(kind: type[Any], config: type[Any]) -> Counter[str]:
    """Whether `Lens` explains a word of a text model, or says in a sentence why it cannot."""
    model = build(kind, config, None)
    if model.main_input_name != "input_ids":
        raise ValueError("no text model")
    found: Counter[str] = Counter(ran=1)
    try:
        regard.Lens(model, tokenizer()).explain(TEXT, "it", most=3)
    except RegardError as error:
        found["sentence"] = 1
        print("   ", str(error)[:150])
    except Exception as error:
        found["raw"] = 1
        print("   ", type(error).__name__, str(error)[:150])
    else:
        found["explained"] = 1
    return found


def check_library(case: Any) -> Counter[str]:
    """What can be said of one model of another library."""
    torch.manual_seed(0)
    model = case.build().eval()
    draw(model, lambda x: (1.7 if x.dim() == 2 else 0.8) * (x.shape[0] / x.numel()) ** 0.5)
    torch.manual_seed(1)
    subject = Subject(model, case.inputs())
    found: Counter[str] = Counter()
    seen = looked(subject, found)
    if seen is not None:
        found["cut"] = int(cuts(subject, seen))
    return found


Work = tuple[str, Callable[[], Counter[str]]]


def models() -> Iterator[Work]:
    """Every model that `AutoModel` knows, twice."""
    for config, kind in architectures(transformers.AutoModel):
        for attention in (None, "eager"):
            yield (
                f"{kind.__name__} {attention or 'default'}",
                lambda a=(kind, config, attention): check_model(*a),  # type: ignore[misc]
            )


def generation() -> Iterator[Work]:
    """Every model that writes text, with its default attention."""
    for auto in (transformers.AutoModelForCausalLM, transformers.AutoModelForSeq2SeqLM):
        for config, kind in architectures(auto):
            yield kind.__name__, lambda a=(kind, config, None): check_generation(*a)  # type: ignore[misc]


def lenses() -> Iterator[Work]:
    """Every text model, with and without its head."""
    for name in ("AutoModel", "AutoModelForCausalLM", "AutoModelForSeq2SeqLM"):
        for config, kind in architectures(getattr(transformers, name)):
            yield kind.__name__, lambda a=(kind, config): check_lens(*a)  # type: ignore[misc]


def libraries() -> Iterator[Work]:
    """Every case of other libraries."""
    from libraries import cases

    for case in cases():
        yield f"{case.library}: {case.name}", lambda case=case: check_library(case)  # type: ignore[misc]


class _LateError(BaseException):
    pass


def _late(*_: object) -> None:
    raise _LateError


def run(work: list[Work], verbose: bool) -> Counter[str]:
    """The counts of everything."""
    total: Counter[str] = Counter()
    signal.signal(signal.SIGALRM, _late)
    for name, check in work:
        signal.alarm(SECONDS)
        try:
            found, said = check(), ""
        except (_LateError, Exception) as error:  # whatever a model may raise
            found, said = Counter({"not run": 1}), f"{type(error).__name__} {str(error)[:90]!r}"
        finally:
            signal.alarm(0)
        total += found
        if verbose:
            print(f"{name:50} {said or dict(found)}", flush=True)
    return total


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--generate", action="store_true", help="models that write text")
    parser.add_argument("--lens", action="store_true", help="`Lens.explain` of text models")
    parser.add_argument("--libraries", action="store_true", help="models of other libraries")
    parser.add_argument("--only", default="", help="part of the name of a model")
    parser.add_argument("--part", default="1/1", help="2/4: the second quarter of the models")
    parser.add_argument("-v", action="store_true", help="a line for each model")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    sweep, rows = models, MODELS
    if options.generate:
        sweep, rows = generation, GENERATION
    if options.lens:
        sweep, rows = lenses, LENS
    if options.libraries:
        sweep, rows = libraries, LIBRARIES
    work = [one for one in sweep() if options.only.lower() in one[0].lower()]
    part, parts = map(int, options.part.split("/"))
    work = work[part - 1 :: parts]
    begin = time.perf_counter()
    total = run(work, options.v)
    seconds = time.perf_counter() - begin
    print(f"\n{total['ran']} of {len(work)} ran, {total['not run']} could not, {seconds:.0f} s")
    print("\n| | | of |\n|---|---|---|")
    for name, count, of in rows:
        print(f"| {name} | {total[count]} | {total[of]} |")


if __name__ == "__main__":
    main()
