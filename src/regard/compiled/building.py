"""From the files in loops/ to functions: compiled when first wanted, and kept for the next time.

The library is made for the very processor it runs on, so its name says which that is, and lies in
the user's cache folder. Where there is no compiler, or no Linux, there is no library, and nobody is
told.
"""

from __future__ import annotations

import ctypes
import os
import platform
import shlex
import signal
import subprocess
import sys
import threading
from contextlib import nullcontext, suppress
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory, mkstemp

FOLDER = Path(__file__).with_name("loops")
OPTIONS = ("-O3", "-fno-fast-math", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC")
THREADS = "-fopenmp"
PROCESSOR = {
    "x86_64": ("-march=native", "-mprefer-vector-width=512"),
}
OTHERS = ("-mcpu=native",)
PATIENCE = 120
"""Seconds that a compiler may take."""


class _Known:
    """What is known of the library, and who is finding out."""

    lock = threading.Lock()
    library: ctypes.CDLL | None = None
    settled = False


def library() -> ctypes.CDLL | None:
    """The compiled loops, or None where they cannot be had or are not wanted.

    ``REGARD_COMPILED=0`` in the environment says that they are not wanted.
    """
    if not _Known.settled:
        with _Known.lock:
            if not _Known.settled:
                _Known.library, _Known.settled = _library(), True
    return _Known.library


def _forked() -> None:
    _Known.lock = threading.Lock()  # whoever held it is in the other process


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def _library() -> ctypes.CDLL | None:
    if os.environ.get("REGARD_COMPILED") == "0" or sys.platform != "linux":
        return None
    with suppress(OSError, ValueError, AttributeError, subprocess.SubprocessError):
        compiler = shlex.split(os.environ.get("CXX", "c++"))
        command = [*compiler, *OPTIONS, *PROCESSOR.get(platform.machine(), OTHERS)]
        sources = (path.read_text(encoding="utf-8") for path in sorted(FOLDER.iterdir()))
        known = _digest("\n".join((*sources, *command, _processor())).encode())
        kept = _folder()
        with nullcontext(kept) if kept is not None else TemporaryDirectory() as folder:
            place = Path(folder)
            made = _found(place, known) or _compiled(command, place, known)
            return _declared(ctypes.CDLL(str(made)))  # which needs its file no more
    return None


def _folder() -> Path | None:
    """The folder in the user's cache where the library is kept, if only the user writes to it."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = Path(cache) / "regard" / "compiled"
    with suppress(OSError):
        if folder.is_absolute():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if _trusted(folder) and os.access(folder, os.W_OK):
                return folder
    return None


def _found(folder: Path, known: str) -> Path | None:
    """What was compiled before of the same, if it is whole: its name says what is in it."""
    for path in folder.glob(f"loops-{known}-*.so"):
        with suppress(FileNotFoundError):  # another process may be doing the same
            if _trusted(path) and path.stem.endswith(f"-{_digest(path.read_bytes())}"):
                return path
            path.unlink()
    return None


def _digest(content: bytes) -> str:
    return blake2b(content, digest_size=12).hexdigest()


def _trusted(path: Path) -> bool:
    """Whether it is there, and nobody else can have changed it."""
    try:
        known = path.stat()
    except OSError:
        return False
    return known.st_uid == os.getuid() and not known.st_mode & 0o022


def _compiled(command: list[str], folder: Path, known: str) -> Path:
    """The new file: written beside and renamed, for another process may be doing the same."""
    handle, beside = mkstemp(dir=folder, prefix=f".loops-{known}-")
    os.close(handle)
    source = str(FOLDER / "loops.cpp")
    try:
        with suppress(subprocess.CalledProcessError):
            _run([*command, THREADS, "-o", beside, source])
        if not os.path.exists(beside) or not os.path.getsize(beside):  # then without threads
            _run([*command, "-o", beside, source])
        os.chmod(beside, 0o700)
        made = folder / f"loops-{known}-{_digest(Path(beside).read_bytes())}.so"
        os.replace(beside, made)
        return made
    except BaseException:
        with suppress(OSError):
            os.unlink(beside)
        raise


def _run(command: list[str]) -> None:
    """Run it, and end all that it has started if it takes too long."""
    nothing = subprocess.DEVNULL
    with subprocess.Popen(
        command, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True
    ) as process:
        try:
            status = process.wait(PATIENCE)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    if status:
        raise subprocess.CalledProcessError(status, command)


def _processor() -> str:
    """What tells processors apart that do not understand the same instructions."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith(("flags", "Features")):
                return line
    return platform.processor()


def _declared(loops: ctypes.CDLL) -> ctypes.CDLL:
    """The library with the types of what its functions take."""
    size, number, pointer = ctypes.c_int64, ctypes.c_float, ctypes.c_void_p
    count, seed = ctypes.c_int, ctypes.c_uint64
    loops.attend_short.argtypes = (count, pointer, number, *[pointer] * 6)
    loops.attend_short_backwards.argtypes = (count, pointer, number, *[pointer] * 8)
    loops.drop.argtypes = (count, size, seed, ctypes.c_uint32, number, *[pointer] * 3)
    loops.attend_few.argtypes = (pointer, number, *[pointer] * 6)
    loops.best_words.argtypes = (*[size] * 4, *[pointer] * 5)
    loops.affine.argtypes = (*[size] * 3, *[pointer] * 4)
    loops.affine_by_panels.argtypes = (*[size] * 3, *[pointer] * 4)
    loops.normalize.argtypes = (size, size, number, *[pointer] * 4)
    loops.decode.argtypes = (pointer, *[size] * 5, *[pointer] * 4)
    return loops
