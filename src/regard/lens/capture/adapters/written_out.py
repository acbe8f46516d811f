"""Attention that a model computes itself: a product, a softmax, and a product with values.

Nothing marks such a call, so tensors are followed by their storage. The result of a product of two
activations may be scores; it is followed through whatever changes it place by place. A softmax over
the last axis makes weights of it, which are followed likewise. Their product with values, summed
over the keys, completes a call. Its weights are the softmax's result, or what the model made of it
before dropout, by a mask or another normalisation. Links are cut by -inf in the
softmax's input, below autograd.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from regard.lens.capture.adapters.functional import Args, Named, decomposed
from regard.lens.capture.inputs import Weights
from regard.lens.capture.layout import Layout
from regard.lens.capture.modules import Run, is_part, running
from regard.lens.capture.positions import LOWEST
from regard.lens.capture.record import Gradients
from regard.lens.capture.session import Operator, Place, Session
from regard.lens.capture.storage import StorageMap, counted_views, equal

_aten = torch.ops.aten
PRODUCTS: dict[Operator, tuple[int, int]] = {
    _aten.bmm.default: (0, 1),
    _aten.mm.default: (0, 1),
    _aten.baddbmm.default: (1, 2),
}
"""Matrix products, and which of their arguments are multiplied."""
SOFTMAX = (_aten._softmax.default, _aten._safe_softmax.default)
BACKWARD = _aten._softmax_backward_data.default
COMPOSITES = (
    _aten.softmax.int, _aten.special_softmax.default, _aten.matmul.default, _aten.einsum.default,
)  # fmt: skip
FOLLOWED = tuple(
    getattr(getattr(_aten, name), overload)
    for name, overloads in {
        "mul": "Tensor Scalar", "div": "Tensor Scalar", "add": "Tensor Scalar",
        "sub": "Tensor Scalar", "masked_fill": "Scalar Tensor",
        "where": "self ScalarOther ScalarSelf",
        "_to_copy": "default", "to": "dtype", "clone": "default", "contiguous": "default",
        "reshape": "default", "_reshape_copy": "default", "native_dropout": "default",
        "dropout": "default", "nan_to_num": "default", "clamp": "default Tensor",
        "clamp_min": "default", "maximum": "default", "minimum": "default", "tanh": "default",
        "neg": "default", "cat": "default", "constant_pad_nd": "default", "pad": "default",
        "index_select": "default", "gather": "default", "roll": "default", "convolution": "default",
        "conv2d": "default", "stack": "default", "index": "Tensor", "rsub": "Scalar",
        "relu": "default", "softplus": "default", "as_strided_scatter": "default",
        "slice_scatter": "default", "native_layer_norm": "default", "layer_norm": "default",
    }.items()
    for overload in overloads.split()
)  # fmt: skip
"""Operators after which scores are still scores, and weights still weights."""
MIXING = (_aten.convolution.default, _aten.conv2d.default)
"""Those of them that mix heads or places."""
DROPOUT = (_aten.native_dropout.default, _aten.dropout.default)
ROUNDING = 8
"""Steps of a dtype's precision by which weights may differ and count as the same."""


@dataclass(eq=False)
class Scores:
    """Scores before a softmax."""

    q: Tensor
    k: Tensor
    sole: bool = True
    """Whether the scores are those of this one product, and not of several, or of mixed heads."""


@dataclass(eq=False, kw_only=True)
class Softmax(Scores):
    """Weights before the product with values."""

    weights: Tensor
    """The softmax's result."""
    layout: Layout
    place: Place
    in_use: int | None
    cut: bool
    altered: bool = False
    """Whether dropout or a mixture of heads was applied to the weights."""
    keys: int = 0
    """The number of keys, once known; the weights of an attention sink have one more column."""
    gradients: Gradients | None = None
    """Those of the call, once it has been announced."""


