"""Replies: JSON, and errors as ``{"error": sentence}``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

MOST_ERROR = 400
"""Maximum characters of an error."""


def data(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A reply of JSON."""
    text = json.dumps(content, allow_nan=False, separators=(",", ":"))
    return Response(text, status, headers, media_type="application/json")


def error(status: int, sentence: str, headers: Mapping[str, str] | None = None) -> Response:
    """A reply with an error, truncated if long."""
    if len(sentence) > MOST_ERROR:
        sentence = sentence[:MOST_ERROR] + "…"
    return data({"error": sentence}, status, headers)
