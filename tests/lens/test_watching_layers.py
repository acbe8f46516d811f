"""`watch` follows what the first of many layers does, and takes those like it as wholes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard import cut
from regard.lens import Seen, watch
from regard.lens._installing import listening
from regard.lens._listener import Listener

B, N, WIDTH = 2, 5, 12
CAPTURED = {"sdpa": F.scaled_dot_product_attention}
"""Not under a name of its own, by which it would be known that only a mode hears of it."""


def looked_up(*args: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(*args)


class Attention(nn.Module):
    """Attends to the context, or to what it remembers, or to its own sequence."""

    def __init__(self, function: Callable[..., Tensor] = looked_up) -> None:
        super().__init__()
        self.q, self.kv = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 2 * WIDTH)
        self.function = function

    def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        context = getattr(self, "memory", x if context is None else context)
        k, v = self.kv(context).unsqueeze(1).chunk(2, -1)
        return self.function(self.q(x).unsqueeze(1), k, v).squeeze(1)


class Layer(nn.Module):
    """A layer of many, with something around attention."""

    def __init__(self, function: Callable[..., Tensor] = looked_up) -> None:
        super().__init__()
        self.attention, self.norm = Attention(function), nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor, context: Tensor | list[Tensor] | None = None) -> Tensor:
        other = context[0] if isinstance(context, list) else context
        return x + self.attention(self.norm(x), other)


class Stack(nn.Module):
    """Layers one after the other, each given what is told."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.given: list[dict[str, object]] = [{} for _ in layers]

    def forward(self, x: Tensor) -> Tensor:
        for layer, given in zip(self.layers, self.given, strict=True):
            x = layer(x, **given)
        return x


@pytest.fixture
def x() -> Tensor:
    return torch.randn(B, N, WIDTH)


@pytest.fixture
def context() -> Tensor:
    return torch.randn(B, N, WIDTH)


def unchanged(model: nn.Module, *args: Tensor) -> Seen:
    """What is seen of a model whose output watching does not change by a bit."""
    plain = model(*args)
    with watch(model) as seen:
        watched = model(*args)
    assert torch.equal(plain, watched)
    return seen


def kinds(seen: Seen) -> list[str]:
    return [seen.kind(name) for name in seen]


@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad, torch.inference_mode])
def test_layers_like_the_first_are_not_followed_inside(x: Tensor, mode: type) -> None:
    """The functions that the first calls are heard of; those of the others need not be."""
    counted = []
    for depth in (1, 4):
        model = Stack(*(Layer() for _ in range(depth)))
        with mode(), listening(Listener(model, "test")) as session:
            model(x)
        counted.append(session.functions[Tensor.unsqueeze])
        with mode():
            seen = unchanged(model, x)
        assert list(seen) == [f"layers.{i}.attention" for i in range(depth)]
        assert set(kinds(seen)) == {"self"}
    assert 0 < counted[0] == counted[1]


def test_functions_that_only_a_mode_hears_of(x: Tensor) -> None:
    model = Stack(*(Layer() for _ in range(3)), Layer(CAPTURED["sdpa"]))
    assert len(unchanged(model, x)) == 4


def test_another_sequence_that_a_layer_is_given(x: Tensor, context: Tensor) -> None:
    for given in (context, [context]):
        model = Stack(*(Layer() for _ in range(4)))
        model.given[2] = {"context": given}
        assert kinds(unchanged(model, x)) == ["self", "self", "cross", "self"]


@pytest.mark.parametrize(
    "kept", [torch.clone, nn.Parameter, nn.Buffer], ids=["tensor", "parameter", "buffer"]
)
def test_another_sequence_that_a_layer_remembers(
    x: Tensor, context: Tensor, kept: Callable[[Tensor], Tensor]
) -> None:
    model = Stack(*(Layer() for _ in range(3)))
    model.layers[2].attention.memory = kept(context)
    assert kinds(unchanged(model, x)) == ["self", "self", "cross"]


class Prompted(nn.Module):
    """Attends to a prompt as well, if there is one."""

    def __init__(self, table: nn.Embedding | None = None) -> None:
        super().__init__()
        self.own, self.cross, self.table = Attention(), Attention(), table

    def forward(self, x: Tensor, prompt: str = "") -> Tensor:
        x = x + self.own(x)
        if self.table is not None and prompt:
            words = self.table(torch.tensor([list(prompt.encode())] * B))
            x = x + self.cross(x, words)
        return x


def test_another_sequence_that_comes_about_inside(x: Tensor) -> None:
    model = Prompted(nn.Embedding(256, WIDTH))
    with watch(model) as seen:
        model(x)
        model(x, "a cat")
    assert kinds(seen) == ["self", "cross"]
    model = Stack(Prompted(), Prompted(), Prompted(nn.Embedding(256, WIDTH)))
    model.given = [{"prompt": "a cat"}] * 3
    assert kinds(unchanged(model, x)) == ["self", "self", "self", "cross"]