class _Swapped:
    """Whether an axis of a product's result was swapped with the one before it.

    The strides of a view tell it; what was copied is noted.
    """

    def __init__(self, axis: int) -> None:
        self._axis = axis
        self._copies: StorageMap[bool] = StorageMap()

    def __call__(self, x: Tensor) -> bool:
        return self._in_strides(x) is not bool(self._copies.get(x))

    def pass_on(self, x: Tensor, made: Tensor) -> None:
        """Note what was made of x, place by place."""
        copied = self(x) is not self._in_strides(made)
        if copied or self._copies:
            self._copies[made] = copied

    def _in_strides(self, x: Tensor) -> bool:
        return x.dim() > -self._axis and x.stride(self._axis - 1) < x.stride(self._axis)


class _State:
    def __init__(self) -> None:
        self.chains: StorageMap[Scores] = StorageMap()
        self.rows_first = _Swapped(-2)
        """Whether the rows of the product are the third axis from the end, not the second."""
        self.transposed = _Swapped(-1)
        """Whether its rows are the keys, not the queries."""
        self.backward: StorageMap[Softmax] = StorageMap()
        self.random: StorageMap[bool] = StorageMap()

    def pass_on(self, chain: Scores, x: Tensor, made: Tensor) -> None:
        """Follow what was made of x, place by place."""
        self.chains[made] = chain
        self.rows_first.pass_on(x, made)
        self.transposed.pass_on(x, made)


