"""``regard translate``: translates a sentence, or a stream of lines."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from regard.cli.input_lines import line_chunks
from regard.cli.options import refuse
from regard.cli.output import note
from regard.errors import FileError, OptionError
from regard.files import replacing, why
from regard.models import POCKET

if TYPE_CHECKING:
    from regard.translate.strategies import Strategy
    from regard.translate.translation import Translation

SILENCE = 10.0
"""Seconds without output after which progress is reported."""

TEXT_ENDINGS = (".txt", ".tsv", ".gz", ".en", ".de")
"""Endings by which a missing file is told from a sentence of several words."""


def translate(
    source: Annotated[
        str | None,
        typer.Argument(help="A sentence, or a file, plain or .gz; standard input if not given."),
    ] = None,
    model: Annotated[
        str, typer.Option(help="The folder that `train` wrote, or a bundled model.")
    ] = POCKET,
    output: Annotated[
        Path | None,
        typer.Option("--out", "--output", help="Output file. [standard output]"),
    ] = None,
    beam: Annotated[int | None, typer.Option(help="Beam size; 1 is greedy search. [5]")] = None,
    length_penalty: Annotated[
        float | None, typer.Option(help="Exponent of the length in the score. [1.0]")
    ] = None,
    n_best: Annotated[int, typer.Option(help="Translations per line.")] = 1,
    sample: Annotated[bool, typer.Option("--sample", help="Sample instead of searching.")] = False,
    temperature: Annotated[
        float | None, typer.Option(help="For --sample: below 1 sharpens the distribution. [1.0]")
    ] = None,
    top_k: Annotated[
        int | None, typer.Option(help="For --sample: only the k most probable subwords.")
    ] = None,
    top_p: Annotated[
        float | None, typer.Option(help="For --sample: only the nucleus of this probability.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="For --sample: random seed. [0]")] = None,
    batch: Annotated[int, typer.Option(help="Subwords per batch.")] = 8192,
    threads: Annotated[
        int | None, typer.Option(help="Batches translated in parallel. [one per core]")
    ] = None,
    precision: Annotated[
        str, typer.Option(help="Precision of matrix products: float32, bfloat16 or int8.")
    ] = "float32",
    alignment: Annotated[
        bool, typer.Option("--alignment", help="With --json: add the word alignment.")
    ] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON lines.")] = False,
) -> None:
    """Translate a sentence, or line by line; empty lines stay empty.

    regard translate "The cat sat on the mat."
    """
    if alignment and not json_:
        raise OptionError("translate: --alignment needs --json")
    from regard.memory import keep_freed_memory
    from regard.translate.translator import Translator

    how = _strategy(beam, length_penalty, sample, temperature, top_k, top_p, seed)
    keep_freed_memory()
    translator = Translator.load(model, precision=precision)
    lines = _lines(source, output)
    progress = _Progress(hidden=output is not None or not sys.stdout.isatty())
    done = empty = asked = 0
    with _opened(output) as out:
        for chunk in chain(lines, [[]]):  # the last checks the options even if there is no line
            found = translator.translate(
                chunk, how, n_best=n_best, batch=batch, threads=threads, first=done,
                progress=progress.sentences,
            )  # fmt: skip
            aligned = translator.align(found) if alignment else []
            for number, one in enumerate(found, 1):
                _remark(done + number, one, translator.longest)
                if json_:
                    data = _data(one)
                    if alignment:
                        data["alignment"] = aligned[number - 1].to_data()
                    text = json.dumps(data, ensure_ascii=False)
                else:
                    text = _plain(one, done + number, n_best)
                out.write(f"{text}\n".encode(errors="replace"))
            out.flush()
            done += len(found)
            texts = [one.text for one in found if one.source.strip()]
            asked, empty = asked + len(texts), empty + texts.count("")
            progress.lines(done)
        progress.end()
    if empty:
        reason = "; the model is damaged, or not trained" if empty == asked else ""
        note(f"{empty:,} of {asked:,} translations are empty{reason}")


def _lines(source: str | None, output: Path | None) -> Iterator[list[str]]:
    """The lines to translate, in chunks: of a file, of standard input, or one sentence."""
    if source is None:
        if sys.stdin is not None and sys.stdin.isatty():
            note("type a sentence and press Enter; Ctrl+D to end")
        return line_chunks(None)
    if not source:
        raise OptionError(
            "translate: the sentence is empty; give one, or a file, or neither for standard input"
        )
    path = Path(source)
    if not os.path.lexists(path) and not _names_file(source):
        return iter([source.splitlines()])
    if output and path.exists() and output.exists() and output.samefile(path):
        raise OptionError(f"translate: {output} is the input; write to another file")
    return line_chunks(path)


def _names_file(source: str) -> bool:
    """Whether an argument looks like a file name: it ends like one, or is one word with a slash."""
    path = Path(source)
    if len(source.split()) > 1:  # a sentence may end in the name of a program or a site
        return path.suffix in TEXT_ENDINGS
    return path.name != source or path.suffix[1:].isalpha()


def _strategy(
    beam: int | None,
    length_penalty: float | None,
    sample: bool,
    temperature: float | None,
    top_k: int | None,
    top_p: float | None,
    seed: int | None,
) -> Strategy:
    """The strategy of the options; raises for an option of the other one."""
    from regard.translate.strategies import MAX_SEQUENCES, Beam, Sampling

    if beam is not None and not 1 <= beam <= MAX_SEQUENCES:
        raise OptionError(f"translate: --beam {beam}, expected 1 to {MAX_SEQUENCES:,}")
    of_beam = {"size": beam, "length_penalty": length_penalty}
    of_sampling = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
    wanted, other = (of_sampling, of_beam) if sample else (of_beam, of_sampling)
    flags = {f"--{name.replace('_', '-')}": value for name, value in other.items()}
    flags["--beam"] = flags.pop("--size", None)
    refuse("translate", flags, f"{'cannot be used with' if sample else 'needs'} --sample")
    given: dict[str, Any] = {name: value for name, value in wanted.items() if value is not None}
    return Sampling(**given) if sample else Beam(**given)


@contextmanager
def _opened(path: Path | None) -> Iterator[BinaryIO]:
    """The binary output file, which is replaced at the end, or standard output.

    It is UTF-8, whatever the locale.
    """
    if path is None:
        sys.stdout.flush()
        yield sys.stdout.buffer
        return
    try:
        if _is_stream(path):
            with path.open("wb") as file:
                yield file
            return
        target = Path(os.path.realpath(path))  # of a symbolic link, what it points to
        with replacing(target) as temporary, temporary.open("wb") as file:
            yield file
    except FileError:
        raise
    except OSError as error:
        raise FileError(f"translate: cannot write {path}: {why(error)}") from None


def _is_stream(path: Path) -> bool:
    """Whether a path cannot be replaced: a pipe, a device, or a file by its descriptor."""
    descriptors = any(path.is_relative_to(folder) for folder in ("/dev", "/proc"))
    return path.exists() and (descriptors or not path.is_file())


def _plain(one: Translation, number: int, n_best: int) -> str:
    """The text; of the n best, each with line number and score on a line of its own."""
    if n_best == 1:
        return _line(one.text)
    ranked = (one, *one.alternatives)
    return "\n".join(f"{number}\t{each.score:.4f}\t{_line(each.text)}" for each in ranked)


def _line(text: str) -> str:
    """The text without line breaks, which a model may generate: output lines match input lines."""
    return " ".join(text.splitlines())


def _data(one: Translation) -> dict[str, Any]:
    data: dict[str, Any] = {"source": one.source, "text": one.text, "score": one.score}
    if one.alternatives:
        data["alternatives"] = [
            {"text": each.text, "score": each.score} for each in one.alternatives
        ]
    return data


def _remark(number: int, one: Translation, longest: int) -> None:
    """Note if a translation is in parts, or cut off."""
    if one.parts > 1:
        note(
            f"line {number} is longer than the model's limit of {longest} subwords; "
            f"translated in {one.parts} parts"
        )
    if not one.ended:
        note(f"line {number}: the model generated no end token; cut off")


class _Progress:
    """Progress on standard error: a live line on a terminal, otherwise a line now and then."""

    def __init__(self, hidden: bool) -> None:
        """`hidden`: whether the translations go elsewhere than to the terminal."""
        self._moving = hidden and sys.stderr.isatty()
        self._said = time.monotonic()
        self._done = 0

    def lines(self, done: int) -> None:
        self._done, self._said = done, time.monotonic()
        if self._moving:
            print(f"\r{done:,} lines\033[K", end="", file=sys.stderr, flush=True)

    def sentences(self, done: int, count: int) -> None:
        """`done` of `count` sentences of the current chunk are translated."""
        if self._moving and self._done + count > 1:
            text = f"\r{self._done:,} lines, then {done:,} of {count:,} sentences\033[K"
            print(text, end="", file=sys.stderr, flush=True)
        elif time.monotonic() - self._said > SILENCE and done < count:
            self._said = time.monotonic()
            note(f"after line {self._done:,}, {done:,} of {count:,} sentences")

    def end(self) -> None:
        if self._moving:
            print(file=sys.stderr)
