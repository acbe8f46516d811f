"""What a word attends to: by weight, by weight × value, and through all layers.

All three are computed from the captured attention. What happens without a link is measured in
`ablation`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.record import Look
from regard.errors import OptionError
from regard.text.words import Words

BLOCK = 256
"""The number of queries whose weights are in memory at once."""


@dataclass(frozen=True)
class Measures:
    """The scores of all words for one word."""

    attention: Float[Tensor, "layers heads names"]
    """The weights: the mean over the word's own tokens, the sum over those attended to."""
    norm: Float[Tensor, "layers heads names"]
    """Weight × length of the value, projected by the head's output matrix."""
    norm_of_layers: Float[Tensor, "layers names"]
    """The same for the sum of all heads, which may cancel."""
    rollout: Float[Tensor, " names"]
    """The share of each word in this one through all layers, along all paths."""


def measure(
    looks: Mapping[str, Look], outputs: Mapping[str, Tensor], words: Words, tokens: Sequence[int]
) -> Measures:
    """The measures of the word with these tokens, in the first sequence of the batch.

    `looks` are those of the layers in order; `outputs` are the matrices ``(h, e, width)`` that mix
    the output of their heads.
    """
    attention, norm, norm_of_layers = [], [], []
    n = len(words.tokens)
    heads = sorted({look.sizes[1] for look in looks.values()})
    if len(heads) > 1:
        raise OptionError(
            f"explain: the layers of this model have {' and '.join(map(str, heads))} heads, so "
            "they cannot be put into one table; regard.watch shows each layer by itself"
        )
    for name, look in looks.items():
        weights = mean_weights(look, tokens)[:, :n]  # (h, k)
        passed = projected_values(look.v[0], outputs[name])[:, :n]  # (h, k, width)
        attention.append(words.summed(weights))
        norm.append(words.summed(weights * torch.linalg.vector_norm(passed, dim=-1)))
        norm_of_layers.append(words.summed(norms(weights, passed)))
    return Measures(
        torch.stack(attention),
        torch.stack(norm),
        torch.stack(norm_of_layers),
        words.summed(rollout(list(looks.values()), n, tokens)),
    )


def mean_weights(look: Look, tokens: Sequence[int]) -> Float[Tensor, "h k"]:
    """The weights of each key, on average over these queries."""
    return look.weights(queries=list(tokens))[0].mean(1)


def norms(weights: Float[Tensor, "h k"], passed: Float[Tensor, "h k width"]) -> Float[Tensor, " k"]:
    """The length of each key's contribution to the output of all heads together."""
    found: Tensor = torch.linalg.vector_norm((weights.unsqueeze(-1) * passed).sum(0), dim=-1)
    return found


def rollout(looks: Sequence[Look], n: int, tokens: Sequence[int]) -> Float[Tensor, " tokens"]:
    """The share of each of n tokens in the mean of these tokens after all layers.

    In each layer a token is half itself, by the residual connection, and half what its heads attend
    to, on average (Abnar and Zuidema, "Quantifying Attention Flow in Transformers", 2020). One row
    of the product of all layers is computed, from the last layer to the first, so no n × n matrix
    is needed.
    """
    first = looks[0].output
    exact = torch.promote_types(first.dtype, torch.float32)  # as weights are
    reached = torch.zeros(n, dtype=exact, device=first.device)
    reached[list(tokens)] = 1 / len(tokens)
    for look in reversed(looks):
        reached = (reached + propagated(look, reached)[:n]) / 2
    return reached / reached.sum()


def propagated(look: Look, reached: Float[Tensor, " q"]) -> Float[Tensor, " k"]:
    """A distribution over the queries as one over the keys, by the mean weights of all heads.

    Weights are computed in blocks of rows, so no n × n matrix is needed.
    """
    found = reached.new_zeros(look.sizes[3])
    for start in range(0, len(reached), BLOCK):
        queries = [i for i in range(start, min(len(reached), start + BLOCK)) if reached[i] > 0]
        if queries:
            found += reached[queries] @ look.weights(queries=queries)[0].mean(0)
    return found


def top_ranked(ranked: Sequence[Tensor], candidates: Sequence[int], most: int) -> list[int]:
    """The candidates that any of several scores ranks first, at most `most`, in order.

    nan ranks last.

    >>> top_ranked([torch.tensor([3.0, 1.0, 2.0]), torch.tensor([0.0, 9.0, 0.0])], [0, 1, 2], 2)
    [0, 1]
    """
    losses = [one.nan_to_num(-torch.inf).neg().tolist() for one in ranked]
    orders = [sorted(candidates, key=one.__getitem__) for one in losses]
    chosen = dict.fromkeys(i for place in zip(*orders, strict=True) for i in place)
    return sorted(list(chosen)[:most])


