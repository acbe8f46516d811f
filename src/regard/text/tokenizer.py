"""Subword tokenizers, on the `tokenizers` library.

``"unigram"`` (Kudo 2018, https://arxiv.org/abs/1804.10959) maximises the likelihood of the text; a
word begins with ``▁``. ``"bytes"`` is byte-level BPE (Sennrich, Haddow and Birch 2016,
https://arxiv.org/abs/1508.07909) and decodes every text exactly.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from operator import index
from pathlib import Path
from typing import Any, ClassVar, SupportsIndex

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from regard.errors import FileError, OptionError
from regard.files import read_regular, write_text
from regard.text._unigram import (
    BYTES,
    CAPITAL,
    FALLBACK,
    SPACE,
    SPECIALS,
    is_own_pattern,
    train_unigram,
)

SHORT = 0.9
"""Minimum size of a trained vocabulary, as a share of the requested size."""
EMPTY = (SPACE, CAPITAL, SPACE + CAPITAL)
"""Pieces without a character of their own."""
KINDS = {"unigram": "Unigram", "bytes": "BPE"}

if "TOKENIZERS_PARALLELISM" not in os.environ and hasattr(os, "register_at_fork"):
    # The library's threads do not survive a fork, after which it warns and disables them. Here they
    # are disabled in the child only, without a warning.
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    os.register_at_fork(
        after_in_child=lambda: os.environ.__setitem__("TOKENIZERS_PARALLELISM", "false")
    )


class Tokenizer:
    """A subword tokenizer, made by `train` or `load`.

    Ids 0 to 3 are special: padding, start, end, unknown. No text is encoded as one of them, not
    even ``"</s>"``.

    >>> lines = ["the cats walk", "the dog walks", "the cat sees the dogs", "dogs see a cat"]
    >>> tokenizer = Tokenizer.train(lines, size=22)
    >>> tokenizer.tokens(tokenizer.encode("the cat walks"))
    ['▁the', '▁cat', '▁walk', 's']
    >>> tokenizer.decode(tokenizer.encode("the cat walks"))
    'the cat walks'
    """

    pad: ClassVar[int] = 0
    start: ClassVar[int] = 1
    end: ClassVar[int] = 2
    unknown: ClassVar[int] = 3

    size: int
    """The size of the vocabulary, special tokens included."""
    kind: str
    """``"unigram"`` or ``"bytes"``."""
    vocabulary: list[str]
    """The piece of every id."""

    def __init__(self, inner: tokenizers.Tokenizer) -> None:
        """Wrap a tokenizer of the library, whose ids 0 to 3 are the special tokens."""
        # "</s>" in a text is text, in files of other programs too.
        inner.encode_special_tokens = True
        inner.no_padding()
        inner.no_truncation()
        self._inner = inner
        pieces = inner.get_vocab()
        self.vocabulary = sorted(pieces, key=lambda piece: pieces[piece])
        self.size = len(self.vocabulary)
        self.kind = "bytes" if isinstance(inner.model, models.BPE) else "unigram"

    @classmethod
    def train(
        cls, lines: Iterable[str], size: int, kind: str = "unigram", *, fit: bool = False
    ) -> Tokenizer:
        """A tokenizer trained on these lines, which are read once.

        The same lines give the same tokenizer, to the byte. ``size`` includes the four special
        tokens; the vocabulary may be up to a tenth smaller. ``"unigram"`` normalises text to NFC
        (not NFKC, which would turn m² into m2) and white space to single spaces. Punctuation marks
        and digits are pieces of their own, and so is the capital at the beginning of a sentence,
        unless the word has one elsewhere too: *Bat* is ``▁⇧ ▁bat``. From a size of 2,000 on,
        unseen characters are encoded by their bytes; below, they are unknown. ``"bytes"``
        normalises nothing and encodes every character.

        A text that supports fewer pieces, or has more characters, is an error; with ``fit``, the
        size is adapted.
        """
        if kind not in KINDS:
            raise OptionError(f"Tokenizer.train: kind={kind!r}, expected 'unigram' or 'bytes'")
        inner = (
            train_unigram(_checked(lines), size, fit)
            if kind == "unigram"
            else _byte_pairs(lines, size)
        )
        found = inner.get_vocab_size()
        if found < SHORT * size and not fit:
            if kind == "unigram" and size >= FALLBACK > found:
                found -= len(BYTES)  # a vocabulary that small has no bytes
            raise OptionError(
                f"Tokenizer.train: size={size:,}, but the text supports only {found:,} pieces; "
                f"ask for {found:,} or fewer, or give more text"
            )
        return cls(inner)

    @classmethod
    def load(cls, path: str | Path) -> Tokenizer:
        """The tokenizer that `save` wrote."""
        try:
            text = read_regular(Path(path)).decode()
        except UnicodeDecodeError:
            raise FileError(f"{path}: not UTF-8 text, so not a tokenizer.json") from None
        try:
            inner = tokenizers.Tokenizer.from_str(text)
        except Exception as error:  # the library raises nothing more special
            raise FileError(f"{path}: not a tokenizer.json, or damaged: {error}") from None
        for pattern in _patterns(json.loads(text)):
            if not is_own_pattern(pattern):  # others may hang or crash the library
                raise FileError(
                    f"{path}: has the regular expression {pattern[:80]!r}, which regard does not "
                    "write; use the tokenizer.json that the model was trained with"
                )
        _check(path, inner)
        return cls(inner)

    def save(self, path: str | Path) -> None:
        """Write the tokenizer as a ``.json`` file that the `tokenizers` library reads as well."""
        write_text(path, {".json": lambda: self._inner.to_str(pretty=True)}, "Tokenizer.save")

    @property
    def fingerprint(self) -> str:
        """A digest of the tokenizer."""
        return blake2b(self._inner.to_str().encode(), digest_size=16).hexdigest()

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without start and end."""
        return self._encoded([text], "encode")[0].ids

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text; faster than one by one."""
        if isinstance(texts, str):
            raise OptionError(
                "Tokenizer.encode_batch: texts is one text, expected several; use encode"
            )
        return [encoding.ids for encoding in self._encoded(texts, "encode_batch")]

    def decode(self, ids: Iterable[SupportsIndex]) -> str:
        """The text of these ids; special tokens are left out."""
        return self._tidy(self._inner.decode(self._spelled(ids, "decode")))

    def decode_batch(self, batch: Iterable[Iterable[SupportsIndex]]) -> list[str]:
        """The text of each list of ids."""
        spelled = [self._spelled(ids, "decode_batch") for ids in batch]
        return [self._tidy(text) for text in self._inner.decode_batch(spelled)]

    def tokens(self, ids: Iterable[SupportsIndex]) -> list[str]:
        """The pieces of these ids, special tokens included."""
        return [self.vocabulary[i] for i in self._numbers(ids, "tokens")]

    def spans(self, text: str) -> list[tuple[int, int]]:
        """The (start, end) offsets in the text of each piece of `encode`.

        The space before a word is not part of a span; a piece that is only this space has an empty
        span at the beginning of the word. Byte pieces have the span of the whole character, and a
        letter with a combining accent that of the letter.
        """
        [encoding] = self._encoded([text], "spans", self._inner.encode_batch)
        spans = []
        for piece, (start, end) in zip(encoding.tokens, encoding.offsets, strict=True):
            while start < end and (text[start].isspace() or text[start] == SPACE):
                start += 1
            spans.append((start, start if piece in EMPTY else end))
        return spans

    def __len__(self) -> int:
        return self.size

    def __reduce__(self) -> tuple[type[Tokenizer], tuple[tokenizers.Tokenizer]]:
        return Tokenizer, (self._inner,)

    def __repr__(self) -> str:
        return f"Tokenizer({self.kind!r}, {self.size:,} pieces)"

    def _encoded(
        self,
        texts: Sequence[str],
        caller: str,
        encode: Callable[..., list[tokenizers.Encoding]] | None = None,
    ) -> list[tokenizers.Encoding]:
        encode = encode or self._inner.encode_batch_fast  # without offsets
        try:
            return encode(texts, add_special_tokens=False)
        except (TypeError, UnicodeEncodeError):
            raise OptionError(_no_text(f"Tokenizer.{caller}", texts)) from None

    def _tidy(self, text: str) -> str:
        """The text with single spaces, unless it is byte-level."""
        return text if self.kind == "bytes" else " ".join(text.split())

    def _spelled(self, ids: Iterable[SupportsIndex], caller: str) -> list[int]:
        return [i for i in self._numbers(ids, caller) if i > self.unknown]

    def _numbers(self, ids: Iterable[SupportsIndex], caller: str) -> list[int]:
        numbers = [index(i) for i in ids]
        for i in numbers:
            if not 0 <= i < self.size:
                raise OptionError(
                    f"Tokenizer.{caller}: id {i} is not in a vocabulary of {self.size:,}"
                )
        return numbers


def _checked(lines: Iterable[str]) -> Iterator[str]:
    """The non-blank lines; raises if there are none."""
    if isinstance(lines, str):
        raise OptionError("Tokenizer.train: lines is one text, expected several")
    some = False
    for line in lines:
        if not isinstance(line, str) or not _is_unicode(line):
            raise OptionError(_no_text("Tokenizer.train", [line]))
        if line.replace(SPACE, " ").replace(CAPITAL, " ").strip():
            some = True
            yield line
    if not some:
        raise OptionError("Tokenizer.train: there is no text: lines are empty or blank")


def _byte_pairs(lines: Iterable[str], size: int) -> tokenizers.Tokenizer:
    """A byte-level BPE tokenizer."""
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    least = len(SPECIALS) + len(alphabet)
    if size < least:
        raise OptionError(
            f"Tokenizer.train: size={size:,}, expected {least:,} or more for kind='bytes': "
            f"{len(alphabet)} bytes and {len(SPECIALS)} special pieces"
        )
    inner = tokenizers.Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        show_progress=False,
        special_tokens=list(SPECIALS),
        initial_alphabet=alphabet,
    )
    inner.train_from_iterator(_checked(lines), trainer)
    return _without_added(inner)


def _without_added(inner: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """The tokenizer with special tokens that no text is encoded as."""
    content: dict[str, Any] = json.loads(inner.to_str())
    content["added_tokens"] = []
    return tokenizers.Tokenizer.from_str(json.dumps(content))


def _patterns(content: object) -> Iterator[str]:
    """The regular expressions in a tokenizer.json."""
    todo = [content]
    while todo:
        one = todo.pop()
        if isinstance(one, dict):
            if isinstance(pattern := one.get("Regex"), str):
                yield pattern
            todo += [part for name, part in one.items() if name != "model"]
        elif isinstance(one, list):
            todo += one


def _check(path: str | Path, inner: tokenizers.Tokenizer) -> None:
    """Raise unless `Tokenizer.train` could have made this tokenizer."""
    if not isinstance(inner.model, models.Unigram | models.BPE):
        raise FileError(
            f"{path}: a tokenizer of type {type(inner.model).__name__}, expected "
            f"{' or '.join(KINDS.values())}"
        )
    first = [inner.id_to_token(i) for i in range(len(SPECIALS))]
    if first != list(SPECIALS):
        raise FileError(
            f"{path}: ids 0 to {len(SPECIALS) - 1} are {first}, expected {list(SPECIALS)}; "
            "it was not made by regard"
        )
    if sorted(inner.get_vocab().values()) != list(range(inner.get_vocab_size())):
        raise FileError(f"{path}: the ids of the pieces have gaps")


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _no_text(caller: str, texts: Sequence[object]) -> str:
    """Why one of these is not a text."""
    for text in texts:
        if not isinstance(text, str):
            return f"{caller}: expected text, got {type(text).__name__}"
        if not _is_unicode(text):
            return f"{caller}: {text[:40]!r} has half a surrogate pair, which is not Unicode text"
    return f"{caller}: expected text"
