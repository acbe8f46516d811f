"""Which heads attend from one word to another, and how reliably."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor

from regard.errors import FileError, OptionError, RegardError, counted
from regard.lens.adapters import ModelAdapter, Reading, TranslatorAdapter, writes_for
from regard.lens.arguments import whole
from regard.lens.capture import watch
from regard.lens.estimation import step_links
from regard.lens.explanation import Explanation
from regard.lens.measures import ranked_cells
from regard.lens.methods.norm import of_heads
from regard.lens.predictions import Prediction
from regard.notebook import preformatted
from regard.text import read_lines
from regard.text.words import WORD, Words

BATCH = 64


@dataclass(frozen=True)
class Head:
    """The strength of one link in one head."""

    layer: int
    head: int
    module: str
    attention: float
    norm: float
    """Weight × length of the value as the head passes it on."""
    knockout: float | None = None
    """How far the word's vector moves without the link in this head; None if not known."""
    effect: float | None = None
    """Of a written word: the estimated change of log p(word) − log p(instead) without the link in
    this head."""
    estimated: bool = False
    """Whether `knockout` is an estimate."""


class Heads(Sequence[Head]):
    """Heads, sorted by their attention for one link."""

    def __init__(self, looks: str, at: str, heads: Iterable[Head], place: str = "encoder") -> None:
        self.looks, self.at, self.place = looks, at, place
        self._heads = sorted(heads, key=lambda one: -one.attention)

    @classmethod
    def of_explanation(cls, e: Explanation, to: int) -> Heads:
        """The heads of a word that is read."""
        numbers = {
            "attention": e.attention,
            "norm": e.norm,
            "knockout": e.knockout_of_heads,
            "estimated": e.heads_estimated,
        }
        return cls(e.names[e.word], e.names[to], _heads(e.layers, to, numbers))

    @classmethod
    def of_prediction(cls, prediction: Prediction, to: int) -> Heads:
        """The cross-attention heads of a written word."""
        sites, attention, effects = step_links(prediction)
        numbers = {"attention": attention, "norm": of_heads(prediction), "effect": effects}
        _, keys = prediction.axes(prediction.place)
        heads = _heads([site.module for site in sites], to, numbers)
        return cls(prediction.word, keys.names[to], heads, prediction.place)

    def __getitem__(self, i: Any) -> Any:
        return self._heads[i]

    def __len__(self) -> int:
        return len(self._heads)

    def __repr__(self) -> str:
        first = self._heads[0]
        return (
            f"Heads({self.looks!r} → {self.at!r}: {len(self)} heads, most attention "
            f"{first.attention:.3f} in layer {first.layer} head {first.head})"
        )

    def _repr_html_(self) -> str:
        return preformatted(str(self))

    def __str__(self) -> str:
        written = any(one.effect is not None for one in self._heads)
        last = "  effect" if written else "knockout"
        lines = [f"{self.looks} → {self.at}", f"layer  head  attention   norm  {last}"]
        for one in self._heads[:10]:
            value = one.effect if written else one.knockout
            knocked = "·" if value is None else f"{'~' * one.estimated}{value:.4f}"
            lines.append(
                f"{one.layer:5}  {one.head:4}  {one.attention:9.3f}  {one.norm:5.2f}  {knocked:>8}"
            )
        return "\n".join(lines)


def _heads(modules: Sequence[str], to: int, numbers: Mapping[str, Tensor | None]) -> Iterator[Head]:
    """The heads of these layers, from numbers ``(layers, heads, names)`` of the links to a name."""
    known = {name: x[..., to].tolist() for name, x in numbers.items() if x is not None}
    for layer, module in enumerate(modules):
        for head in range(len(known["attention"][layer])):
            yield Head(layer, head, module, **{name: x[layer][head] for name, x in known.items()})


@dataclass(frozen=True)
class Question:
    """A text, the word that refers, what it refers to, and what else it might."""

    text: str
    word: str | int
    referent: str | int
    others: tuple[str | int, ...] = ()
    by_character: bool = False
    """Whether words are given by the position of a character in the text."""

    @classmethod
    def of(cls, item: object) -> Question:
        """A question from a pair of the built-in corpus, a mapping, or (text, word, referent)."""
        from regard.challenge import Pair

        if isinstance(item, Question):
            return item
        if isinstance(item, Pair):
            if item.referent_position is None or item.other_position is None:
                raise OptionError(
                    f"score_heads: a pair of kind {item.kind!r}, expected 'reference'"
                )
            item = vars(item)
        elif isinstance(item, Sequence) and not isinstance(item, str) and len(item) == 3:
            item = dict(zip(("text", "word", "referent"), item, strict=True))
        if isinstance(item, Mapping):
            return _from_mapping(item)
        raise OptionError(
            f"score_heads: {item!r}, expected (text, word, referent), a mapping with these names, "
            "or a pair of the built-in corpus"
        )

    def places(self, reading: Reading) -> Places:
        """The question by the numbers of its words."""
        words = reading.words
        given = (self.word, self.referent, *self.others)
        named = [words.at(int(one)) if self.by_character else words.find(one) for one in given]
        word, *among = named
        if word in among:
            role = "referent" if word == among[0] else "one of the others"
            raise OptionError(f"score_heads: {words.called(word)!r} is both word and {role}")
        if self.others and len(set(among)) == 1:
            raise OptionError(f"score_heads: {words.called(among[0])!r} is both referent and other")
        for i in named:
            if not words.is_word[i]:
                raise OptionError(f"score_heads: {words.names[i]!r} is a special token, not a word")
        candidates = among if self.others else ()
        return Places(reading, word, among[0], tuple(dict.fromkeys(candidates)))

    def nouns(self) -> Iterator[str]:
        """The words that the question names as possible referents."""
        for one in (self.referent, *self.others):
            if isinstance(one, str):
                yield one.partition("#")[0].casefold()


