"""From loops.cpp to functions: compiled when first wanted, and kept for the next time.

The library is made for the very processor it runs on, so its name says which that is, and lies in
the user's cache folder. Where there is no compiler, there is no library, and nobody is told.
"""

from __future__ import annotations

import ctypes
import os
import platform
import shlex
import subprocess
import threading
from contextlib import nullcontext, suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory, mkstemp

SOURCE = Path(__file__).with_name("loops.cpp")
OPTIONS = ("-O3", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC")
PROCESSOR = {
    "x86_64": ("-march=native", "-mprefer-vector-width=512"),
    "AMD64": ("-march=native", "-mprefer-vector-width=512"),
}
OTHERS = ("-mcpu=native",)
PATIENCE = 120
"""Seconds that a compiler may take."""
_alone = threading.Lock()


def library() -> ctypes.CDLL | None:
    """The compiled loops, or None where they cannot be had or are not wanted.

    ``REGARD_COMPILED=0`` in the environment says that they are not wanted.
    """
    with _alone:
        return _library()


@cache
def _library() -> ctypes.CDLL | None:
    if os.environ.get("REGARD_COMPILED") == "0":
        return None
    with suppress(OSError, subprocess.SubprocessError):
        compiler = shlex.split(os.environ.get("CXX", "c++"))
        command = [*compiler, *OPTIONS, *PROCESSOR.get(platform.machine(), OTHERS)]
        known = "\n".join((SOURCE.read_text(encoding="utf-8"), *command, _processor()))
        name = f"loops-{blake2b(known.encode(), digest_size=12).hexdigest()}.so"
        kept = _folder()
        with nullcontext(kept) if kept is not None else TemporaryDirectory() as folder:
            target = Path(folder) / name
            if not target.exists():
                _compile(command, target)
            return _declared(ctypes.CDLL(str(target)))  # which needs its file no more
    return None


def _folder() -> Path | None:
    """The folder in the user's cache where the library is kept, if it can be written to."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = Path(cache) / "regard" / "compiled"
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        return folder if os.access(folder, os.W_OK) else None
    return None


def _compile(command: list[str], target: Path) -> None:
    """Written beside and renamed: another process may be doing the same."""
    handle, beside = mkstemp(dir=target.parent, prefix=f".{target.name}.")
    os.close(handle)
    try:
        subprocess.run(
            [*command, "-o", beside, str(SOURCE)], check=True, capture_output=True, timeout=PATIENCE
        )
        os.replace(beside, target)
    except BaseException:
        os.unlink(beside)
        raise


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
    loops.attend_few.argtypes = (pointer, number, *[pointer] * 6)
    loops.best_words.argtypes = (*[size] * 4, *[pointer] * 5)
    loops.affine.argtypes = (*[size] * 3, *[pointer] * 4)
    loops.normalize.argtypes = (size, size, number, *[pointer] * 4)
    loops.decode.argtypes = (pointer, *[size] * 5, *[pointer] * 4)
    return loops
