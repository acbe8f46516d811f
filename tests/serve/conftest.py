"""A tiny random translator to serve, a client that holds replies to the description, a browser."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jsonschema
import pytest
import torch
import uvicorn
from starlette.applications import Starlette
from starlette.testclient import TestClient

from regard.lens import Lens
from regard.nn import Transformer, TransformerConfig
from regard.serve import Limits, make
from regard.serve.connection import Connection
from regard.serve.description import describe
from regard.serve.running import address, bound
from regard.text import Tokenizer
from regard.translate import Translator

TEXT = "The animal didn't cross the street because it was too tired."
LINES = [TEXT, "The street was too wide.", "Das Tier war zu müde.", "because the bat hit it"]
PATIENT = Limits(seconds=600)
"""A machine that runs tests may be slow, and which test meets a limit must not be chance."""


class Checked:
    """A client whose requests and replies must fit the description of the API."""

    def __init__(self, app: Starlette, limits: Limits) -> None:
        self.plain = TestClient(app, base_url="http://localhost:8421")
        self.description = describe(limits)

    def get(self, path: str) -> Any:
        return self._fitting("get", path, self.plain.get(path))

    def post(self, path: str, question: Any) -> Any:
        reply = self.plain.post(path, json=question)
        if reply.status_code == 200:
            [content] = self._route("post", path)["requestBody"]["content"].values()
            self._fits(question, content["schema"])
        return self._fitting("post", path, reply)

    def refused(self, path: str, status: int, **request: Any) -> str:
        """The sentence with which a request is refused."""
        reply = self._fitting("post", path, self.plain.post(path, **request))
        assert reply.status_code == status, reply.text
        return str(reply.json()["error"])

    def _route(self, method: str, path: str) -> dict[str, Any]:
        found: dict[str, Any] = self.description["paths"][path][method]
        return found

    def _fitting(self, method: str, path: str, reply: Any) -> Any:
        kinds = self._route(method, path)["responses"][str(reply.status_code)]["content"]
        kind = reply.headers["content-type"].split(";")[0]
        self._fits(reply.text if kind == "text/html" else reply.json(), kinds[kind]["schema"])
        return reply

    def _fits(self, value: Any, schema: dict[str, Any]) -> None:
        whole = {**schema, "components": self.description["components"]}
        jsonschema.Draft202012Validator(whole).validate(value)


@pytest.fixture(autouse=True)
def _as_users_run(as_users_run: None) -> None:
    """Without the checks that the test run adds: they take longer than the tiny model does."""


@pytest.fixture(scope="session")
def translator() -> Translator:
    tokenizer = Tokenizer.train(LINES * 2, size=48)
    torch.manual_seed(0)
    config = TransformerConfig.preset(
        "tiny", vocabulary=tokenizer.size, encoder_depth=2, decoder_depth=1
    )
    return Translator(Transformer(config).eval(), tokenizer)


@pytest.fixture(scope="module")
def lens(translator: Translator) -> Lens:
    return Lens(translator)


@pytest.fixture(scope="module")
def client(lens: Lens) -> Checked:
    return Checked(make(lens, name="tiny", limits=PATIENT), PATIENT)


@pytest.fixture(scope="session")
def checked() -> Callable[..., Checked]:
    """What makes a client of an application with limits of its own."""

    def made(lens: Lens, limits: Limits = PATIENT, **options: Any) -> Checked:
        return Checked(make(lens, limits=limits, **options), limits)

    return made


@contextmanager
def serving(app: Starlette) -> Iterator[str]:
    """A real server around the application, in a thread; its address."""
    listening = bound("127.0.0.1", 0)
    config = uvicorn.Config(
        app, loop="asyncio", http=Connection, lifespan="on", log_config=None, access_log=False
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    try:
        yield address(listening)
    finally:
        server.should_exit = True
        thread.join(30)
        listening.close()
        assert not thread.is_alive()


@pytest.fixture(scope="module")
def served(lens: Lens) -> Iterator[str]:
    with serving(make(lens, name="tiny", limits=PATIENT)) as here:
        yield here
