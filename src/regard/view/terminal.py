"""The views as text, for a terminal and for whoever does not see pictures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from rich.cells import cell_len

from regard.view import _grids
from regard.view._data import Array
from regard.view._svg import Number, escape
from regard.view.choice import Choice
from regard.view.records import Compared, Explained, Layer, Text, Unit

BLOCKS = " ░▒▓█"
BAR = 24
MOST_ROWS = 60
"""Words of a text that are printed; of a longer one, the first."""
SIDE = 40
"""Rows and columns of a printed map."""


def head(choice: Choice, threshold: Number) -> str:
    """Per word that asks, the words it looks at most, over the chosen heads on average."""
    asking = choice.queries if choice.asking is None else (choice.queries[choice.asking],)
    shown = asking[:MOST_ROWS]
    mean = choice.weights(shown).mean(0)
    wide = _widest([unit.label for unit in shown])
    lines = [_title(choice, head_names(choice.heads))]
    for unit, row in zip(shown, mean, strict=True):
        if len(shown) == 1:
            lines += _bars([other.label for other in choice.keys], row, threshold)
            continue
        best = [int(i) for i in np.argsort(-row, kind="stable")[:4] if row[i] > threshold]
        told = "  ".join(f"{_shown(choice.keys[i].label)} {row[i]:.3f}" for i in best)
        lines.append(f"{_padded(unit.label, wide)}  →  {told}".rstrip(" →") if told else
                     f"{_padded(unit.label, wide)}")  # fmt: skip
    if len(asking) > len(shown):
        lines.append(f"… and {len(asking) - len(shown)} more")
    return "\n".join(lines)


def matrix(choice: Choice) -> str:
    """One head's map in blocks of grey; with numbers where there are few words."""
    title = _title(choice, f"head {choice.head}")
    if max(len(choice.queries), len(choice.keys)) <= 12:
        single = Choice(
            choice.layer, (choice.head,), choice.queries, choice.keys, None, None, choice.tokens
        )
        return "\n".join([title, *_numbers(single.weights()[0], choice.queries, choice.keys)])
    grid = _grids.pooled(choice.layer, choice.head, choice.queries, choice.keys, SIDE)
    lines = ["".join(2 * _shade(w) for w in row / (grid.max() or 1)) for row in grid]
    sizes = f"{len(choice.queries)} × {len(choice.keys)}"
    blocks = max(-(-len(choice.queries) // SIDE), -(-len(choice.keys) // SIDE))
    note = f"{sizes}, each block the mean of {blocks} × {blocks}" if blocks > 1 else sizes
    return "\n".join([title, *(line.rstrip() for line in lines), note])


def overview(layers: Sequence[Layer]) -> str:
    """A line per layer: the entropy of each head, 0 (one key) … 1 (all alike)."""
    wide = _widest([layer.name for layer in layers])
    most = max(layer.heads for layer in layers)
    lines = ["entropy of each head, 0 (looks at one) … 1 (at all alike)"]
    lines.append(" " * wide + "".join(f"{h:6}" for h in range(most)))
    for layer in layers:
        entropies = mean_entropies(layer)
        lines.append(_padded(layer.name, wide) + "".join(f"{e:6.2f}" for e in entropies))
    return "\n".join(lines)


def mean_entropies(layer: Layer) -> list[float]:
    """Per head, the mean entropy of its rows as share of the highest possible."""
    entropy = _grids.headed(layer.look.entropy(), 1).mean(-1)
    keys = layer.sizes[1]
    return [float(e) / (float(np.log(keys)) if keys > 1 else 1.0) for e in entropy]


def explain(explained: Explained, texts: Mapping[str, Text]) -> str:
    """A line per word, a column per method, the agreement with knockout below."""
    words = texts[explained.looked_at].words
    word = texts[explained.text].words[explained.word]
    wide = max(_widest(words), cell_len("agreement"))
    values = [method.values(len(words)) for method in explained.methods]
    widths = [max(10, len(method.name) + 2) for method in explained.methods]
    titles = [f"{m.name:>{w}}" for m, w in zip(explained.methods, widths, strict=True)]
    lines = [f"why {_shown(word)}?", " " * wide + "".join(titles)]
    for i, other in enumerate(words):
        cells = [
            f"{_fixed(v[i]) + ('*' if i == int(np.nanargmax(v)) else ' '):>{w}}"
            for v, w in zip(values, widths, strict=True)
        ]
        lines.append((_padded(other, wide) + "".join(cells)).rstrip())
    agreements = [
        f"{'' if m.agreement is None else _fixed(m.agreement) + ' ':>{w}}"
        for m, w in zip(explained.methods, widths, strict=True)
    ]
    lines.append((_padded("agreement", wide) + "".join(agreements)).rstrip())
    return "\n".join([*lines, *([explained.sentence] if explained.sentence else [])])


def compare(compared: Compared) -> str:
    """The two sentences, what pulled the word, and the cosine after each layer."""
    lines = [compared.sentence] if compared.sentence else []
    for name, side in (("1", compared.one), ("2", compared.other)):
        said = [
            f"[{_shown(w)}]" if i == side.place else _shown(w) for i, w in enumerate(side.words)
        ]
        lines.append(f"{name}. {' '.join(said)}")
        for title, pairs in (("pulled by", side.pulled), ("near", side.neighbours)):
            if pairs:
                told = ", ".join(f"{_shown(word)} {_fixed(value)}" for word, value in pairs)
                lines.append(f"   {title} {told}")
        if side.translation:
            lines.append(f"   translated as {side.translation}")
    lines.append(f"cosine of the two {compared.word}, after each layer:")
    lines += [f"{i:3}  {_fixed(c)}  {_bar(c)}".rstrip() for i, c in enumerate(compared.values())]
    return "\n".join(lines)


def head_names(heads: Sequence[int]) -> str:
    """The heads by their numbers, which begin with 0.

    >>> head_names([0]), head_names([0, 4])
    ('head 0', 'heads 0, 4')
    """
    numbers = ", ".join(str(head) for head in heads)
    return f"head {numbers}" if len(heads) == 1 else f"heads {numbers}"


def _title(choice: Choice, heads: str) -> str:
    unit = "tokens" if choice.tokens else "words"
    return f"{choice.layer.name}, {heads} ({choice.layer.kind} attention, {unit})"


def _bars(labels: Sequence[str], row: Array, threshold: Number) -> list[str]:
    kept = [i for i in range(len(row)) if row[i] > threshold]
    if len(kept) > MOST_ROWS:
        kept = sorted(sorted(kept, key=lambda i: -row[i])[:MOST_ROWS])
    wide = _widest([labels[i] for i in kept])
    return [f"{_padded(labels[i], wide)}  {row[i]:.3f}  {_bar(row[i])}".rstrip() for i in kept]


def _numbers(weights: Array, queries: Sequence[Unit], keys: Sequence[Unit]) -> list[str]:
    wide = _widest([unit.label for unit in queries])
    columns = [max(5, cell_len(_shown(unit.label))) for unit in keys]
    top = "  ".join(_padded(u.label, w, right=True) for u, w in zip(keys, columns, strict=True))
    lines = [f"{' ' * wide}  {top}"]
    for unit, row in zip(queries, weights, strict=True):
        cells = "  ".join(f"{value:{w}.3f}" for value, w in zip(row, columns, strict=True))
        lines.append(f"{_padded(unit.label, wide)}  {cells}")
    return lines


def _shade(share: Number) -> str:
    """A block of grey; the root, so that small weights can be seen.

    >>> _shade(0), _shade(0.1), _shade(1)
    (' ', '░', '█')
    """
    return BLOCKS[min(len(BLOCKS) - 1, round(float(np.sqrt(share)) * (len(BLOCKS) - 1)))]


def _bar(share: Number) -> str:
    return "█" * round(BAR * min(max(share, 0), 1))


def _number(value: Number) -> str:
    return "−∞" if np.isneginf(value) else f"{value:.4f}".replace("-", "−")


def _fixed(value: Number) -> str:
    text = "·" if math.isnan(value) else f"{value:.2f}"
    return ("0.00" if text == "-0.00" else text).replace("-", "−")


def _shown(text: str) -> str:
    """A word as a terminal may have it: nothing in it steers the terminal."""
    visible = escape(text)
    for mark, entity in (("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"), ("&", "&amp;")):
        visible = visible.replace(entity, mark)
    return "".join("\ufffd" if "\u202a" <= c <= "\u202e" or "\u2066" <= c <= "\u2069" else c
                   for c in visible)  # fmt: skip


def _widest(labels: Sequence[str]) -> int:
    return max((cell_len(_shown(label)) for label in labels), default=0)


def _padded(text: str, wide: int, right: bool = False) -> str:
    shown = _shown(text)
    room = " " * (wide - cell_len(shown))
    return room + shown if right else shown + room
