"""Reading of the tables: text files with headings."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files

GENDER = {"der": "m", "die": "f", "das": "n"}


def rows(table: str) -> Iterator[tuple[str, str]]:
    """The (heading, line) pairs of a table.

    A heading begins with ``=``, a comment with ``#``; blank lines are ignored.

    >>> next(rows("adjectives"))
    ('graded', 'tired         müde           animal')
    """
    heading = ""
    path = files("regard.challenge") / "tables" / f"{table}.txt"
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("="):
            heading = line[1:].strip()
        elif line.strip() and not line.startswith("#"):
            yield heading, line
