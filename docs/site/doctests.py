"""Doctests of a docstring as code blocks: Markdown would read ``>>>`` as nested quotations."""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^>>> (?:.+\n?)+", re.MULTILINE)


def fenced(text: str) -> str:
    """The docstring with each doctest between fences."""
    return EXAMPLE.sub(lambda example: f"```pycon\n{example[0].rstrip()}\n```\n", text)


class Doctests(griffe.Extension):
    """Fences the doctests of everything that has a docstring."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = fenced(obj.docstring.value)
