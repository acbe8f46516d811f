"""Subwords to words, by character offsets.

Works with every tokenizer that has offsets: WordPiece, byte-level BPE, unigram, SentencePiece. The
spelling of pieces (``##ing``, ``▁the``) is never used.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from operator import index

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from regard.errors import OptionError, WordError, counted

Span = tuple[int, int]

WORD = re.compile(r"\w+(?:['’\-]\w+)*|[^\w\s]")
"""A word, or a punctuation mark on its own."""
REACH = 16
"""Maximum characters of a text to skip in the search for a decoded piece."""
CONTEXT = 8
"""Minimum preceding subwords that are decoded with one, as its spelling may depend on them."""
UNSPACED = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
    r"\U00020000-\U0003ffff]"
)
"""Letters of scripts without spaces between words: Thai, Lao, Burmese, Khmer, kana, Chinese."""
BREAKING = ("Cc", "Zl", "Zp")
UNSEEN = (*BREAKING, "Cf", "Zs")
"""Unicode categories of characters that break a line, and of invisible ones."""


def visible(text: str) -> str:
    """The text for display on one line: as it is, or its `repr` if it is invisible or has breaks.

    >>> print(visible("because"), visible("\\n"), visible(" "))
    because '\\n' ' '
    """
    kinds = [unicodedata.category(one) for one in text]
    seen = any(kind not in UNSEEN for kind in kinds)
    return text if seen and not any(kind in BREAKING for kind in kinds) else repr(text)


def word_spans(text: str) -> list[Span]:
    """The spans of the words and punctuation marks of a text.

    >>> text = "It didn't work."
    >>> [text[start:end] for start, end in word_spans(text)]
    ['It', "didn't", 'work', '.']
    """
    return [match.span() for match in WORD.finditer(text)]


def overlaps(spans: Sequence[Span], words: Sequence[Span]) -> list[tuple[int, int, float]]:
    """The share of each subword in each word: (subword, word, share), where not 0.

    The shares of a subword sum to 1. One that spans two words is divided by its characters; an
    empty one, such as the space before a word, belongs to the word at its offset. Words are in
    order and do not overlap; subwords may.

    >>> overlaps([(0, 2), (2, 6)], [(0, 4), (5, 6)])
    [(0, 0, 1.0), (1, 0, 0.6666666666666666), (1, 1, 0.3333333333333333)]
    """
    ends = [end for _, end in words]
    found: list[tuple[int, int, float]] = []
    for i, (start, end) in enumerate(spans):
        common: dict[int, int] = {}
        for j in range(bisect_right(ends, start), len(words)):
            first, last = words[j]
            if first >= max(end, start + 1):
                break
            common[j] = max(min(end, last) - max(start, first), 1)
        total = sum(common.values())
        found += [(i, j, amount / total) for j, amount in common.items()]
    return found


def shares(spans: Sequence[Span], words: Sequence[Span]) -> NDArray[np.float64]:
    """The shares of `overlaps` as a matrix, ``(subwords, words)``."""
    found = np.zeros((len(spans), len(words)))
    for i, j, share in overlaps(spans, words):
        found[i, j] = share
    return found


def spelled(decode: Callable[[Sequence[int]], str], ids: Sequence[int], text: str) -> list[Span]:
    """The span in the text of each of its token ids, found by stepwise decoding.

    A piece that is not in the text as decoded (half a character, an unknown one, other quotation
    marks) has an empty span; the search continues after it.
    """
    spans: list[Span] = []
    known, said, start, first = _lower(text), "", 0, 0
    for i in range(1, len(ids) + 1):
        if i - first > 4 * CONTEXT:
            first = i - CONTEXT
            said = _lower(decode(ids[first : i - 1]))
        now = _lower(decode(ids[first:i]))
        piece, said = now[_common(said, now) :].strip(), now
        while start < len(text) and text[start].isspace():
            start += 1
        at = known.find(piece, start, start + REACH + len(piece)) if piece else -1
        spans.append((start, start) if at < 0 else (at, at + len(piece)))
        start = spans[-1][1]
    return spans


def _lower(text: str) -> str:
    """The text in lower case, with unchanged offsets."""
    return "".join(one.lower() if len(one.lower()) == 1 else one for one in text)


def _common(one: str, other: str) -> int:
    """The length of the common prefix."""
    pairs = zip(one, other, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


@dataclass(frozen=True)
class Words:
    """The words of a tokenised text, and its special tokens.

    Args:
        text: the text.
        tokens: the pieces, in order.
        spans: their offsets in the text.
        special: which of them are special tokens, such as ``[CLS]``.

    >>> words = Words("bats fly", ("<s>", "bat", "s", "fly"), ((0, 0), (0, 3), (3, 4), (5, 8)),
    ...               (True, False, False, False))
    >>> words.names
    ('<s>', 'bats', 'fly')
    >>> words.places
    (0, 1, 1, 2)
    >>> words.find("fly"), words.tokens_of(1)
    (2, [1, 2])
    """

    text: str
    tokens: tuple[str, ...]
    spans: tuple[Span, ...]
    special: tuple[bool, ...]

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The words and special tokens, in order."""
        return tuple(
            self.text[slice(*one)] if isinstance(one, tuple) else self.tokens[one]
            for one in self._units
        )

    @cached_property
    def is_word(self) -> tuple[bool, ...]:
        """Whether each name is a word, not a special token."""
        return tuple(isinstance(one, tuple) or not self.special[one] for one in self._units)

    @cached_property
    def places(self) -> tuple[int, ...]:
        """For each token, the number of its name; of several, the one with the largest share."""
        best = [(0.0, -1)] * len(self.tokens)
        for token, name, share in self._shares:
            if share > best[token][0]:
                best[token] = share, name
        return tuple(name for _, name in best)

    def summed(self, x: Tensor) -> Float[Tensor, "*b names"]:
        """x ``(…, tokens)`` summed over the tokens of each name, ``(…, names)``."""
        tokens, names, amounts = self._indices
        out = x.new_zeros(*x.shape[:-1], len(self))
        return out.index_add_(-1, names.to(x.device), x[..., tokens] * amounts.to(x))

    def averaged(self, x: Tensor, *, spelled: bool = False) -> Float[Tensor, "*b names d"]:
        """x ``(…, tokens, d)`` averaged over the tokens of each name, ``(…, names, d)``.

        With ``spelled``, tokens without characters, such as the sign of a capital, are ignored
        unless a name has no others.
        """
        tokens, names, amounts = self._indices
        amounts = (amounts * self._spells[tokens] if spelled else amounts).to(x)
        total = amounts.new_zeros(len(self)).index_add_(0, names.to(x.device), amounts)
        out = x.new_zeros(*x.shape[:-2], len(self), x.shape[-1])
        out.index_add_(-2, names.to(x.device), x[..., tokens, :] * amounts[:, None])
        return out / total[:, None]

    def span(self, name: int) -> Span:
        """The span of a name in the text; empty for a special token."""
        unit = self._units[name]
        return unit if isinstance(unit, tuple) else self.spans[unit]

    def tokens_of(self, name: int) -> list[int]:
        """The numbers of the tokens of a name, given by its number.

        A token that spans two words belongs to both.
        """
        return self._tokens_of[name]

    def find(self, word: str | int) -> int:
        """The number of a word, given by number or spelling; the second *it* is ``it#2``.

        An exact match has precedence over one that ignores case. Special tokens, such as ``[CLS]``,
        are found by name.
        """
        if not isinstance(word, str):
            return self._numbered(word)
        wanted, _, ordinal = word.partition("#")
        if not ordinal.isdecimal() or not wanted:
            wanted, ordinal = word, ""
        names = [(i, name) for i, name in enumerate(self._written) if self.is_word[i]]
        parts = [(i, part) for i, name in names for part in WORD.findall(name)]
        found = (
            [i for i, name in names if name == wanted]
            or [i for i, part in parts if part == wanted]
            or [i for i, name in names if name.casefold() == wanted.casefold()]
            or [i for i, part in parts if part.casefold() == wanted.casefold()]
            or [i for i, name in enumerate(self.names) if name == wanted]
        )
        if not found:
            near = difflib.get_close_matches(wanted, dict.fromkeys(name for _, name in names), 1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; it has {_some(names)}"
            raise WordError(f"the text has no word {wanted!r}{hint}")
        if ordinal and not 1 <= int(ordinal) <= len(found):
            raise WordError(
                f"the text has {wanted!r} {counted(len(found), 'time')}, so there is no {word!r}"
            )
        if len(found) > 1 and not ordinal:
            every = [f"{wanted}#{n + 1}" for n in range(len(found))]
            said = f"{every[0]}, {every[1]}, … {every[-1]}" if found[3:] else " or ".join(every)
            raise WordError(f"the text has {wanted!r} {len(found)} times; say which: {said}")
        return found[int(ordinal) - 1 if ordinal else 0]

    def has(self, word: str | int) -> bool:
        """Whether the text has a word, ignoring case."""
        if not isinstance(word, str):
            return True
        wanted = word.partition("#")[0].casefold() or word
        names = [name.casefold() for name in (*self._written, *self.names)]
        return any(wanted == name or wanted in WORD.findall(name) for name in names)

    def called(self, name: int) -> str:
        """The unique spelling of a name, given by its number: ``it#2`` if there are several."""
        return self._called[name]

    @cached_property
    def _called(self) -> list[str]:
        counts, so_far = Counter(self.names), Counter[str]()
        found = []
        for name in self.names:
            so_far[name] += 1
            found.append(visible(name) + (f"#{so_far[name]}" if counts[name] > 1 else ""))
        return found

    def at(self, position: int) -> int:
        """The number of the word at a character offset."""
        for i, one in enumerate(self._units):
            if isinstance(one, tuple) and one[0] <= position < one[1]:
                return i
        raise WordError(f"no word at character {position} of the text")

    def as_tokens(self) -> Words:
        """A copy in which every subword is a word."""
        return _Apart(self.text, self.tokens, self.spans, self.special)

    @property
    def _written(self) -> Sequence[str]:
        """The names as spelled in the text."""
        return self.names

    def _numbered(self, word: object) -> int:
        try:
            number = index(word)  # type: ignore[arg-type]
        except TypeError:
            raise OptionError(
                f"word is {type(word).__name__}, expected a word of the text, or its number"
            ) from None
        if isinstance(word, bool) or not -len(self) <= number < len(self):
            raise OptionError(
                f"word {word!r}, but there are {len(self)}, numbered from 0, special tokens "
                "included"
            )
        return number % len(self)

    @cached_property
    def _units(self) -> list[Span | int]:
        """The units with a name, in order: the span of a word, or the number of a token.

        A token is a unit of its own if it is special, or part of no word.
        """
        own: dict[int, list[int]] = {}
        for token, word, _ in overlaps(self._inked, self._words):
            own.setdefault(token, []).append(word)
        units: dict[Span | int, None] = {}
        for i, special in enumerate(self.special):
            if special or i not in own:
                units[i] = None
            else:
                units.update(dict.fromkeys(self._words[j] for j in own[i]))
        return list(units)

    @cached_property
    def _shares(self) -> list[tuple[int, int, float]]:
        """(token, name, share), where not 0."""
        number = {unit: i for i, unit in enumerate(self._units)}
        found = [(unit, i, 1.0) for unit, i in number.items() if not isinstance(unit, tuple)]
        alone = {token for token, *_ in found}
        for token, word, share in overlaps(self._inked, self._words):
            if token not in alone:
                found.append((token, number[self._words[word]], share))
        return sorted(found)

    @cached_property
    def _tokens_of(self) -> list[list[int]]:
        found: list[list[int]] = [[] for _ in self._units]
        for token, name, _ in self._shares:
            found[name].append(token)
        return found

    @cached_property
    def _indices(self) -> tuple[Tensor, Tensor, Tensor]:
        tokens, names, amounts = zip(*self._shares, strict=True) if self._shares else ((), (), ())
        return (
            torch.tensor(tokens, dtype=torch.long),
            torch.tensor(names, dtype=torch.long),
            torch.tensor(amounts, dtype=torch.float64),
        )

    @cached_property
    def _spells(self) -> Tensor:
        """For each token, 1 if it has characters or no token of its name does, else 0."""
        spells = torch.tensor([start < end for start, end in self._inked], dtype=torch.float64)
        for tokens in self._tokens_of:
            if not spells[tokens].any():
                spells[tokens] = 1.0
        return spells

    @cached_property
    def _inked(self) -> list[Span]:
        """The spans without leading spaces; for a space, an empty span after it."""
        found = []
        for start, end in self.spans:
            first = start
            while first < len(self.text) and self.text[first].isspace():
                first += 1
            found.append((first, max(first, end)))
        return found

    @cached_property
    def _words(self) -> list[Span]:
        """The spans of words; in a script without spaces, of subwords.

        Words that share a subword, such as a word and a full stop that the tokenizer joins, are
        one.
        """
        found: list[Span] = []
        ends = sorted({edge for span in self.spans for edge in span})
        for start, end in word_spans(self.text):
            cuts = [start]
            if UNSPACED.search(self.text, start, end):
                cuts += [edge for edge in ends if start < edge < end]
            found += zip(cuts, [*cuts[1:], end], strict=True)
        return self._joined(found)

    def _joined(self, words: list[Span]) -> list[Span]:
        """The words, with those that share a subword merged."""
        shared = {
            word
            for (before, _, _), (token, word, _) in pairwise(overlaps(self._inked, words))
            if token == before and not self.special[token]
        }
        joined: list[Span] = []
        for i, (start, end) in enumerate(words):
            if i in shared:
                joined[-1] = joined[-1][0], end
            else:
                joined.append((start, end))
        return joined


class _Apart(Words):
    """`Words` in which every subword is a word."""

    @property
    def _written(self) -> Sequence[str]:
        return [self.text[start:end] for start, end in self._inked]

    @cached_property
    def _units(self) -> list[Span | int]:
        return list(range(len(self.tokens)))

    @cached_property
    def _shares(self) -> list[tuple[int, int, float]]:
        return [(i, i, 1.0) for i in range(len(self.tokens))]

    def at(self, position: int) -> int:
        for i, (start, end) in enumerate(self.spans):
            if start <= position < end and not self.special[i]:
                return i
        return super().at(position)


def _some(names: list[tuple[int, str]]) -> str:
    shown = ", ".join(name for _, name in names[:12])
    return (shown + (", …" if len(names) > 12 else "")) or "no words"
