"""Reading files that are files, and writing them so that nothing is ever half-written."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from regard.errors import FileError, OptionError


def write_text(path: str | Path, forms: Mapping[str, Callable[[], str]], caller: str) -> None:
    """Write the text that the path's ending asks for, as UTF-8; see `write_bytes`."""

    def encoded(form: Callable[[], str]) -> Callable[[], bytes]:
        return lambda: form().encode()

    write_bytes(path, {ending: encoded(form) for ending, form in forms.items()}, caller)


def write_bytes(
    path: str | os.PathLike[str], forms: Mapping[str, Callable[[], bytes]], caller: str
) -> None:
    """Write the form that the path's ending asks for: beside the file, then renamed onto it."""
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
        handle, beside = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    except OSError as error:
        raise FileError(f"{caller}: cannot write {target}: {why(error)}") from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        make_usual(beside)
        os.replace(beside, target)
    except BaseException as error:
        os.unlink(beside)
        if isinstance(error, OSError):
            raise FileError(f"{caller}: cannot write {target}: {why(error)}") from None
        raise


def check_regular(path: Path) -> None:
    """Raise if this is a pipe or a device, which may never end."""
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
    """The reason why something could not be written, and what to do if the disk is full."""
    said = str(error)
    # The second is Rust's, the third NumPy's.
    full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
    if full or "No space left" in said or " requested and " in said:
        return "the disk is full; make room and run the same again"
    return getattr(error, "strerror", None) or said


def make_usual(path: str | Path) -> None:
    """Give a file or folder the permissions that new ones have; those made beside have fewer."""
    mask = os.umask(0)
    os.umask(mask)
    os.chmod(path, (0o777 if os.path.isdir(path) else 0o666) & ~mask)
