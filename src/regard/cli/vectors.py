"""``regard vectors``: word vectors learned, and asked."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from regard.cli.incoming import incoming
from regard.errors import OptionError, WordError

if TYPE_CHECKING:
    from regard.vectors import Neighbour, Vectors

app = typer.Typer(
    help="Word vectors: learned from sentences, and asked what they know.",
    rich_markup_mode=None,
)

In = Annotated[
    Path | None,
    typer.Option("--in", help="Word vectors: word2vec, GloVe or fastText, also gzipped."),
]
Unknown = Annotated[
    str, typer.Option(help="Words without a vector: skip, zero, mean (of all vectors) or error.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, one object a line.")]
Count = Annotated[int, typer.Option("-n", help="How many words to name.")]


@app.callback(invoke_without_command=True)
def _root(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


@app.command()
def train(
    corpus: Annotated[
        Path | None,
        typer.Argument(help="A sentence a line, plain or .gz; standard input if not given."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write here: .txt, .vec or .bin, perhaps with .gz.")
    ] = None,
    width: Annotated[int, typer.Option(help="Numbers of a vector.")] = 100,
    window: Annotated[int, typer.Option(help="How many words on either side count.")] = 5,
    min_count: Annotated[int, typer.Option(help="Rarer words get no vector.")] = 1,
    skipgram: Annotated[
        bool, typer.Option("--skipgram", help="Predict the words beside, not the word.")
    ] = False,
    epochs: Annotated[int, typer.Option(help="How often the corpus is gone through.")] = 5,
    seed: Annotated[int, typer.Option(help="The same seed, the same numbers.")] = 1,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Case does not count.")] = False,
    json_: Json = False,
) -> None:
    """Learn word vectors from sentences, by word2vec."""
    if out is None:
        raise OptionError("vectors train: --out is missing; name the file to write, such as v.txt")
    from regard.vectors import Vectors
    from regard.vectors.writing import check_path

    check_path(out)
    lines = _Lines(corpus, lowercase)
    vectors = Vectors.train(
        lines if lines.again else list(lines),
        width,
        window,
        min_count,
        skipgram,
        seed,
        epochs,
    )
    vectors.save(out)
    if json_:
        _print({"out": str(out), "words": len(vectors), "width": vectors.width})
    else:
        print(f"regard: wrote {out}, {len(vectors):,} words", file=sys.stderr)


@app.command()
def nearest(
    words: Annotated[
        list[str] | None, typer.Argument(help="Standard input, a word a line, if not given.")
    ] = None,
    source: In = None,
    n: Count = 10,
    json_: Json = False,
) -> None:
    """The words whose vectors have the largest cosine with a word's."""
    vectors = _loaded("nearest", source)
    asked: Iterable[str] = words or _stripped()
    for number, word in enumerate(asked):
        found = vectors.nearest(word, n)
        if json_:
            _print({"word": word, "nearest": _neighbours(found)})
            continue
        if words is None or len(words) > 1:
            print(f"{chr(10) if number else ''}{word}")
        _show(found)


@app.command()
def analogy(
    a: Annotated[str, typer.Argument(help="king")],
    b: Annotated[str, typer.Argument(help="man")],
    c: Annotated[str, typer.Argument(help="woman")],
    source: In = None,
    n: Count = 10,
    json_: Json = False,
) -> None:
    """The words nearest to A − B + C: what is to C as A is to B?"""
    found = _loaded("analogy", source).analogy(a, b, c, n)
    if json_:
        _print({"a": a, "b": b, "c": c, "nearest": _neighbours(found)})
    else:
        _show(found)


@app.command()
def sentence(
    text: Annotated[
        str | None, typer.Argument(help="Standard input, a sentence a line, if not given.")
    ] = None,
    source: In = None,
    unknown: Unknown = "skip",
    json_: Json = False,
) -> None:
    """The average of the vectors of a sentence's words."""
    vectors = _loaded("sentence", source)
    if text is not None:
        _say(vectors, text, unknown, json_)
        return
    number = 0
    for chunk in incoming(None):
        for line in chunk:
            number += 1
            _say(vectors, line, unknown, json_, number)
        sys.stdout.flush()


