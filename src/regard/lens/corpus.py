"""Answers to a question for every row of a file, on several processes or a Ray cluster.

    found/
        _job.json               what is computed from which file, and how it is split
        part-000000.parquet     the answers to the first rows, with their number in `row`
        part-000001.parquet     …

The input, JSON lines or Parquet with a column ``text`` (and ``word``, ``instead``), is split into
chunks of equal size. A worker reads the rows of a chunk and writes its part atomically. So an
interrupted job is resumed by the same command, which computes the missing parts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

import torch

from regard.errors import FileError, OptionError, RegardError, WordError
from regard.files import check_regular, read_regular, replacing, why, write_text
from regard.lens.analysis import Analysis
from regard.lens.corpus_workers import Chunk, Done, on_processes, on_ray
from regard.lens.explanation import METHODS
from regard.lens.lens import Lens
from regard.translate.model_files import bundled

PARTS, LEAST, MOST = 200, 16, 2048
"""The approximate number of parts of a job; the least and most rows of a chunk."""
TOGETHER = 16
"""Texts that are translated in one batch."""
JOB, PART_FILES = "_job.json", "part-*.parquet"
CHECKPOINT_FILES = "checkpoints/*/model.safetensors"
"""The weights of a model whose training has not finished."""
Row = dict[str, Any]


def explain_row(lens: Lens, row: Row, **options: Any) -> Row:
    """What a word attends to, by four measures: a number for each word of the text."""
    found = lens.explain(row["text"], row["word"], **options)
    return {"words": list(found.names), **{n: found.scores(n).tolist() for n in METHODS}}


def why_row(lens: Lens, row: Row, **options: Any) -> Row:
    """The words and the strongest links that a written word depends on."""
    text = row["analysis"] or row["text"]
    found = lens.why(
        text, row.get("word"), instead=row.get("instead"), control=0, texts=False, **options
    )
    words = [{name: getattr(one, name) for name in WORDS} for one in found.words]
    links = [{name: getattr(one, name) for name in LINKS} for one in found.links]
    own = {name: getattr(found, name) for name in ("written", "instead", "metric", "probability")}
    return {**own, "chosen": found.word, "words": words, "links": links}


def embed_row(lens: Lens, row: Row, **options: Any) -> Row:
    """The vector of the text: the mean of its words' vectors in the last layer."""
    return {"vector": lens.embed(row["text"]).sentence().tolist()}


WORDS = {"word": "string", "looked": "float", "matters": "float"}
LINKS = {
    **dict.fromkeys(("place", "query", "key"), "string"),
    **dict.fromkeys(("layer", "head"), "int32"),
    **dict.fromkeys(("attention", "effect", "cut"), "float"),
}
COMMON = {"row": "int64", "text": "string", "word": "string", "error": "string"}
QUESTIONS: dict[str, tuple[Callable[..., Row], dict[str, Any], set[str]]] = {
    "explain": (
        explain_row,
        {"words": ["string"], **{name: ["float"] for name in METHODS}},
        {"text", "word"},
    ),
    "why": (
        why_row,
        {
            **dict.fromkeys(("written", "chosen", "instead"), "string"),
            **dict.fromkeys(("metric", "probability"), "double"),
            "words": [WORDS],
            "links": [LINKS],
        },
        {"text"},
    ),
    "embed": (embed_row, {"vector": ["float"]}, {"text"}),
}  # fmt: skip
"""Of each question: the answer for a row, the columns of the answers, the columns it needs."""


