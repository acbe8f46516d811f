"""The JSON body of a request, within limits, and the check of its fields."""

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


async def read(request: Request, limits: Limits) -> dict[str, Any]:
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
    return fields


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


def check(fields: dict[str, Any], described: dict[str, Any]) -> None:
    """Raise unless the fields of a question are as its JSON schema describes them."""
    alone, *of_two_texts = described.get("oneOf", [described])
    form = of_two_texts[0] if of_two_texts and "one" in fields else alone
    for name, schema in form["properties"].items():
        value = fields.get(name)
        if value is not None:
            _check_value(name, value, schema)
        elif name in form["required"] or name in fields:
            raise malformed(f"{name} is missing")
    for name in fields:
        if name not in form["properties"]:
            known = ", ".join(form["properties"])
            raise malformed(f"{name[:LONGEST_WORD]!r} is unknown, expected {known}")


def _check_value(name: str, value: Any, schema: dict[str, Any]) -> None:
    match schema.get("type"):
        case "string":
            _check_string(name, value, schema)
        case "integer" if type(value) is not int or value < 0:
            got = value if type(value) is int and abs(value) < 10**9 else _kind(value)
            raise malformed(f"{name} is {got}, expected a whole number from 0")
        case "boolean" if not isinstance(value, bool):
            raise malformed(f"{name} is {_kind(value)}, expected true or false")
        case "array":
            _check_links(name, value, schema["maxItems"])
        case None if isinstance(value, str):  # one of a word and its number
            _check_string(name, value, schema["oneOf"][0])
        case None if type(value) is not int:
            raise malformed(f"{name} is {_kind(value)}, expected a word or its number from 0")


def _check_string(name: str, value: Any, schema: dict[str, Any]) -> None:
    if not isinstance(value, str):
        raise malformed(f"{name} is {_kind(value)}, expected a string")
    longest = schema["maxLength"]
    if len(value) > longest:
        raise too_large(f"{name} has {len(value):,} characters, but the limit is {longest:,}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise malformed(f"{name} has characters that are not Unicode") from None
    if "minLength" in schema and not value.strip():
        raise malformed(f"{name} is empty; give it at least one word")


def _check_links(name: str, value: Any, most: int) -> None:
    pairs = value if isinstance(value, list) else []
    if not pairs or not all(_is_pair(one) for one in pairs):
        raise malformed(
            f"{name} expected pairs of word numbers, [[attending word, attended word], …]"
        )
    if len(pairs) > most:
        raise too_large(f"{name} has {len(pairs):,} links, but no more than {most} are cut at once")


def _is_pair(value: object) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 2
        and all(type(one) is int and one >= 0 for one in value)
    )


def _kind(value: object) -> str:
    """The JSON type of a value."""
    names = {bool: "a boolean", str: "a string", list: "an array", dict: "an object"}
    return "null" if value is None else names.get(type(value), "a number")


def _reason(error: Exception) -> str:
    """Why JSON cannot be parsed, without quoting it."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at line {error.lineno}, column {error.colno}"
    if isinstance(error, UnicodeDecodeError):
        return "not UTF-8"
    return "nested too deeply" if isinstance(error, RecursionError) else "a number is too long"