@app.command()
def similarity(
    a: Annotated[str, typer.Argument(help="A word or a sentence.")],
    b: Annotated[str, typer.Argument(help="Another.")],
    source: In = None,
    unknown: Unknown = "skip",
    json_: Json = False,
) -> None:
    """The cosine between two sentences' averages, and the pairs of words that make it."""
    from regard.vectors import similar

    vectors = _loaded("similarity", source)
    found = similar(a, b, vectors, unknown=unknown)
    if json_:
        _print(found.to_data())
        return
    print(found)
    _remark(found.skipped)


@app.command()
def search(
    query: Annotated[str, typer.Argument(help="What to look for.")],
    texts: Annotated[
        Path | None, typer.Argument(help="A text a line; standard input if not given.")
    ] = None,
    source: In = None,
    n: Annotated[int, typer.Option("-n", help="How many texts to print.")] = 10,
    json_: Json = False,
) -> None:
    """The lines nearest in meaning to a query, by the average of their word vectors."""
    vectors = _loaded("search", source)
    lines = (line for chunk in incoming(texts) for line in chunk)
    for match in vectors.search(query, lines, n):
        if json_:
            _print({"line": match.number + 1, "similarity": match.similarity, "text": match.text})
        else:
            print(f"{match.similarity:.4f}\t{match.number + 1}\t{match.text}")


class _Lines:
    """The lines of a corpus, gone through again and again; of standard input, once."""

    def __init__(self, path: Path | None, lowercase: bool) -> None:
        self.path, self.lowercase = path, lowercase
        self.again = path is not None and path.is_file()

    def __iter__(self) -> Iterator[str]:
        from regard.text import read_lines

        lines = (
            (line for chunk in incoming(None) for line in chunk)
            if self.path is None
            else read_lines(self.path)
        )
        return (line.lower() for line in lines) if self.lowercase else iter(lines)


def _loaded(verb: str, path: Path | None) -> Vectors:
    if path is None:
        raise OptionError(f"vectors {verb}: --in is missing; give a file of word vectors")
    from regard.vectors import Vectors

    console = Console(stderr=True)
    if not console.is_terminal:
        return Vectors.load(path)
    with console.status(f"reading {path}"):
        return Vectors.load(path)


def _stripped() -> Iterator[str]:
    """The words on standard input."""
    for chunk in incoming(None):
        yield from (line.strip() for line in chunk if line.strip())


def _say(vectors: Vectors, text: str, unknown: str, json_: bool, line: int | None = None) -> None:
    """Print the vector of a sentence; of a line without any, an empty line, so that none slips."""
    skipped = vectors.skipped(text)
    try:
        vector = vectors.sentence(text, unknown) if line is None or text.strip() else None
    except WordError:
        if line is None or unknown == "error":
            raise
        vector = None
    if json_:
        numbers = None if vector is None else vector.tolist()
        _print({"text": text, "skipped": skipped, "vector": numbers})
        return
    print("" if vector is None else " ".join(vector.astype(str)))
    _remark(skipped, line)


def _remark(skipped: Iterable[str], line: int | None = None) -> None:
    """Which words had no vector, on standard error."""
    if names := ", ".join(map(repr, skipped)):
        where = "" if line is None else f"line {line}: "
        print(f"regard: {where}without a vector: {names}", file=sys.stderr)


def _show(found: list[Neighbour]) -> None:
    for one in found:
        print(f"{one.word}\t{one.similarity:.4f}")


def _neighbours(found: list[Neighbour]) -> list[dict[str, Any]]:
    return [one._asdict() for one in found]


def _print(data: dict[str, Any]) -> None:
    print(json.dumps(data, ensure_ascii=False), flush=True)
