"""The application: the routes of the page and the API."""

from __future__ import annotations

import asyncio
import json
import logging
import traceback
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from http import HTTPStatus
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from regard import __version__
from regard.errors import RegardError
from regard.lens import Lens
from regard.serve import body, replies
from regard.serve.answers import Answers
from regard.serve.description import describe, questions
from regard.serve.guard import Guard
from regard.serve.limits import Limits
from regard.serve.recent import Recent
from regard.serve.refusals import RefusedError
from regard.serve.shared_work import SharedWork
from regard.serve.work_queue import GoneError, StoppedError, WorkQueue
from regard.view import page, payload

MARK = files("regard.serve") / "static" / "mark.svg"

TEXTS = ("text", "one", "other")
"""The fields that are texts."""
TRANSLATING = ("figure", "attention", "measures", "why")
"""Routes whose answer begins with the translation of the text."""
SHORT = 200
"""Maximum characters of a text that is translated in a group."""
Question = tuple[str, dict[str, Any]]
"""A route, and the checked fields of the request."""

log = logging.getLogger("regard.serve")


def make(
    lens: Lens,
    *,
    name: str = "model",
    limits: Limits | None = None,
    hosts: Iterable[str] = (),
    log_texts: bool = False,
    workers: int = 1,
) -> Starlette:
    """The application that serves a lens: the page at ``/``, the API below ``/api/``.

    Args:
        lens: the model.
        name: the name of the model on the page.
        limits: of requests.
        hosts: accepted host names, besides those of this machine.
        log_texts: whether the log ``regard.serve`` includes the texts of requests.
        workers: worker processes, see `WorkQueue`.
    """
    limits = limits or Limits()
    service = _Service(lens, name, limits, log_texts, workers)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        service.queue.close()

    app = Starlette(
        routes=service.routes(),
        middleware=[Middleware(Guard, hosts=tuple(hosts))],
        exception_handlers={HTTPException: _no_such},
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False
    return app


class _Service:
    """The routes of one lens."""

    def __init__(
        self, lens: Lens, name: str, limits: Limits, log_texts: bool, workers: int
    ) -> None:
        self._answers = Answers(lens, limits)
        self._questions = questions(limits)
        self._name = name
        self._limits = limits
        self._log_texts = log_texts
        self._replies = Recent[Response](limits.kept, lambda reply: len(reply.body))
        self._under_way = SharedWork[Response]()
        self.queue = WorkQueue(self._answered, limits, workers, _joins, self._prepare)

    def routes(self) -> list[Route]:
        served = {"model": self._name, "examples": self._answers.examples}
        start = {**payload.empty(), "served": served}
        return [
            Route("/", _file(page.served_page(start), "text/html")),
            Route("/page.js", _file(page.script(), "text/javascript")),
            Route("/page.css", _file(page.style(), "text/css")),
            Route("/mark.svg", _file(MARK.read_text(encoding="utf-8"), "image/svg+xml")),
            Route("/api/health", self._health),
            Route("/api/openapi.json", self._description),
            *(
                Route(f"/api/{name}", self._answering(name), methods=["POST"])
                for name in self._questions
            ),
        ]

    async def _health(self, request: Request) -> Response:
        limits = self._limits
        return replies.data(
            {
                "status": "ok",
                "regard": __version__,
                "model": self._name,
                "translates": self._answers.translates,
                "waiting": self.queue.waiting,
                "limits": {
                    name: getattr(limits, name)
                    for name in ("text", "tokens", "body", "seconds", "waiting", "links")
                },
            }
        )

    async def _description(self, request: Request) -> Response:
        return replies.data(describe(self._limits))

    def _answering(self, name: str) -> Any:
        """The endpoint of one kind of question."""

        async def answer(request: Request) -> Response:
            try:
                fields = await body.read(request, self._limits)
                body.check(fields, self._questions[name].fields)
                if self._log_texts:
                    log.info("%s %s", request.url.path, json.dumps(fields))
                return await self._replied((name, fields), request)
            except GoneError:
                return Response(status_code=499)  # the client has disconnected
            except Exception as error:  # uvicorn would log its message
                return self._failed(name, error)

        return answer

    async def _replied(self, question: Question, request: Request) -> Response:
        """The reply to a question: cached, in progress, or new."""
        if question[0] == "words":
            return self._answered(question)
        key = json.dumps(question)
        reply = self._replies.get(key)
        if reply is None:
            reply = await self._under_way.done(
                key, lambda: self.queue.done(question, _never), lambda: _left(request)
            )
            if reply.status_code == HTTPStatus.OK:
                self._replies.keep(key, reply)
        return reply

    def _answered(self, question: Question) -> Response:
        """Compute the reply to a question; runs in a worker."""
        name, fields = question
        try:
            self._answers.check(fields[field] for field in TEXTS if field in fields)
            return _reply(getattr(self._answers, name)(**fields))
        except StoppedError:
            raise
        except Exception as error:
            return self._failed(name, error)

    def _prepare(self, questions: list[Question]) -> None:
        """Translate the texts of several questions at once; runs in a worker."""
        self._answers.translate_ahead(fields["text"] for _, fields in questions)

    def _failed(self, name: str, error: Exception) -> Response:
        """The reply for an error; an internal one is logged."""
        if isinstance(error, RefusedError):
            return replies.error(error.status, error.sentence, error.headers)
        if isinstance(error, RegardError):
            return replies.error(422, str(error))
        # The message of an error may quote a text; its traceback does not.
        message = f": {error}" if self._log_texts else ""
        trace = "".join(traceback.format_tb(error.__traceback__))
        log.error("/api/%s failed, %s%s\n%s", name, type(error).__name__, message, trace)
        return replies.error(500, f"the server failed ({type(error).__name__}); its log says where")


def _joins(question: Question) -> bool:
    """Whether a question begins with the translation of a short text."""
    name, fields = question
    return name in TRANSLATING and len(fields["text"]) <= SHORT


def _reply(found: Any) -> Response:
    """The reply with a result; made by the worker, since a large one takes time."""
    if isinstance(found, str):
        attached = {"Content-Disposition": 'attachment; filename="regard.html"'}
        return Response(found, headers=attached, media_type="text/html")
    return replies.data(found)


async def _left(request: Request) -> None:
    """Return when the client has disconnected."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _never() -> None:
    """`SharedWork` cancels what its clients have left, so the queue need not watch them."""
    await asyncio.Event().wait()


def _file(content: str, kind: str) -> Any:
    """An endpoint that sends a file, which the browser revalidates each time."""

    async def send(request: Request) -> Response:
        return Response(content, media_type=kind, headers={"Cache-Control": "no-cache"})

    return send


async def _no_such(request: Request, error: Exception) -> Response:
    """404 and 405, as JSON."""
    assert isinstance(error, HTTPException)  # the one class it handles
    status = error.status_code
    said = {
        404: "there is nothing at this address",
        405: "this address does not accept this method",
    }
    return replies.error(status, said.get(status, HTTPStatus(status).phrase), error.headers)
