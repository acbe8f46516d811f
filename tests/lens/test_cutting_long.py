"""Links of long texts are cut without a matrix of all pairs, with the same numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.attention import ALiBi, attend, causal, padding, window
from regard.lens import Cut, cut, watch
from regard.lens.capture import forbidden

B, H, N, D = 2, 4, 600, 16
LINKS = [Cut(5, (3, 4)), Cut((5, 590), 0, row=1), Cut(100, 7, heads=2), Cut(-1, 599)]
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "causal": {"mask": causal},
    "window and padding": {"mask": window(300) & padding(torch.tensor([600, 599]))},
    "by distance": {"bias": ALiBi(H), "mask": causal},
    "bias for keys": {"bias": torch.linspace(-2, 2, N)[None, None, None]},
    "bias for heads": {"bias": torch.randn(H, N, N, generator=torch.Generator().manual_seed(4))},
    "cosine": {"score": "cosine"},
}


class Attention(nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
        return attend(q, k, v, **options)


def inputs(kv_heads: int = H) -> list[Tensor]:
    chance = torch.Generator().manual_seed(3)
    return [torch.randn(B, h, N, D, generator=chance) for h in (H, kv_heads, kv_heads)]


def looked(x: list[Tensor], **options: Any) -> tuple[Tensor, Any]:
    model = Attention()
    with watch(model) as seen, cut(model, LINKS, kind="self"):
        output = model(*x, **options)
    return output, seen[""]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("kv_heads", [H, 2], ids=["", "shared keys"])
def test_the_same_as_a_mask_of_all_pairs(
    kind: str, kv_heads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, options = inputs(kv_heads), KINDS[kind]
    plain = attend(*x, **options)
    output, look = looked(x, **options)
    monkeypatch.setattr(forbidden, "LONG", 2**60)
    wanted, other = looked(x, **options)
    torch.testing.assert_close(output, wanted, atol=2e-6, rtol=1e-5)
    rows = [5, 100, 590, 599]
    torch.testing.assert_close(look.weights(rows), other.weights(rows), atol=2e-6, rtol=1e-5)
    torch.testing.assert_close(look.logsumexp, other.logsumexp, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(look.received(), other.received(), atol=1e-4, rtol=1e-5)
    assert look.weights([5])[:, :, 0, 3].abs().max() == 0
    assert look.weights([100])[:, 2, 0, 7].abs().max() == 0
    # All other rows are what they are without a cut, bit for bit.
    others = [i for i in range(N) if i not in rows]
    assert torch.equal(output[:, :, others], plain[:, :, others])
    assert not torch.equal(output[:, :, rows], plain[:, :, rows])


def test_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for long in (2**18, 2**60):
        monkeypatch.setattr(forbidden, "LONG", long)
        x = [one.double().requires_grad_() for one in inputs()]
        output, _ = looked(x, mask=causal)
        found.append(torch.autograd.grad(output.square().sum(), x))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


def test_a_query_with_nothing_left_gets_zero() -> None:
    x, model = inputs(), Attention()
    with watch(model) as seen, cut(model, [(0, 0)]):
        output = model(*x, mask=causal)
    assert output[:, :, 0].abs().max() == 0
    assert seen[""].weights([0]).abs().max() == 0
    assert output[:, :, 1].abs().min() > 0


def test_two_cuts_add_up() -> None:
    x, model = inputs(), Attention()
    with cut(model, [(5, 3)]), cut(model, [(5, 4), (9, 1)]), watch(model) as seen:
        model(*x)
    weights = seen[""].weights([5, 9])
    assert weights[:, :, 0, [3, 4]].abs().max() == 0
    assert weights[:, :, 1, 1].abs().max() == 0
    assert (weights > 0).sum() == B * H * (2 * N - 3)


def test_no_matrix_of_all_pairs_is_made(largest: Any) -> None:
    n, model = 4000, Attention()
    x = [torch.randn(1, 1, n, 16) for _ in range(3)]
    with torch.no_grad(), watch(model) as seen, cut(model, [(70, 3)]), largest() as made:
        model(*x)
        seen[""].top(2)
    assert n * 16 <= made.found < n * n / 4
    with torch.no_grad():
        assert seen[""].weights([70])[0, 0, 0, 3] == 0
