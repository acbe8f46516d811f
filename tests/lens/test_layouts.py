"""Weights whose axes are not batch, heads, queries and keys in this order."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from regard.errors import OptionError
from regard.lens import cut, watch

H, D = 4, 2


class HeadByHead(nn.Module):
    """Heads in a loop, each a product of three axes."""

    num_heads = H

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([torch.softmax(z @ z.mT, -1) @ z for z in x.split(D, -1)], -1)


class Joined(nn.Module):
    """Heads that are joined with the batch, of sequences on the first or on the second axis."""

    num_heads = H

    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        self.batch_first = batch_first

    def forward(self, x: Tensor) -> Tensor:
        x = x if self.batch_first else x.transpose(0, 1)
        z = x.unflatten(-1, (H, D)).transpose(1, 2).flatten(0, 1)
        return torch.softmax(z @ z.mT, -1) @ z


COPIES: dict[str, Callable[[Tensor], Tensor]] = {
    "no copy": lambda x: x,
    "contiguous": lambda x: x.contiguous() + 0,
    "copied into": lambda x: torch.zeros(x.shape).copy_(x),
    "copied twice": lambda x: x.contiguous().transpose(1, 2).contiguous().transpose(1, 2),
    "reshaped": lambda x: x.reshape(-1, H, x.shape[-1]).mul(1).view(x.shape),
}


class HeadsAfterQueries(nn.Module):
    num_heads = H

    def __init__(self, copied: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.copied = copied

    def forward(self, x: Tensor) -> Tensor:
        z = x.unflatten(-1, (H, D))
        self.weights = self.copied(torch.einsum("bihd,bjhd->bihj", z, z)).softmax(-1)
        return torch.einsum("bihj,bjhd->bihd", self.weights, z)


@pytest.mark.parametrize("n", [H, 5])
@pytest.mark.parametrize("b", [H, 2 * H])
def test_a_head_by_itself_is_no_batch_of_heads(b: int, n: int) -> None:
    model, x = HeadByHead(), torch.randn(b, n, H * D)
    plain = model(x)
    with cut(model, [(3, 1)]), watch(model) as seen:
        output = model(x)
    assert [look.sizes for look in seen.calls("")] == [(b, 1, n, n)] * H
    assert ((output != plain).any(-1) == (torch.arange(n) == 3)).all()
    with (
        pytest.raises(OptionError, match="heads=1, but there are 1 heads"),
        cut(model, [(3, 1)], heads=1),
    ):
        model(x)


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize(("b", "n"), [(1, 5), (2, 5), (4, 4), (4, 1)])
def test_heads_joined_with_the_batch(b: int, n: int, batch_first: bool) -> None:
    model = Joined(batch_first)
    with watch(model) as seen:
        model(torch.randn(*((b, n) if batch_first else (n, b)), H * D))
    assert seen[""].sizes == (b, H, n, n)


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.inference_mode])
@pytest.mark.parametrize("copied", COPIES)
@pytest.mark.parametrize("n", [H, 5])
@pytest.mark.parametrize("b", [2, H])
def test_heads_after_queries(b: int, n: int, copied: str, mode: type) -> None:
    model, x = HeadsAfterQueries(COPIES[copied]).eval(), torch.randn(b, n, H * D)
    with mode():
        with watch(model) as seen:
            model(x)
        torch.testing.assert_close(seen[""].weights(), model.weights.transpose(1, 2))
        with cut(model, [(3, 1)], heads=2):
            model(x)
    assert (model.weights == 0).nonzero()[:, 1:].unique(dim=0).tolist() == [[3, 2, 1]]


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.inference_mode])
def test_heads_before_queries_again(mode: type) -> None:
    class HeadsBeforeQueries(nn.Module):
        num_heads = H

        def forward(self, x: Tensor) -> Tensor:
            z = x.unflatten(-1, (H, D)).transpose(1, 2)
            after = (z @ z.mT).transpose(1, 2).contiguous()
            self.weights = after.transpose(1, 2).contiguous().softmax(-1)
            return self.weights @ z

    model = HeadsBeforeQueries()
    with mode(), watch(model) as seen:
        model(torch.randn(2, H, H * D))
    torch.testing.assert_close(seen[""].weights(), model.weights)


@pytest.mark.parametrize("copied", ["no copy", "contiguous", "copied into"])
@pytest.mark.parametrize(
    "product",
    [
        lambda q, k: (k @ q.mT).mT,
        lambda q, k: torch.einsum("bhjd,bhid->bhij", k, q),
        lambda q, k: (k @ q.mT).mul(1).mT,
        lambda q, k: (q @ k.mT).mT.contiguous().mT,
    ],
)
@pytest.mark.parametrize("keys", [5, 7])
def test_a_product_of_keys_with_queries(
    keys: int, product: Callable[[Tensor, Tensor], Tensor], copied: str
) -> None:
    class KeysFirst(nn.Module):
        num_heads = H

        def __init__(self) -> None:
            super().__init__()
            self.q, self.kv = nn.Linear(H * D, H * D), nn.Linear(H * D, H * D)

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            self.queries = self.q(x).unflatten(-1, (H, D)).transpose(1, 2)
            self.keys = self.kv(y).unflatten(-1, (H, D)).transpose(1, 2)
            scores = COPIES[copied](product(self.queries, self.keys))
            return scores.softmax(-1) @ self.keys

    model = KeysFirst()
    with torch.no_grad(), watch(model) as seen:
        model(torch.randn(2, 5, H * D), torch.randn(2, keys, H * D))
    (name,) = seen
    torch.testing.assert_close(seen[name].q, model.queries)
    torch.testing.assert_close(seen[name].k, model.keys)
    torch.testing.assert_close(seen[name].weights(), (model.queries @ model.keys.mT).softmax(-1))