@dataclass(frozen=True)
class Places:
    """A question about a text that was read, by the numbers of its words."""

    reading: Reading
    word: int
    referent: int
    candidates: tuple[int, ...]
    """All that the word may refer to, if the question says so."""

    @property
    def among(self) -> Sequence[int]:
        """The words a head chooses from: the candidates, or else every other word."""
        real = enumerate(self.reading.words.is_word)
        return self.candidates or [i for i, there in real if there and i != self.word]

    def nearest(self, nouns: Set[str]) -> int:
        """The nearest noun before the word, or else behind it; see `HeadScores.nearest`."""
        names = self.reading.words.names
        known = self.candidates or [
            i for i in self.among if i == self.referent or _is_noun(names[i], nouns)
        ]
        return min(known, key=lambda i: (i > self.word, abs(i - self.word)))


def _is_noun(name: str, nouns: Set[str]) -> bool:
    """Whether this is one of the nouns, or the plural of one; punctuation behind it aside."""
    return any(
        not nouns.isdisjoint((part, part.removesuffix("s"), part.removesuffix("es")))
        for part in WORD.findall(name.casefold())
    )


def _from_mapping(item: Mapping[str, Any]) -> Question:
    if "source" in item and item.get("referent_position") is not None:  # as `regard corpus` writes
        places = [item.get(f"{name}position") for name in ("", "referent_", "other_")]
        if not all(isinstance(place, int) for place in places):
            raise OptionError("score_heads: expected the positions of word, referent and other")
        word, referent, other = cast(list[int], places)
        return Question(str(item["source"]), word, referent, (other,), by_character=True)
    missing = [name for name in ("text", "word", "referent") if name not in item]
    if missing:
        raise OptionError(f"score_heads: {missing[0]!r} is missing in {dict(item)!r}")
    text, word, referent = (item[name] for name in ("text", "word", "referent"))
    others = item.get("others", ())
    listed = isinstance(others, list | tuple)
    named = (word, referent, *(others if listed else ()))
    if not (isinstance(text, str) and listed and all(isinstance(x, str | int) for x in named)):
        raise OptionError(
            "score_heads: expected a text, a word, a referent and a list of others, got "
            f"{dict(item)!r}"
        )
    return Question(text, word, referent, tuple(others))


def read_questions(path: str | Path) -> Iterator[Question]:
    """The questions of a JSONL file: text, word, referent and, if there are, others."""
    for number, line in enumerate(read_lines(path), 1):
        if line.strip():
            try:
                yield Question.of(json.loads(line))
            except (ValueError, RegardError) as error:
                raise FileError(f"{path}: line {number}: {error}") from None


@dataclass(frozen=True, eq=False)
class HeadScores:
    """How often each head attends from a word to what it refers to, rather than to others."""

    places: dict[str, Float[Tensor, "layers heads"]]
    """The accuracy of each head, by place: ``"encoder"`` (the only one of a single stack); of a
    translator also ``"cross"``, from the row that writes the translation of the word to the
    referent, and ``"decoder"``, from there to the word written for the referent."""
    nearest: float
    """The accuracy of the baseline: the nearest noun before the word, or else behind it.

    The nouns of a text are those its question names: the referent and the others. If it names no
    others: all words that any question names, or that are nouns of the built-in corpus, in the
    plural too. A noun that is in neither is never guessed."""
    n: int
    layers: tuple[str, ...]

    @property
    def accuracy(self) -> Float[Tensor, "layers heads"]:
        """The accuracy of the heads that read the text."""
        return next(iter(self.places.values()))

    def best(self, n: int = 5, place: str | None = None) -> list[tuple[int, int, float]]:
        """(layer, head, accuracy) of the n best at a place, by default where the text is read."""
        if place is not None and place not in self.places:
            raise OptionError(f"best: place={place!r}, expected one of {', '.join(self.places)}")
        accuracy = self.accuracy if place is None else self.places[place]
        return ranked_cells(accuracy, descending=True)[: whole("best: n", n)]

    def ranked(self, n: int = 10) -> list[tuple[str, int, int, float]]:
        """(place, layer, head, accuracy) of the n best of all places."""
        every = [(place, *one) for place in self.places for one in self.best(n, place)]
        return sorted(every, key=lambda one: -one[3])[:n]

    def __repr__(self) -> str:
        place, layer, head, right = self.ranked(1)[0]
        best = f"best: {place} layer {layer} head {head}, {right:.1%}"
        return f"HeadScores({counted(self.n, 'question')}, {best})"

    def __str__(self) -> str:
        questions = "1 question" if self.n == 1 else f"{self.n} questions"
        lines = [f"{questions}; nearest noun: {self.nearest:.1%}", "place    layer  head  right"]
        lines += [
            f"{place:7}  {layer:5}  {head:4}  {right:.1%}"
            for place, layer, head, right in self.ranked()
        ]
        return "\n".join(lines)


