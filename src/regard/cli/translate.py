"""``regard translate``: lines in, lines out, as they come."""

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

from regard.cli.incoming import incoming
from regard.errors import FileError, OptionError
from regard.models import POCKET

if TYPE_CHECKING:
    from regard.translate.strategies import Strategy
    from regard.translate.translation import Translation
    from regard.translate.translator import Translator

SILENCE = 10.0
"""Seconds without an answer after which it is told how far the translation is."""


def translate(
    source: Annotated[
        str | None,
        typer.Argument(help="A sentence, or a file, plain or .gz; standard input if not given."),
    ] = None,
    model: Annotated[
        str, typer.Option(help="The folder that `train` wrote, or a bundled model.")
    ] = POCKET,
    output: Annotated[
        Path | None, typer.Option("--out", "--output", help="Write here, not to standard output.")
    ] = None,
    beam: Annotated[
        int | None, typer.Option(help="Beginnings that are kept side by side; 1: greedy. [5]")
    ] = None,
    length_penalty: Annotated[
        float | None, typer.Option(help="Exponent of the length in the score. [1.0]")
    ] = None,
    n_best: Annotated[int, typer.Option(help="So many translations of each line.")] = 1,
    sample: Annotated[bool, typer.Option("--sample", help="Draw instead of searching.")] = False,
    temperature: Annotated[
        float | None, typer.Option(help="For --sample: below 1 likelier, above 1 wilder. [1.0]")
    ] = None,
    top_k: Annotated[
        int | None, typer.Option(help="For --sample: only among so many likeliest subwords.")
    ] = None,
    top_p: Annotated[
        float | None, typer.Option(help="For --sample: only among those with this probability.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="For --sample: other seeds, other lines.")
    ] = None,
    batch: Annotated[int, typer.Option(help="Subwords that are worked on at once.")] = 8192,
    threads: Annotated[
        int | None, typer.Option(help="Batches that are worked on at once. [one a core]")
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option(help="Of products: float32, bfloat16 or int8. [as the model is stored]"),
    ] = None,
    alignment: Annotated[
        bool, typer.Option("--alignment", help="With --json: where each word came from.")
    ] = False,
    json_: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Translate a sentence, or line by line; an empty line stays an empty line.

    regard translate "The cat sat on the mat."
    """
    if alignment and not json_:
        raise OptionError("translate: --alignment needs --json; there is no room in plain lines")
    from regard.memory import keep_freed_memory
    from regard.translate.translator import Translator

    how = _strategy(beam, length_penalty, sample, temperature, top_k, top_p, seed)
    keep_freed_memory()
    translator = Translator.load(model, precision=precision)
    lines = _lines(source, output)
    told = _Progress(hidden=output is not None or not sys.stdout.isatty())
    results = _translated(translator, lines, how, told, n_best=n_best, batch=batch, threads=threads)
    first = next(results)  # before anything is written over: it may not be readable
    done = empty = asked = 0
    with _opened(output) as out:
        for found in chain([first], results):
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
            asked += sum(bool(one.source.strip()) for one in found)
            empty += sum(bool(one.source.strip()) and not one.text for one in found)
            told.lines(done)
        told.end()
    _remark_empty(empty, asked)


def _lines(source: str | None, output: Path | None) -> Iterator[list[str]]:
    """The lines to translate, in chunks: of a file, of standard input, or one sentence."""
    if source is None:
        if sys.stdin is not None and sys.stdin.isatty():
            print("regard: write a sentence and press Enter; Ctrl+D ends", file=sys.stderr)
        return incoming(None)
    path = Path(source)
    is_sentence = any(c.isspace() for c in source) and not os.path.lexists(path)
    if is_sentence:
        return iter([source.splitlines()])
    if output and path.exists() and output.exists() and output.samefile(path):
        raise OptionError(f"translate: {output} is what is read; write to another file")
    return incoming(path)


def _translated(
    translator: Translator,
    lines: Iterator[list[str]],
    how: Strategy,
    told: _Progress,
    **options: Any,
) -> Iterator[list[Translation]]:
    """The translations of what comes in, chunk by chunk; at last of nothing, so that options are
    looked at even if no line comes."""
    done = 0
    for chunk in chain(lines, [[]]):
        yield translator.translate(chunk, how, first=done, progress=told.sentences, **options)
        done += len(chunk)


def _strategy(
    beam: int | None,
    length_penalty: float | None,
    sample: bool,
    temperature: float | None,
    top_k: int | None,
    top_p: float | None,
    seed: int | None,
) -> Strategy:
    """What the options ask for; those of the other way are errors."""
    from regard.translate.strategies import Beam, Sampling

    searching = {"size": beam, "length_penalty": length_penalty}
    drawing = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
    for name, value in (searching if sample else drawing).items():
        if value is not None:
            option = "--beam" if name == "size" else f"--{name.replace('_', '-')}"
            needs = "does not go with" if sample else "needs"
            raise OptionError(f"translate: {option} {needs} --sample")
    given: dict[str, Any] = {
        name: value
        for name, value in (drawing if sample else searching).items()
        if value is not None
    }
    return Sampling(**given) if sample else Beam(**given)


@contextmanager
def _opened(path: Path | None) -> Iterator[BinaryIO]:
    """Where bytes go: UTF-8, whatever the terminal's encoding."""
    if path is None:
        sys.stdout.flush()
        yield sys.stdout.buffer
        return
    try:
        with path.open("wb") as file:
            yield file
    except FileError:
        raise
    except OSError as error:
        raise FileError(f"translate: cannot write {path}: {error.strerror}") from None


def _plain(one: Translation, number: int, n_best: int) -> str:
    """The text on one line; of several, each with the line's number and its score."""
    if n_best == 1:
        return _line(one.text)
    ranked = (one, *one.alternatives)
    return "\n".join(f"{number}\t{each.score:.4f}\t{_line(each.text)}" for each in ranked)


def _line(text: str) -> str:
    """The text without ends of lines, which a model may write, or the output would slip."""
    return " ".join(text.splitlines())


def _data(one: Translation) -> dict[str, Any]:
    data: dict[str, Any] = {"source": one.source, "text": one.text, "score": one.score}
    if one.alternatives:
        data["alternatives"] = [
            {"text": each.text, "score": each.score} for each in one.alternatives
        ]
    return data


def _remark(number: int, one: Translation, longest: int) -> None:
    """What the reader of a translation must know, on standard error."""
    if one.parts > 1:
        print(
            f"regard: line {number} is longer than the {longest} subwords that the model takes; "
            f"translated in {one.parts} parts",
            file=sys.stderr,
        )
    if not one.ended:
        print(f"regard: line {number}: the model found no end; cut off", file=sys.stderr)


def _remark_empty(empty: int, asked: int) -> None:
    """Say that lines were translated to nothing, which a damaged model does with all of them."""
    if empty:
        why = "; the model is damaged, or not trained" if empty == asked else ""
        print(f"regard: {empty:,} of {asked:,} translations are empty{why}", file=sys.stderr)


class _Progress:
    """Says on standard error how far it is: all the time at a terminal, otherwise now and then."""

    def __init__(self, hidden: bool) -> None:
        """`hidden`: whether the translations are not seen as they are written."""
        self._moving = hidden and sys.stderr.isatty()
        self._said = time.monotonic()
        self._done = 0

    def lines(self, done: int) -> None:
        self._done, self._said = done, time.monotonic()
        if self._moving:
            print(f"\r{done:,} lines\033[K", end="", file=sys.stderr, flush=True)

    def sentences(self, done: int, count: int) -> None:
        """So many of the sentences of the lines that are being translated."""
        if self._moving and self._done + count > 1:
            text = f"\r{self._done:,} lines, then {done:,} of {count:,} sentences\033[K"
            print(text, end="", file=sys.stderr, flush=True)
        elif time.monotonic() - self._said > SILENCE and done < count:
            self._said = time.monotonic()
            text = f"regard: after line {self._done:,}, {done:,} of {count:,} sentences"
            print(text, file=sys.stderr)

    def end(self) -> None:
        if self._moving:
            print(file=sys.stderr)
