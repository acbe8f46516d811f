"""A text as a whole: the entropy of each head, and the attention that each word receives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.errors import counted
from regard.lens.arguments import whole
from regard.lens.capture import Seen
from regard.lens.measures import ranked_cells
from regard.lens.plain_data import rounded
from regard.text.words import Words


@dataclass(frozen=True, eq=False)
class Summary:
    """The entropies of a model's heads for a text, and the attention its words receive."""

    words: Words
    layers: tuple[str, ...]
    entropy: Float[Tensor, "layers heads"]
    """The mean entropy of each head's weights in bits: 0 for one token, 1 for two alike."""
    received: Float[Tensor, " names"]
    """The attention that each name receives from a head, on average; 1 if it were uniform."""

    def most(self, n: int = 10) -> list[tuple[str, float]]:
        """The words that receive most attention, without special tokens; ``it#2`` is the second."""
        ranked = sorted(self._received(True), key=lambda one: -one[1])
        return ranked[: whole("most: n", n)]

    def _received(self, word: bool) -> list[tuple[str, float]]:
        """The words, or the special tokens, with the attention they receive."""
        received = zip(self.words.is_word, self.received.tolist(), strict=True)
        return [
            (self.words.called(i), times)
            for i, (is_word, times) in enumerate(received)
            if is_word is word
        ]

    def heads(self) -> list[tuple[int, int, float]]:
        """(layer, head, entropy), the sharpest first."""
        return ranked_cells(self.entropy)

    def to_data(self) -> dict[str, Any]:
        """Everything as plain lists and numbers."""
        return {
            "words": list(self.words.names),
            "special": [not real for real in self.words.is_word],
            "layers": list(self.layers),
            "entropy": rounded(self.entropy),
            "received": rounded(self.received),
        }

    def __repr__(self) -> str:
        layers, heads = self.entropy.shape
        return f"Summary({sum(self.words.is_word)} words, {layers} layers of {heads} heads)"

    def __str__(self) -> str:
        return self.table()

    def table(self, n: int = 10) -> str:
        """The summary as text, with the n words that receive most attention."""
        heads, most = self.heads(), self.most(n)
        size = f"{counted(sum(self.words.is_word), 'word')} in {counted(len(self.layers), 'layer')}"
        lines = [size, "", "sharpest heads              broadest heads"]
        pairs = zip(heads[:5], heads[:-6:-1], strict=True)
        for (layer, head, bits), (other, second, more) in pairs:
            lines.append(
                f"layer {layer:<2} head {head:<2} {bits:5.2f} bits    "
                f"layer {other:<2} head {second:<2} {more:5.2f} bits"
            )
        width = max(len(word) for word, _ in most)
        lines += ["", "looked at most", *(f"{word:{width}}  {times:.2f}" for word, times in most)]
        special = [f"{name} {times:.2f}" for name, times in self._received(False)]
        if special:
            lines.append(f"(special tokens: {', '.join(special[:6])})")
        return "\n".join(lines)


def summarise(words: Words, seen: Seen) -> Summary:
    """The summary of the captured attention of one text."""
    layers = seen.layers()
    looks = list(layers.values())
    bits = torch.log(torch.tensor(2.0))
    entropy = torch.stack([look.entropy()[0].mean(-1) / bits for look in looks])
    received = torch.stack([look.received()[0].mean(0) for look in looks]).mean(0)
    return Summary(words, tuple(layers), entropy, words.summed(received))
