"""Items: choices of a model to explain, some with the words that decide them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.errors import FileError, OptionError
from regard.text import read_lines
from regard.text.words import WORD

if TYPE_CHECKING:
    from regard.challenge import Pair

KINDS = ("reference", "senses")
"""The built-in data sets."""
_FUNCTION_WORDS = """
a an the this that these those my your his her its our their i he she it we they you me him us them
is are was were be been being am do does did has have had can could will would may might must should
not no and or but of in on at to from by with for into onto over under about as than then so too
very all some any when while because until
"""
FUNCTION_WORDS = frozenset(_FUNCTION_WORDS.split())
"""English words that do not decide the sense of another word."""
SLOT = re.compile(r"\{[^}]*\}")


@dataclass(frozen=True)
class Item:
    """One choice of a model to be explained.

    Args:
        text: what the model reads.
        word: the word that it writes, as `Lens.why` takes it.
        instead: the alternative.
        target: a translation that the model is made to write; its own if None.
        position: where in `target` the word stands, in characters, instead of `word`.
        evidence: the words that decide, one of which a method should put first: as written in the
            text (``"it#2"`` is the second), or where they stand, in characters.
        aside: words that are not ranked against the evidence, such as the ambiguous word itself.
        where: its file and line, for errors; empty for built-in items, which are skipped instead.
    """

    text: str
    word: str | None = None
    instead: str | None = None
    target: str | None = None
    position: int | None = None
    evidence: tuple[str | int, ...] = ()
    aside: tuple[str | int, ...] = ()
    where: str = ""


def items_of(data: str | Path | Iterable[object], most: int) -> list[Item]:
    """At most so many items: of a built-in kind, of a file of JSON lines, or as given."""
    if isinstance(data, str) and data in KINDS:
        return list(islice(_built_in(data), most))
    if isinstance(data, str | Path):
        return read_items(Path(data))[:most]
    found = [
        one if isinstance(one, Item) else _item(one, f"judge: item {i}")
        for i, one in enumerate(data)
    ]
    if not found:
        raise OptionError("judge: data has no items; give it at least one")
    return found[:most]


def read_items(path: Path) -> list[Item]:
    """The items of a file of JSON lines; blank lines are skipped."""
    if not path.exists():
        known = " or ".join(KINDS)
        raise FileError(f"judge: {str(path)!r} is neither {known} nor a file of JSON lines")
    found = []
    for number, line in enumerate(read_lines(path), 1):
        if line.strip():
            where = f"{path}, line {number}"
            try:
                data = json.loads(line)
            except (ValueError, RecursionError) as error:
                reason = getattr(error, "msg", "nested too deeply")
                raise FileError(f"{where}: not JSON: {reason}") from None
            found.append(_item(data, where))
    if not found:
        raise FileError(f"{path}: the file is empty; each line is an object with at least text")
    return found


def _item(data: object, where: str) -> Item:
    if not isinstance(data, Mapping):
        raise FileError(f"{where}: a {type(data).__name__}, expected an object with text")
    if not isinstance(data.get("text"), str) or not data["text"].strip():
        raise FileError(f"{where}: text is missing, expected what the model reads")
    plain: dict[str, Any] = {}
    for name in ("word", "instead", "target"):
        value = data.get(name)
        if value is not None and not isinstance(value, str):
            raise FileError(f"{where}: {name} is {type(value).__name__}, expected text")
        plain[name] = value
    for name in ("evidence", "aside"):
        value = data.get(name) or ()
        words = (value,) if isinstance(value, str) else value
        if not isinstance(words, list | tuple) or not all(isinstance(one, str) for one in words):
            raise FileError(f"{where}: {name} expected a word of the text or a list of words")
        plain[name] = tuple(words)
    return Item(text=data["text"], where=where, **plain)


def _built_in(kind: str) -> Iterator[Item]:
    """The pairs of the test split that another word would translate wrongly."""
    from regard.challenge import generate, size

    for pair in generate(kind, "test", size(kind, "test")):
        found = _of_pair(pair)
        if found is not None:
            yield found


def _of_pair(pair: Pair) -> Item | None:
    """The choice between the answer and the first wrong one, where the target has it."""
    spans = [one.span() for one in WORD.finditer(pair.target)]
    wanted = pair.answer.casefold()
    places = [start for start, end in spans if pair.target[start:end].casefold() == wanted]
    if not places or not pair.wrong:
        return None
    reference = pair.kind == "reference"
    at = places[-1] if reference else places[0]  # the pronoun stands in the last clause
    capital = pair.target[at].isupper()
    wrong = pair.wrong[0][:1].upper() + pair.wrong[0][1:] if capital else pair.wrong[0]
    evidence: tuple[str | int, ...]
    evidence = (pair.referent_position,) if reference else _deciding(pair)  # type: ignore[assignment]
    return Item(
        text=pair.source,
        instead=wrong,
        target=pair.target,
        position=at,
        evidence=evidence,
        aside=() if reference else (pair.position,),
    )


def _deciding(pair: Pair) -> tuple[int, ...]:
    """Where the content words of the context stand that decides a sense."""
    context = SLOT.sub(" ", pair.combinations[0].rpartition(" + ")[2]).casefold()
    words = set(WORD.findall(context)) - FUNCTION_WORDS
    return tuple(
        one.start()
        for one in WORD.finditer(pair.source)
        if one.group().casefold() in words and one.start() != pair.position
    )