def ranked_cells(
    values: Float[Tensor, "layers heads"], *, descending: bool = False
) -> list[tuple[int, int, float]]:
    """(layer, head, value) of every head, in the order of the values.

    >>> ranked_cells(torch.tensor([[2.0, 1.0]]))
    [(0, 1, 1.0), (0, 0, 2.0)]
    """
    cells = [(i, j, x) for i, row in enumerate(values.tolist()) for j, x in enumerate(row)]
    return sorted(cells, key=lambda cell: cell[2], reverse=descending)


def agreement(one: Sequence[float | int] | Tensor, other: Sequence[float | int] | Tensor) -> float:
    """Spearman's rank correlation: 1 if both have the same order, -1 if the opposite one.

    Equal numbers share their rank. Of fewer than two numbers, or if all are equal: nan.

    >>> round(agreement([0.1, 0.5, 0.9], [1, 2, 30]), 6)
    1.0
    """
    x, y = (_ranks(torch.as_tensor(values, dtype=torch.float64)) for values in (one, other))
    x, y = x - x.mean(), y - y.mean()
    spread = torch.linalg.vector_norm(x) * torch.linalg.vector_norm(y)
    return float((x @ y) / spread) if len(x) > 1 and spread > 0 else float("nan")


def _ranks(values: Tensor) -> Tensor:
    less = (values[None] < values[:, None]).sum(1)
    equal = (values[None] == values[:, None]).sum(1)
    return (less + (equal + 1) / 2).double()


def projected_values(
    v: Float[Tensor, "g k e"], output: Float[Tensor, "h e width"]
) -> Float[Tensor, "h k width"]:
    """The values projected by the output matrix of each head; grouped heads share theirs."""
    exact = torch.promote_types(v.dtype, torch.float32)
    return v.to(exact).repeat_interleave(len(output) // len(v), 0) @ output.to(v.device, exact)


class HeadMixers:
    """Finds the linear layer that mixes the heads of each attention layer.

    While the context is open, the inputs of all linear layers are recorded; the one whose input is
    the output of attention mixes its heads, whatever its name.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._inputs: list[tuple[nn.Module, Tensor]] = []
        self._hooks = ExitStack()

    def __enter__(self) -> HeadMixers:
        for module in self._model.modules():
            if isinstance(module, nn.Linear) or type(module).__name__ == "Conv1D":
                self._hooks.enter_context(module.register_forward_pre_hook(self._note))
        return self

    def __exit__(self, *_: object) -> None:
        self._hooks.close()

    def outputs(self, looks: Mapping[str, Look]) -> dict[str, Tensor]:
        """The output matrix of each layer's heads, ``(h, e, width)``.

        The identity where it was not found: `Measures.norm` is then weight × length of the value.
        """
        return {name: self._output(name, look) for name, look in looks.items()}

    def _note(self, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        if inputs and isinstance(inputs[0], Tensor):
            self._inputs.append((module, inputs[0]))

    def mixer(self, name: str, look: Look) -> nn.Module | None:
        """The module that mixes the heads of a layer; None if not found."""
        b, h, q, e = look.output.shape
        module_name = name.partition("#")[0].removesuffix(":self").removesuffix(":cross")
        own = self._model.get_submodule(module_name)
        if isinstance(getattr(own, "w_o", None), Tensor) or isinstance(own, nn.MultiheadAttention):
            return own
        given = look.output.transpose(1, 2).reshape(b * q, h * e)
        for module, x in self._inputs:
            alike = x.shape[-1] == h * e and x.numel() == given.numel()
            if alike and torch.equal(x.reshape(given.shape), given):
                return module
        return None

    def _output(self, name: str, look: Look) -> Tensor:
        h, e = look.output.shape[1], look.output.shape[3]
        mixer = self.mixer(name, look)
        if mixer is None:
            return torch.eye(e).expand(h, e, e)
        if isinstance(mixer, nn.MultiheadAttention):
            mixer = mixer.out_proj
        matrix = getattr(mixer, "w_o", None)
        if not isinstance(matrix, Tensor):
            weight = mixer.get_parameter("weight")
            matrix = weight.T if isinstance(mixer, nn.Linear) else weight
        return matrix.detach().reshape(h, e, -1)