@dataclass(frozen=True)
class Job:
    """One question about every row of a file; the answers go to a folder."""

    question: str
    source: str
    out: str
    model: str
    word: str | None = None
    """The word of rows without one."""
    most: int | None = None
    """Links to cut in each text; by default as for a single text."""
    rows: int | None = None
    """Rows of a chunk; by default chosen from the size of the input."""
    _lens: list[Lens] = field(default_factory=list, compare=False, repr=False)

    def part(self, chunk: Chunk) -> Path:
        """The file of a chunk's answers."""
        return Path(self.out) / f"part-{chunk.number:06d}.parquet"

    def run(self, chunk: Chunk) -> tuple[int, int]:
        """Write the part of a chunk; returns the number of rows, and of failed ones."""
        if not self._lens:
            torch.set_num_threads(1)
            self._lens.append(Lens.open(self.model))
        rows, answers = list(_read(self.source, chunk)), []
        for first in range(0, len(rows), TOGETHER):
            group = rows[first : first + TOGETHER]
            ahead = self._translated([row for _, row in group]) if self.question == "why" else {}
            answers += [self._answer(number, row, ahead) for number, row in group]
        _write(self.part(chunk), answers, {**COMMON, **QUESTIONS[self.question][1]})
        return len(answers), sum(one["error"] is not None for one in answers)

    def _translated(self, rows: list[Row | str]) -> dict[str, Analysis]:
        """The analyses of the valid texts, with their translations."""
        texts = [row.get("text", row.get("source")) for row in rows if isinstance(row, dict)]
        found = {}
        for text in (text for text in texts if isinstance(text, str)):
            with suppress(OptionError):  # reported by the row itself
                found[text] = self._lens[0].analyse(text)
        self._lens[0].translate_all(list(found.values()))
        return found

    def _answer(self, number: int, row: Row | str, ahead: Mapping[str, Analysis]) -> Row:
        """One row of the output; a failed one has an error."""
        if isinstance(row, str):
            return {"row": number, "error": row}
        answer, _, needed = QUESTIONS[self.question]
        text, word = row.get("text", row.get("source")), row.get("word")
        word = self.word if word is None else word
        own: Row = {"row": number, "error": None}
        try:
            if not isinstance(text, str):
                raise OptionError(f"text is {type(text).__name__}, expected a string")
            own["text"] = text
            if not isinstance(word, str | int) and (word is not None or "word" in needed):
                raise OptionError(f"word is {type(word).__name__}, expected a string")
            own["word"] = None if word is None else str(word)
            asked = {**row, "text": text, "word": word, "analysis": ahead.get(text)}
            options: dict[str, int] = {} if self.most is None else {"most": self.most}
            found = answer(self._lens[0], asked, **options)
            return {**found, **own}
        except (OptionError, WordError) as error:
            return {**own, "error": str(error)}


def start(job: Job) -> list[Chunk]:
    """Check input and output of a job; returns the unfinished chunks."""
    if job.question not in QUESTIONS:
        raise OptionError(f"corpus: {job.question} is unknown, expected {', '.join(QUESTIONS)}")
    if job.rows is not None and job.rows < 1:
        raise OptionError(f"{job.question}: chunk size is {job.rows}, expected 1 or more")
    _arrow(job.question)
    asked = {name: value for name, value in vars(job).items() if name not in ("out", "_lens")}
    asked |= {"content": _digest(Path(job.source)), "weights": _weights(job.model)}
    chunks = _chunks(job)
    folder, path = Path(job.out), Path(job.out) / JOB
    if path.exists() and any(folder.glob(PART_FILES)):
        _check_same(job, path, asked)
    elif not path.exists() and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileError(f"{job.question}: {folder} holds other data; give a new folder as --out")
    else:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileError(f"{job.question}: cannot make {folder}: {why(error)}") from None
        text = json.dumps(asked, indent=1) + "\n"
        write_text(path, {".json": lambda: text}, job.question)
    return [chunk for chunk in chunks if not job.part(chunk).exists()]


def _check_same(job: Job, path: Path, asked: Row) -> None:
    """Raise if the answers in the folder are to another question, or about other files."""
    try:
        before = json.loads(read_regular(path))
        if not isinstance(before, dict):
            raise ValueError("not a JSON object")
    except ValueError as error:
        raise FileError(
            f"{job.question}: {path} cannot be read: {error}; give a new folder as --out"
        ) from None
    differ = [name for name in asked if before.get(name) != asked[name]]
    said = [
        f"{name}: {before.get(name)!r}, not {asked[name]!r}"
        for name in differ
        if name not in ("content", "weights")
    ]
    if "content" in differ and "source" not in differ:
        said.append(f"{job.source} has changed since")
    if "weights" in differ and "model" not in differ:
        said.append(f"the weights of {job.model} have changed since")
    if said:
        raise FileError(f"{job.question}: {path.parent} holds another job ({'; '.join(said)})")


def _weights(model: str) -> list[str]:
    """Digests of the weights of a local model; none of one that is not found, or on the hub."""
    try:
        folder = bundled(model)
    except OSError:  # reported when the model is opened
        return []
    files = [*folder.glob("*.safetensors"), *folder.glob("*.bin")]
    return [_digest(one) for one in sorted(files or folder.glob(CHECKPOINT_FILES))]


def _digest(path: Path) -> str:
    """A digest of the contents of a file."""
    check_regular(path)
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "blake2b").hexdigest()[:32]
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror}") from None


