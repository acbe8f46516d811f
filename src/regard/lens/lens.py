"""`Lens`: a model and its tokenizer, and the questions one can ask them about a text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.errors import FileError, OptionError
from regard.lens._subjects import Reading, Subject, subject_of
from regard.lens.comparing import Comparison, compare
from regard.lens.cutting import cut
from regard.lens.explanation import Effect, Explanation
from regard.lens.heads import Heads, HeadScores, read_questions, score_heads
from regard.lens.knocking import Link, knock, say_without
from regard.lens.measures import Feeds, measure
from regard.lens.summary import Summary, summarise
from regard.lens.watching import Seen, watch
from regard.text.words import Words
from regard.translate.model_files import SHAPE, bundled
from regard.translate.translator import Translator
from regard.vectors.similarity import Similarity, similar
from regard.view import View

HUB = "hub:"
MOST = 64
"""Links of a word that are cut, at most, if nothing else is said."""
SINGLE = 40_000
"""Tokens that are read, at most, to cut links in single heads."""
TOKENIZERS = (
    "tokenizer.json",
    "vocab.txt",
    "vocab.json",
    "tokenizer.model",
    "spiece.model",
    "source.spm",
    "sentencepiece.bpe.model",
)
"""Files that keep a tokenizer of transformers, which would make up an empty one without any."""
SIDE_BY_SIDE = 64
"""Texts that are read at once."""
TRIED = 3
"""Links that are cut to see what the model says then."""


@dataclass(frozen=True, eq=False)
class Embedded:
    """The vectors of the words of a text, layer by layer.

    >>> words = Words("a b", ("a", "b"), ((0, 1), (2, 3)), (False, False))
    >>> Embedded(words, torch.zeros(4, 2, 8))["b"].shape
    torch.Size([4, 8])
    """

    words: Words
    vectors: Float[Tensor, "layers names width"]
    """Before the first block, and after each; of several subwords the mean."""

    def __getitem__(self, word: str | int) -> Float[Tensor, "layers width"]:
        return self.vectors[:, self.words.find(word)]


@dataclass(frozen=True, eq=False)
class Told:
    """A translation, and all that was looked at on the way to it."""

    source: Words
    target: Words
    seen: Seen
    """Encoder, decoder and the attention between them, while the decoder reads the whole."""

    @property
    def text(self) -> str:
        """The translation."""
        return self.target.text

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Without:
    """What a model makes of a text when some of its links are cut."""

    before: str
    """What it said with them: a translation, the next word; "" if it says nothing."""
    after: str
    moved: dict[int, float]
    """For each word that lost a link, how far its vector moved, as a share of its length."""
    note: str
    """The same in words."""


class Lens:
    """A model and its tokenizer, looked into.

    Args:
        model: a `Translator`, a model of `regard.nn`, or one of transformers.
        tokenizer: the one that belongs to it; a `Translator` has its own.
    """

    def __init__(self, model: object, tokenizer: object = None) -> None:
        self._subject: Subject = subject_of(model, tokenizer)

    @classmethod
    def open(cls, what: str | Path) -> Lens:
        """The lens for a model by name: one that comes with regard, or a folder.

        A folder is what `regard train` wrote, or a model of transformers as it is saved. Nothing is
        fetched from the network, unless the name is written ``hub:org/name``.
        """
        if isinstance(what, str) and what.startswith(HUB):
            return cls(*_transformers(what.removeprefix(HUB), local=False))
        folder = bundled(what)
        if (folder / SHAPE).exists() or not (folder / "config.json").exists():
            return cls(Translator.load(folder))
        return cls(*_transformers(str(folder), local=True))

    @property
    def model(self) -> torch.nn.Module:
        return self._subject.model

    def words(self, text: str, *, tokens: bool = False) -> Words:
        """The words of a text as the model reads it, or its tokens."""
        reading = self._read(text)
        return reading.words.as_tokens() if tokens else reading.words

    @torch.no_grad()
    def explain(
        self, text: str, word: str | int, *, tokens: bool = False, most: int = MOST
    ) -> Explanation:
        """What a word of the text looks at, four ways, and what happens when it cannot.

        Args:
            text: the text.
            word: as it is written (``"it#2"`` is the second *it*), or its number.
            tokens: whether every subword is taken for a word of its own.
            most: cut so many links of the word, at most: those that the other three ways rank
                first.
        """
        reading = self._read(text, tokens)
        words = reading.words
        number = words.find(word)
        here = words.tokens_of(number)
        with self._evaluating():
            with watch(self.model) as seen, Feeds(self.model) as feeds:
                self._subject.layers([reading])
            looks = {name: seen[name] for name in seen}
            found = measure(looks, feeds.outputs(looks), words, here)
            said = self._subject.say(reading, 1)[0] if self._speaks(reading) else None
            ranked = [found.attention.mean((0, 1)), found.norm_of_layers.mean(0), found.rollout]
            tried = _first(ranked, range(len(words)), most)
            links = [Link(tuple(here), tuple(words.tokens_of(i))) for i in tried]
            changes = knock(self._subject, reading, links, said)
            knockout = _spread(changes.vector, tried, len(words))
            probability = None if changes.said is None else _spread(changes.said, tried, len(words))
            alone = self._knock_heads(reading, links, tried, found.attention.shape)
            effects = self._effects(reading, number, links, tried, probability, looks, said)
        return Explanation(
            words=words,
            word=number,
            layers=tuple(looks),
            attention=found.attention,
            norm=found.norm,
            norm_of_layers=found.norm_of_layers,
            rollout=found.rollout,
            knockout=knockout,
            knockout_of_heads=alone,
            probability=probability,
            said=None if said is None else self._subject.spell(said),
            effects=effects,
            looks=looks,
            translates=self._subject.translates,
            lens=self,
        )

    def explain_all(
        self,
        items: Iterable[tuple[str, str | int]],
        *,
        tokens: bool = False,
        most: int = MOST,
        progress: Callable[[int], object] = lambda done: None,
    ) -> Iterator[Explanation]:
        """An explanation for each (text, word), one by one as they are asked for."""
        for done, (text, word) in enumerate(items, 1):
            yield self.explain(text, word, tokens=tokens, most=most)
            progress(done)

    @torch.no_grad()
    def knockouts(self, text: str, *, tokens: bool = False) -> Float[Tensor, "names names"]:
        """For every pair of words, how far the first moves if it cannot look at the second."""
        reading = self._read(text, tokens)
        words = reading.words
        spelled = [tuple(words.tokens_of(i)) for i in range(len(words))]
        links = [Link(looks, at) for looks in spelled for at in spelled]
        with self._evaluating():
            return knock(self._subject, reading, links).vector.reshape(len(words), len(words))

    def heads(self, word: str | int, at: str | int, text: str, *, tokens: bool = False) -> Heads:
        """The heads, ranked by how much they look from one word at another."""
        explanation = self.explain(text, word, tokens=tokens)
        return Heads(explanation, explanation.words.find(at))

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
        """
        if questions is None:
            from regard.text.grammar import generate

            questions = generate("reference", "test", 1000)
        elif isinstance(questions, str | Path):
            questions = read_questions(questions)
        with self._evaluating():
            return score_heads(self._subject, questions, self._read, progress)

    def embed(self, text: str, *, tokens: bool = False) -> Embedded:
        """The contextual vector of every word at every layer."""
        return self.embed_all([text], tokens=tokens)[0]

    @torch.no_grad()
    def embed_all(self, texts: Sequence[str], *, tokens: bool = False) -> list[Embedded]:
        """The same for many texts, many at a time."""
        readings = [self._read(text, tokens) for text in texts]
        order = sorted(range(len(readings)), key=lambda i: len(readings[i].ids))
        found: dict[int, Embedded] = {}
        with self._evaluating():
            for start in range(0, len(order), SIDE_BY_SIDE):
                part = order[start : start + SIDE_BY_SIDE]
                layers = torch.stack(self._subject.layers([readings[i] for i in part]), 1)
                for i, vectors in zip(part, layers, strict=True):
                    words = readings[i].words
                    found[i] = Embedded(words, words.averaged(vectors[:, : len(words.tokens)]))
        return [found[i] for i in range(len(texts))]

    @torch.no_grad()
    def translate(self, text: str) -> Told:
        """The translation of a text, with all that was looked at on the way."""
        reading = self._read(text)
        with self._evaluating():
            said = self._subject.say(reading, 1)[0] if self._subject.translates else []
            with watch(self.model) as seen:
                target = self._subject.retell(reading, said)
        return Told(reading.words, target, seen)

    @torch.no_grad()
    def without(
        self, text: str, links: Sequence[tuple[str | int, str | int]], *, tokens: bool = False
    ) -> Without:
        """What changes when all of these links, (word that looks, word looked at), are cut."""
        reading = self._read(text, tokens)
        words = reading.words
        pairs = [(words.find(looks), words.find(at)) for looks, at in links]
        cuts = [(words.tokens_of(looks), words.tokens_of(at)) for looks, at in pairs]
        with self._evaluating():
            with watch(self.model) as seen:
                whole = words.averaged(self._subject.layers([reading])[-1][0])
            speaks, before, after = self._speaks(reading), "", ""
            with cut(self.model, cuts, list(seen)):
                changed = words.averaged(self._subject.layers([reading])[-1][0])
            if speaks:
                before = self._subject.spell(self._subject.say(reading, 1)[0])
                with cut(self.model, cuts, list(seen)):
                    after = self._subject.spell(self._subject.say(reading, 1)[0])
        lengths = torch.linalg.vector_norm(whole, dim=-1)
        shares = torch.linalg.vector_norm(changed - whole, dim=-1) / lengths
        moved = {looks: float(shares[looks]) for looks, _ in pairs}
        note = ", ".join(f"{words.names[i]} moves by {share:.0%}" for i, share in moved.items())
        return Without(before, after, moved, note)

    @property
    def translates(self) -> bool:
        """Whether the model says something in another language."""
        return self._subject.translates

    @property
    def masked(self) -> bool:
        """Whether a word sees only those before it, as in a language model."""
        return self._subject.writes and not self.translates

    def view(self, text: str, word: str | int) -> View:
        """Everything about a text and one of its words, to look at."""
        return self.explain(text, word).view()

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
        with self._evaluating():
            return compare(self, self._subject, word, one, other, among)

    def similar(self, one: str, other: str, *, layer: int = -1) -> Similarity:
        """How alike two texts are by the mean of their contextual vectors, and by which words.

        `layer`: of which the vectors are; 0 is before the first block, -1 the last.
        """
        sides = []
        for embedded in self.embed_all([one, other]):
            if not -len(embedded.vectors) <= layer < len(embedded.vectors):
                raise OptionError(
                    f"similar: layer={layer}, but there are {len(embedded.vectors)}, from 0"
                )
            own = [i for i, there in enumerate(embedded.words.is_word) if there]
            names = [embedded.words.names[i] for i in own]
            sides.append((names, embedded.vectors[layer, own]))
        return similar(sides[0], sides[1])

    @torch.no_grad()
    def summary(self, text: str, *, tokens: bool = False) -> Summary:
        """A text as a whole: which heads are sharp and which broad, and what is looked at most."""
        reading = self._read(text, tokens)
        with self._evaluating(), watch(self.model) as seen:
            self._subject.layers([reading])
        return summarise(reading.words, seen)

    def _read(self, text: str, tokens: bool = False) -> Reading:
        if not isinstance(text, str):
            raise OptionError(f"lens: text is {type(text).__name__}, expected a string")
        if not text.strip():
            raise OptionError("lens: the text is empty; give it at least a word")
        reading = self._subject.read(text)
        limit = self._subject.limit
        if limit is not None and len(reading.ids) > limit:
            raise OptionError(
                f"lens: the text has {len(reading.ids):,} tokens, but the model can read only "
                f"{limit:,}; give it a shorter one"
            )
        return Reading(reading.ids, reading.words.as_tokens()) if tokens else reading

    def _speaks(self, reading: Reading) -> bool:
        """Whether the model says something to this text."""
        longest = self._subject.longest
        return self._subject.writes and (longest is None or len(reading.ids) <= longest)

    def _knock_heads(
        self, reading: Reading, links: list[Link], tried: list[int], shape: Sequence[int]
    ) -> Tensor | None:
        """How far the word moves with a link cut in a single head, ``(layers, heads, names)``."""
        layers, heads = shape[:2]
        if layers * heads * len(links) * len(reading.ids) > SINGLE:
            return None
        alone = [
            Link(link.looks, link.at, layer, head)
            for layer in range(layers)
            for head in range(heads)
            for link in links
        ]
        vector = knock(self._subject, reading, alone).vector.reshape(layers, heads, len(links))
        return _spread(vector, tried, len(reading.words))

    def _effects(
        self,
        reading: Reading,
        word: int,
        links: list[Link],
        tried: list[int],
        probability: Tensor | None,
        looks: dict[str, Any],
        said: list[int] | None,
    ) -> tuple[Effect, ...]:
        """What the model says without the links that make its words likeliest.

        Those that change it; if none does, the first, which does not.
        """
        if probability is None or said is None:
            return ()
        real = reading.words.is_word
        order = sorted(
            (i for i in tried if real[i] and i != word), key=lambda i: -float(probability[i])
        )[:TRIED]
        chosen = [links[tried.index(i)] for i in order]
        instead = say_without(self._subject, reading, chosen, list(looks))
        effects = [
            Effect(i, self._subject.spell(found)) for i, found in zip(order, instead, strict=True)
        ]
        before = self._subject.spell(said)
        return tuple([one for one in effects if one.text != before] or effects[:1])

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        """The model without dropout; afterwards it is as it was."""
        training = self.model.training
        self.model.eval()
        try:
            yield
        finally:
            self.model.train(training)


