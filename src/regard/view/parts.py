"""The parts of a view: what each of them shows, as tables, lines between words and charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from regard.errors import OptionError
from regard.view.choice import Choice, headed
from regard.view.colour import PALETTE
from regard.view.graph import links
from regard.view.picture import Picture
from regard.view.records import Compared, Explained, Layer, Measures, Side, Text
from regard.view.svg import Number
from regard.view.table import Table, fixed

MOST_LINKED = 80
"""Maximum words of a column whose lines can still be told apart."""
STRONGEST = 40
"""Attended words that are drawn of a longer text."""
BLOCKS = 16
"""Rows and columns of a printed matrix."""
PIXELS = 256
"""Rows and columns of a drawn matrix."""
INKS = PALETTE[:7]


def measured(measures: Measures, sentence: str = "") -> Table:
    """The scores of every word, a column per method."""
    words = measures.words
    notes = [
        "; ".join(filter(None, (one.note, _agreeing(one.agreement)))) for one in measures.methods
    ]
    values = np.stack([one.values(len(words)) for one in measures.methods], 1)
    names = [one.name for one in measures.methods]
    title = f"What “{measures.word}” depends on"
    return Table(title, words, names, values, notes, sentence).foremost()


def _agreeing(agreement: Number | None) -> str:
    return "" if agreement is None else f"agrees with cutting {fixed(agreement)}"


def explained(answers: Explained, texts: Mapping[str, Text]) -> Table:
    """The scores of the methods that explain one word."""
    word = texts[answers.text].words[answers.word]
    words = texts[answers.looked_at].words
    return measured(Measures(word, words, answers.methods), answers.sentence)


def overview(layers: Sequence[Layer]) -> Table:
    """The entropy of each head of each layer."""
    most = max(layer.heads for layer in layers)
    values = np.full((len(layers), most), np.nan)
    for i, layer in enumerate(layers):
        keys = layer.sizes[1]
        entropy = headed(layer.look.entropy(), 1).mean(-1)
        values[i, : layer.heads] = entropy / (np.log(keys) if keys > 1 else 1.0)
    title = "Entropy of each head, 0 (attends to one word) to 1 (to all alike)"
    return Table(title, [layer.name for layer in layers], [str(head) for head in range(most)],
                 values, is_map=True)  # fmt: skip


@dataclass(frozen=True)
class Comparison:
    """One word in two sentences: what pulled it, what it is near to, its cosine layer by layer."""

    compared: Compared

    def sides(self) -> list[list[Table]]:
        """The tables of each sentence."""
        return [_side(side) for side in (self.compared.one, self.compared.other)]

    def layers(self) -> Table:
        """The cosine of the word's two vectors at the input and after each layer."""
        cosines = self.compared.values()
        title = f"cosine of the two {self.compared.word}, at the input and after each layer"
        names = ["input", *(f"layer {i}" for i in range(len(cosines) - 1))]
        return Table(title, names, [""], cosines[:, None])

    def text(self) -> str:
        """As text for a terminal."""
        tables = [table for side in self.sides() for table in side]
        told = [self.compared.sentence, *(table.text() for table in (*tables, self.layers()))]
        return "\n".join(part for part in told if part)

    def picture(self) -> Picture:
        """As a picture."""
        one, other = ([table.picture() for table in side] for side in self.sides())
        layers = replace(self.layers(), sentence=self.compared.sentence)
        return one[0].above(*one[1:]).beside(other[0].above(*other[1:])).above(layers.picture())


def _side(side: Side) -> list[Table]:
    said = " ".join(f"[{w}]" if i == side.place else w for i, w in enumerate(side.words))
    translated = f"translated as {side.translation}" if side.translation else ""
    lists = [("pulled by", side.pulled), ("near", side.neighbours)]
    tables = [
        Table("", [word for word, _ in pairs], [name], np.array([[float(x)] for _, x in pairs]))
        for name, pairs in lists
        if pairs
    ]
    first = tables[0] if tables else Table("", [], [""], np.empty((0, 1)))
    return [replace(first, title=said, sentence=translated), *tables[1:]]


@dataclass(frozen=True)
class Head:
    """What words attend to, in some heads."""

    choice: Choice
    threshold: Number

    def text(self) -> str:
        """The words that one word attends to, averaged over heads; without a word, the matrix."""
        choice = self.choice
        if choice.asking is None:
            return Matrix(choice).text()
        row = choice.weights([choice.queries[choice.asking]]).mean(0)[0]
        kept = [i for i in range(len(row)) if row[i] > self.threshold]
        names = [choice.keys[i].label for i in kept]
        return Table(choice.heading, names, [""], row[kept, None]).foremost().text()

    def picture(self) -> Picture:
        """Lines from the words that attend to those they attend to, a colour per head."""
        choice, asking, title = self.choice, self.choice.asking, self.choice.title
        queries, keys = list(choice.queries), list(choice.keys)
        if max(len(queries), len(keys)) <= MOST_LINKED:
            weights = choice.weights()
        elif asking is None:
            raise OptionError(
                f"picture: word expected for lines between {len(queries)} and {len(keys)} words, "
                "got None; name the word that asks, or draw the matrix"
            )
        else:
            weights = choice.weights([queries[asking]])
            best = np.sort(np.argsort(-weights.mean((0, 1)), kind="stable")[:STRONGEST])
            title += f": the {len(best)} of {len(keys)} words it looks at most"
            weights, queries, keys = weights[:, :, best], [queries[asking]], [keys[i] for i in best]
            asking = 0
        return links(
            weights, [unit.label for unit in queries], [unit.label for unit in keys], title=title,
            colours=[INKS[head % len(INKS)] for head in choice.heads],
            heads=[f"head {head}" for head in choice.heads],
            threshold=self.threshold, focus=asking,
        )  # fmt: skip


@dataclass(frozen=True)
class Matrix:
    """The matrix of weights between words, averaged over heads."""

    choice: Choice

    def text(self) -> str:
        """The matrix as numbers."""
        return replace(self._table(BLOCKS), title=self.choice.heading).text()

    def picture(self) -> Picture:
        """The matrix as a heat map; masked cells are hatched."""
        table = self._table(PIXELS)
        if table.footer:
            title = f"{table.title}, {table.footer}"
            return replace(table, title=title, rows=[], columns=[]).picture()
        if self.choice.layer.sizes[1] <= PIXELS:
            table = replace(table, values=np.where(self.choice.masked(), np.nan, table.values))
        return table.picture()

    def _table(self, side: int) -> Table:
        """The weights between words; of a long text between blocks, labelled by their first."""
        choice = self.choice
        values = choice.pooled(side)
        tall, wide = len(choice.queries), len(choice.keys)
        down, across = -(-tall // len(values)), -(-wide // values.shape[1])
        footer = f"{tall} × {wide} words, each cell the mean of {down} × {across}"
        return Table(
            choice.title,
            [unit.label for unit in choice.queries[::down]],
            [unit.label for unit in choice.keys[::across]],
            values,
            footer=footer if max(down, across) > 1 else "",
            is_map=True,
            places=3,
        )
