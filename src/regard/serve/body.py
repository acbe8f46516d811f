"""The JSON body of a request, within limits, and its checked fields."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from starlette.requests import ClientDisconnect, Request

from regard.serve.limits import Limits
from regard.serve.refusals import RefusedError, malformed, too_large
from regard.serve.work_queue import GoneError

DISCARDED = 32_000_000
"""Bytes beyond the limit that are read and discarded, so that the client gets the refusal."""
LONGEST_WORD = 200
"""Maximum characters of a word."""


async def read(request: Request, limits: Limits) -> Asked:
    """The fields of a request whose body is a JSON object."""
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    try:
        # Read first: a client that is refused while sending would not get the reply.
        body = await asyncio.wait_for(_bytes(request, limits), limits.seconds)
    except TimeoutError:
        raise RefusedError(
            408, f"the body was not received within {limits.seconds:g} seconds, which is the limit"
        ) from None
    except ClientDisconnect:
        raise GoneError from None
    if kind != "application/json":
        # A page of another site can send this only after a CORS preflight.
        raise RefusedError(
            415, f"Content-Type expected application/json, got {kind[:LONGEST_WORD] or 'none'}"
        )
    try:
        fields = json.loads(body, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:  # also bytes that are not UTF-8
        raise malformed(f"the body is not JSON: {_reason(error)}") from None
    if not isinstance(fields, dict):
        raise malformed(f"the body is {_kind(fields)}, expected a JSON object")
    return Asked(fields, limits)


async def _bytes(request: Request, limits: Limits) -> bytes:
    body = bytearray()
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size <= limits.body:
            body += chunk
        elif size > limits.body + DISCARDED:
            break
    if size > limits.body:
        raise too_large(f"the body has more than {limits.body:,} bytes, which is the limit")
    return bytes(body)


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


class Asked:
    """The fields of a request, read by name and type; unknown fields are errors."""

    def __init__(self, fields: dict[str, Any], limits: Limits) -> None:
        self.fields = fields
        """All fields, as sent."""
        self._limits = limits
        self._known: list[str] = []
        self.texts: list[str] = []
        """The texts read so far."""

    def text(self, name: str = "text") -> str:
        """A text."""
        value = self._string(name, self._limits.text)
        if not value.strip():
            raise malformed(f"{name} is empty; give it at least one word")
        self.texts.append(value)
        return value

    def word(self) -> str | int:
        """A word, by spelling or number."""
        value = self._taken("word")
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise malformed(f"word is {_kind(value)}, expected a word or its number from 0")
        return self._string("word", LONGEST_WORD) if isinstance(value, str) else value

    def spelled(self, name: str = "word") -> str:
        """A word, by spelling."""
        return self._string(name, LONGEST_WORD)

    def number(self, name: str) -> int:
        """A whole number from 0."""
        value = self._taken(name)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            got = value if isinstance(value, int) and abs(value) < 10**9 else _kind(value)
            raise malformed(f"{name} is {got}, expected a whole number from 0")
        return value

    def flag(self, name: str) -> bool:
        """A boolean; false by default."""
        value = self._taken(name, False)
        if not isinstance(value, bool):
            raise malformed(f"{name} is {_kind(value)}, expected true or false")
        return value

    def links(self) -> list[tuple[int, int]]:
        """Links as pairs of word numbers."""
        value = self._taken("links")
        pairs = value if isinstance(value, list) else []
        if not pairs or not all(_is_pair(one) for one in pairs):
            raise malformed(
                "links expected pairs of word numbers, [[attending word, attended word], …]"
            )
        if len(pairs) > self._limits.links:
            raise too_large(
                f"links has {len(pairs):,} links, but no more than {self._limits.links} are cut "
                "at once"
            )
        return [(looks, at) for looks, at in pairs]

    def has(self, name: str) -> bool:
        """Whether there is a field of this name."""
        self._known.append(name)
        return name in self.fields

    def end(self) -> None:
        """Raise for fields that were not read, which may be misspelt."""
        for name in self.fields:
            if name not in self._known:
                known = ", ".join(dict.fromkeys(self._known))
                raise malformed(f"{name[:LONGEST_WORD]!r} is unknown, expected {known}")

    def __str__(self) -> str:
        return json.dumps(self.fields, ensure_ascii=True)

    def _taken(self, name: str, usual: Any = None) -> Any:
        self._known.append(name)
        value = self.fields.get(name, usual)
        if value is None:
            raise malformed(f"{name} is missing")
        return value

    def _string(self, name: str, longest: int) -> str:
        value = self._taken(name)
        if not isinstance(value, str):
            raise malformed(f"{name} is {_kind(value)}, expected a string")
        if len(value) > longest:
            raise too_large(f"{name} has {len(value):,} characters, but the limit is {longest:,}")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise malformed(f"{name} has characters that are not Unicode") from None
        return value


def _is_pair(value: object) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 2
        and all(isinstance(one, int) and not isinstance(one, bool) and one >= 0 for one in value)
    )


def _kind(value: object) -> str:
    """The JSON type of a value."""
    names = {bool: "a boolean", str: "a string", list: "an array", dict: "an object"}
    if value is None:
        return "null"
    return names.get(type(value), "a number")


def _reason(error: Exception) -> str:
    """Why JSON cannot be parsed, without quoting it."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at line {error.lineno}, column {error.colno}"
    if isinstance(error, UnicodeDecodeError):
        return "not UTF-8"
    return "nested too deeply" if isinstance(error, RecursionError) else "a number is too long"
