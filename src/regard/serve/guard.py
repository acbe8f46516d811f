"""Middleware of every route: check of the Host header, security headers, log."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.errors import OptionError
from regard.serve.replies import error

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
EVERYWHERE = ("0.0.0.0", "[::]")
"""Wildcard addresses, which are not host names."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
"""Content security policy: no resources or requests but this server's."""
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}

log = logging.getLogger("regard.serve")


def names(hosts: Iterable[str]) -> frozenset[str]:
    """The accepted host names: those given, and those of this machine.

    >>> sorted(names(["0.0.0.0", "Attention.example"]))
    ['127.0.0.1', '[::1]', 'attention.example', 'localhost']
    """
    written = [f"[{host}]" if host.count(":") > 1 and host[0] != "[" else host for host in hosts]
    for host in written:
        if not host or name_of(host) != host.lower():
            raise OptionError(f"serve: --allow-host {host!r}, expected a name without a port")
    return frozenset({*LOOPBACK, *(name.lower() for name in written)} - set(EVERYWHERE))


def name_of(host: str) -> str:
    """The name in a Host header, without the port.

    >>> name_of("LocalHost:8421"), name_of("[::1]:8421"), name_of("::1")
    ('localhost', '[::1]', '')
    """
    name, colon, port = host.rpartition(":")
    if not colon or host.endswith("]"):
        name, port = host, "0"
    ported = port.isascii() and port.isdigit()
    return name.lower() if ported and (":" not in name or name[0] == "[") else ""


class Guard:
    """Accepts requests for known host names only, and adds security headers to every reply.

    Otherwise a page of another site could point its own name here (DNS rebinding) and read replies.
    """

    def __init__(self, app: ASGIApp, hosts: Iterable[str]) -> None:
        self._app = app
        self._names = names(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.monotonic()
        status = 0

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        host = Headers(scope=scope).get("host", "")
        if name_of(host) in self._names:
            await self._app(scope, receive, sent)
        else:
            await error(421, _misdirected(self._names))(scope, receive, sent)
        # Only known paths: others may contain text of a user.
        log.info(
            "%s %s %d, %d ms",
            scope["method"],
            "(unknown path)" if status in (404, 421) else scope["path"],
            status,
            1000 * (time.monotonic() - began),
        )


def _misdirected(known: frozenset[str]) -> str:
    return (
        f"Host expected one of {', '.join(sorted(known))}; if this server has another name, start "
        "it with --allow-host NAME"
    )
