"""The payload: what the viewer in the browser is given, as JSON. Only this file knows its form.

Weights are sparse: of every row the strongest few above a threshold, largest first, as keys and
weights of 16 bits in base64; how much of the whole they hold is stated. Texts of up to 64 tokens
are held whole. A finding is sent as it is, the vectors of its six steps as 16-bit integers.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from regard.errors import OptionError
from regard.view import parts
from regard.view.choice import headed
from regard.view.figure.finding import Finding
from regard.view.figure.wording import PAGE, labels
from regard.view.records import Compared, Explained, Layer, Measures, Text
from regard.view.svg import Number

if TYPE_CHECKING:
    from regard.view.viewer import View

VERSION = 3
WHOLE = 64
"""Maximum keys of a text whose weights are all kept."""
MOST = 16
"""Most links of a row that are kept of a longer text."""
BUDGET = 15_000_000
"""Size limit of steps, explanation and links before base64; long texts keep fewer links."""
STEPS_BUDGET = 1_000_000
"""Maximum size for a saved page to have the six steps of every word by default."""
UNIT = 65_535
"""A weight of 1; the error of a weight is 1/131,070 at most."""
VECTORS, BY_WORD = ("q", "output"), ("k", "v")
"""Vectors of the six steps of a finding: of the row, and of each input word."""
STRONGEST = 8
"""Strongest keys per row whose steps are kept of a long text, besides the chosen words."""


@dataclass(frozen=True)
class Sparsity:
    """Which links a payload keeps: the ``most`` strongest of a row that reach ``threshold``.

    ``most=None`` chooses by the length of the text.
    """

    most: int | None = None
    threshold: Number = 0.001

    def __post_init__(self) -> None:
        if self.most is not None and self.most < 1:
            raise OptionError(f"Sparsity: most expected 1 or more, got {self.most}; or None")
        if not 0 <= self.threshold < 1:
            raise OptionError(
                f"Sparsity: threshold expected 0 or more and below 1, got {self.threshold}; "
                "0.001 keeps links of 0.1 % and more"
            )

    def links(self, layers: Sequence[Layer], beside: int = 0) -> int:
        """The number of links kept per row, if the payload has ``beside`` other bytes."""
        if self.most is not None:
            return self.most
        if all(layer.sizes[1] <= WHOLE for layer in layers):
            return WHOLE
        rows = sum(layer.heads * layer.sizes[0] for layer in layers)
        return max(1, min(MOST, (BUDGET - beside) // (4 * rows)))


def build(view: View, steps: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    """The payload of a view; ``steps`` are, per text, the tokens whose six steps it has."""
    layers, sparsity = view.layers, view.sparsity
    stepped = [_steps(layer, steps) for layer in layers]
    told = None if view.explained is None else _explained(view.explained, view.texts)
    most = sparsity.links(layers, 3 * len(text_of({"steps": stepped, "explained": told})) // 4)
    made = [_layer(layer, most, sparsity.threshold) for layer in layers]
    kept = [share for layer in made for share in layer["kept"]]
    return {
        **empty(),
        "title": view.title,
        **findings_data(view.findings),
        "measures": [measures_data(one) for one in view.measures],
        "texts": {name: _text(text) for name, text in view.texts.items()},
        "layers": made,
        "sparse": {
            "most": most,
            "threshold": float(sparsity.threshold),
            "whole": all(layer["whole"] for layer in made),
            "kept": round(sum(kept) / len(kept), 5) if kept else 1.0,
        },
        "steps": stepped,
        "explained": told,
        "compared": None if view.compared is None else compared_data(view.compared),
    }


def empty() -> dict[str, Any]:
    """A payload that shows nothing yet."""
    lists = ("findings", "vectors", "measures", "layers", "steps")
    return {
        "format": "regard.view", "version": VERSION, "texts": {},
        "labels": labels("attention", word="", instead="") | PAGE,
        **{name: [] for name in lists},
        **dict.fromkeys(("served", "explained", "compared")),
    }  # fmt: skip


def findings_data(findings: Sequence[Finding]) -> dict[str, Any]:
    """Findings as JSON data; vectors that several share, as in cross-attention, are sent once.

    Keys and values are shared word by word: only those of several tokens depend on the finding.
    """
    shared: dict[tuple[str, float], int] = {}
    packed: list[dict[str, Any]] = []

    def once(values: Sequence[Any]) -> int:
        one = pack(values)
        key = one["data"], one["scale"]
        if key not in shared:
            shared[key] = len(packed)
            packed.append(one)
        return shared[key]

    def row(values: Mapping[str, Any]) -> dict[str, Any]:
        whole = {name: once(values[name]) for name in VECTORS if name in values}
        words = {
            name: [once(one) for one in np.moveaxis(np.asarray(values[name]), 2, 0)]
            for name in BY_WORD
            if name in values
        }
        return {**values, **whole, **words}

    rows = [row(one.row) for one in findings]
    found = [
        {**vars(one), "row": row, "reads": [vars(read) for read in one.reads]}
        for one, row in zip(findings, rows, strict=True)
    ]
    return {"findings": found, "vectors": packed}


def pack(values: npt.ArrayLike) -> dict[str, Any]:
    """Numbers as 16-bit integers, little-endian, in base64, with their shape and scale.

    >>> pack([[0.5, -1.0]])
    {'shape': [1, 2], 'scale': 3.051850947599719e-05, 'data': 'AEABgA=='}
    """
    numbers = np.nan_to_num(np.asarray(values, dtype=np.float64))
    scale = float(np.abs(numbers).max(initial=0.0)) / 32767 or 1.0
    return {
        "shape": list(numbers.shape),
        "scale": scale,
        "data": _packed(np.rint(numbers / scale), np.int16),
    }


def text_of(payload: Mapping[str, Any]) -> str:
    """The payload as JSON that is safe inside a script element.

    >>> text_of({"token": "</script>"})
    '{"token":"\\\\u003c/script>"}'
    """
    plain = json.dumps(payload, separators=(",", ":"), allow_nan=False)
    return plain.replace("<", "\\u003c")


def steps_bytes(layers: Sequence[Layer]) -> int:
    """Approximate size in bytes of the six steps of every word of every layer."""
    total = 0
    for layer in layers:
        if not layer.look.has_vectors:
            continue
        q, k = layer.sizes
        width, value = layer.look.q.shape[-1], layer.look.v.shape[-1]
        total += 4 * layer.heads * ((q + k) * (width + value) + 4 * q * k)
    return total


def _text(text: Text) -> dict[str, Any]:
    return {
        "text": text.text,
        "units": [(unit.label, unit.place, unit.tokens) for unit in text.units()],
    }


def _layer(layer: Layer, most: int, threshold: Number) -> dict[str, Any]:
    queries, keys = layer.sizes
    links = min(most, keys)
    whole = links == keys
    values, places = layer.look.top(links)
    weights = headed(values, 2)
    at = places.reshape(-1, queries, links).cpu().numpy()
    held = at >= 0
    if not whole:
        held &= weights >= threshold
    levels = np.rint(np.clip(weights, 0, 1) * UNIT).astype(np.uint16)
    there = weights[..., 0] > 0  # a row of nothing has nothing to lose
    sums = np.where(held, weights, 0).sum(-1)
    shares = [
        float(one[seen].mean()) if seen.any() else 1.0
        for one, seen in zip(sums, there, strict=True)
    ]
    entropy = headed(layer.look.entropy(), 1) / (math.log(keys) if keys > 1 else 1.0)
    received = headed(layer.look.received(), 1)
    highest = float(received.max()) or 1.0
    return {
        "name": layer.name,
        "kind": layer.kind,
        "queries": layer.queries,
        "keys": layer.keys,
        "heads": layer.heads,
        "whole": bool(whole),
        "kept": [round(min(share, 1.0), 5) for share in shares],
        "counts": _packed(held.sum(-1), np.uint16),
        "places": _packed(at[held], np.uint16 if keys <= UNIT + 1 else np.uint32),
        "weights": _packed(levels[held], np.uint16),
        "entropy": _packed(np.rint(np.clip(entropy, 0, 1) * UNIT), np.uint16),
        "received": _packed(np.rint(received / highest * UNIT), np.uint16),
        "receivedMost": highest,
    }


def _packed(values: npt.NDArray[Any], kind: type[np.generic]) -> str:
    """Little-endian numbers as base64."""
    data = np.ascontiguousarray(values, dtype=np.dtype(kind).newbyteorder("<")).tobytes()
    return base64.b64encode(data).decode("ascii")


def _steps(layer: Layer, chosen: Mapping[str, Sequence[int]]) -> dict[str, Any] | None:
    """The numbers of the six steps of the chosen tokens, per head.

    Short texts keep all keys; long ones those of the chosen tokens and the strongest of each row.
    """
    queries = sorted(set(chosen.get(layer.queries, ())))
    if not queries or not (layer.numbers and layer.look.has_vectors):
        return None
    look, count = layer.look, layer.sizes[1]
    weights = headed(look.weights(queries=queries), 2)
    keys = _kept_keys(weights, count, sorted(set(chosen.get(layer.keys, ()))))
    q, k, v, output = (headed(x, 2) for x in (look.q, look.k, look.v, look.output))
    groups = np.arange(layer.heads) * len(k) // layer.heads
    own = groups[:, None], keys
    scores = headed(look.compared(queries=queries), 2), headed(look.scores(queries=queries), 2)
    vectors = {"q": q[:, queries], "output": output[:, queries], "k": k[own], "v": v[own]}
    numbers = zip(("product", "scaled", "weight"), (*scores, weights), strict=True)
    return {
        "queries": queries,
        "keys": keys.tolist(),
        "scaling": look.scaling,
        **{name: pack(values) for name, values in vectors.items()},
        **{name: _taken(values, keys) for name, values in numbers},
    }


def _taken(rows: npt.NDArray[np.float32], keys: npt.NDArray[np.int64]) -> list[Any]:
    """The numbers ``(h, q, m)`` at the keys ``(h, m)``; None where they are not finite."""
    wide = np.broadcast_to(keys[:, None], (*rows.shape[:2], keys.shape[1]))
    found = np.take_along_axis(rows, wide, 2).astype(np.float64).round(5)
    return list(np.where(np.isfinite(found), found.astype(object), np.array(None)).tolist())


def _kept_keys(
    weights: npt.NDArray[np.float32], count: int, chosen: Sequence[int]
) -> npt.NDArray[np.int64]:
    """The keys whose steps are kept, the same number per head: ``(h, m)``."""
    heads, queries, _ = weights.shape
    if count <= WHOLE:
        return np.broadcast_to(np.arange(count), (heads, count))
    ranks = np.argsort(np.argsort(-weights, -1, kind="stable"), -1).min(1)
    ranks[:, chosen] = -1
    room = min(count, len(chosen) + STRONGEST * queries)
    return np.sort(np.argsort(ranks, -1, kind="stable")[:, :room])


def _explained(explained: Explained, texts: Mapping[str, Text]) -> dict[str, Any]:
    return {
        "word": explained.word % len(texts[explained.text].words),
        "text": explained.text,
        "lookedAt": explained.looked_at,
        "sentence": explained.sentence,
        "table": parts.explained(explained, texts).data(),
    }


def measures_data(measures: Measures) -> dict[str, Any]:
    """The measures of one written word as JSON data."""
    return {"word": measures.word, "table": parts.measured(measures).data()}


def compared_data(compared: Compared) -> dict[str, Any]:
    """A comparison as JSON data."""
    tables = parts.Comparison(compared).sides()
    return {
        "word": compared.word,
        "sides": [
            {
                "words": list(side.words),
                "place": side.place,
                "tables": [table.data() for table in own],
                "translation": side.translation,
            }
            for side, own in zip((compared.one, compared.other), tables, strict=True)
        ],
        "cosine": [float(f"{x:.5g}") for x in compared.values()],
        "sentence": compared.sentence,
    }