class WrittenOut:
    """Adapter of attention that is written out as softmax and products."""

    def __init__(self) -> None:
        self.operators = {
            **dict.fromkeys(FOLLOWED, self.follow),
            **dict.fromkeys(PRODUCTS, self.product),
            **dict.fromkeys(SOFTMAX, self.softmax),
            **dict.fromkeys(COMPOSITES, decomposed),
            _aten.copy_.default: self.copy,
            _aten.bernoulli_.float: self.draw,
            BACKWARD: self.backward,
        }

    def install(self, session: Session) -> None:
        session.state[self] = _State()

    def remove(self, session: Session) -> None:
        del session.state[self]

    def follow(self, session: Session, func: Operator, args: Args, kwargs: Named) -> Any:
        """Follow scores or weights through an elementwise operator."""
        result = func(*args, **kwargs)
        state: _State = session.state[self]
        tensors = list(_tensors(args)) if state.chains else []
        found = [(x, chain) for x in tensors if (chain := state.chains.get(x)) is not None]
        if not found:
            return result
        x, chain = found[0]
        random = (func in DROPOUT and args[2]) or any(map(state.random.get, tensors))
        if isinstance(chain, Softmax) and (random or func in MIXING):
            chain.altered = True
        if func in MIXING or any(other is not chain for _, other in found):
            chain.sole = False
        made = result[0] if isinstance(result, tuple) else result
        if isinstance(made, Tensor) and not made.is_nested:
            state.pass_on(chain, x, made)
        return result

    def copy(self, session: Session, func: Operator, args: Args, kwargs: Named) -> Any:
        """Follow scores that are copied into another tensor."""
        result = func(*args, **kwargs)
        state: _State = session.state[self]
        if state.chains and (chain := state.chains.get(args[1])) is not None:
            state.pass_on(chain, args[1], args[0])
        return result

    def draw(self, session: Session, func: Operator, args: Args, kwargs: Named) -> Any:
        """Note random numbers, by which dropout multiplies."""
        session.state[self].random[args[0]] = True
        return func(*args, **kwargs)

    def product(self, session: Session, func: Operator, args: Args, kwargs: Named) -> Any:
        """A matrix product: of queries and keys, of weights and values, or another."""
        state: _State = session.state[self]
        result = func(*args, **kwargs)
        a, b = (args[i] for i in PRODUCTS[func])
        chain_a, chain_b = state.chains.get(a), state.chains.get(b)
        for chain, weights, other, swapped in ((chain_a, a, b, False), (chain_b, b, a, True)):
            if isinstance(chain, Softmax):
                if chain.gradients is not None:
                    return result  # of a call that was announced: its backward pass, or more values
                with counted_views():
                    found = self._announce(session, chain, weights, other, result, swapped)
                if not found:
                    state.chains[result] = chain  # heads were mixed
                    chain.altered = True
                return result
        if mixed := chain_a or chain_b:
            mixed.sole = False
            state.chains[result] = mixed
        elif func is not _aten.mm.default or not _has_parameter(session, a, b):
            module = _innermost(running())
            if module is not None:  # in a backward pass, whose results live long, none runs
                state.chains[result] = Scores(a, b.mT)
                if not _single(a, -1) and not _single(result, -1):
                    session.unread[id(module)] = module
        return result

    def softmax(self, session: Session, func: Operator, args: Args, kwargs: Named) -> Any:
        """A softmax, of scores if its input was followed."""
        state: _State = session.state[self]
        x, dim, *rest = args
        chain = state.chains.get(x)
        last = x.dim() >= 2 and dim in (-1, x.dim() - 1) and x.numel() > 0
        if chain is None or isinstance(chain, Softmax) or not last:
            module = _innermost(running())
            if module is not None and x.dim() > 2 and not _single(x, dim):
                session.unread[id(module)] = module
            return func(*args, **kwargs)
        if state.transposed(x):
            chain = Scores(chain.k, chain.q, chain.sole)
        place = session.place(chain.q, chain.k, None)
        if place is None:
            return func(*args, **kwargs)
        layout = Layout.of(x, place.runs, state.rows_first(x))
        empty, in_use = None, None
        if session.cuts:
            x, empty, in_use = self._cut(session, chain, x, layout, place)
        result = func(x, dim, *rest, **kwargs)
        if empty is not None:
            result = result.masked_fill(empty, 0.0)
        state.chains[result] = Softmax(
            chain.q, chain.k, chain.sole, weights=result, layout=layout, place=place,
            in_use=in_use, cut=empty is not None,
        )  # fmt: skip
        return result

    def _cut(
        self, session: Session, chain: Scores, x: Tensor, layout: Layout, place: Place
    ) -> tuple[Tensor, Tensor | None, int]:
        """The scores without forbidden links, rows that have no key left, and the keys in use."""
        scores = layout.apply(x)
        shape = scores.shape
        if chain.sole and shape[3] == chain.k.shape[-2] + 1:
            scores = scores[..., :-1]  # without that of a sink
        masked = scores <= scores.amax(-1, keepdim=True) + LOWEST
        visible = Weights(~masked)
        links = session.forbidden(place, visible)
        if links is None:
            return x, None, visible.in_use()
        forbidden = links.whole(scores.shape[2]).to(x.device)
        hidden = forbidden | masked
        empty = forbidden.any(-1, keepdim=True) & hidden.all(-1, keepdim=True)
        forbidden = pad(forbidden, (0, shape[3] - scores.shape[3]))
        x = x.masked_fill(layout.undo(forbidden.expand(shape)), -torch.inf)
        return x, layout.undo(empty.expand(shape)), visible.in_use()

    def _announce(
        self, session: Session, chain: Softmax, operand: Tensor, other: Tensor, result: Tensor,
        swapped: bool,
    ) -> bool:  # fmt: skip
        """Announce a call, if this product sums weights over the keys."""
        weights = chain.layout.apply(chain.weights)
        if swapped:
            operand, other, result = operand.mT, other.mT, result.mT
        keys = operand.shape[-1]
        b, h, q, k = weights.shape
        sums_over_keys = keys in (k, k - 1) and (keys != h or operand.stride(-1) == 1)
        if not sums_over_keys or operand.numel() != b * h * q * keys:
            return False
        weights, chain.keys = weights[..., :keys], keys
        state: _State = session.state[self]
        altered = chain.altered or chain.place.module.training
        masked = True
        if not altered and _changed(weights, operand):
            softmax, weights = weights, operand.reshape(weights.shape)
            if not chain.layout.plain or not _are_weights(weights):
                return False
            masked = bool(((weights == softmax) | (weights == 0)).all())
        wanted = session.needs_gradient(chain.place, operand)
        v, output = _values(weights, operand, other, result, chain)
        for run in chain.place.runs:
            session.unread.pop(id(run.module), None)
        told, inputs = session.announced, Weights(weights, v, chain.layout.rank, *_product(chain))
        explained = inputs if told is None or chain.cut else told.explain(inputs)
        chain.gradients = session.announce(chain.place, explained, output, chain.in_use)
        if wanted and explained is not inputs:
            told.gradients = chain.gradients  # that of the output, which takes less memory
        elif wanted and masked:  # else the softmax's gradient is not that of the weights
            state.backward[chain.weights] = chain
        return True

    def backward(self, session: Session, func: Operator, args: Args, kwargs: Named) -> Any:
        """The backward pass of a softmax whose call was announced."""
        chain = session.state[self].backward.get(args[1])
        if chain is not None and chain.gradients is not None:
            gradient = chain.layout.apply(args[0].detach())
            chain.gradients.weights = gradient[..., : chain.keys]
        return func(*args, **kwargs)


