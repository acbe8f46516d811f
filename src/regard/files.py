"""Reading regular files, and writing files atomically."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from regard.errors import FileError, OptionError


def write_text(path: str | Path, forms: Mapping[str, Callable[[], str]], caller: str) -> None:
    """Write text as UTF-8, in the form that the suffix of the path selects; see `write_bytes`."""

    def encoded(form: Callable[[], str]) -> Callable[[], bytes]:
        return lambda: form().encode()

    write_bytes(path, {ending: encoded(form) for ending, form in forms.items()}, caller)


def write_bytes(
    path: str | os.PathLike[str], forms: Mapping[str, Callable[[], bytes]], caller: str
) -> None:
    """Write the form that the suffix of the path selects: to a temporary file, then renamed."""
    target = Path(path)
    form = forms.get(target.suffix.lower())
    if form is None:
        raise OptionError(
            f"{caller}: {target} ends in {target.suffix or 'nothing'!r}, "
            f"expected {' or '.join(forms)}"
        )
    try:
        content = form()
    except UnicodeEncodeError:
        raise FileError(
            f"{caller}: cannot write {target}: the text has characters that are not Unicode"
        ) from None
    try:
        with replacing(target) as temporary:
            temporary.write_bytes(content)
    except OSError as error:
        raise FileError(f"{caller}: cannot write {target}: {why(error)}") from None


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file that is synced and renamed to `path` at the end; removed on any error."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)  # temporary files have fewer permissions
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """An empty folder that is renamed to `path` at the end; removed on any error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(
        dir=path.parent, prefix=f".{path.name}.", ignore_cleanup_errors=True
    ) as beside:
        new, old = Path(beside) / path.name, Path(beside) / f"{path.name}.old"
        new.mkdir()
        yield new
        if path.exists():
            os.replace(path, old)
        try:
            os.replace(new, path)
        except OSError:
            if old.exists():
                os.replace(old, path)
            raise


def check_regular(path: Path) -> None:
    """Raise for a pipe, a socket or a device, which may never end."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise FileError(f"{path}: not a regular file, but a pipe, a socket or a device")


def read_regular(path: Path) -> bytes:
    """The content of a regular file."""
    check_regular(path)
    try:
        return path.read_bytes()
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror}") from None


def why(error: Exception) -> str:
    """The reason for a failed write, and a remedy if the disk is full."""
    said = str(error)
    # "No space left" is Rust's wording, "requested and" NumPy's.
    full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
    if full or "No space left" in said or " requested and " in said:
        return "the disk is full; make room and run the same again"
    return getattr(error, "strerror", None) or said
