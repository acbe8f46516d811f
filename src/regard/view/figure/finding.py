"""`Finding`: what the figure and the page show, in which words, from the data of a `Why`.

The renderers, SVG here and JavaScript in the page, decide nothing: every sentence and every list
is made here. A sentence is a list of spans, (text, role), where the role says what a mentioned
word is: ``"look"`` for one that is looked at or written, ``"cut"`` after a cut, else ``""``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from regard.errors import WordError
from regard.view._svg import Number

Span = tuple[str, str]
Data = Mapping[str, Any]

CLEAR = 0.02
"""A loss of probability from which on a word is said to matter."""
STRONG = 0.5
"""A weight from which on the model is said to look at a word."""
COLUMNS = 16
"""Input words with bars of their own."""
MARKS = ".,;:!?…\u3002\u3001\uff0c\uff01\uff1f"
_TURNING = re.compile("[\u202a-\u202e\u2066-\u2069\u2028\u2029]")
_TWICE = re.compile(r"#\d+$")


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
    """Input words that have bars of their own, at most; the foremost are taken."""
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
    alone = not why["output_words"]
    selected = _most(why["words"], "looked")
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
        alignment=[] if alone else [(a, b) for a, b in why["alignment"]],
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


def _most(words: Sequence[Data], what: str) -> int:
    """The word with the largest number, special tokens aside."""
    real = [i for i, one in enumerate(words) if not one["special"]] or range(len(words))
    return max(real, key=lambda i: float(words[i][what]))


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
        output=_output(why, one, flips, writes),
        headline=_headline(why, names, i, selected),
        cut_headline=_cut_headline(why, names[i], one, flips, writes),
        cut_caption=_cut_caption(why, one, flips, writes),
    )


def _output(why: Data, one: Data, flips: bool, writes: str) -> list[str]:
    """The words of the output after a cut, in the places they had if their number is the same."""
    before: list[str] = list(why["output_words"]) or [why["word"]]
    at = why["position"] if why["output_words"] else 0
    if flips and why["output_words"] and why["written"].split() == before:
        after = one["text"].split()
        if len(after) == len(before):
            return [clean(word) for word in after]
    if flips:
        before[at] = writes + before[at][len(before[at].rstrip(MARKS)) :]
    return [clean(word) for word in before]


def _headline(why: Data, names: Sequence[str], i: int, selected: int) -> list[Span]:
    word, one, kind = clean(why["word"]), why["words"][i], _kind(why)
    key = plain(names[i])
    begin: list[Span] = [(f"When it {_verb(kind)} ", ""), (word, "look"), (", it looks ", "")]
    if kind == "vector":
        begin = [(word, "look"), (" attends ", "")]
    if i != selected:
        strength = (
            f"{'at most ' if len(why['heads']['attention'][0]) > 1 else ''}{one['looked']:.2f}"
        )
        joint = "to " if kind == "vector" else "at "
        return [*begin, (joint, ""), (key, "look"), (f" with {strength}.", "")]
    back = "back at " if kind in ("translation", "next") else "most at "
    most = _most(why["words"], "matters")
    end: list[Span] = [(".", "")]
    if most != i and why["words"][most]["matters"] >= CLEAR:
        back = "most at "
        end = [(", but ", ""), (plain(names[most]), "cut"), (" matters most.", "")]
    return [*begin, ("most to " if kind == "vector" else back, ""), (key, "look"), *end]


def _verb(kind: str) -> str:
    return "writes" if kind in ("translation", "next") else "chooses"


def _cut_headline(why: Data, name: str, one: Data, flips: bool, writes: str) -> list[Span]:
    word, kind = clean(why["word"]), _kind(why)
    key: Span = (plain(name), "cut")
    if kind == "vector":
        cosine = f"{one['probability']:.2f}"
        return [
            ("Without ", ""),
            key,
            (f" its vector keeps a cosine of {cosine} to what it was.", ""),
        ]
    verb = _verb(kind)
    if flips:
        return [
            (f"Without that link it {verb} ", ""),
            (writes, "cut"),
            (f" instead of {word}.", ""),
        ]
    begin: list[Span] = [("Without ", ""), key, (f" it still {verb} ", ""), (word, "look")]
    if one["matters"] >= CLEAR:
        now, before = percent(one["probability"]), percent(why["probability"])
        return [*begin, (f", at {now} instead of {before}.", "")]
    if one["looked"] >= STRONG:
        return [*begin, (": it looked there, but that was not the reason.", "")]
    return [*begin, (": it hardly looked there.", "")]


def _cut_caption(why: Data, one: Data, flips: bool, writes: str) -> list[Span]:
    layers, heads = why["heads"]["attention"], why["heads"]["attention"][0]
    count = len(layers) * len(heads)
    where = "in the only head" if count == 1 else f"in all {count} heads that look there"
    begin: list[Span] = [(f"The link is cut {where}; nothing else was touched. ", "")]
    if _kind(why) == "vector":
        moved = f"{1 - one['probability']:.3f}"
        return [*begin, (f"The cosine to the vector with all links falls by {moved}.", "")]
    now, before = percent(one["probability"]), percent(why["probability"])
    word = clean(why["word"])
    if flips:
        names = [clean(each["word"]) for each in why["alternatives"]]
        share = one["probabilities"][names.index(writes)] if writes in names else None
        told = "" if share is None else f" ({percent(share)})"
        return [*begin, ("It ", ""), (_verb(_kind(why)), ""), (" ", ""), (writes, "cut"),
                (f"{told}; {word} falls from {before} to {now}.", "")]  # fmt: skip
    return [*begin, (word, "look"), (f" has {now}; with all links it has {before}.", "")]


def _labels(why: Data) -> dict[str, str]:
    word = clean(why["word"])
    kind = _kind(why)
    before = ""
    if kind == "translation" and why["position"]:
        last = why["output_words"][max(0, why["position"] - 2) : why["position"]]
        dots = "… " if why["position"] > 2 else ""
        before = f"after “{dots}{clean(' '.join(last))}”"
    elif kind == "next":
        before = "after the text"
    return {
        "query": {
            "choice": f"q, of the first row that {word} is read from", "vector": f"q, of {word}",
        }.get(kind, f"q, where {word} is written"),
        "reads": "it reads",
        "writes": {
            "translation": "it writes", "next": "it writes next", "choice": "it chooses",
            "vector": "the word whose vector is looked at",
        }[kind],
        "choices": "How near its vector stays" if kind == "vector" else {
            "choice": "What it would choose",
        }.get(kind, "The next word it would write"),
        "before": before,
        "matters": "What if it could not look there?",
        "each": "one word cut at a time, all heads",
        "looked": "looked at (strongest head)",
        "lost": "matters: movement of the vector" if kind == "vector"
        else f"matters: points that “{word}” loses",
    }  # fmt: skip


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


def spans(told: str) -> list[Span]:
    """A sentence in which mentioned words stand in asterisks.

    >>> spans("It writes *es*.")
    [('It writes ', ''), ('es', 'look'), ('.', '')]
    """
    parts = told.split("*")
    return [(plain(one), "look") if i % 2 else (one, "") for i, one in enumerate(parts) if one]


def plain(word: str) -> str:
    """A word without the punctuation behind it.

    >>> plain("tired."), plain("...")
    ('tired', '...')
    """
    return word.rstrip(MARKS) or word


def clean(text: str) -> str:
    """Text without characters that would turn or break the lines around it.

    >>> clean("a\\u202eb")
    'a\\ufffdb'
    """
    return _TURNING.sub("\ufffd", text)


def percent(share: Number) -> str:
    """A probability as people read it, with a space that does not break.

    >>> [percent(share).replace("\\xa0", " ") for share in (0.9208, 0.0042, 0.0003)]
    ['92 %', '0.4 %', '0 %']
    """
    places = 1 if 0.0005 <= share < 0.01 else 0
    return f"{100 * share:.{places}f}\xa0%"
