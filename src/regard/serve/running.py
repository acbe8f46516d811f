"""Runs the application on uvicorn, with a socket of its own."""

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
"""Seconds for active requests to finish at shutdown."""
LONGEST_HEAD = 131_072
"""Bytes of a request line and headers, without permalinks."""
LETTER = 12
"""Maximum bytes of a character in a permalink, which holds one or two texts."""


def bound(host: str, port: int) -> socket.socket:
    """A socket bound to this address; port 0 is any free one."""
    if not 0 <= port <= 65_535:
        raise OptionError(f"serve: --port {port}, expected 0 to 65535")
    try:
        family, _, _, _, place = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
        found = socket.create_server(
            place, family=family, backlog=socket.SOMAXCONN, dualstack_ipv6=both
        )
        # Connections inherit it. Else a small reply waits about 40 ms for an acknowledgement;
        # asyncio sets it for sockets that name their protocol only, which this one does not.
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return found
    except (OSError, UnicodeError) as error:
        raise OptionError(f"serve: {_reason(error, host, port)}") from None


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
    """Serve until Ctrl+C or SIGTERM; texts have at most `longest` characters."""
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    config = uvicorn.Config(
        app,
        loop="asyncio",
        http=Connection,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,  # it would log the texts in permalinks
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=GRACE,
        h11_max_incomplete_event_size=LONGEST_HEAD + 2 * LETTER * longest,
    )
    here = address(listening)
    started(here)
    if browse:
        threading.Thread(target=webbrowser.open, args=(here,), daemon=True).start()
    # uvicorn stops on these, and then raises them again: there is nothing left to do by then.
    signals = signal.SIGINT, signal.SIGTERM
    before = {one: signal.signal(one, lambda *_: None) for one in signals}
    try:
        uvicorn.Server(config).run(sockets=[listening])
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _reason(error: OSError | UnicodeError, host: str, port: int) -> str:
    if isinstance(error, socket.gaierror | UnicodeError) or error.errno == errno.EADDRNOTAVAIL:
        return (
            f"--host {host} is not an address of this machine; "
            "127.0.0.1 accepts local connections only"
        )
    if error.errno == errno.EADDRINUSE:
        return f"port {port} of {host} is in use; choose another with --port, or 0 for a free one"
    if error.errno == errno.EACCES:
        return f"this user may not open port {port}; choose one above 1023 with --port"
    return f"cannot listen at {host}, port {port}: {os.strerror(error.errno or 0)}"