def finished(job: Job) -> Done:
    """The number of finished rows, and of failed ones among them."""
    read, rows, failed = _arrow(job.question).parquet.read_table, 0, 0
    for part in Path(job.out).glob(PART_FILES):
        try:
            errors = read(part, columns=["error"])["error"]
        except (OSError, ValueError):  # pyarrow raises one of them for damaged files
            raise FileError(
                f"{job.question}: {part} is damaged; delete it, and the same command computes it "
                "again"
            ) from None
        rows, failed = rows + len(errors), failed + len(errors) - errors.null_count
    return rows, failed


def run(job: Job, chunks: list[Chunk], workers: int, ray: str | None = None) -> Iterator[Done]:
    """Rows and failures of each finished chunk, by this process, several, or Ray.

    `ray`: the address of a cluster, or ``"local"``.
    """
    if workers < 1:
        raise OptionError(f"{job.question}: --workers {workers}, expected 1 or more")
    if ray is not None:
        yield from on_ray(job.question, job.run, chunks, workers, ray)
    elif workers == 1:
        yield from map(job.run, chunks)
    else:
        yield from on_processes(job.question, job.run, chunks, min(workers, len(chunks)))


# ── files ─────────────────────────────────────────────────────────────────────────────────────


def _arrow(question: str) -> Any:
    try:
        import pyarrow.parquet
    except ImportError:
        raise RegardError(
            f"{question}: Parquet needs pyarrow: pip install 'regard[scale]'"
        ) from None
    return pyarrow


def _chunks(job: Job) -> list[Chunk]:
    """The chunks of the input; raises if columns are missing."""
    names: set[str] | None = None
    try:
        if job.source.endswith(".parquet"):
            with _arrow(job.question).parquet.ParquetFile(job.source) as file:
                total, names = file.metadata.num_rows, set(file.schema_arrow.names)
        else:
            with open(job.source, "rb") as lines:
                total = sum(1 for _ in lines)
        rows = job.rows or min(MOST, max(LEAST, total // PARTS))
        starts = range(0, total, rows)
        offsets = [0] * len(starts)
        if names is None:
            with open(job.source, "rb") as lines:
                offsets = list(islice(accumulate(map(len, lines), initial=0), 0, total, rows))
    except (OSError, ValueError) as error:  # pyarrow raises one of them for damaged files
        raise FileError(f"{job.source}: cannot be read: {error}") from None
    if names is not None:
        needed = QUESTIONS[job.question][2] - ({"word"} if job.word else set())
        known = names | ({"text"} if "source" in names else set())
        if missing := sorted(needed - known):
            raise FileError(
                f"{job.source}: has no column {' and '.join(missing)}; its columns are "
                f"{', '.join(sorted(names))}"
            )
    if not total:
        raise FileError(f"{job.source}: has no rows")
    return [
        Chunk(number, first, min(rows, total - first), offset)
        for number, (first, offset) in enumerate(zip(starts, offsets, strict=True))
    ]


def _read(source: str, chunk: Chunk) -> Iterator[tuple[int, Row | str]]:
    """The rows of a chunk with their numbers; an error text for a line that is no JSON object."""
    if source.endswith(".parquet"):
        with _arrow("corpus").parquet.ParquetFile(source) as file:
            first = 0
            for group in range(file.metadata.num_row_groups):
                rows = file.metadata.row_group(group).num_rows
                begin, end = max(chunk.first, first), min(chunk.first + chunk.rows, first + rows)
                if begin < end:
                    table = file.read_row_group(group).slice(begin - first, end - begin)
                    yield from enumerate(table.to_pylist(), begin)
                first += rows
        return
    with open(source, "rb") as file:
        file.seek(chunk.offset)
        for number in range(chunk.first, chunk.first + chunk.rows):
            try:
                row = json.loads(file.readline())
            except ValueError as error:
                yield number, f"not JSON: {error}"
                continue
            yield number, row if isinstance(row, dict) else "not a JSON object"


def _write(path: Path, rows: list[Row], columns: dict[str, Any]) -> None:
    """Write a part atomically."""
    arrow = _arrow("corpus")

    def typed(kind: Any) -> Any:
        if isinstance(kind, list):
            return arrow.list_(typed(kind[0]))
        if isinstance(kind, dict):
            return arrow.struct([(name, typed(one)) for name, one in kind.items()])
        return arrow.type_for_alias(kind)

    schema = arrow.schema([(name, typed(kind)) for name, kind in columns.items()])
    table = arrow.Table.from_pylist(rows, schema=schema)
    try:
        with replacing(path) as temporary:
            arrow.parquet.write_table(table, temporary)
    except OSError as error:
        raise FileError(
            f"cannot write {path}: {why(error)}; finished parts are kept, and the same command "
            "resumes"
        ) from None