class Switched(Layer):
    """Calls attention by another way if a switch is on."""

    on = False

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return x + CAPTURED["sdpa"](x, x, x) if self.on else super().forward(x)


def test_a_switch_that_is_not_like_that_of_the_first(x: Tensor) -> None:
    model = Stack(*(Switched() for _ in range(3)))
    model.layers[2].on = True
    assert list(unchanged(model, x)) == ["layers.0.attention", "layers.1.attention", "layers.2"]
    model = Stack(*(Switched() for _ in range(2)))
    with watch(model) as seen:
        model(x)
        model.layers[0].on = True
        model(x)
    assert list(seen) == ["layers.0.attention", "layers.1.attention", "layers.0"]


def test_a_memory_that_comes_later(x: Tensor, context: Tensor) -> None:
    model = Stack(*(Layer() for _ in range(2)))
    with watch(model) as seen:
        model(x)
        model.layers[0].attention.memory = context
        model(x)
    assert list(seen)[2:] == ["layers.0.attention:cross"]


def test_what_is_hooked_in_is_heard(x: Tensor, context: Tensor) -> None:
    model = Stack(*(Layer() for _ in range(3)))
    model.layers[2].norm.register_forward_hook(lambda *_: CAPTURED["sdpa"](context, x, x))
    assert list(unchanged(model, x))[2:] == ["layers.2", "layers.2.attention"]


def test_lists_that_hold_themselves(x: Tensor) -> None:
    model = Stack(*(Layer() for _ in range(3)))
    model.tree = [{}]
    model.tree[0]["parent"] = model.tree
    assert len(unchanged(model, x)) == 3


def test_a_cut_inside_a_layer_like_the_first(x: Tensor) -> None:
    class Cutting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layer = nn.TransformerEncoderLayer(WIDTH, 2, 16, batch_first=True)
            self.encoder = nn.TransformerEncoder(layer, 2)
            self.cuts = False

        def forward(self, x: Tensor) -> Tensor:
            if not self.cuts:
                return self.encoder(x)
            with cut(self.encoder, [(0, 1)]):
                return self.encoder(x)

    model = Cutting().eval()
    with torch.no_grad(), watch(model) as seen:
        before = model(x)
        model.cuts = True
        assert not torch.equal(model(x), before)
    name = next(iter(seen))
    assert seen.calls(name)[1].weights()[..., 0, 1].count_nonzero() == 0
    assert seen.calls(name)[0].weights()[..., 0, 1].count_nonzero() > 0


def test_the_last_watch_may_end_while_a_module_of_torch_runs(x: Tensor) -> None:
    watching = [watch(Layer())]

    def distance(one: Tensor, other: Tensor) -> Tensor:
        if watching:
            watching.pop().__exit__(None, None, None)
        return (one - other).norm(dim=-1)

    watching[0].__enter__()
    nn.TripletMarginWithDistanceLoss(distance_function=distance)(x, x, x + 1)
    assert torch._C._len_torch_function_stack() == 0


class Fragile(Layer):
    """Fails when it is told to."""

    def forward(self, x: Tensor, fails: bool = False) -> Tensor:  # type: ignore[override]
        x = super().forward(x)
        if fails and x.isfinite().all():
            raise ValueError("as told")
        return x


def test_a_layer_like_the_first_that_fails(x: Tensor) -> None:
    model = Stack(*(Fragile() for _ in range(4)))
    model.given = [{"fails": True}] * 4
    with watch(model) as seen:
        infinite = torch.full_like(x, torch.inf)
        model(infinite)
        with pytest.raises(ValueError, match="as told"):
            model(x)
        model(infinite)
    assert [len(seen.calls(name)) for name in seen] == [3, 2, 2, 2]
    assert list(seen) == [f"layers.{i}.attention" for i in range(4)]
    assert torch._C._len_torch_function_stack() == 0


class Told(Layer):
    """Calls attention by another way if it is told to."""

    def forward(self, x: Tensor, captured: bool = False) -> Tensor:  # type: ignore[override]
        return x + CAPTURED["sdpa"](x, x, x) if captured else super().forward(x)


def test_options_that_the_first_was_not_given_are_followed(x: Tensor) -> None:
    model = Stack(*(Switched() for _ in range(2)), Told(), Told())
    model.given[3] = {"captured": True}
    assert list(unchanged(model, x))[2:] == ["layers.2.attention", "layers.3"]


class Slotted(nn.Module):
    """Every second one reads learned slots; all look alike."""

    def __init__(self, place: int) -> None:
        super().__init__()
        self.attention, self.place = Attention(), place
        self.slots = nn.Parameter(torch.randn(1, 7, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        slots = self.slots.expand(B, -1, -1)
        return x + self.attention(x, slots if self.place % 2 else x)


def test_numbers_that_decide_what_is_attended_to(x: Tensor) -> None:
    model = Stack(*(Slotted(i) for i in range(4)))
    assert kinds(unchanged(model, x)) == ["self", "cross", "self", "cross"]
