"""The library of native operators: compiled on first use, kept in the user's cache directory.

It is compiled for the present processor; its file name has a hash of the processor, the sources,
the compiler and the version of PyTorch. If it cannot be built or loaded, PyTorch's operations are
used instead, and `status` says why.
"""

from __future__ import annotations

import logging
import os
import platform
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory, mkstemp

import torch

LOG = logging.getLogger("regard.native")
SOURCES = Path(__file__).with_name("source")
TORCH = Path(torch.__file__).parent
OPTIONS = (
    *("-O3", "-std=c++17", "-fno-fast-math", "-fno-math-errno", "-fno-trapping-math"),
    *("-shared", "-fPIC", "-fvisibility=hidden", f"-I{TORCH / 'include'}"),
)
LINKED = (f"-L{TORCH / 'lib'}", "-ltorch_cpu", "-lc10", "-ltorch")
PROCESSOR = {"x86_64": ("-march=native", "-mprefer-vector-width=512")}
OTHERS = ("-mcpu=native",)
PATIENCE = 300
"""The time limit of the compiler, in seconds."""
RETRY = 24 * 3600
"""The time after which a failed build is retried, in seconds."""


class BuildError(Exception):
    """The library could not be built or loaded."""


class _State:
    """Whether the operators are loaded, determined once per process."""

    lock = threading.Lock()
    known = False
    reason: str | None = None


def loaded() -> bool:
    """Whether torch.ops.regard.* can be called; compiles and loads them the first time.

    ``REGARD_NATIVE=0`` in the environment turns them off.
    """
    return status() is None


# Like torch.compiler.assume_constant_result, which would import torch._dynamo, a second.
loaded._dynamo_marked_constant = True  # type: ignore[attr-defined]


def status() -> str | None:
    """None if the native operators are loaded, else why they are not."""
    if not _State.known:
        with _State.lock:
            if not _State.known:
                _State.reason, _State.known = _load(), True
    return _State.reason


def _renew_lock() -> None:
    _State.lock = threading.Lock()  # another thread of the parent process may have held it


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


def _load() -> str | None:
    if os.environ.get("REGARD_NATIVE") == "0":
        LOG.info("native operators are turned off by REGARD_NATIVE=0")
        return "they are turned off by REGARD_NATIVE=0"
    if sys.platform != "linux":
        return f"they are built on Linux only, and this is {sys.platform}"
    try:
        compiler = _compiler()
        if compiler is None:
            LOG.info("native operators need a C++ compiler: install g++ or clang++, or set CXX")
            return "there is no C++ compiler"
        _build_and_load(compiler)
    except (OSError, BuildError, subprocess.SubprocessError) as error:
        LOG.warning("native operators could not be built, PyTorch's are used instead: %s", error)
        return f"they could not be built: {str(error).splitlines()[0]}"
    from regard.native import operators

    operators.register()
    return None


def _compiler() -> list[str] | None:
    """The compiler's command from CXX, or c++; None if there is none."""
    try:
        command = shlex.split(os.environ.get("CXX", "c++"))
    except ValueError as error:
        raise BuildError(f"CXX={os.environ['CXX']!r} cannot be read: {error}") from None
    return command if command and shutil.which(command[0]) else None


def _build_and_load(compiler: list[str]) -> None:
    command = [*compiler, *OPTIONS, *PROCESSOR.get(platform.machine(), OTHERS)]
    folder = _cache_folder()
    if folder is None:
        with TemporaryDirectory() as place:
            _load_file(_compiled(command, Path(place), "once"))
        return
    key = _key(command)
    found = _found(folder, key)
    if found is None:
        failed = folder / f"failed-{key}"
        with suppress(OSError):
            if _private(failed) and time.time() - failed.stat().st_mtime < RETRY:
                before = failed.read_text(encoding="utf-8")
                raise BuildError(f"{before}\n(remove {failed} to try again)")
        try:
            found = _compiled(command, folder, key)
        except (BuildError, subprocess.SubprocessError) as error:
            failed.write_text(str(error), encoding="utf-8")
            raise
    try:
        _load_file(found)
    except OSError as error:
        found.unlink(missing_ok=True)
        (folder / f"failed-{key}").write_text(f"it cannot be loaded: {error}", encoding="utf-8")
        raise BuildError(f"the library that {compiler[0]} made cannot be loaded: {error}") from None


