"""`watch` tells attention to one's own sequence from attention to another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.lens import watch

B, N, M, WIDTH = 2, 5, 7, 12


class Attention(nn.Module):
    """Attends from what it is given first to what it is given last."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, q: Tensor, k: Tensor | None = None, v: Tensor | None = None) -> Tensor:
        k = q if k is None else k
        v = k if v is None else v
        return F.scaled_dot_product_attention(self.q(q), self.k(k), self.v(v))


class Torch(nn.MultiheadAttention):
    """torch's own layer, called in the same way."""

    def __init__(self) -> None:
        super().__init__(WIDTH, 3, batch_first=True)


class HandsOn(nn.Module):
    """Only hands on what it is given."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner, self.out = inner, nn.Linear(WIDTH, WIDTH)

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return self.out(first(self.inner(q, k, v)))


class Norms(nn.Module):
    """Norms its words twice, and attends from the one to the other."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner, self.one, self.two = inner, nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x + first(self.inner(self.one(x), self.two(x), x))


class Decoder(nn.Module):
    """Attends from what it makes of its words to words that it is given ready-made."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner, self.norm = inner, nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        return x + first(self.inner(self.norm(x), memory, memory))


class Both(nn.Module):
    """An encoder and a decoder that are given the same words."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Linear(WIDTH, WIDTH), Decoder(inner)

    def forward(self, x: Tensor) -> Tensor:
        return self.decoder(x, self.encoder(x))


def first(result: Tensor | tuple[Tensor, ...]) -> Tensor:
    return result if isinstance(result, Tensor) else result[0]


def kinds(model: nn.Module, *args: object) -> list[str]:
    """Of every module that attends."""
    with watch(model) as seen:
        model(*args)
    return [seen.kind(name) for name in seen]


INNER = {
    "by hand": Attention,
    "torch": Torch,
    "handed on": lambda: HandsOn(Attention()),
    "handed on to torch": lambda: HandsOn(HandsOn(Torch())),
}


@pytest.fixture
def x() -> Tensor:
    return torch.randn(B, N, WIDTH)


@pytest.mark.parametrize("inner", INNER.values(), ids=INNER)
def test_one_sequence_given_in_three_forms(x: Tensor, inner: type[nn.Module]) -> None:
    """Also in layers that are taken as wholes, after the first."""
    assert kinds(Norms(inner()), x) == ["self"]
    assert kinds(nn.Sequential(*(Norms(inner()) for _ in range(3))), x) == ["self"] * 3


@pytest.mark.parametrize("inner", INNER.values(), ids=INNER)
def test_another_sequence_as_long_and_of_the_same_words(x: Tensor, inner: type[nn.Module]) -> None:
    assert kinds(Decoder(inner()), x, torch.randn(B, N, WIDTH)) == ["cross"]
    assert kinds(Both(inner()), x) == ["cross"]


class RegardTranslator(nn.Module):
    """torch's own, with the same positions added on both sides."""

    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        self.table = nn.Embedding(9, WIDTH)
        self.positions = nn.Buffer(torch.randn(M, 1 if not batch_first else M, WIDTH))
        self.transformer = nn.Transformer(WIDTH, 3, 1, 2, 16, batch_first=batch_first)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        source, target = (
            self.table(x) + self.positions[: x.shape[0], : x.shape[1]] for x in (source, target)
        )
        return self.transformer(source, target)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("given", ["as long", "the same", "halves", "longer"])
def test_torchs_own_decoder_looks_at_another_sequence(batch_first: bool, given: str) -> None:
    words = torch.randint(9, (5, 5))
    source, target = {
        "as long": (words, words.flip(0)),
        "the same": (words, words),
        "halves": (words[1:], words[:-1]),
        "longer": (words, words[:4] if not batch_first else words[:, :4]),
    }[given]
    found = kinds(RegardTranslator(batch_first).eval(), source, target)
    assert found == ["self", "self", "cross", "self", "cross"]


