"""How long `Lens.why` takes, and how well estimated effects agree with real cuts.

    python benchmarks/why.py time
    python benchmarks/why.py agreement [--sentences 100]
    python benchmarks/why.py agreement --model FOLDER_OF_SMOLLM2 [--prompts 50]
    python benchmarks/why.py forward --model FOLDER_OF_SMOLLM2

The folder is a causal language model of transformers with its tokenizer.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable, Iterator

import torch

from regard.challenge import generate
from regard.lens import Lens, Why
from regard.lens.estimation import LEAST, step_links
from regard.lens.measures import agreement

TIRED = "The animal didn't cross the street because it was too tired."
NOUNS = {"key": "keys", "book": "books", "dog": "dogs", "picture": "pictures", "child": "children"}
PLACES = ("cabinet", "table", "garden", "house", "museum")
NAMES = ("Mary", "John", "Anna", "Tom", "Lisa", "Paul")
THINGS = ("a drink", "the book", "a letter", "the keys", "an apple")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=("time", "agreement", "forward"))
    parser.add_argument("--model", default="pocket-en-de")
    parser.add_argument("--sentences", type=int, default=100)
    parser.add_argument("--prompts", type=int, default=50)
    asked = parser.parse_args()
    lens = Lens.open(asked.model)
    if asked.what == "time":
        best = _best(lambda: lens.why(TIRED, "es", instead="sie"), 10)
        print(f"why, headline sentence: {best:.3f} s (best of 10)")
    elif asked.what == "forward":
        _forward(lens)
    else:
        own = asked.model == "pocket-en-de"
        _agreement(_reference(lens, asked.sentences) if own else _prompts(lens, asked.prompts))


def _best(call: Callable[[], object], times: int) -> float:
    found = []
    for _ in range(times):
        start = time.perf_counter()
        call()
        found.append(time.perf_counter() - start)
    return min(found)


def _reference(lens: Lens, count: int) -> Iterator[Why]:
    """The pronouns of built-in reference sentences, where the model writes one."""
    done = 0
    for pair in generate("reference", "test", 4 * count):
        analysis = lens.analyse(pair.source)
        written = {name.rstrip(".,").casefold() for name in analysis.translated.written.names}
        answer = pair.answer.casefold()
        if done < count and answer in written:
            done += 1
            others = [word for word in ("er", "sie", "es") if word != answer]
            yield lens.why(pair.source, pair.answer, instead=others[0], most=60, control=120)


def _prompts(lens: Lens, count: int) -> Iterator[Why]:
    """Subject–verb agreement and indirect objects."""
    draw = random.Random(0)
    for i in range(count):
        if i % 2:
            noun, place = draw.choice(list(NOUNS)), draw.choice(PLACES)
            number = draw.random() < 0.5
            text = f"The {NOUNS[noun] if number else noun} in the {place}"
            word, instead = ("are", "is") if number else ("is", "are")
        else:
            one, other = draw.sample(NAMES, 2)
            thing = draw.choice(THINGS)
            text = f"When {one} and {other} went to the store, {other} gave {thing} to"
            word, instead = one, other
        yield lens.why(text, word, instead=instead, most=60, control=120)


def _agreement(found: Iterator[Why]) -> None:
    rows = []
    for why in found:
        links = [one for one in (*why.links, *why.control) if one.attention > LEAST]
        effects, cuts = [one.effect for one in links], [one.cut or 0.0 for one in links]
        sizes = [abs(one) for one in cuts]
        rows.append(
            (
                agreement(effects, cuts),
                agreement([abs(one) for one in effects], sizes),
                agreement([one.attention for one in links], sizes),
            )
        )
        print(f"\r{len(rows)}", end="", flush=True)
    names = ("effect and cut", "in size", "attention weight and size of cut")
    print(f"\rSpearman, mean over {len(rows)} texts (lowest – highest):")
    for name, column in zip(names, zip(*rows, strict=True), strict=True):
        mean = statistics.fmean(column)
        print(f"  {name}: {mean:.3f} ({min(column):.3f} – {max(column):.3f})")


def _forward(lens: Lens) -> None:
    """The effects of all links of a 16-token prompt, beside a forward pass."""
    text = "When Mary and John went to the big store, John gave a cold drink to"
    analysis = lens.analyse(text)
    ids = torch.tensor([analysis.reading.ids])
    forward, every = [], []
    with torch.no_grad():
        for _ in range(10):
            forward.append(_best(lambda: lens.model(input_ids=ids, use_cache=False), 1))
            prediction = analysis.prediction("Mary", "John")
            every.append(_best(lambda one=prediction: step_links(one), 1))
    n, ratio = ids.shape[1], min(every) / min(forward)
    print(f"{n} tokens: forward {min(forward):.3f} s, all links {min(every):.3f} s, {ratio:.2f} ×")


if __name__ == "__main__":
    main()
