"""Reading of word vectors in any format, recognised by content."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from regard.errors import FileError
from regard.vectors.binaryfile import binary_chunks
from regard.vectors.chunk import Chunk, checked
from regard.vectors.opening import opened
from regard.vectors.textfile import header, is_number, text_chunks

HEAD = 2**16
"""Bytes that decide the format."""
OTHER_FORMATS = {
    b"\xba\x16\x4f\x2f": "a fastText model; write its vectors as a .vec file",
    **{
        bytes((0x80, version)): "a Python pickle, which may run any code; use gensim's "
        "save_word2vec_format"
        for version in (2, 3, 4, 5)
    },
    b"PK\x03\x04": "a zip archive; unpack it, and load what is in it",
    b"\x93NUMPY": "a numpy array without words; use Vectors(words, numpy.load(…))",
}
"""The first bytes of other files that users try to load."""
CONTROL = bytes(set(range(32)) - set(b"\t\n\v\f\r"))


def read_chunks(path: Path) -> Iterator[Chunk]:
    """The vectors of a word2vec (text or binary), GloVe or fastText file, gzipped or not.

    Raises an error that names the line or byte if a number is not finite or a word is repeated.
    """
    with opened(path) as file:
        head = file.read(HEAD)
        for beginning, what in OTHER_FORMATS.items():
            if head.startswith(beginning):
                raise FileError(f"{path}: not a file of word vectors, but {what}")
        sizes = header(head.partition(b"\n")[0])
        if sizes is not None and sizes[1] < 1:
            raise FileError(f"{path}: line 1 gives a width of {sizes[1]}, expected 1 or more")
        if sizes is not None and _is_binary(head, sizes[1]):
            yield from checked(path, binary_chunks(path, file, head, *sizes))
        else:
            yield from checked(path, text_chunks(path, file, head))


def _is_binary(head: bytes, width: int) -> bool:
    """Whether raw numbers follow the header line.

    False if the next line is valid text; otherwise True if there are control characters, or if
    the first word is UTF-8 and the rest is not.
    """
    body = head.partition(b"\n")[2]
    fields = body.partition(b"\n")[0].rstrip(b" \r").split(b" ")
    if len(fields) > width and all(is_number(field) for field in fields[-width:]):
        return False
    if len(body.translate(None, CONTROL)) < len(body):
        return True
    word, space, _ = body.partition(b" ")
    return bool(space) and _is_text(word) and not _is_text(body)


def _is_text(data: bytes) -> bool:
    """Whether this is UTF-8, except for a character cut off at the end."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return error.reason == "unexpected end of data"
    return True
