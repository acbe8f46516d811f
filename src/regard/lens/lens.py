"""`Lens`: a model and its tokenizer, and the questions one can ask them about a text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.errors import OptionError
from regard.lens._numbers import whole
from regard.lens.ablation import Link, Progress, knock, say_without_all
from regard.lens.adapters.adapter import ModelAdapter, Reading, speaks
from regard.lens.analysis import Analysis
from regard.lens.capture import cut, watch
from regard.lens.comparing import Comparison, compare
from regard.lens.explaining import MOST, explained, explained_written
from regard.lens.explanation import Explanation
from regard.lens.heads import Heads, HeadScores, read_questions, score_heads
from regard.lens.link_steps import LinkSteps, link_steps
from regard.lens.loading import adapter_of, opened
from regard.lens.results import Embedded, Told, Without
from regard.lens.summary import Summary, summarise
from regard.lens.verification import CONTROL, CUT, why
from regard.lens.why import Why
from regard.models import POCKET
from regard.text.words import Words
from regard.translate.translator import evaluating
from regard.vectors.similarity import Similarity, similar
from regard.view import Measures, View

FEW = 8
"""Links that are cut for each of the other written words of a page."""
SIDE_BY_SIDE = 64
"""Texts that are read at once."""


class Lens:
    """A model and its tokenizer, looked into.

    Args:
        model: a `Translator`, a model of `regard.nn`, or a model or pipeline of transformers.
        tokenizer: the one that belongs to it; a `Translator` or a pipeline has its own.
    """

    def __init__(self, model: object, tokenizer: object = None) -> None:
        self._adapter: ModelAdapter = adapter_of(model, tokenizer)
        self.name = type(model).__name__

    @classmethod
    def open(cls, what: str | Path) -> Lens:
        """The lens for a model by name: one that comes with regard, or a folder.

        A folder is what `regard train` wrote, or a model of transformers as it is saved. Nothing is
        fetched from the network, unless the name is written ``hub:org/name``.
        """
        lens = cls(*opened(what))
        lens.name = Path(what).name
        return lens

    @property
    def model(self) -> torch.nn.Module:
        return self._adapter.model

    def words(self, text: str, *, tokens: bool = False) -> Words:
        """The words of a text as the model reads it, or its tokens."""
        reading = self._read(text)
        return reading.words.as_tokens() if tokens else reading.words

    @torch.no_grad()
    def explain(
        self,
        text: str,
        word: str | int,
        *,
        tokens: bool = False,
        most: int = MOST,
        progress: Progress = lambda done, of: None,
    ) -> Explanation:
        """What a word of the text looks at, four ways, and what happens when it cannot.

        Args:
            text: the text.
            word: as it is written (``"it#2"`` is the second *it*), or its number; or a word that a
                translator writes, which looks at the text by its cross-attention.
            tokens: whether every subword is taken for a word of its own.
            most: cut so many links of the word, at most: those that the other three ways rank
                first.
            progress: called with how many links have been cut, of how many; in a long text each
                takes as long as it takes to read it.
        """
        analysis = self.analyse(text, tokens=tokens)
        words = analysis.reading.words
        with evaluating(self.model):
            if analysis.writes(word) and not words.has(word):
                with torch.inference_mode(False):
                    return explained_written(analysis, word)
            return explained(analysis, words.find(word), most, progress=progress)

    def explain_all(
        self,
        items: Iterable[tuple[str, str | int]],
        *,
        tokens: bool = False,
        most: int = MOST,
        progress: Callable[[int], object] = lambda done: None,
    ) -> Iterator[Explanation]:
        """An explanation for each (text, word), as they are asked for.

        Texts are read one by one: the links that are cut in a single text, in one head at a time,
        are hundreds, and fill the batches that the model reads.
        """
        pairs = _pairs("explain_all: items", items, "(text, word)")
        for done, (text, word) in enumerate(pairs, 1):
            yield self.explain(text, word, tokens=tokens, most=most)
            progress(done)

    def analyse(self, text: str, *, tokens: bool = False, target: str | None = None) -> Analysis:
        """What the model makes of a text, computed once, for several questions about it.

        `target`: a translation that the model is made to write, instead of its own.
        """
        return Analysis(self._adapter, self._read(text, tokens), target)

    def why(
        self,
        text: str | Analysis,
        word: str | int | None = None,
        *,
        instead: str | None = None,
        most: int = CUT,
        control: int = CONTROL,
    ) -> Why:
        """Why the model wrote a word: the links it depends on, and what it writes without them.

        The metric is log p(word) − log p(instead) at the step that writes the word. One backward
        pass estimates the effect of cutting every link of every head; the strongest are then cut.

        Args:
            text: what the model reads, or the analysis of it (see `analyse`).
            word: a word that the model wrote (``"es#2"`` is the second), or the word of the text
                that it was written for. Of a language model, any next word; of a masked one, the
                word at the mask, or one of the text to mask; of a classifier, a class; of an
                encoder without output head, a word of the text. If not given: of a translation,
                the word for a pronoun, else the one that depends most on a single word of the text;
                elsewhere the most probable choice.
            instead: the alternative. If not given: what is written without the word of the text
                that matters most, if that is another, else the runner-up.
            most: cut so many of the strongest links; with 0, all links to each input word are cut,
                but no single ones, which takes less than half the time.
            control: cut so many others, at random, to judge the estimate.
        """
        most, control = (
            whole(f"why: {name}", value, 0)
            for name, value in (("most", most), ("control", control))
        )
        analysis = self._analysed(text)
        with torch.inference_mode(False), torch.no_grad(), evaluating(self.model):
            prediction = analysis.prediction(word, instead)
            return replace(why(prediction, most=most, control=control), model=self.name)

    def steps(
        self,
        text: str,
        *,
        query: str | None = None,
        key: str | int,
        layer: int | None = None,
        head: int | None = None,
        place: str | None = None,
    ) -> LinkSteps:
        """The six steps of one real link, with the numbers that the model computed.

        Args:
            text: what the model reads.
            query: the word that attends: one that the model wrote, see `why`. With `place`
                ``"encoder"`` or ``"decoder"``, a row of that place.
            key: the word attended to.
            layer: of that place, from 0; the one with the largest weight if not given.
            head: the same.
            place: ``"cross"`` for a translator if not given; ``"encoder"`` or ``"decoder"``.
        """
        with torch.inference_mode(False), torch.no_grad(), evaluating(self.model):
            analysis = self.analyse(text)
            inside = (
                place is not None and analysis.adapter.kind == "translator" and place != "cross"
            )
            prediction = analysis.prediction(None if inside else query, None)
            return link_steps(prediction, key, query if inside else None, layer, head, place)

    @torch.no_grad()
    def knockouts(self, text: str, *, tokens: bool = False) -> Float[Tensor, "names names"]:
        """For every pair of words, how far the first moves if it cannot look at the second."""
        analysis = self.analyse(text, tokens=tokens)
        words = analysis.reading.words
        spelled = [tuple(words.tokens_of(i)) for i in range(len(words))]
        links = [Link(looks, at) for looks in spelled for at in spelled]
        with evaluating(self.model):
            return knock(analysis, links).vector.reshape(len(words), len(words))

    def heads(self, word: str | int, at: str | int, text: str, *, tokens: bool = False) -> Heads:
        """The heads, ranked by how much they look from one word at another.

        `word` is a word of the text, or one that a translator wrote: then the heads are those of
        its cross-attention.
        """
        analysis = self.analyse(text, tokens=tokens)
        words = analysis.reading.words
        looked = words.find(at)
        with torch.inference_mode(False), torch.no_grad(), evaluating(self.model):
            if analysis.adapter.translates and not words.has(word):
                return Heads.of_prediction(analysis.prediction(word, None), looked)
            return Heads.of_explanation(explained(analysis, words.find(word), 1, (looked,)), looked)

    def score_heads(
        self,
        questions: str | Path | Iterable[object] | None = None,
        *,
        progress: Callable[[int], object] = lambda done: None,
    ) -> HeadScores:
        """How often each head looks from a word at what it refers to.

        Args:
            questions: (text, word, referent) each, as tuples, mappings (which may have *others*
                that the word might refer to) or pairs of the built-in corpus; or a JSONL file of
                such mappings. The built-in reference sentences of the test split, if not said.
            progress: called with the number of questions that are done.

        A head is right if, of all other words, it gives the referent the most; if the question
        names others, or is of the built-in corpus, of these. The guess beside it (see
        `HeadScores.nearest`) takes the nearest noun.
        """
        if questions is None:
            from regard.challenge import generate

            questions = generate("reference", "test", 1000)
        elif isinstance(questions, str | Path):
            questions = read_questions(questions)
        asked = _several("score_heads: questions", questions)
        with evaluating(self.model):
            return score_heads(self._adapter, asked, self._read, progress)

    def embed(self, text: str, *, tokens: bool = False) -> Embedded:
        """The contextual vector of every word at every layer."""
        return self.embed_all([text], tokens=tokens)[0]

    @torch.no_grad()
    def embed_all(self, texts: Iterable[str], *, tokens: bool = False) -> list[Embedded]:
        """The same for many texts, many at a time."""
        readings = [self._read(text, tokens) for text in _several("embed_all: texts", texts)]
        order = sorted(range(len(readings)), key=lambda i: len(readings[i].ids))
        found: dict[int, Embedded] = {}
        with evaluating(self.model):
            for start in range(0, len(order), SIDE_BY_SIDE):
                part = order[start : start + SIDE_BY_SIDE]
                layers = torch.stack(self._adapter.layers([readings[i] for i in part]), 1)
                for i, vectors in zip(part, layers, strict=True):
                    words = readings[i].words
                    found[i] = Embedded(words, words.averaged(vectors[:, : len(words.tokens)]))
        return [found[i] for i in range(len(readings))]

    @torch.no_grad()
    def translate(self, text: str) -> Told:
        """The translation of a text, with all that was looked at on the way."""
        analysis = self.analyse(text)
        reading = analysis.reading
        if self.translates and not speaks(self._adapter, reading):
            raise OptionError(
                f"translate: the text has {len(reading.ids):,} tokens, but the model learned from "
                f"at most {self._adapter.longest:,}; give it a sentence at a time"
            )
        with evaluating(self.model):
            said = analysis.written if self.translates else None
            with watch(self.model) as seen:
                target = self._adapter.teacher_force(reading, said or [])
        return Told(reading.words, target, seen)

    @torch.no_grad()
    def without(
        self, text: str, links: Sequence[tuple[str | int, str | int]], *, tokens: bool = False
    ) -> Without:
        """What changes when all of these links, (word that looks, word looked at), are cut."""
        analysis = self.analyse(text, tokens=tokens)
        reading, words = analysis.reading, analysis.reading.words
        named = _pairs("without: links", links, "(word that looks, word looked at)")
        pairs = [(words.find(looks), words.find(at)) for looks, at in named]
        cuts = [(words.tokens_of(looks), words.tokens_of(at)) for looks, at in pairs]
        with evaluating(self.model):
            whole = analysis.vectors[-1]
            with cut(self.model, cuts):
                changed = self._adapter.layers([reading])[-1]
            before = after = ""
            if analysis.written is not None:
                links_cut = [Link(tuple(looks), tuple(at)) for looks, at in cuts]
                instead = say_without_all(analysis, links_cut, changed)
                said = analysis.written
                before, after = self._adapter.detokenize(said), self._adapter.detokenize(instead)
        apart, lengths = (
            torch.linalg.vector_norm(words.averaged(one[0]), dim=-1)
            for one in (changed - whole, whole)
        )
        shares = apart / lengths
        moved = {looks: float(shares[looks]) for looks, _ in pairs}
        note = ", ".join(f"{words.names[i]} moves by {share:.0%}" for i, share in moved.items())
        return Without(before, after, moved, note)

    @property
    def translates(self) -> bool:
        """Whether the model says something in another language."""
        return self._adapter.translates

    @property
    def masked(self) -> bool:
        """Whether a word sees only those before it, as in a language model."""
        return self._adapter.writes and not self.translates

    def _analysed(self, text: str | Analysis) -> Analysis:
        return text if isinstance(text, Analysis) else self.analyse(text)

    def measures(self, text: str | Analysis, word: str | int | None = None) -> Measures:
        """What each input word is worth for a written word, by every quick method.

        Args:
            text: what the model reads, or the analysis of it.
            word: the written word, see `why`.
        """
        from regard.lens.viewing import measures_of

        analysis = self._analysed(text)
        with torch.inference_mode(False), torch.no_grad(), evaluating(self.model):
            return measures_of(analysis.prediction(word, None))

    def view(
        self,
        text: str | Analysis,
        word: str | int | None = None,
        *,
        instead: str | None = None,
        every: bool = True,
        layers: bool = True,
        links: bool = True,
    ) -> View:
        """Where the model looked when it wrote a word, whether that matters, and how.

        A page in which links are cut, with the attention of all layers and all measures.

        Args:
            text: what the model reads.
            word: the word that it wrote, see `why`; of an encoder without output head, a word of
                the text, the last if not given.
            instead: the alternative, see `why`.
            every: whether every written word can be selected, not this one alone.
            layers: whether the attention of all layers and all measures are there, too.
            links: whether the strongest links of all layers are cut, too, one at a time.
        """
        from regard.lens.viewing import layers_of

        analysis = self._analysed(text)
        if word is None and self._adapter.kind == "encoder":
            own = [i for i, there in enumerate(analysis.reading.words.is_word) if there]
            word = own[-1] if own else None
        most = 0 if not links else CUT if layers else FEW
        first = self.why(analysis, word, instead=instead, most=most, control=most // 2)
        others = [i for i in range(len(first.output_words)) if every and i != first.position]
        whys = [first, *(self.why(analysis, i, most=FEW, control=FEW) for i in others)]
        found = [one.figure_data() for one in whys]
        if not layers:
            return View(findings=found)
        with evaluating(self.model):
            texts, read = layers_of(analysis)
        asked = first.position if first.position is not None else word
        return View(texts, read, findings=found, measures=[self.measures(analysis, asked)])

    @torch.no_grad()
    def compare(
        self, word: str, one: str, other: str, *, among: Sequence[str] | None = None
    ) -> Comparison:
        """One word in two texts: where its vectors part, and what pulled them apart.

        Args:
            word: the word, which both texts have.
            one: a text.
            other: another.
            among: texts in whose words the nearest neighbours are looked for; sentences of the
                built-in corpus, if not said.
        """
        with evaluating(self.model):
            return compare(self, self._adapter, word, one, other, among)

    def similar(self, one: str, other: str, *, layer: int = -1) -> Similarity:
        """How alike two texts are by the mean of their contextual vectors, and by which words.

        `layer`: of which the vectors are; 0 is before the first block, -1 the last.
        """
        sides = []
        for embedded in self.embed_all([one, other]):
            own = [i for i, there in enumerate(embedded.words.is_word) if there]
            names = [embedded.words.names[i] for i in own]
            sides.append((names, embedded._of_layer("similar", layer)[own]))
        return similar(sides[0], sides[1])

    @torch.no_grad()
    def summary(self, text: str, *, tokens: bool = False) -> Summary:
        """A text as a whole: which heads are sharp and which broad, and what is looked at most."""
        reading = self._read(text, tokens)
        with evaluating(self.model), watch(self.model) as seen:
            self._adapter.layers([reading])
        return summarise(reading.words, seen)

    def _read(self, text: str, tokens: bool = False) -> Reading:
        if not isinstance(text, str):
            raise OptionError(f"lens: text is {type(text).__name__}, expected a string")
        if not text.strip():
            raise OptionError("lens: the text is empty; give it at least a word")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise OptionError(
                f"lens: character {error.start} of the text, {text[error.start]!r}, is half a "
                "surrogate pair, which is not Unicode text"
            ) from None
        reading = self._adapter.read(text)
        if all(reading.words.special):
            raise OptionError(
                f"lens: the tokenizer leaves nothing of the text {text[:40]!r}; give it a word"
            )
        self._fits(reading)
        return Reading(reading.ids, reading.words.as_tokens()) if tokens else reading

    def _fits(self, reading: Reading) -> None:
        """An error if the model cannot read so much, or not what its tokenizer writes."""
        limit, known = self._adapter.limit, self._adapter.vocabulary
        if limit is not None and len(reading.ids) > limit:
            raise OptionError(
                f"lens: the text has {len(reading.ids):,} tokens, but the model can read only "
                f"{limit:,}; give it a shorter one"
            )
        highest = max(reading.ids)
        if known is not None and highest >= known:
            token = reading.words.tokens[reading.ids.index(highest)]
            raise OptionError(
                f"lens: token {token!r} has number {highest:,}, but the model has only {known:,} "
                "tokens; give it the tokenizer that it was trained with"
            )


def _several(what: str, items: object) -> Iterable[Any]:
    """The items, if they are several and not one text."""
    if isinstance(items, str | bytes | Mapping) or not isinstance(items, Iterable):
        raise OptionError(f"{what} is {type(items).__name__}, expected a list")
    return items


def _pairs(what: str, items: object, each: str) -> Iterator[tuple[Any, Any]]:
    """The items, if all of them are pairs."""
    for item in _several(what, items):
        if not isinstance(item, Sequence) or isinstance(item, str) or len(item) != 2:
            raise OptionError(f"{what} has {item!r}, expected {each} each")
        yield item[0], item[1]


def see(
    text: str,
    word: str | int | None = None,
    *,
    instead: str | None = None,
    model: object = None,
    tokenizer: object = None,
) -> View:
    """Where a model looked when it wrote a word, and what a cut changes; see `Lens.view`.

    Args:
        text: what the model reads.
        word: the word that it wrote, see `Lens.view`.
        instead: the alternative, see `Lens.why`.
        model: a `Translator`, a model of `regard.nn` or of transformers, or the name of one (see
            `Lens.open`); the one that comes with regard if not given.
        tokenizer: the one that belongs to the model; a `Translator` has its own.
    """
    if model is None or isinstance(model, str | Path):
        lens = Lens.open(POCKET if model is None else model)
    else:
        lens = Lens(model, tokenizer)
    return lens.view(text, word, instead=instead)
