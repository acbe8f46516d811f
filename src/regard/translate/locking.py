"""A lock on the folder of a training run or a corpus job."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from regard.errors import FileError
from regard.files import why

fcntl: Any
try:
    import fcntl
except ImportError:  # on Windows, where nothing is locked
    fcntl = None

LOCK = ".lock"
RESTART_WAIT = 60.0
"""Seconds that a restarted worker waits for the lock of the one before it."""


@contextmanager
def locked(folder: Path, caller: str = "train") -> Iterator[None]:
    """Lock a folder, created if missing; raises a `FileError` that names the holder if it is held.

    The operating system releases the lock when the process ends. On file systems without locks,
    nothing is locked.
    """
    path = folder / LOCK
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = None if fcntl is None else _acquire(path, caller)
    except FileError:
        raise
    except OSError as error:
        raise FileError(f"{caller}: cannot write {path}: {why(error)}") from None
    try:
        yield
    finally:
        if file is not None:
            path.unlink(missing_ok=True)
            file.close()


def _acquire(path: Path, caller: str) -> IO[str]:
    """The lock file, open and locked."""
    restarted = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
    deadline = time.monotonic() + RESTART_WAIT * restarted
    while True:
        file = path.open("a+", encoding="utf-8")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "another process"
            file.close()
            if time.monotonic() < deadline:
                time.sleep(0.2)
                continue
            raise FileError(
                f"{caller}: a run is active in {path.parent}: {holder}; wait for it to end, "
                "stop it, or give another --out"
            ) from None
        except OSError:
            return file
        # The previous holder may have removed the file between these two steps.
        if path.exists() and os.path.samestat(path.stat(), os.fstat(file.fileno())):
            file.truncate(0)
            now = datetime.now().isoformat(" ", "minutes")
            file.write(f"process {os.getpid()} on {socket.gethostname()}, since {now}\n")
            file.flush()
            return file
        file.close()
