"""Checks of arguments: whole numbers, numbers of layers and heads, lists and pairs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import index
from typing import Any

from regard.errors import OptionError


def whole(what: str, value: object, least: int = 1) -> int:
    """The value, if it is a whole number from `least` on; `what` names it in the error."""
    try:
        number = index(value)  # type: ignore[arg-type]
    except TypeError:
        raise OptionError(f"{what}={value!r}, expected a whole number") from None
    if number < least:
        raise OptionError(f"{what}={value!r}, expected {least} or more")
    return number


def numbered(what: str, value: object, size: int, *, backwards: bool = False) -> int:
    """The value, if it is an index below `size`; with `backwards`, -1 is the last."""
    try:
        number = index(value)  # type: ignore[arg-type]
    except TypeError:
        number = size
    if isinstance(value, bool) or not (-size if backwards else 0) <= number < size:
        raise OptionError(f"{what} {value!r}, but there are {size}, numbered from 0")
    return number


def several(what: str, items: object) -> Iterable[Any]:
    """The items, if they are a list or another iterable and not one text or mapping."""
    if isinstance(items, str | bytes | Mapping) or not isinstance(items, Iterable):
        raise OptionError(f"{what} is {type(items).__name__}, expected a list")
    return items


def pairs(what: str, items: object, each: str) -> Iterator[tuple[Any, Any]]:
    """The items, if all of them are pairs."""
    for item in several(what, items):
        if not isinstance(item, Sequence) or isinstance(item, str) or len(item) != 2:
            raise OptionError(f"{what} has {item!r}, expected {each} each")
        yield item[0], item[1]


def is_text(argument: object) -> bool:
    """Whether an argument is a text, not a word: the order before 0.1.0 had the word first."""
    return isinstance(argument, str) and len(argument.split()) > 1