@pytest.mark.parametrize("inner", INNER.values(), ids=INNER)
def test_places_that_have_changed_make_another_sequence(x: Tensor, inner: type[nn.Module]) -> None:
    class Moved(Norms):
        def forward(self, x: Tensor, how: Callable[[Tensor], tuple[Tensor, Tensor]]) -> Tensor:
            one, two = how(self.one(x))
            return first(self.inner(one, two, two))

    double = torch.cat((x, x), 1)
    ways: list[tuple[Tensor, Callable[[Tensor], Any]]] = [
        (x, lambda y: (y, y.flip(1))),
        (x, lambda y: (y, y.roll(1, 0))),
        (double, lambda y: y.chunk(2, 1)),
        (double.unflatten(1, (2, N)), lambda y: y.unbind(1)),
    ]
    for given, how in ways:
        assert kinds(Moved(inner()), given, how) == ["cross"]


def test_a_layer_of_torch_that_somebody_has_changed(x: Tensor) -> None:
    class Changed(Torch):
        def forward(self, *args: Tensor) -> Tensor:  # type: ignore[override]
            return super().forward(*args)[0]

    assert kinds(Decoder(Changed()), x, torch.randn(B, M, WIDTH)) == ["cross"]


def test_a_shorter_form_of_the_sequence_is_another(x: Tensor) -> None:
    class Pooled(Norms):
        def forward(self, x: Tensor) -> Tensor:
            short = self.two(x)[:, ::2]
            return first(self.inner(self.one(x), short, short))

    for inner in INNER.values():
        assert kinds(Pooled(inner()), x) == ["cross"]


def test_a_module_without_parameters_knows_from_its_caller(x: Tensor) -> None:
    class Product(nn.Module):
        def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(q * 2, k, v)

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.product = nn.Linear(WIDTH, 3 * WIDTH), Product()

        def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
            q, k, v = self.qkv(x).chunk(3, -1)
            if context is not None:
                _, k, v = self.qkv(context).chunk(3, -1)
            return self.product(q, k, v)

    model = Outer()
    assert kinds(model, x) == ["self"]
    assert kinds(model, x, torch.randn(B, N, WIDTH)) == ["cross"]
    bare = Product()
    assert kinds(bare, x, x, x) == ["self"]
    assert kinds(bare, x, *(torch.randn(2, B, M, WIDTH))) == ["cross"]


def test_a_module_that_is_handed_queries_and_keys_knows_from_its_caller(x: Tensor) -> None:
    class Mixed(nn.Module):
        """Has parameters, but projects nothing itself: talking heads."""

        def __init__(self) -> None:
            super().__init__()
            self.mix = nn.Parameter(torch.eye(2))

        def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            weights = torch.einsum("bhid,bhjd->bhij", q, k).softmax(-1)
            return torch.einsum("bhij,hg->bgij", weights, self.mix) @ v

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.attend = nn.Linear(x.shape[-1], 3 * x.shape[-1]), Mixed()

        def forward(self, x: Tensor) -> Tensor:
            parts = self.qkv(x).unflatten(-1, (3, 2, -1)).permute(2, 0, 3, 1, 4)
            return self.attend(*parts).transpose(1, 2).flatten(2)

    model = Layer()
    with torch.no_grad(), watch(model) as seen:
        model(x)
    assert seen.kind("attend") == "self"


def test_two_sequences_joined_into_one_are_self_attention(x: Tensor) -> None:
    class Joint(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv = nn.Linear(x.shape[-1], 3 * x.shape[-1])

        def forward(self, image: Tensor, text: Tensor) -> Tensor:
            q, k, v = self.qkv(torch.cat([text, image], 1))[:, None].chunk(3, -1)
            turned = (y * torch.randn(y.shape[-2:]) for y in (q, k))
            return F.scaled_dot_product_attention(*turned, v)

    model = Joint()
    with torch.no_grad(), watch(model) as seen:
        model(x, x[:, :3] + 1)
    assert seen.kind("") == "self"


def test_positions_added_to_queries_and_keys_make_no_cross_attention(x: Tensor) -> None:
    class Positioned(Attention):
        def forward(self, x: Tensor, position: Tensor) -> Tensor:
            q, k, v = self.q(x + position), self.k(x + position), self.v(x)
            return F.scaled_dot_product_attention(q, k, v)

    assert kinds(Positioned(), x, torch.randn(B, N, WIDTH)) == ["self"]
