"""Predictions of a translator: one written word each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import compress
from string import punctuation

import torch
from jaxtyping import Float
from torch import Tensor

from regard.errors import OptionError, WordError
from regard.lens.adapters import Resumed
from regard.lens.capture import Cut, Seen, cut
from regard.lens.decoding import Decode, continue_draft, decode_without
from regard.lens.predictions.prediction import (
    Axis,
    Prediction,
    has_gradients,
    in_rows,
)
from regard.lens.predictions.translated_text import Translated, has_letters
from regard.text.words import WORD, Words
from regard.view.figure.wording import percent

PRONOUNS = ("it", "its", "they", "them", "their")
"""English pronouns whose translation depends on what they refer to."""
SURE_OF_TEXT = 0.45
"""The mean probability of the written tokens below which a translation is marked as unsure."""
END = "the end"
"""The name of the choice to write nothing more."""
PIECES = 4
"""The largest number of tokens of an alternative word."""


class TranslationPrediction(Prediction):
    """The token at one step of a translation, given the source and everything before it."""

    place = "cross"

    def __init__(
        self,
        translated: Translated,
        step: int,
        instead: int | None = None,
        word_instead: str | None = None,
        every_place: bool = True,
    ) -> None:
        adapter, self.every_place = translated.adapter, every_place
        self.translated, self.adapter, self.memory = translated, adapter, translated.memory
        self.model, self.embeddings = adapter.model, adapter.embeddings
        self.words = translated.reading.words
        self.step = step
        self.token = [*translated.tokens, adapter.end][step]
        self.prefix = [adapter.start, *translated.tokens[:step]]
        self.length = len(translated.reading.ids) + len(self.prefix)
        written = translated.written
        self.written_text = written.text
        self.position = written.places[step]
        self.output_words = tuple(compress(written.names, written.is_word))
        self.word = written.called(self.position)
        self._word_instead = word_instead
        self.instead = self.default_instead() if instead is None else instead

    @cached_property
    def alignment(self) -> tuple[tuple[int, int], ...]:  # type: ignore[override]
        return self.translated.alignment()

    @cached_property
    def word_instead(self) -> str:  # type: ignore[override]
        """The word that begins with `instead`, as the model would continue it."""
        return self._word_instead or self.named([self.instead])[self.instead]

    def default_instead(self) -> int:
        """What is written without the source word that matters most; the runner-up if the same.

        The probabilities below the first come from label smoothing in training, so the runner-up
        alone says little.
        """
        found = self.without_word
        chosen = self.chosen(found)
        order: list[int] = self.probability(found).argsort().tolist()
        for unit in order:
            if self.is_word(unit) and chosen[unit] != self.token:
                return chosen[unit]
        best: list[int] = self._logits[self.step].topk(2).indices.tolist()
        return best[1] if best[0] == self.token else best[0]

    @cached_property
    def _baseline(self) -> tuple[Tensor, Seen]:
        """The same, from a pass over the whole translation, which it may share with others."""
        recorded = self.translated.recorded(self.every_place)
        with torch.enable_grad():
            torch.autograd.grad(self.metric(recorded.logits[0, self.step]), recorded.leaves)
        if not has_gradients(recorded.seen):
            return self._with_gradients(watched=True)
        return self._logits[self.step], recorded.seen

    @property
    def _logits(self) -> Float[Tensor, "t choices"]:
        return self.translated.decoded(self.every_place)[1]

    @property
    def queries(self) -> tuple[int, ...]:
        return (self.step,)

    def logits(self, rows: int = 1) -> Float[Tensor, "rows choices"]:
        """The logits at this step of passes over the whole translation, as `seen` is."""
        memory = self.memory.expand(rows, -1, -1)
        if self.every_place:
            memory = self.adapter.encode(self.translated.reading, rows)
        return self.adapter.step_logits(memory, self.translated.prefix(memory), self.step)[:, 0]

    def logits_without(self, cuts: Sequence[Sequence[Cut]]) -> Float[Tensor, "rows choices"]:
        resumed = self._resumed(cuts)
        if resumed is not None:
            last = torch.tensor([self.prefix[-1:]] * len(cuts), device=self.memory.device)
            with cut(self.model, self._behind(cuts)):
                return resumed(last, 0)[:, 0]
        memory = self._memory_without(cuts)
        with cut(self.model, self._in_decoder(cuts)):
            return self._decode(memory)

    def _resumed(self, cuts: Sequence[Sequence[Cut]]) -> Resumed | None:
        """Decodes from this step on, if none of the links is of a row before it."""
        if any(self._in_encoder(x) or x.first < self.step for links in cuts for x in links):
            return None
        seen, _ = self.translated.decoded(self.every_place)
        return self.adapter.resumed(seen, self.memory, self.step)

    def _decode_without(self, cuts: Sequence[Sequence[Cut]]) -> Decode:
        """Decodes with each set of links cut in its own row."""
        resumed = self._resumed(cuts)
        if resumed is None:
            memory = self._memory_without(cuts)
            return decode_without(self.adapter, memory, self._in_decoder(cuts))

        def logits(rows: list[int], prefix: Tensor, first: int) -> Tensor:
            tokens = prefix[:, self.step :].to(self.memory.device)
            with cut(self.model, self._behind([cuts[row] for row in rows])):
                return resumed(tokens, first - self.step)

        return logits

    def _behind(self, cuts: Sequence[Sequence[Cut]]) -> list[Cut]:
        """The links of the rows from this step on, counted from there."""
        return in_rows([[one.behind(self.step) for one in links] for links in cuts])

    def _decode(self, memory: Float[Tensor, "rows n width"]) -> Float[Tensor, "rows choices"]:
        prefix = torch.tensor([self.prefix], device=memory.device).expand(len(memory), -1)
        return self.adapter.step_logits(memory, prefix, -1)[:, 0]

    def _memory_without(self, cuts: Sequence[Sequence[Cut]]) -> Float[Tensor, "rows n width"]:
        """The encoder's output of each row; it runs for rows in which links of its own are cut."""
        inside = [[one for one in links if self._in_encoder(one)] for links in cuts]
        rows = [row for row, links in enumerate(inside) if links]
        memory = self.memory.expand(len(cuts), -1, -1)
        if not rows:
            return memory
        with cut(self.model, in_rows([inside[row] for row in rows])):
            read = self.adapter.encode(self.translated.reading, len(rows))
        return memory.index_copy(0, torch.tensor(rows, device=memory.device), read)

    @cached_property
    def _axes(self) -> dict[str, tuple[Axis, Axis]]:
        source = Axis.of(self.words, len(self.translated.reading.ids))
        rows = Axis.of(self.translated.written, len(self.prefix))
        read = Axis.of(self.translated.read, len(self.prefix))
        return {"encoder": (source, source), "decoder": (rows, read), "cross": (rows, source)}

    def axes(self, place: str) -> tuple[Axis, Axis]:
        return self._axes[place]

    def place_of(self, module: str, kind: str) -> str:
        if kind == "cross":
            return "cross"
        return "encoder" if self.adapter.is_encoder(module) else "decoder"

    def spell(self, token: int) -> str:
        return self.adapter.spell_choice(token)

    def named(self, tokens: Iterable[int]) -> dict[int, str]:
        """The same; the beginning of a word that goes on as ``schl…``, and the end as such."""
        return self.named_and_written(tokens, [], [])[0]

    def text_with(self, cuts: Sequence[Sequence[Cut]], first: Sequence[int]) -> list[str]:
        return self.named_and_written([], cuts, first)[1]

    @torch.no_grad()
    def named_and_written(
        self, tokens: Iterable[int], cuts: Sequence[Sequence[Cut]], first: Sequence[int]
    ) -> tuple[dict[int, str], list[str]]:
        """Both from one greedy continuation: a choice is named as the model would go on."""
        known = {self.token: self.word}
        if self._word_instead is not None:
            known[self.instead] = self._word_instead
        names = {token: known.get(token, "") for token in tokens}
        others = [token for token in names if token not in known]
        if not others and not cuts:
            return names, []
        begun = [[*self.prefix[1:], one] for one in (*others, *first)]
        longest = self.adapter.longest_output(self.memory.shape[1])
        limits = [min(longest, len(self.prefix) - 1 + PIECES)] * len(others)
        rows = continue_draft(
            self.adapter,
            self._decode_without([*([] for _ in others), *cuts]),
            begun,
            self.translated.tokens,
            [*limits, *[longest] * len(cuts)],
        )
        for token, row in zip(others, rows, strict=False):
            names[token] = self._name(token, row)
        self._word_instead = names.get(self.instead, self._word_instead)
        return names, [self.adapter.detokenize(row) for row in rows[len(others) :]]

    def _name(self, token: int, tokens: Sequence[int]) -> str:
        """The name of a choice that is continued by these tokens, behind those before it."""
        at = len(self.prefix)
        if len(tokens) < at:
            return END
        words = self.adapter.target_words(tokens)
        units = words.places
        if token == self.instead:
            return words.names[units[at]]
        goes_on = len(tokens) > at and units[at] == units[at + 1]
        name = self.adapter.target_words(tokens[:at]).names[-1]
        return f"{name}…" if goes_on else name

    def _in_encoder(self, one: Cut) -> bool:
        if one.kind == "cross":
            return False
        return not isinstance(one.layer, str) or self.adapter.is_encoder(one.layer)

    def _in_decoder(self, cuts: Sequence[Sequence[Cut]]) -> list[Cut]:
        return [one for one in in_rows(cuts) if not self._in_encoder(one)]


