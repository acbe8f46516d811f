"""`Translator`: a trained model and its tokenizer."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Any, Literal, overload

import torch
from torch import nn

from regard.errors import FileError, OptionError
from regard.native import status
from regard.nn import Transformer
from regard.notebook import preformatted
from regard.text import Tokenizer
from regard.translate.alignment import Alignment
from regard.translate.model_files import TOKENIZER, bundled, load_trained, quantise, save_model
from regard.translate.precision import Precision
from regard.translate.probability import log_probabilities
from regard.translate.search import Hypothesis, search
from regard.translate.splitting import split
from regard.translate.strategies import Beam, Strategy, check_n_best, check_whole
from regard.translate.threads import in_batches
from regard.translate.translation import BATCH, Part, Translation, align_all, joined

CHUNKS = (16, 256, 4096)
"""Lines of the first, the second and all later chunks of `Translator.stream`."""


class Translator:
    """A trained model and its tokenizer.

    Args:
        model: a `regard.nn.Transformer`.
        tokenizer: the one that it was trained with.
        longest: texts of more subwords are split at sentence ends, and translated piece by piece.
        precision: of matrix products: ``"float32"``; ``"bfloat16"``, about twice as fast on
            processors that have it; or ``"int8"``, for which the model is quantised in place, see
            `regard.native.int8`.
        cut_loops: prune sequences that only repeat themselves; see `regard.translate.repetition`.
    """

    def __init__(
        self,
        model: Transformer,
        tokenizer: Tokenizer,
        *,
        longest: int | None = None,
        precision: str = "float32",
        cut_loops: bool = True,
    ) -> None:
        for name, one, kind in (
            ("model", model, Transformer),
            ("tokenizer", tokenizer, Tokenizer),
        ):
            if not isinstance(one, kind):
                raise OptionError(
                    f"Translator: {name} is {type(one).__name__}, expected a {kind.__name__} of "
                    "regard"
                )
        if precision not in [*Precision]:
            raise OptionError(
                f"Translator: precision={precision!r}, expected {', '.join(Precision)}"
            )
        if tokenizer.size != model.config.vocabulary:
            raise OptionError(
                f"Translator: the tokenizer has {tokenizer.size:,} subwords but the model "
                f"{model.config.vocabulary:,}; use the tokenizer that it was trained with"
            )
        if precision != "float32" and model.output.dtype not in (torch.float32, torch.bfloat16):
            raise OptionError(
                f"Translator: precision={precision!r} is for models of float32, this one is "
                f"{model.output.dtype}; use model.float()"
            )
        if precision == "int8":
            quantise(model)
            if status() is not None:
                warnings.warn(
                    f"int8 products need the native operators, and {status()}; the int8 weights "
                    "are multiplied in float32, which is slower",
                    stacklevel=2,
                )
        self.model, self.tokenizer = model, tokenizer
        self.precision = Precision(precision)
        self.cut_loops = cut_loops
        most = model.config.max_length - 1  # one position is for the end token
        if longest is not None:
            check_whole("Translator", "longest", longest, 1)
        self.longest = most if longest is None else min(longest, most)

    def __repr__(self) -> str:
        size = sum(one.numel() for one in self.model.parameters())
        subwords = f"{self.tokenizer.size:,} subwords"
        return f"Translator({subwords}, {size:,} parameters, {self.precision})"

    def _repr_html_(self) -> str:
        config = self.model.config
        sizes = f"{config.encoder_depth} encoder and {config.decoder_depth} decoder layers"
        heads = f"{config.heads} heads, width {config.width}"
        return preformatted(f"{self!r}\n{sizes}, {heads}; up to {self.longest} subwords at once")

    @classmethod
    def load(cls, path: str | Path, *, precision: str = "float32") -> Translator:
        """The translator in a folder that `regard train` wrote, or one that comes with regard.

        `precision` of matrix products: float32, bfloat16 or int8, whatever the folder stores. Of an
        unfinished run, loads the best checkpoint, with a warning.
        """
        path = bundled(path)
        model, longest = load_trained(path, int8=precision == "int8")
        file = path / TOKENIZER
        tokenizer = Tokenizer.load(file)
        if tokenizer.size != model.config.vocabulary:
            raise FileError(
                f"{file}: has {tokenizer.size:,} subwords but the model "
                f"{model.config.vocabulary:,}; it is not the one that it was trained with"
            )
        return cls(model, tokenizer, longest=longest, precision=precision)

    @classmethod
    def train(
        cls,
        pairs: Iterable[tuple[str, str]] | None = None,
        *,
        out: str | Path | None = None,
        preset: str | None = None,
        quiet: bool = False,
        **options: Any,
    ) -> Translator:
        """A translator trained on (source, target) pairs, or on files: ``source=…, target=…``.

        The run is in the folder `out`; called again, it resumes there. `options` are those of
        ``regard train``; what is not given is chosen from the corpus.
        """
        from regard.translate.defaults import Options, write_pairs
        from regard.translate.training import train

        if out is None or (pairs is None and not options):
            missing = "out" if out is None else "pairs"
            raise OptionError(
                f"Translator.train: {missing} is missing, expected Translator.train(pairs, "
                "out=folder); to fine-tune a translator, save it and give init_from=folder"
            )
        if pairs is not None:
            if {"source", "target", "mix"} & options.keys():
                raise OptionError("Translator.train: pairs and source files given; give one")
            options["source"] = str(write_pairs(pairs, Path(out)))
        train(Options.of(options, preset), out, () if quiet else None)
        return cls.load(out)

    def save(self, folder: str | Path, *, dtype: torch.dtype | None = None) -> None:
        """Write model and tokenizer to a folder that `load` opens.

        `dtype`: torch.float32, float16 or int8, see `save_model`; int8 for a translator in int8.
        """
        if dtype is None:
            dtype = torch.int8 if self.precision == "int8" else torch.float32
        save_model(folder, self.model, dtype=dtype, longest=self.longest)
        self.tokenizer.save(Path(folder) / TOKENIZER)

    def to(self, device: torch.device | str) -> Translator:
        """This translator, its model moved to the device."""
        try:
            self.model.to(torch.device(device))
        except (RuntimeError, AssertionError, TypeError) as error:
            reason = str(error).splitlines()[0]
            raise OptionError(
                f"Translator.to: device={device!r} cannot be used: {reason}"
            ) from None
        return self

    @overload
    def __call__(self, texts: str, **options: Any) -> str: ...
    @overload
    def __call__(self, texts: Sequence[str], **options: Any) -> list[str]: ...
    def __call__(self, texts: str | Sequence[str], **options: Any) -> str | list[str]:
        """The translation of a text, or of each in a list; options are those of `translate`."""
        found = self.translate([texts] if isinstance(texts, str) else texts, **options)
        return found[0].text if isinstance(texts, str) else [one.text for one in found]

    def translate(
        self,
        texts: Sequence[str],
        how: Strategy | None = None,
        *,
        beam: int | None = None,
        n_best: int = 1,
        batch: int = BATCH,
        threads: int | None = None,
        first: int = 0,
        progress: Callable[[int, int], object] | None = None,
    ) -> list[Translation]:
        """The translations of the texts, in their order; an empty text stays empty.

        Args:
            how: `Beam(…)`, `Greedy()` or `Sampling(…)`.
            beam: short for `Beam(beam)`; 5 by default.
            n_best: translations per text; all but the best are its `alternatives`.
            batch: subwords in a batch: sentences × the longest of them × sequences of each.
            threads: batches that are searched in parallel, each on one thread; one per available
                core by default, and one during `watch` and `cut`.
            first: the number of the first text, which with the seed determines `Sampling`.
            progress: called after each batch with the sentences done, and their total.
        """
        how, texts = _strategy(how, beam), _listed("translate", "texts", texts)
        check_n_best("translate", how, n_best)
        for name, value in (("batch", batch), ("threads", threads)):
            if value is not None:
                check_whole("translate", name, value, 1)
        check_whole("translate", "first", first, 0)
        if threads is None and self.model.output.device.type != "cpu":
            threads = 1
        pieces = self._pieces(texts)
        numbers = [first + number for number, *_ in pieces]
        found = self._search(
            [ids for *_, ids in pieces], how, n_best, batch, numbers, threads, progress
        )
        parts: list[list[list[Part]]] = [[] for _ in texts]
        for (number, start, source, ids), hypotheses in zip(pieces, found, strict=True):
            said = self.tokenizer.decode_batch([one.tokens for one in hypotheses])
            ranked = zip(hypotheses, said, strict=True)
            parts[number].append([Part(start, source, ids, *one) for one in ranked])
        power = how.length_penalty if isinstance(how, Beam) else 1.0
        return [joined(self, text, own, power) for text, own in zip(texts, parts, strict=True)]

    def stream(
        self,
        lines: Iterable[str],
        how: Strategy | None = None,
        *,
        beam: int | None = None,
        n_best: int = 1,
        batch: int = BATCH,
        threads: int | None = None,
    ) -> Iterator[Translation]:
        """The translations of the lines, one by one, while the lines are read."""
        remaining, sizes, first = iter(lines), iter(CHUNKS), 0
        size = CHUNKS[0]
        while chunk := list(islice(remaining, size := next(sizes, size))):
            yield from self.translate(
                chunk, how, beam=beam, n_best=n_best, batch=batch, threads=threads, first=first
            )
            first += len(chunk)

    @overload
    def score(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        *,
        tokens: Literal[False] = False,
        threads: int | None = None,
    ) -> list[float]: ...
    @overload
    def score(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        *,
        tokens: Literal[True],
        threads: int | None = None,
    ) -> list[list[float]]: ...
    def score(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        *,
        tokens: bool = False,
        threads: int | None = None,
    ) -> list[float] | list[list[float]]:
        """log p(target | source) of each pair: the natural logarithm, end of sentence included.

        Args:
            sources: the source texts, one for each target.
            targets: their translations, each scored as a whole, however long.
            tokens: return a list for each pair: log p of every subword of the target, as
                `tokenizer.encode` splits it, and of the end token. Its sum is log p of the pair.
            threads: batches that are computed in parallel, each by one thread; one per core by
                default.
        """
        sources, targets = (
            _listed("score", name, texts)
            for name, texts in (("sources", sources), ("targets", targets))
        )
        if threads is not None:
            check_whole("score", "threads", threads, 1)
        ids = [self.tokenizer.encode_batch(texts) for texts in (sources, targets)]
        with evaluating(self.model):
            found = log_probabilities(self.model, *ids, threads=threads, precision=self.precision)
        return found if tokens else [math.fsum(one) for one in found]

    def align(
        self, translations: Sequence[Translation], *, layer: int | None = None
    ) -> list[Alignment]:
        """The alignments of translations by this translator, many at a time.

        `layer`: the decoder block whose attention is read, from 0; by default the last two.
        """
        if isinstance(translations, Translation):
            raise OptionError("align: got one translation, expected a list; use [translation]")
        with evaluating(self.model):
            return align_all(self.model, self.tokenizer, translations, layer)

    def _pieces(self, texts: Sequence[str]) -> list[tuple[int, int, str, list[int]]]:
        """The pieces to translate: number of the text, offset in it, piece, subwords."""
        pieces = []
        encoded = self.tokenizer.encode_batch(texts)
        for number, (text, ids) in enumerate(zip(texts, encoded, strict=True)):
            if not ids or not text.strip():
                spans = []
            elif len(ids) <= self.longest:
                spans = [(0, len(text))]
            else:
                spans = split(text, self.tokenizer, self.longest)
            for start, stop in spans:
                piece = text[start:stop]
                own = ids if len(piece) == len(text) else self.tokenizer.encode(piece)
                pieces.append((number, start, piece, own))
        return pieces

    def _search(
        self,
        sources: list[list[int]],
        how: Strategy,
        n_best: int,
        batch: int,
        numbers: list[int],
        threads: int | None,
        progress: Callable[[int, int], object] | None,
    ) -> list[list[Hypothesis]]:
        """The hypotheses of each source, searched in batches of like length."""
        width = how.size if isinstance(how, Beam) else n_best
        lengths = [(len(ids) + 1) * width for ids in sources]
        done, lock = 0, Lock()

        def searched(rows: list[int]) -> list[list[Hypothesis]]:
            with self.precision.autocast(self.model.output.device):
                found = search(
                    self.model,
                    [sources[row] for row in rows],
                    how,
                    n_best=n_best,
                    numbers=[numbers[row] for row in rows],
                    cut_loops=self.cut_loops,
                )
            if progress is not None:
                nonlocal done
                with lock:
                    done += len(rows)
                    progress(done, len(sources))
            return found

        with evaluating(self.model):
            return in_batches(searched, lengths, batch, threads)


def _strategy(how: Strategy | None, beam: int | None) -> Strategy:
    if how is not None and beam is not None:
        raise OptionError(f"translate: both how={how} and beam={beam} given; give one")
    if how is not None and not isinstance(how, Strategy):
        raise OptionError(
            f"translate: how is {type(how).__name__}, expected Beam, Greedy or Sampling"
        )
    return how if how is not None else Beam(5 if beam is None else beam)


def _listed(caller: str, name: str, texts: object) -> list[str]:
    """The texts as a list; raises if they are not strings."""
    if isinstance(texts, str):
        raise OptionError(f"{caller}: {name} is one text, expected a list; use [text]")
    if not isinstance(texts, Iterable):
        raise OptionError(f"{caller}: {name} is {type(texts).__name__}, expected a list of texts")
    listed = list(texts)
    for number, text in enumerate(listed):
        if not isinstance(text, str):
            raise OptionError(
                f"{caller}: {name}[{number}] is {type(text).__name__}, expected a text (str)"
            )
    return listed


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Context in which the model is in ``eval()`` mode; the mode of each module is restored."""
    training = [one for one in model.modules() if one.training]
    if training:  # setting the mode of every module takes longer than a look at it
        model.eval()
    try:
        yield
    finally:
        for one in training:
            one.training = True
