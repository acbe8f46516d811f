"""`Lens`: a model and its tokenizer, and the questions one can ask them about a text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor

from regard.errors import OptionError
from regard.lens.ablation import Link, Progress, ablate_links, without_links
from regard.lens.adapters import ModelAdapter, Reading, TranslatorAdapter, writes_for
from regard.lens.analysis import Analysis
from regard.lens.arguments import is_text, pairs, several, whole
from regard.lens.attribution import MOST, explain_read, explain_written
from regard.lens.capture import watch
from regard.lens.comparison import Comparison, compare
from regard.lens.explanation import Explanation
from regard.lens.heads import Heads, HeadScores, read_questions, score_heads
from regard.lens.link_steps import LinkSteps, link_steps
from regard.lens.loading import adapter_of, opened
from regard.lens.reading import read
from regard.lens.results import Embedded, WatchedTranslation, Without
from regard.lens.summary import Summary, summarise
from regard.lens.verification import CONTROL, CUT, why
from regard.lens.views import layers_of, measures_of
from regard.lens.why import Why
from regard.models import POCKET
from regard.notebook import preformatted
from regard.text.words import Words
from regard.translate.translator import Translator, evaluating
from regard.vectors.similarity import Similarity, similar
from regard.view import Measures, View

FEW = 8
"""Links cut for each of the other written words of a page."""
BATCH = 64
"""Texts embedded at once."""
QUESTIONS = """\
.why(text, word)        which links made it write a word
.explain(text, word)    what a word attends to, by four measures
.heads(text, word, at)  the heads that attend from one word to another
.embed(text)            the vectors of the words in every layer
.view(text)             a page to look at, in which links can be cut"""
"""What a notebook shows of a lens: the first questions to ask."""


class Lens:
    """A model and its tokenizer, and what can be asked about a text.

    Args:
        model: a `Translator`, a model of `regard.nn` or of transformers, or a pipeline of
            transformers.
        tokenizer: the model's tokenizer; a `Translator` and a pipeline have their own.
    """

    def __init__(self, model: object, tokenizer: object = None) -> None:
        self._adapter: ModelAdapter = adapter_of(model, tokenizer)
        self.name = type(model if isinstance(model, Translator) else self.model).__name__

    @classmethod
    def open(cls, what: str | Path) -> Lens:
        """The lens for a bundled model, by name, or for a model in a folder.

        A folder is what `regard train` wrote, or a saved model of transformers. Nothing is
        downloaded, unless the name is written ``hub:org/name``.
        """
        lens = cls(*opened(what))
        lens.name = Path(what).name
        return lens

    def __repr__(self) -> str:
        size = sum(one.numel() for one in self.model.parameters())
        return f"Lens({self.name!r}, {self._adapter.kind}, {size:,} parameters)"

    def _repr_html_(self) -> str:
        return preformatted(f"{self!r}\n{QUESTIONS}")

    @property
    def model(self) -> torch.nn.Module:
        return self._adapter.model

    @property
    def translates(self) -> bool:
        """Whether the model writes a translation."""
        return self._adapter.translates

    @property
    def masked(self) -> bool:
        """Whether a word sees only those before it, as in a language model."""
        return self._adapter.writes and not self.translates

    @contextmanager
    def _computing(self) -> Iterator[None]:
        """Context: the model in evaluation mode, without gradients and outside inference mode."""
        with torch.inference_mode(False), torch.no_grad(), evaluating(self.model):
            yield

    def words(self, text: str, *, tokens: bool = False) -> Words:
        """The words of a text as the model reads it, or its tokens."""
        return self._read(text, tokens).words

    def analyse(self, text: str, *, tokens: bool = False, target: str | None = None) -> Analysis:
        """The analysis of a text: what several questions about it share, computed once.

        `target`: a translation that the model is made to write, instead of its own.
        """
        return Analysis(self._adapter, self._read(text, tokens), target)

    def explain(
        self,
        text: str,
        word: str | int,
        *,
        tokens: bool = False,
        most: int = MOST,
        progress: Progress = lambda done, of: None,
    ) -> Explanation:
        """What a word of the text attends to, four ways, and what changes when it cannot.

        Args:
            text: what the model reads.
            word: a word of the text (``"it#2"`` is the second *it*) or its number; or a word that a
                translator writes, which is explained by its cross-attention.
            tokens: whether every token counts as a word of its own.
            most: cut at most so many links of the word: those that the other three methods rank
                highest. In a long text each cut takes as long as reading it.
            progress: called with the number of links cut so far, and of all.
        """
        analysis = self.analyse(text, tokens=tokens)
        words = analysis.reading.words
        with self._computing():
            if analysis.writes(word) and not words.has(word):
                return explain_written(analysis, word)
            return explain_read(analysis, words.find(word), most, progress=progress)

    def explain_all(
        self,
        items: Iterable[tuple[str, str | int]],
        *,
        tokens: bool = False,
        most: int = MOST,
        progress: Callable[[int], object] = lambda done: None,
    ) -> Iterator[Explanation]:
        """An explanation for each (text, word), lazily.

        Texts are read one by one: the cuts of a single text fill the batches already.
        """
        found = pairs("explain_all: items", items, "(text, word)")
        for done, (text, word) in enumerate(found, 1):
            yield self.explain(text, word, tokens=tokens, most=most)
            progress(done)

    def translate_all(self, analyses: Sequence[Analysis]) -> None:
        """Translate several texts side by side, which takes a third of the time of one by one.

        Does nothing where the model does not translate.
        """
        adapter = self._adapter
        if not isinstance(adapter, TranslatorAdapter):
            return
        asked = [one for one in analyses if writes_for(adapter, one.reading)]
        if not asked:
            return
        with self._computing():
            found = adapter.translate_all([one.reading for one in asked])
        for one, (written, memory) in zip(asked, found, strict=True):
            one.written, one.memory = written, memory

    def why(
        self,
        text: str | Analysis,
        word: str | int | None = None,
        *,
        instead: str | None = None,
        most: int = CUT,
        control: int = CONTROL,
        texts: bool = True,
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
            most: the number of links to cut, strongest first; with 0, all links to each input word
                are cut, but no single ones, which takes less than half the time.
            control: the number of other links to cut, at random, to judge the estimate.
            texts: whether to find out what is written after each cut that changes the word, and
                the smallest set of links that does. Without, other choices are named by their
                first token, and a translation takes half the time.
        """
        most, control = whole("why: most", most, 0), whole("why: control", control, 0)
        analysis = self._analysed(text)
        with self._computing():
            prediction = analysis.prediction(word, instead, every_place=most + control > 0)
            return replace(
                why(prediction, most=most, control=control, texts=texts), model=self.name
            )

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
                ``"encoder"``, a word of the text.
            key: the word attended to.
            layer: of that place, from 0; the one with the largest weight if not given.
            head: the same.
            place: ``"cross"`` for a translator if not given; ``"encoder"`` or ``"decoder"``.
        """
        with self._computing():
            read = place == "encoder" and self.translates
            prediction = self.analyse(text).prediction(None if read else query, None)
            return link_steps(prediction, key, query if read else None, layer, head, place)

    def knockouts(self, text: str, *, tokens: bool = False) -> Float[Tensor, "names names"]:
        """For each pair of words, how far the first one's vector moves if the link is cut."""
        analysis = self.analyse(text, tokens=tokens)
        words = analysis.reading.words
        units = [tuple(words.tokens_of(i)) for i in range(len(words))]
        with self._computing():
            found = ablate_links(analysis, [Link(query, key) for query in units for key in units])
        return found.vector.reshape(len(words), len(words))

    def heads(self, text: str, word: str | int, at: str | int, *, tokens: bool = False) -> Heads:
        """The heads, ranked by their attention from one word to another.

        Args:
            text: what the model reads.
            word: the word that attends: of the text, or one that a translator wrote, by its
                cross-attention.
            at: the word attended to.
            tokens: whether every token counts as a word of its own.
        """
        if is_text(at):
            text, word, at = str(at), text, word
        analysis = self.analyse(text, tokens=tokens)
        words = analysis.reading.words
        key = words.find(at)
        with self._computing():
            if self.translates and not words.has(word):
                return Heads.of_prediction(analysis.prediction(word, None), key)
            return Heads.of_explanation(explain_read(analysis, words.find(word), 1, (key,)), key)

    def score_heads(
        self,
        questions: str | Path | Iterable[object] | None = None,
        *,
        progress: Callable[[int], object] = lambda done: None,
    ) -> HeadScores:
        """How often each head attends from a word to what it refers to.

        Args:
            questions: (text, word, referent) each, as tuples, mappings (which may have *others*
                that the word might refer to) or pairs of the built-in corpus; or a JSONL file of
                such mappings. The built-in reference sentences of the test split if not given.
            progress: called with the number of questions that are done.

        A head is right if it gives the referent the largest weight of all other words; if the
        question names others, or is of the built-in corpus, of these. The baseline beside it (see
        `HeadScores.nearest`) takes the nearest noun.
        """
        if questions is None:
            from regard.challenge import generate

            questions = generate("reference", "test", 1000)
        elif isinstance(questions, str | Path):
            questions = read_questions(questions)
        asked = several("score_heads: questions", questions)
        with self._computing():
            return score_heads(self._adapter, asked, self._read, progress)

    def embed(self, text: str, *, tokens: bool = False) -> Embedded:
        """The contextual vector of every word at every layer."""
        return self.embed_all([text], tokens=tokens)[0]

    def embed_all(self, texts: Iterable[str], *, tokens: bool = False) -> list[Embedded]:
        """The contextual vectors of many texts, in batches."""
        readings = [self._read(text, tokens) for text in several("embed_all: texts", texts)]
        order = sorted(range(len(readings)), key=lambda i: len(readings[i].ids))
        found: dict[int, Embedded] = {}
        with self._computing():
            for start in range(0, len(order), BATCH):
                part = order[start : start + BATCH]
                layers = torch.stack(self._adapter.layers([readings[i] for i in part]), 1)
                for i, vectors in zip(part, layers, strict=True):
                    words = readings[i].words
                    found[i] = Embedded(words, words.averaged(vectors[:, : len(words.tokens)]))
        return [found[i] for i in range(len(readings))]

    def translate(self, text: str) -> WatchedTranslation:
        """The translation of a text, with the attention that produced it."""
        analysis = self.analyse(text)
        if not self.translates:
            raise OptionError(
                f"translate: {type(self.model).__name__} does not translate; it takes a "
                "Transformer of regard, or a model of transformers with an encoder and a decoder"
            )
        analysis.check_length("translate")
        adapter, reading = cast(TranslatorAdapter, self._adapter), analysis.reading
        with self._computing():
            written = analysis.written or []
            with watch(self.model) as seen:
                adapter.teacher_force([reading], [written])
            return WatchedTranslation(reading.words, adapter.target_words(written), seen)

    def without(
        self, text: str, links: Sequence[tuple[str | int, str | int]], *, tokens: bool = False
    ) -> Without:
        """What changes when all of these links, (word attending, word attended to), are cut."""
        analysis = self.analyse(text, tokens=tokens)
        words = analysis.reading.words
        named = pairs("without: links", links, "(word attending, word attended to)")
        numbers = [(words.find(query), words.find(key)) for query, key in named]
        with self._computing():
            return without_links(analysis, numbers)

    def measures(self, text: str | Analysis, word: str | int | None = None) -> Measures:
        """The score of each input word for a written word, by every quick method.

        Args:
            text: what the model reads, or the analysis of it.
            word: the written word, see `why`.
        """
        analysis = self._analysed(text)
        with self._computing():
            return measures_of(analysis.prediction(word, None))

    def view(
        self,
        text: str | Analysis,
        word: str | int | None = None,
        *,
        instead: str | None = None,
        answer: Why | None = None,
        every: bool = True,
        layers: bool = True,
        links: bool = True,
    ) -> View:
        """Where the model looked when it wrote a word, whether that matters, and how.

        A page in which links are cut, with the attention of all layers and all measures.

        Args:
            text: what the model reads, or the analysis of it (see `analyse`).
            word: the word that it wrote, see `why`; of an encoder without output head, a word of
                the text, the last if not given.
            instead: the alternative, see `why`.
            answer: what `why` returned for this word, if it was asked already.
            every: whether every written word can be selected, not this one alone.
            layers: whether the attention of all layers and all measures are included.
            links: whether the strongest links of all layers are cut as well, one at a time.
        """
        analysis = self._analysed(text)
        if word is None and self._adapter.kind == "encoder":
            own = [i for i, there in enumerate(analysis.reading.words.is_word) if there]
            word = own[-1] if own else None
        most = 0 if not links else CUT if layers else FEW
        first = answer or self.why(analysis, word, instead=instead, most=most, control=most // 2)
        others = [i for i in range(len(first.output_words)) if every and i != first.position]
        whys = [first, *(self.why(analysis, i, most=FEW, control=FEW) for i in others)]
        found = [one.figure_data() for one in whys]
        if not layers:
            return View(findings=found)
        with self._computing():
            texts, read = layers_of(analysis)
        asked = first.position if first.position is not None else word
        return View(texts, read, findings=found, measures=[self.measures(analysis, asked)])

    def compare(
        self, one: str, other: str, word: str, *, among: Sequence[str] | None = None
    ) -> Comparison:
        """One word in two texts: where its vectors part, and what pulled them apart.

        Args:
            one: a text.
            other: another.
            word: the word, which both texts have.
            among: texts in whose words the nearest neighbours are searched; sentences of the
                built-in corpus if not given.
        """
        if is_text(word):
            one, other, word = other, word, one
        with self._computing():
            return compare(self, self._adapter, word, (one, other), among)

    def similar(self, one: str, other: str, *, layer: int = -1) -> Similarity:
        """How similar two texts are by the mean of their contextual vectors, and by which words.

        `layer`: whose vectors are compared; 0 is before the first block, -1 the last.
        """
        sides = []
        for embedded in self.embed_all([one, other]):
            own = [i for i, there in enumerate(embedded.words.is_word) if there]
            names = [embedded.words.names[i] for i in own]
            sides.append((names, embedded._of_layer("similar", layer)[own]))
        return similar(sides[0], sides[1])

    def summary(self, text: str, *, tokens: bool = False) -> Summary:
        """The heads' entropies for a text, and the words that receive most attention."""
        reading = self._read(text, tokens)
        with self._computing():
            with watch(self.model) as seen:
                self._adapter.layers([reading])
            return summarise(reading.words, seen)

    def _analysed(self, text: str | Analysis) -> Analysis:
        return text if isinstance(text, Analysis) else self.analyse(text)

    def _read(self, text: str, tokens: bool = False) -> Reading:
        return read(self._adapter, text, tokens)


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
            `Lens.open`); the bundled one if not given.
        tokenizer: the one that belongs to the model; a `Translator` has its own.
    """
    if model is None or isinstance(model, str | Path):
        lens = Lens.open(POCKET if model is None else model)
    else:
        lens = Lens(model, tokenizer)
    return lens.view(text, word, instead=instead)