@torch.no_grad()
def score_heads(
    adapter: ModelAdapter, questions: Iterable[object], read: Any, progress: Any
) -> HeadScores:
    """The accuracy of every head; see `Lens.score_heads`."""
    from regard.challenge import NOUNS, WORDS

    every = [Question.of(one) for one in questions]
    if not every:
        raise OptionError("score_heads: there are no questions")
    right: dict[str, Tensor] = defaultdict(lambda: torch.zeros(()))
    guessed, n = 0, len(every)
    nouns = {*NOUNS, *WORDS}.union(*(question.nouns() for question in every))
    for start in range(0, len(every), BATCH):
        asked = [one.places(read(one.text)) for one in every[start : start + BATCH]]
        layers, found = _read_scores(adapter, asked)
        hits = {"encoder": found}
        writes = all(writes_for(adapter, one.reading) for one in asked)
        if isinstance(adapter, TranslatorAdapter) and writes:
            hits |= _written_scores(adapter, asked)
        for place, one in hits.items():
            right[place] = right[place] + one
        guessed += sum(one.nearest(nouns) == one.referent for one in asked)
        progress(start + len(asked))
    return HeadScores({place: one / n for place, one in right.items()}, guessed / n, n, layers)


def _read_scores(adapter: ModelAdapter, asked: Sequence[Places]) -> tuple[tuple[str, ...], Tensor]:
    """The modules that read a text, and the number of hits of each of their heads."""
    spelled = [one.reading.words.tokens_of(one.word) for one in asked]
    queries = sorted({token for tokens in spelled for token in tokens})
    with watch(adapter.model) as seen:
        adapter.layers([one.reading for one in asked])
    looks = seen.layers()
    weights = [look.weights(queries=queries) for look in looks.values()]  # (b, h, queries, n) each
    hits = []
    for row, at in enumerate(asked):
        words, size = at.reading.words, len(at.reading.ids)
        looking = [queries.index(token) for token in spelled[row]]
        given = [words.summed(one[row][:, looking, :size].mean(1)) for one in weights]
        hits.append(_hits(torch.stack(given), at))
    return tuple(looks), torch.stack(hits).sum(0)


def _written_scores(adapter: TranslatorAdapter, asked: Sequence[Places]) -> dict[str, Tensor]:
    """The hits at the other two places, from the row that writes the translation of the word."""
    readings = [one.reading for one in asked]
    written = [tokens for tokens, _ in adapter.translate_all(readings)]
    with watch(adapter.model) as seen:
        adapter.teacher_force(readings, written)
    cross = [one for one in seen if seen.kind(one) == "cross"]
    own = [one for one in seen if seen.kind(one) == "self" and not adapter.is_encoder(one)]
    to_source, back = (
        torch.stack([seen[one].weights() for one in names], 1) for names in (cross, own)
    )  # (b, layers, h, t, keys)
    aligned = to_source.mean((1, 2))
    hits: dict[str, list[Tensor]] = {"cross": [], "decoder": []}
    for row, at in enumerate(asked):
        words, size = at.reading.words, len(at.reading.ids)
        looking = words.summed(aligned[row, : len(written[row]), :size])  # (t, units)
        looking = looking * torch.tensor(words.is_word)
        looking = looking / looking.sum(1, keepdim=True).clamp(min=1e-9)
        step = _step(adapter.target_words(written[row]), looking[:, at.word])
        hits["cross"].append(_hits(words.summed(to_source[row, :, :, step, :size]), at))
        read = looking.argmax(0) + 1  # where the word written for each source word is read
        given = back[row, :, :, step][..., read].masked_fill(read > step, 0.0)
        hits["decoder"].append(_hits(given, at))
    return {place: torch.stack(found).sum(0) for place, found in hits.items()}


def _step(target: Words, looking: Tensor) -> int:
    """The step that writes the translation of a word, by the attention of each step to it.

    Steps that write punctuation are left out: a comma before a clause attends to its pronoun, too.
    """
    spelled = [any(map(str.isalnum, target.names[i])) for i in target.places[1:]]
    return int((looking * torch.tensor(spelled)).argmax()) if len(looking) else 0


def _hits(given: Tensor, at: Places) -> Tensor:
    """1.0 for heads whose weight is largest for the referent, ``(layers, heads)``."""
    rest = [i for i in at.among if i != at.referent]
    others = given[..., rest].amax(-1) if rest else given.new_zeros(given.shape[:2])
    return (given[..., at.referent] > others).double()
