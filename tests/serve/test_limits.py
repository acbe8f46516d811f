"""What a request may cost: tokens of a text, whatever its characters, and time for its headers."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import pytest

from regard.lens import Lens
from regard.serve import Limits, connection
from regard.serve.answers import Answers
from regard.serve.refusals import RefusedError
from regard.serve.running import bound
from regard.translate import Translator

LONG = "because it was tired " * 40
"""Within the limit of characters, and of more than 100 tokens."""
QUESTIONS = {
    "words": {"text": LONG},
    "figure": {"text": LONG, "word": 0},
    "attention": {"text": LONG},
    "measures": {"text": LONG},
    "why": {"text": LONG},
    "explain": {"text": LONG, "word": 0},
    "steps": {"text": LONG, "query": "it", "key": "it"},
    "translate": {"text": LONG},
    "cut": {"text": LONG, "links": [[0, 0]]},
    "heads": {"text": LONG},
    "compare": {"word": "it", "one": "it was tired", "other": LONG},
    "page": {"text": LONG, "word": 0},
}


@pytest.mark.parametrize("route", QUESTIONS)
def test_tokens_are_limited_whatever_the_characters(
    route: str, lens: Lens, checked: Callable[..., object]
) -> None:
    client = checked(lens, Limits(seconds=600, tokens=100))
    said = client.refused(f"/api/{route}", 413, json=QUESTIONS[route])  # type: ignore[attr-defined]
    assert "tokens, but the limit is 100" in said


def test_accents_are_told_from_letters_before_any_work() -> None:
    answers = Answers(Lens.open("pocket-en-de"), Limits())
    for text in ("\u0301" * 600, "e" + "\u0301\u0302" * 250, "😀" * 2_000):
        with pytest.raises(RefusedError, match="tokens, but the limit is 512"):
            answers.check([text])
    answers.check(["The animal didn't cross the street because it was too tired. " * 32])


def test_texts_within_the_limit_are_read(lens: Lens, checked: Callable[..., object]) -> None:
    client = checked(lens, Limits(seconds=600, tokens=100))
    assert client.post("/api/words", {"text": "the bat"}).status_code == 200  # type: ignore[attr-defined]
    assert client.get("/api/health").json()["limits"]["tokens"] == 100  # type: ignore[attr-defined]


# ── headers ───────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def connected(served: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """A connection to a server that waits half a second for headers."""
    monkeypatch.setattr(connection, "HEAD_SECONDS", 0.5)
    address = urlsplit(served)
    with socket.create_connection((address.hostname or "", address.port or 0)) as made:
        made.settimeout(20)
        yield made


def ended(made: socket.socket) -> bool:
    """Whether the server closes the connection, without having said anything."""
    return made.recv(1) == b""


def test_a_connection_that_says_nothing_is_closed(connected: socket.socket) -> None:
    assert ended(connected)


def test_half_a_head_is_not_waited_for(connected: socket.socket) -> None:
    connected.sendall(b"GET /api/health HTTP/1.1\r\nHost: local")
    assert ended(connected)


def test_a_head_that_drips_is_not_waited_for(connected: socket.socket) -> None:
    began = time.monotonic()
    with suppress(ConnectionError):
        while time.monotonic() - began < 20:
            connected.sendall(b"X")
            time.sleep(0.05)
    assert time.monotonic() - began < 20


def test_a_second_request_is_not_waited_for_either(connected: socket.socket) -> None:
    request = b"GET /api/health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    for _ in range(2):
        connected.sendall(request)
        reply = b""
        while not reply.endswith(b"}}"):
            reply += connected.recv(65_536)
        assert reply.startswith(b"HTTP/1.1 200")
        time.sleep(0.7)  # longer than the limit: between requests there is another
    connected.sendall(request[:20])
    assert ended(connected)


def test_a_text_that_the_model_cannot_translate_is_refused(
    translator: Translator, checked: Callable[..., Any]
) -> None:
    short = Translator(translator.model, translator.tokenizer, longest=20)
    said = checked(Lens(short)).refused("/api/figure", 422, json={"text": "tired " * 60})
    assert "give it a sentence at a time" in said


def test_a_small_reply_does_not_wait_for_an_acknowledgement() -> None:
    with (
        bound("127.0.0.1", 0) as listening,
        socket.create_connection(listening.getsockname()),
        listening.accept()[0] as accepted,
    ):
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
