"""The command line: one module per command."""

from __future__ import annotations

import os
import signal


def main() -> None:
    """Run the program `regard`; Ctrl-C prints one line, even during imports."""
    default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if default:  # a background process ignores it
        signal.signal(signal.SIGINT, _stop)
    from regard.cli.program import prepared, run

    app = prepared()
    if default:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run(app)


def _stop(*_: object) -> None:
    os.write(2, b"regard: stopped\n")
    os._exit(130)


__all__ = ["main"]
