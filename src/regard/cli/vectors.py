"""``regard vectors``: train word vectors, and query them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from regard.cli.input_lines import lines
from regard.cli.output import note, print_json
from regard.errors import OptionError, WordError

if TYPE_CHECKING:
    from regard.vectors import Neighbour, Vectors

app = typer.Typer(help="Word vectors: train them, and query them.", rich_markup_mode=None)

In = Annotated[
    Path | None,
    typer.Option("--in", help="Word vectors: word2vec, GloVe or fastText, also gzipped."),
]
Unknown = Annotated[
    str, typer.Option(help="Words without a vector: skip, zero, mean (of all vectors) or error.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON lines.")]
Count = Annotated[int, typer.Option("-n", help="Number of words.")]


@app.callback(invoke_without_command=True)
def _root(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


@app.command()
def train(
    corpus: Annotated[
        Path | None,
        typer.Argument(help="One sentence per line, plain or .gz; standard input if not given."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Output file: .txt, .vec or .bin, optionally .gz.")
    ] = None,
    width: Annotated[int, typer.Option(help="Dimension of the vectors.")] = 100,
    window: Annotated[int, typer.Option(help="Context words on either side.")] = 5,
    min_count: Annotated[int, typer.Option(help="Rarer words get no vector.")] = 1,
    skipgram: Annotated[
        bool, typer.Option("--skipgram", help="Predict the context from the word.")
    ] = False,
    epochs: Annotated[int, typer.Option(help="Passes over the corpus.")] = 5,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 1,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Lowercase the corpus.")] = False,
    json_: Json = False,
) -> None:
    """Train word vectors with word2vec."""
    if out is None:
        raise OptionError("vectors train: --out is missing; name the file to write, such as v.txt")
    from regard.vectors import Vectors
    from regard.vectors.writing import check_path

    check_path(out)
    text = _Corpus(corpus, lowercase)
    sentences = text if corpus is not None and corpus.is_file() else list(text)
    vectors = Vectors.train(sentences, width, window, min_count, skipgram, seed, epochs)
    vectors.save(out)
    if json_:
        print_json({"out": str(out), "words": len(vectors), "width": vectors.width})
    else:
        note(f"wrote {out}, {len(vectors):,} words")


@app.command()
def nearest(
    words: Annotated[
        list[str] | None, typer.Argument(help="Standard input, one per line, if not given.")
    ] = None,
    source: In = None,
    n: Count = 10,
    json_: Json = False,
) -> None:
    """The words whose vectors have the largest cosine with a word's."""
    vectors = _loaded("nearest", source)
    asked = words or (line.strip() for line in lines(None) if line.strip())
    for number, word in enumerate(asked):
        found = vectors.nearest(word, n)
        if json_:
            print_json({"word": word, "nearest": _neighbours(found)})
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
        print_json({"a": a, "b": b, "c": c, "nearest": _neighbours(found)})
    else:
        _show(found)


@app.command()
def sentence(
    text: Annotated[
        str | None, typer.Argument(help="Standard input, one per line, if not given.")
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
    for number, line in enumerate(lines(None), 1):
        _say(vectors, line, unknown, json_, number)


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
        print_json(found.to_data())
        return
    print(found)
    _remark(found.skipped)


@app.command()
def search(
    query: Annotated[str, typer.Argument(help="The query.")],
    texts: Annotated[
        Path | None, typer.Argument(help="One text per line; standard input if not given.")
    ] = None,
    source: In = None,
    n: Annotated[int, typer.Option("-n", help="Number of texts.")] = 10,
    json_: Json = False,
) -> None:
    """The lines nearest in meaning to a query, by the average of their word vectors."""
    vectors = _loaded("search", source)
    for match in vectors.search(query, lines(texts), n):
        line = match.number + 1
        if json_:
            print_json({"line": line, "similarity": match.similarity, "text": match.text})
        else:
            print(f"{match.similarity:.4f}\t{line}\t{match.text}")


class _Corpus:
    """The lines of a file, which can be iterated over repeatedly; of standard input, once."""

    def __init__(self, path: Path | None, lowercase: bool) -> None:
        self.path, self.lowercase = path, lowercase

    def __iter__(self) -> Iterator[str]:
        from regard.text import read_lines

        found = lines(None) if self.path is None else read_lines(self.path)
        return map(str.lower, found) if self.lowercase else found


def _loaded(verb: str, path: Path | None) -> Vectors:
    if path is None:
        raise OptionError(f"vectors {verb}: --in is missing; give a file of word vectors")
    from regard.vectors import Vectors

    console = Console(stderr=True)
    if not console.is_terminal:
        return Vectors.load(path)
    with console.status(f"reading {path}"):
        return Vectors.load(path)


def _say(vectors: Vectors, text: str, unknown: str, json_: bool, line: int | None = None) -> None:
    """Print the vector of a sentence; an empty line where there is none, so that lines match."""
    skipped = vectors.skipped(text)
    try:
        vector = vectors.sentence(text, unknown) if line is None or text.strip() else None
    except WordError:
        if line is None or unknown == "error":
            raise
        vector = None
    if json_:
        numbers = None if vector is None else vector.tolist()
        print_json({"text": text, "skipped": skipped, "vector": numbers})
        return
    print("" if vector is None else " ".join(vector.astype(str)), flush=True)
    _remark(skipped, line)


def _remark(skipped: Iterable[str], line: int | None = None) -> None:
    """Note which words have no vector."""
    if names := ", ".join(map(repr, skipped)):
        where = "" if line is None else f"line {line}: "
        note(f"{where}without a vector: {names}")


def _show(found: list[Neighbour]) -> None:
    for one in found:
        print(f"{one.word}\t{one.similarity:.4f}")


def _neighbours(found: list[Neighbour]) -> list[dict[str, Any]]:
    return [one._asdict() for one in found]