def _has_parameter(session: Session, *tensors: Tensor) -> bool:
    """Whether one of the tensors was made of a parameter of a model that is listened to."""
    origins = {session.origins.of(x)[0] for x in tensors}
    return not all(origins.isdisjoint(listener.parameters) for listener in session.listeners)


def _changed(weights: Tensor, operand: Tensor) -> bool:
    """Whether rows of weights ``(b, h, q, k)`` were changed, other than in their order."""
    if operand.untyped_storage()._cdata == weights.untyped_storage()._cdata:
        return False
    wide = torch.promote_types(weights.dtype, operand.dtype)
    before, after = (
        torch.linalg.vector_norm(x.reshape(-1, weights.shape[-1]), dim=-1, dtype=wide).sort().values
        for x in (weights, operand)
    )
    rounding = ROUNDING * max(torch.finfo(x.dtype).eps for x in (weights, operand))
    return not torch.allclose(before, after, rtol=rounding, atol=0.0, equal_nan=True)


def _are_weights(x: Tensor) -> bool:
    """Whether no row of numbers has a negative one, or sums to more than 1."""
    most = 1 + torch.finfo(x.dtype).eps ** 0.5
    return not ((x < 0).any() or (x.sum(-1) > most).any())


def _values(
    weights: Tensor, operand: Tensor, other: Tensor, result: Tensor, chain: Softmax
) -> tuple[Tensor | None, Tensor | None]:
    """Values ``(b, g, k, e)`` and output ``(b, h, q, e)`` of a product, if they can be told."""
    b, h, q, k = weights.shape
    e = other.shape[-1]
    batches = other.shape[0] if other.dim() == 3 else 1
    flat = weights.reshape(b * h * q, k)
    rows = operand.reshape(-1, k)
    probe = min(q, len(flat) - 1)  # a row of the second head
    same = not len(flat) or equal(flat[probe], rows[probe].to(flat.dtype))
    if not chain.layout.plain or not (same or chain.place.module.training):
        return None, None
    output = result.reshape(b, h, q, e)
    if other.dim() == 2:
        return other.expand(b, 1, k, e), output
    if batches % b:
        return None, output
    return other.reshape(b, batches // b, k, e), output


def _product(chain: Softmax) -> tuple[Tensor | None, Tensor | None]:
    """Queries ``(b, h, q, d)`` and keys ``(b, g, k, d)`` of scores that are one product."""
    q, k, layout = chain.q, chain.k, chain.layout
    b, h, rows, _ = layout.apply(chain.weights).shape
    columns, d = chain.keys, k.shape[-1]
    if not chain.sole or not layout.plain or not q.numel() or not k.numel():
        return None, None
    groups, rest = divmod(k.numel(), b * columns * d)
    if q.numel() != b * h * rows * d or k.shape[-2] != columns or rest or h % groups:
        return None, None
    return q.reshape(b, h, rows, d), k.reshape(b, groups, columns, d)


def _tensors(args: Args) -> Iterator[Tensor]:
    for x in args:
        if isinstance(x, Tensor):
            yield x
        elif isinstance(x, list | tuple):
            yield from (y for y in x if isinstance(y, Tensor))


def _single(x: Tensor, axis: int) -> bool:
    """Whether an axis has size 1, so that a softmax along it chooses nothing."""
    return not x.is_nested and x.shape[axis] == 1


def _innermost(runs: Iterator[Run]) -> nn.Module | None:
    return next((run.module for run in runs if not is_part(run.module)), None)