def choose(
    translated: Translated, word: str | int | None, instead: str | None, every_place: bool = True
) -> TranslationPrediction:
    """The prediction of a written word, compared with an alternative.

    `word` may also be a word of the source: then it is the word written for it. For `instead`, if
    it is not given, see `Prediction.default_instead`.
    """
    unit = _unit(translated, word)
    first = _first(translated.written, unit)
    step, other = (first, None) if instead is None else _differing(translated, unit, instead)
    found = TranslationPrediction(translated, step, other, instead, every_place)
    note = ""
    if step != first:
        common = translated.adapter.detokenize(translated.tokens[first:step])
        note = f"Both words begin with {common!r}; they are compared at the first differing token."
    elif instead is not None and len(pieces := translated.adapter.encode_target(instead)) > 1:
        note = (
            f"{instead!r} is {len(pieces)} tokens; the words are compared at the first that "
            f"differs, {found.spell(found.instead)!r}."
        )
    found.note = " ".join(filter(None, (note, _doubt(translated))))
    return found


def _doubt(translated: Translated) -> str:
    """A note about a translation that the model itself finds improbable."""
    if translated.confidence >= SURE_OF_TEXT:
        return ""
    share = percent(translated.confidence, " ")
    return (
        f"The model is unsure of this whole translation ({share} a subword, on average): it has "
        "seen little text like this."
    )


