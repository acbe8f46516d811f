"""The application: its routes, from the page to the API, around one lens."""

from __future__ import annotations

import logging
import traceback
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from http import HTTPStatus
from importlib.metadata import version
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from regard.errors import RegardError
from regard.lens import Lens
from regard.serve import body, replies
from regard.serve.answers import Answers
from regard.serve.description import describe
from regard.serve.desk import Desk, GoneError
from regard.serve.guard import Guard
from regard.serve.limits import Limits
from regard.serve.recent import Recent
from regard.serve.refusals import RefusedError
from regard.view import page, payload

MARK = files("regard.serve") / "static" / "mark.svg"

log = logging.getLogger("regard.serve")


def make(
    lens: Lens,
    *,
    name: str = "model",
    limits: Limits | None = None,
    hosts: Iterable[str] = (),
    log_texts: bool = False,
) -> Starlette:
    """The application that serves a lens: the page at ``/``, the API below ``/api/``.

    Args:
        lens: the model that is looked into.
        name: what the page calls it.
        limits: what a request may ask for.
        hosts: names by which the server may be called, besides those of this machine.
        log_texts: whether what is asked is written to the log ``regard.serve``, too.
    """
    limits = limits or Limits()
    service = _Service(lens, name, limits, log_texts)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        service.desk.close()

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

    def __init__(self, lens: Lens, name: str, limits: Limits, log_texts: bool) -> None:
        self.desk = Desk(limits)
        self._answers = Answers(lens, limits)
        self._name = name
        self._limits = limits
        self._log_texts = log_texts
        self._replies = Recent[Response](limits.kept, lambda reply: len(reply.body))

    def routes(self) -> list[Route]:
        answers = self._answers
        asked = {
            "words": answers.words,
            "figure": answers.figure,
            "attention": answers.attention,
            "measures": answers.measures,
            "why": answers.why,
            "explain": answers.explain,
            "steps": answers.steps,
            "translate": answers.translate,
            "cut": answers.cut,
            "heads": answers.heads,
            "compare": answers.compare,
            "page": answers.page,
        }
        served = {"model": self._name, "examples": answers.examples}
        start = {**payload.empty(), "served": served}
        return [
            Route("/", _file(page.served_page(start), "text/html")),
            Route("/page.js", _file(page.script(), "text/javascript")),
            Route("/page.css", _file(page.style(), "text/css")),
            Route("/mark.svg", _file(MARK.read_text(encoding="utf-8"), "image/svg+xml")),
            Route("/api/health", self._health),
            Route("/api/openapi.json", self._description),
            *(
                Route(f"/api/{name}", self._answering(question), methods=["POST"])
                for name, question in asked.items()
            ),
        ]

    async def _health(self, request: Request) -> Response:
        limits = self._limits
        return replies.data(
            {
                "status": "ok",
                "regard": version("regard"),
                "model": self._name,
                "translates": self._answers.translates,
                "waiting": self.desk.waiting,
                "limits": {
                    name: getattr(limits, name)
                    for name in ("text", "tokens", "body", "seconds", "waiting", "links")
                },
            }
        )

    async def _description(self, request: Request) -> Response:
        return replies.data(describe(self._limits))

    def _answering(self, question: Callable[[body.Asked], Callable[[], Any]]) -> Any:
        """A route that answers one kind of question."""

        async def answer(request: Request) -> Response:
            try:
                asked = await body.read(request, self._limits)
                work = question(asked)
                if self._log_texts:
                    log.info("%s %s", request.url.path, asked)
                key = (request.url.path, str(asked))
                return await self.desk.done(
                    lambda: self._done(key, asked, work), lambda: _left(request)
                )
            except RefusedError as refusal:
                return replies.error(refusal.status, refusal.sentence, refusal.headers)
            except RegardError as error:
                return replies.error(422, str(error))
            except GoneError:
                return Response(status_code=499)  # nobody hears it
            except Exception as error:  # what reaches uvicorn would be logged with its message
                return self._failed(request, error)

        return answer

    def _done(self, key: tuple[str, str], asked: body.Asked, work: Callable[[], Any]) -> Response:
        """The reply for what was asked, if it is not too much; recent ones are kept."""
        self._answers.check(asked.texts)
        kept = self._replies.get(key, lambda: _reply(work()))
        return Response(kept.body, headers=dict(kept.headers))

    def _failed(self, request: Request, error: Exception) -> Response:
        """What is said, and written down, when the server itself fails."""
        # The message of an error may quote the text that led to it; where it happened does not.
        told = f": {error}" if self._log_texts else ""
        trace = "".join(traceback.format_tb(error.__traceback__))
        log.error("%s failed, %s%s\n%s", request.url.path, type(error).__name__, told, trace)
        return replies.error(500, f"the server failed ({type(error).__name__}); its log says where")


def _reply(found: Any) -> Response:
    """The reply for what the work found; made where the work is, as a large one takes its time."""
    if isinstance(found, str):
        attached = {"Content-Disposition": 'attachment; filename="regard.html"'}
        return Response(found, headers=attached, media_type="text/html")
    return replies.data(found)


async def _left(request: Request) -> None:
    """Over when whoever asked has left."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _file(content: str, kind: str) -> Any:
    """A route that sends a text, which the browser may keep but asks about each time."""

    async def send(request: Request) -> Response:
        return Response(content, media_type=kind, headers={"Cache-Control": "no-cache"})

    return send


async def _no_such(request: Request, error: Exception) -> Response:
    """404 and 405, as JSON."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    headers = error.headers if isinstance(error, HTTPException) else None
    said = {404: "there is nothing at this address", 405: "this address takes another method"}
    return replies.error(status, said.get(status, HTTPStatus(status).phrase), headers)
