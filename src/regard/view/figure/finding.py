"""`Finding`: what the figure and the page show, in which words, from the data of a `Why`.

The renderers, SVG here and JavaScript in the page, decide nothing: every sentence and every list
is made here, in the words of `wording`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from regard.errors import WordError
from regard.view.figure.wording import MARKS, Span, clean, labels, percent, plain, said, spans
from regard.view.svg import Number

Data = Mapping[str, Any]

CLEAR = 0.02
"""Minimum loss of probability for a word to be said to matter."""
STRONG = 0.5
"""Minimum weight for the model to be said to look at a word."""
WRITING = ("translation", "next")
"""Kinds of a model that writes; others choose."""
COLUMNS = 16
"""Input words with bars of their own."""
_TWICE = re.compile(r"#\d+$")
_WORD = re.compile(r"\w+(?:['’\-]\w+)*|[^\w\s]")
"""A word or a punctuation mark, as a lens divides the output."""


@dataclass(frozen=True)
class Read:
    """A word of the input: how much it is looked at, and what a cut of the links to it does."""

    word: str
    special: bool
    looked: Number
    layer: int
    head: int
    """The head that looks at it most."""
    probability: Number
    """Of the written word after the cut."""
    matters: Number
    probabilities: list[Number]
    """Of each alternative after the cut."""
    flips: bool
    """Whether another word is written after the cut."""
    writes: str
    measured: bool
    """Whether the links were cut: of a long text only those to the words that seem to matter."""
    output: list[str]
    """The words of the output after the cut."""
    places: list[int]
    """Of each of them, the place of the word before the cut that it is or replaces; −1 if new."""
    headline: list[Span]
    """When its link is selected."""
    cut_headline: list[Span]
    """When its link is cut."""
    cut_caption: list[Span]


@dataclass(frozen=True)
class Finding:
    """One written word, and everything that is shown about it."""

    kind: str
    """``"translation"``, ``"next"``, ``"choice"`` or ``"vector"``."""
    place: str
    """Of the attention from the written word: ``"cross"``, ``"decoder"`` or ``"encoder"``."""
    model: str
    text: str
    word: str
    probability: Number
    instead: str
    output: list[str]
    position: int
    """Of the word in `output`; of a word whose vector is looked at, in `reads`."""
    alignment: list[tuple[int, int]]
    alternatives: list[tuple[str, Number]]
    reads: list[Read]
    selected: int
    """The input word that is looked at most."""
    columns: int
    """Maximum input words with bars of their own; the foremost are taken."""
    caption: list[Span]
    note: str
    labels: dict[str, str]
    """The labels of the figure, which depend on the kind of model."""
    python: str
    """The line of Python that makes this figure."""
    attention: list[list[list[Number]]]
    effects: list[list[list[Number]]]
    measured: list[tuple[int, int, int, Number]]
    """(layer, head, input word, change of the metric) of the links that were cut one by one."""
    circuit: list[dict[str, Any]]
    """The strongest links of all layers, between numbered words."""
    row: Data
    """The numbers of the six steps, see `lens.link_steps.RowSteps`."""

    @property
    def written_at(self) -> int:
        """The place of the word in `output`."""
        return 0 if self.kind == "vector" else self.position

    def find(self, word: str | int | None) -> int:
        """The number of an input word; of the one that is looked at most, if None."""
        names = [one.word for one in self.reads]
        if word is None:
            return self.selected
        if isinstance(word, int):
            if not 0 <= word < len(names):
                raise WordError(f"View: word {word}, expected 0 to {len(names) - 1}")
            return word
        for these in (names, [plain(name) for name in names]):
            if word in these:
                return these.index(word)
        raise WordError(f"View: no input word is {word!r}; there are {', '.join(names)}")

    @property
    def headline(self) -> list[Span]:
        """What was found, when nothing has been clicked yet."""
        return self.reads[self.selected].headline


def finding(why: Data) -> Finding:
    """The finding from the data of a `Why`."""
    output = [clean(word) for word in why["output_words"]] or [clean(why["word"])]
    selected = why["looked_at"]
    names = _names(why["words"])
    heads = why["heads"]
    return Finding(
        kind=_kind(why),
        place=why["place"],
        model=clean(why["model"]),
        text=clean(why["text"]),
        word=clean(why["word"]),
        probability=why["probability"],
        instead=clean(why["instead"]),
        output=output,
        position=_position(why),
        alignment=[(a, b) for a, b in why["alignment"]] if why["output_words"] else [],
        alternatives=[(clean(one["word"]), one["probability"]) for one in why["alternatives"]],
        reads=[_read(why, names, i, selected) for i in range(len(why["words"]))],
        selected=selected,
        columns=COLUMNS,
        caption=spans(re.sub(r"(\d) %", "\\1\xa0%", clean(why["conclusion"]))),
        note=clean(why["note"]),
        labels=_labels(why),
        python=_python(why),
        attention=heads["attention"],
        effects=heads["effect"],
        measured=_measured(why),
        circuit=_circuit(why),
        row=why["row"],
    )


def _position(why: Data) -> int:
    """The place of the word in the output; of a word whose vector is looked at, in the input."""
    if _kind(why) == "vector":
        return _place(why["word"], [one["word"] for one in why["words"]]) or 0
    return why["position"] if why["output_words"] else 0


def _kind(why: Data) -> str:
    if not why["choices"]:
        return "vector"
    if why["output_words"]:
        return "translation"
    return "next" if why["place"] == "decoder" else "choice"


def _matters_most(words: Sequence[Data]) -> int:
    """The word whose links cost most when cut, special tokens aside."""
    real = [i for i, one in enumerate(words) if not one["special"]] or range(len(words))
    return max(real, key=lambda i: float(words[i]["matters"]))


def _names(words: Sequence[Data]) -> list[str]:
    """The words as they are written, without the number of a repeated one."""
    bare = [_TWICE.sub("", one["word"]) for one in words]
    return [
        clean(short if bare.count(short) > 1 else one["word"])
        for short, one in zip(bare, words, strict=True)
    ]


def _read(why: Data, names: Sequence[str], i: int, selected: int) -> Read:
    one = why["words"][i]
    flips = one["text"] is not None and bool(one["writes"].strip())
    writes = clean(one["writes"].strip()) if flips else clean(why["word"])
    output, places = _output(why, one, flips, writes)
    return Read(
        word=names[i],
        special=one["special"],
        looked=one["looked"],
        layer=one["layer"],
        head=one["head"],
        probability=one["probability"],
        matters=one["matters"],
        probabilities=list(one["probabilities"]),
        flips=flips,
        writes=writes,
        measured=one["measured"],
        output=[clean(word) for word in output],
        places=places,
        headline=_headline(why, names, i, selected),
        cut_headline=_cut_headline(why, names[i], one, flips, writes),
        cut_caption=_cut_caption(why, one, flips, writes),
    )


def _output(why: Data, one: Data, flips: bool, writes: str) -> tuple[list[str], list[int]]:
    """The words of the output after a cut, and their `Read.places`.

    Up to the word in question the output is the same; the next word stands in its place. Those
    behind it are compared, and runs of as many words replace each other.
    """
    before = list(why["output_words"])
    if not flips or not before:
        return before or [writes], list(range(len(before) or 1))
    at, after = why["position"], []
    rest = one["text"] or " ".join([*before[:at], writes])  # "" where it was not computed
    for word in before[:at]:
        if not rest.startswith(word):
            break
        rest = rest[len(word) :].lstrip()
        after.append(word)
    same = len(after)
    after += _WORD.findall(rest) or [writes]
    places = [*range(same), at, *[-1] * (len(after) - same - 1)]
    behind = SequenceMatcher(None, before[at + 1 :], after[same + 1 :], autojunk=False)
    for _, i, i_end, j, j_end in behind.get_opcodes():
        if i_end - i == j_end - j:
            places[same + 1 + j : same + 1 + j_end] = range(at + 1 + i, at + 1 + i_end)
    return after, places


def _headline(why: Data, names: Sequence[str], i: int, selected: int) -> list[Span]:
    words, kind = why["words"], _kind(why)
    begin = "{word:look} attends " if kind == "vector" else "When it {verb} {word:look}, it looks "
    to, most = "to" if kind == "vector" else "at", _matters_most(words)
    if i != selected:
        several = len(why["heads"]["attention"][0]) > 1
        end = to + " {key:look} with " + ("at most " if several else "") + "{looked}."
    elif most != i and words[most]["matters"] >= CLEAR:
        end = f"most {to} " + "{key:look}, but {other:cut} matters most."
    else:
        end = ("back at" if kind in WRITING else f"most {to}") + " {key:look}."
    return said(
        begin + end, word=clean(why["word"]), verb=_verb(kind), key=plain(names[i]),
        other=plain(names[most]), looked=f"{words[i]['looked']:.2f}",
    )  # fmt: skip


def _verb(kind: str) -> str:
    return "writes" if kind in WRITING else "chooses"


def _cut_headline(why: Data, name: str, one: Data, flips: bool, writes: str) -> list[Span]:
    kind = _kind(why)
    if kind == "vector":
        told = "Without {key:cut} the cosine of its vector to the original is {cosine}."
    elif flips:
        told = "Without that link it {verb} {writes:cut} instead of {word}."
    else:
        told = "Without {key:cut} it still {verb} {word:look}"
        if one["matters"] >= CLEAR:
            told += ", at {now} instead of {before}."
        elif one["looked"] >= STRONG:
            told += ": it looked there, but that was not the reason."
        else:
            told += ": it hardly looked there."
    return said(
        told, key=plain(name), word=clean(why["word"]), verb=_verb(kind), writes=writes,
        cosine=f"{one['probability']:.2f}", now=percent(one["probability"]),
        before=percent(why["probability"]),
    )  # fmt: skip


def _cut_caption(why: Data, one: Data, flips: bool, writes: str) -> list[Span]:
    layers, heads = why["heads"]["attention"], why["heads"]["attention"][0]
    count = len(layers) * len(heads)
    share = ""
    if _kind(why) == "vector":
        told = "The cosine to the vector with all links falls by {moved}."
    elif flips:
        told = "It {verb} {writes:cut}{share}; {word} falls from {before} to {now}."
        names = [clean(each["word"]) for each in why["alternatives"]]
        if writes in names:
            share = f" ({percent(one['probabilities'][names.index(writes)])})"
    else:
        told = "{word:look} has {now}; with all links it has {before}."
    return said(
        "The link is cut {where}; nothing else was touched. " + told,
        where="in the only head" if count == 1 else f"in all {count} heads that look there",
        moved=f"{1 - one['probability']:.3f}", verb=_verb(_kind(why)), writes=writes, share=share,
        word=clean(why["word"]), before=percent(why["probability"]),
        now=percent(one["probability"]),
    )  # fmt: skip


def _labels(why: Data) -> dict[str, str]:
    kind, at = _kind(why), why["position"]
    told = labels(kind, word=clean(why["word"]), instead=clean(why["instead"]))
    if kind == "translation" and at:
        told["before"] = f"after “{clean(_ending(why['output_words'][:at]))}”"
    return told


def _ending(words: Sequence[str]) -> str:
    """The last two words and the punctuation between and after them, as they are written.

    >>> _ending(["Straße", "nicht", ",", "weil"]), _ending(["Das", "Tier"])
    ('… nicht, weil', 'Das Tier')
    """
    places = [i for i, word in enumerate(words) if word.strip(MARKS)]
    first = places[-2] if len(places) > 1 else 0
    told = "".join(f" {word}" if word.strip(MARKS) else word for word in words[first:]).strip()
    return f"… {told}" if first else told


def _python(why: Data) -> str:
    text, word = why["text"], why["word"]
    if why["model"] == "pocket-en-de":
        return f"regard.see({text!r}, {word!r})"
    return f"regard.see({text!r}, {word!r}, model=model, tokenizer=tokenizer)"


def _measured(why: Data) -> list[tuple[int, int, int, Number]]:
    """The links from the row of the step that were really cut."""
    names = [one["word"] for one in why["words"]]
    return [
        (one["layer"], one["head"], names.index(one["key"]), one["cut"])
        for one in (*why["links"], *why["control"])
        if one["place"] == why["place"]
        and one["query"] == why["steps"]["query"]
        and one["key"] in names
        and one["cut"] is not None
    ]


def _circuit(why: Data) -> list[dict[str, Any]]:
    """The strongest links of all layers whose two words are shown."""
    reads = [one["word"] for one in why["words"]]
    writes = list(why["output_words"])[: (why["position"] or 0) + 1]
    found = []
    for one in why["links"]:
        queries = reads if one["place"] == "encoder" or not writes else writes
        keys = writes if one["place"] == "decoder" and writes else reads
        key, query = _place(one["key"], keys), _place(one["query"], queries)
        if key is None or query is None:
            continue
        link = {name: one[name] for name in ("place", "layer", "head", "attention")}
        measured = one["cut"] is not None
        effect = one["cut"] if measured else one["effect"]
        found.append({**link, "key": key, "query": query, "effect": effect, "measured": measured})
    return found


def _place(name: str, words: Sequence[str]) -> int | None:
    """The place of a word, of which ``it#2`` is the second.

    >>> _place("it#2", ["it", "was", "it"])
    2
    """
    if name in words:
        return list(words).index(name)
    bare, _, number = name.partition("#")
    there = [i for i, word in enumerate(words) if plain(word) == plain(bare)]
    nth = int(number) - 1 if number.isdigit() else 0
    return there[nth] if nth < len(there) else None