def _unit(translated: Translated, word: str | int | None) -> int:
    """The number of a written word, given by itself or by its source word."""
    written, source = translated.written, translated.reading.words
    if word is None:
        return _default_unit(translated)
    try:
        return written.find(word)
    except WordError as error:
        if not isinstance(word, str) or not source.has(word):
            hint = str(error).partition(";")[2]
            raise WordError(
                f"why: the model did not write {word!r}, it wrote {written.text!r};{hint}"
                if not written.has(word)
                else f"why: {error}, in {written.text!r}"
            ) from None
    return _written_for(translated, source.find(word))


def _written_for(translated: Translated, unit: int) -> int:
    """The written word that a source word became, by the model's own alignment."""
    rows = translated.steps_for(unit)
    if not rows:
        called = translated.reading.words.called(unit)
        raise WordError(
            f"why: no written word is aligned with {called!r}; name a word of "
            f"{translated.written.text!r}"
        )
    return translated.written.places[rows[0]]


def _default_unit(translated: Translated) -> int:
    """The word written for a pronoun; else the one that depends most on a single source word."""
    source = translated.reading.words
    for i, name in enumerate(source.names):
        if name.casefold().strip(punctuation) in PRONOUNS:
            with suppress(WordError):
                return _written_for(translated, i)
    adapter, tokens, memory = translated.adapter, translated.tokens, translated.memory
    units = [i for i, real in enumerate(source.is_word) if real]
    cuts = [
        Cut(range(len(tokens)), source.tokens_of(unit), row=row, kind="cross")
        for row, unit in enumerate(units)
    ]
    prefix = torch.tensor([[adapter.start, *tokens[:-1]]], device=memory.device)
    with torch.no_grad(), cut(adapter.model, cuts):
        rows = len(units)
        logits = adapter.step_logits(memory.expand(rows, -1, -1), prefix.expand(rows, -1))
    chosen = torch.tensor(tokens, device=memory.device).expand(rows, -1).unsqueeze(-1)
    lowest = logits.softmax(-1).gather(-1, chosen).squeeze(-1).amin(0)
    places, names = translated.written.places, translated.written.names
    own = [i for i in range(len(tokens)) if has_letters(names[places[i]])]
    return places[min(own or range(len(tokens)), key=lambda i: float(lowest[i]))]


def _differing(translated: Translated, unit: int, instead: str) -> tuple[int, int]:
    """The step at which a word and its alternative differ, and the token of the latter there."""
    adapter, words = translated.adapter, translated.written
    start, end = words.span(unit)
    own = WORD.search(words.text, start, end)
    start, end = own.span() if own is not None else (start, end)
    if instead.strip() in ("", words.text[start:end]):
        raise OptionError(f"why: instead={instead!r} is the word itself, expected another word")
    other = [*adapter.encode_target(words.text[:start] + instead + words.text[end:]), adapter.end]
    tokens = [*translated.tokens, adapter.end]
    pairs = enumerate(zip(tokens, other, strict=False))
    step = next((i for i, (one, two) in pairs if one != two), len(tokens) - 1)
    if step in words.tokens_of(unit):
        return step, adapter.in_vocabulary(instead, [other[step]])[0]
    first = _first(words, unit)
    token = adapter.encode_target(instead)[first - words.tokens_of(unit)[0]]
    return first, adapter.in_vocabulary(instead, [token])[0]


def _first(words: Words, unit: int) -> int:
    """The first token of a word that spells a part of it, unlike a mark for capitals."""
    tokens = words.tokens_of(unit)
    return next((i for i in tokens if words.spans[i][0] < words.spans[i][1]), tokens[0])
