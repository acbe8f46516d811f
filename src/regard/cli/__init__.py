"""The command line: one file per verb."""

from __future__ import annotations

import os
import signal


def main() -> None:
    """Run the program `regard`; Ctrl-C ends it in one line, also while it is being imported."""
    heeds = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if heeds:  # what is started in the background ignores it
        signal.signal(signal.SIGINT, _stop)
    from regard.cli.program import prepared, run

    app = prepared()
    if heeds:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run(app)


def _stop(*_: object) -> None:
    os.write(2, b"regard: stopped\n")
    os._exit(130)


__all__ = ["main"]
