"""What a file of word vectors is, told by its content, and what is in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from regard.errors import FileError
from regard.vectors.binaryfile import binary_chunks
from regard.vectors.chunk import Chunk, checked
from regard.vectors.opening import opened
from regard.vectors.textfile import LONGEST, header, is_number, text_chunks

HEAD = 2**16
"""How many bytes are looked at to tell what they are."""
STRANGERS = {
    b"\xba\x16\x4f\x2f": "a fastText model; write its vectors as a .vec file",
    b"\x80\x02": "a Python pickle, which may run anything; use gensim's save_word2vec_format",
    b"\x80\x03": "a Python pickle, which may run anything; use gensim's save_word2vec_format",
    b"\x80\x04": "a Python pickle, which may run anything; use gensim's save_word2vec_format",
    b"\x80\x05": "a Python pickle, which may run anything; use gensim's save_word2vec_format",
    b"PK\x03\x04": "a zip archive; unpack it, and load what is in it",
    b"\x93NUMPY": "a numpy array without words; use Vectors(words, numpy.load(…))",
}
"""How files begin that are often taken for word vectors."""
CONTROL = bytes(set(range(32)) - set(b"\t\n\v\f\r"))


def read_chunks(path: Path) -> Iterator[Chunk]:
    """The vectors of a word2vec (text or binary), GloVe or fastText file, gzipped or not.

    Numbers are finite and words come once; anything else is an error that names the line or byte.
    """
    with opened(path) as file:
        head = file.read(HEAD)
        if head and b"\n" not in head:
            head += file.readline(LONGEST)
        if not head:
            raise FileError(f"{path}: the file is empty")
        for beginning, what in STRANGERS.items():
            if head.startswith(beginning):
                raise FileError(f"{path}: not a file of word vectors, but {what}")
        sizes = header(head.partition(b"\n")[0])
        if sizes is not None and sizes[1] < 1:
            raise FileError(f"{path}: line 1 counts {sizes[1]} numbers each, expected 1 or more")
        if sizes is not None and _is_binary(head, sizes[1]):
            yield from checked(path, binary_chunks(path, file, head, *sizes))
        else:
            yield from checked(path, text_chunks(path, file, head))


def _is_binary(head: bytes, width: int) -> bool:
    """Whether raw numbers follow the header line.

    Not if the line behind it reads as text; and then if there are control characters, which no
    text has, or bytes that are no text while the first word is.
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
    """Whether this is UTF-8, but perhaps for a character that is cut off at the end."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return error.reason == "unexpected end of data"
    return True
