"""Refused requests, and their HTTP status."""

from __future__ import annotations


class RefusedError(Exception):
    """A refused request: a status, and one sentence for the client."""

    def __init__(self, status: int, sentence: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence
        self.headers = headers or {}


def malformed(sentence: str) -> RefusedError:
    """400: the request is malformed."""
    return RefusedError(400, sentence)


def too_large(sentence: str) -> RefusedError:
    """413: a body or a text is beyond the limits."""
    return RefusedError(413, sentence)


def busy(sentence: str) -> RefusedError:
    """503: the server is busy."""
    return RefusedError(503, sentence, {"Retry-After": "5"})