def _first(ranked: Sequence[Tensor], candidates: Sequence[int], most: int) -> list[int]:
    """The candidates that any of several rankings puts first, no more than `most`, in order."""
    if most < 1:
        raise OptionError(f"explain: most={most}, expected 1 or more")
    if len(candidates) <= most:
        return list(candidates)
    orders = [sorted(candidates, key=lambda i, x=x: -float(x[i])) for x in ranked]  # type: ignore[misc]
    chosen: dict[int, None] = {}
    for place in zip(*orders, strict=True):
        for i in place:
            if len(chosen) < most:
                chosen[i] = None
    return sorted(chosen)


def _spread(values: Tensor, places: Sequence[int], size: int) -> Tensor:
    """The values at their places along the last axis; nan elsewhere."""
    out = values.new_full((*values.shape[:-1], size), torch.nan)
    out[..., list(places)] = values
    return out


def _transformers(name: str, *, local: bool) -> tuple[Any, Any]:
    """A model of transformers with its tokenizer: that of its own architecture, if it has one."""
    try:
        import transformers
    except ImportError:
        raise OptionError(
            f"Lens.open: {name} is a model of transformers, which is not installed; "
            "pip install 'regard[hf]'"
        ) from None
    try:
        config = transformers.AutoConfig.from_pretrained(name, local_files_only=local)
        kind = getattr(transformers, (config.architectures or [""])[0], transformers.AutoModel)
        model = kind.from_pretrained(name, local_files_only=local)
    except (OSError, ValueError) as error:
        raise FileError(f"Lens.open: {name}: {_line(error)}") from None
    if local and not any((Path(name) / file).exists() for file in TOKENIZERS):
        raise FileError(
            f"Lens.open: {name} has no tokenizer; expected {', '.join(TOKENIZERS[:-1])} or "
            f"{TOKENIZERS[-1]} beside the model"
        )
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(name, local_files_only=local)
    except Exception as error:  # transformers raises whatever the missing file leads to
        raise FileError(
            f"Lens.open: the tokenizer of {name} cannot be read: {_line(error)}"
        ) from None
    return model.eval(), tokenizer


def _line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
