"""Running the application: a socket of one's own, uvicorn around it, and a clean end."""

from __future__ import annotations

import errno
import logging
import os
import signal
import socket
import threading
import webbrowser
from collections.abc import Callable

import uvicorn
from starlette.applications import Starlette

from regard.errors import OptionError
from regard.serve.connection import Connection

GRACE = 3
"""Seconds in which requests under way may end when the server is told to."""
LONGEST_HEAD = 131_072
"""Bytes of a request line and headers, at least."""
LETTER = 12
"""Bytes of a letter in a permalink, which holds a text, or two that are compared."""


def bound(host: str, port: int) -> socket.socket:
    """A socket at this address, or an error that says why there is none; port 0 is any free one."""
    if not 0 <= port <= 65_535:
        raise OptionError(f"serve: --port {port}, expected 0 to 65535")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (socket.gaierror, UnicodeError):
        raise OptionError(
            f"serve: --host {host} is no address of this machine; 127.0.0.1 is seen by it alone"
        ) from None
    made = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix":  # elsewhere it would let two servers share a port
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(socket.SOMAXCONN)
    except OSError as error:
        made.close()
        raise OptionError(f"serve: {_reason(error, host, port)}") from None
    return made


def address(listening: socket.socket) -> str:
    """The address of the page, for a browser on this machine."""
    host, port = listening.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"


def run(
    app: Starlette,
    listening: socket.socket,
    *,
    started: Callable[[str], object] = print,
    browse: bool = False,
    longest: int = 0,
) -> None:
    """Serve until told to end, by Ctrl+C or SIGTERM; texts have at most `longest` characters."""
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    config = uvicorn.Config(
        app,
        loop="asyncio",
        http=Connection,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,  # it would write down what stands in a permalink
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=GRACE,
        h11_max_incomplete_event_size=LONGEST_HEAD + 2 * LETTER * longest,
    )
    here = address(listening)
    started(here)
    if browse:
        threading.Thread(target=webbrowser.open, args=(here,), daemon=True).start()
    # uvicorn ends on these, and then raises them again for the handlers that were set before.
    heard = {one: signal.signal(one, _ends) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        uvicorn.Server(config).run(sockets=[listening])
    finally:
        for one, handler in heard.items():
            signal.signal(one, handler)


def _ends(*_: object) -> None:
    """The server has ended already."""


def _reason(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} of {host} is in use; choose another with --port, or 0 for a free one"
    if error.errno == errno.EACCES:
        return f"port {port} is not open to this user; choose one above 1023 with --port"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"--host {host} is no address of this machine; 127.0.0.1 is seen by it alone"
    return f"cannot listen at {host}, port {port}: {error.strerror}"