def _load_file(path: Path) -> None:
    torch.ops.load_library(path)  # type: ignore[no-untyped-call]


def _key(command: list[str]) -> str:
    """A hash of the sources, command, compiler, PyTorch version and processor."""
    sources = [path.read_text(encoding="utf-8") for path in sorted(SOURCES.iterdir())]
    binary = os.stat(shutil.which(command[0]) or command[0])
    parts = (*sources, *command, f"{binary.st_size} {binary.st_mtime_ns}", torch.__version__)
    return _digest("\n".join((*parts, _processor())).encode())


def _cache_folder() -> Path | None:
    """The library's cache folder; None if other users could write to its path."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = Path(cache) / "regard" / "native"
    try:
        if not folder.is_absolute():
            raise OSError(f"{folder} is not an absolute path")
        for part in (folder.parent, folder):
            part.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _private(folder) or not os.access(folder, os.W_OK):
            raise OSError(f"{folder} is not a folder that only you can write to")
        for parent in folder.resolve().parents:
            if not _safe_parent(parent):
                raise OSError(f"others can write to {parent}")
    except OSError as error:
        LOG.warning("native operators are compiled anew in every process: %s", error)
        return None
    return folder


def _private(path: Path) -> bool:
    """Whether it exists, is the user's, and no other user can write to it."""
    try:
        known = path.stat()
    except OSError:
        return False
    return known.st_uid == os.getuid() and not known.st_mode & 0o022


def _safe_parent(folder: Path) -> bool:
    """Whether only root and the user can replace what lies in a folder."""
    known = folder.stat()
    sticky = bool(known.st_mode & stat.S_ISVTX)
    return known.st_uid in (0, os.getuid()) and (sticky or not known.st_mode & 0o022)


def _found(folder: Path, key: str) -> Path | None:
    """The cached library of this key, if it matches the digest in its name."""
    for path in folder.glob(f"{key}-*.so"):
        with suppress(FileNotFoundError):  # another process may be doing the same
            if _private(path) and path.stem.endswith(f"-{_digest(path.read_bytes())}"):
                return path
            path.unlink()
    return None


def _digest(content: bytes) -> str:
    return blake2b(content, digest_size=12).hexdigest()


def _compiled(command: list[str], folder: Path, key: str) -> Path:
    """The newly built library, renamed into place: another process may be doing the same."""
    handle, beside = mkstemp(dir=folder, prefix=f".{key}-", suffix=".so")
    os.close(handle)
    try:
        _run([*command, "-o", beside, str(SOURCES / "operators.cpp"), *LINKED])
        if not os.path.getsize(beside):
            raise BuildError(f"{command[0]} wrote nothing")
        os.chmod(beside, 0o700)
        made = folder / f"{key}-{_digest(Path(beside).read_bytes())}.so"
        os.replace(beside, made)
        return made
    except BaseException:
        with suppress(OSError):
            os.unlink(beside)
        raise


def _run(command: list[str]) -> None:
    """Run a compiler; on timeout, kill its whole process group."""
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            _, said = process.communicate(timeout=PATIENCE)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    if process.returncode:
        last = "\n".join(said.strip().splitlines()[-5:])
        raise BuildError(f"{command[0]} failed with status {process.returncode}\n{last}".strip())


def _processor() -> str:
    """A text that differs between processors with different instruction sets."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith(("flags", "Features")):
                return line
    return platform.processor()
