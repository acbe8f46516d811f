"""`watch(model, gradients=True)`: the gradient of a metric at the output of attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import functional as F

from regard import look
from regard.errors import OptionError
from regard.lens import watch
from regard.nn import Transformer, TransformerConfig

B, H, N, D = 2, 3, 5, 4
WIDTH = H * D


class Attention(nn.Module):
    """Self-attention by PyTorch's function, which keeps its output for comparison."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.output: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (y.unflatten(-1, (H, D)).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        self.output = F.scaled_dot_product_attention(q, k, v)
        if self.output.requires_grad:
            self.output.retain_grad()
        return self.output.transpose(1, 2).flatten(2)


def test_the_gradient_is_the_one_of_autograd() -> None:
    model, x = nn.Sequential(Attention(), Attention()), torch.randn(B, N, WIDTH)
    with watch(model, gradients=True) as seen:
        model(x).square().sum().backward()
    for name, layer in zip(seen, model, strict=True):
        look = seen[name]
        assert look.output_gradient is not None
        assert torch.equal(look.output_gradient, layer.output.grad)
        assert torch.equal(look.output, layer.output.detach())


def test_calls_keep_their_own_gradients() -> None:
    model = Attention()
    with watch(model, gradients=True) as seen:
        first = model(torch.randn(B, N, WIDTH)).sum()
        assert seen[""].output_gradient is None  # no backward pass yet
        (first + 3 * model(torch.randn(B, N, WIDTH)).sum()).backward()
    one, other = seen.calls("")
    torch.testing.assert_close(other.output_gradient, 3 * one.output_gradient)
    joined = seen[""].output_gradient
    assert torch.equal(joined, torch.cat([one.output_gradient, other.output_gradient], 2))
    for name in ("effects", "contributions"):  # of a key of another call: none
        whole = getattr(seen[""], name)()
        for i, call in enumerate((one, other)):
            rows = whole[:, :, i * N : (i + 1) * N]
            torch.testing.assert_close(rows[:, :, :, i * N : (i + 1) * N], getattr(call, name)())
            assert rows.count_nonzero() == getattr(call, name)().count_nonzero()


def test_the_backward_pass_lets_go_of_activations() -> None:
    model = nn.Sequential(Attention(), nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, 1))
    freed: list[StorageWeakRef] = []
    model[2].register_forward_hook(
        lambda module, args, output: freed.append(StorageWeakRef(output.untyped_storage()))
    )
    with watch(model, gradients=True):
        model(torch.randn(B, N, WIDTH)).sum().backward()
        assert freed[0].expired()


def test_regards_own_model() -> None:
    config = TransformerConfig.preset("tiny", vocabulary=50, width=16, heads=4)
    model = Transformer(config).eval()
    source, target = torch.randint(3, 50, (B, 6)), torch.randint(3, 50, (B, 4))
    plain = model(source, target)
    with watch(model, gradients=True) as seen:
        output = model(source, target)
        output[:, -1, 7].sum().backward()
    assert torch.equal(plain, output)
    for name in seen:
        look = seen[name]
        assert look.output_gradient.shape == look.output.shape
        assert look.output_gradient.abs().max() > 0


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_transformers(bert: Callable[..., Any], attention: str) -> None:
    model = bert(attn_implementation=attention)
    ids = torch.randint(0, 60, (B, N))
    plain = model(ids).last_hidden_state
    with watch(model, gradients=True) as seen:
        output = model(ids).last_hidden_state
        output[:, 0, 0].sum().backward()
    assert torch.equal(plain, output)
    assert len(seen) == 2
    gradients = [seen[name].output_gradient for name in seen]
    assert all(g.shape == (B, H, N, 8) for g in gradients)
    # In the last layer, only the first row leads to what was differentiated.
    assert gradients[1][:, :, 1:].abs().max() == 0
    assert gradients[1][:, :, 0].abs().min() > 0


@torch.no_grad()
def by_hand(q: Tensor) -> Tensor:
    return torch.softmax(q @ q.mT, -1)


def by_look(q: Tensor) -> Tensor:
    return look(q, q, q).weights()


@pytest.mark.parametrize("weights", [by_hand, by_look])
def test_weights_computed_for_a_log_need_no_gradient(weights: Callable[[Tensor], Tensor]) -> None:
    class Logging(Attention):
        def forward(self, x: Tensor) -> Tensor:
            self.log = weights(self.qkv(x))
            return super().forward(x)

    model = Logging()
    with watch(model, gradients=True) as seen:
        model(torch.randn(B, N, WIDTH)).sum().backward()
    assert torch.equal(seen.calls("")[-1].output_gradient, model.output.grad)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_modes_without_gradients_say_what_to_do(mode: type) -> None:
    model = Attention()
    with pytest.raises(OptionError) as caught, mode(), watch(model, gradients=True):
        model(torch.randn(B, N, WIDTH))
    assert str(caught.value) == (
        "watch: gradients=True, but attention in 'the model' has no gradient; run the model "
        "outside torch.no_grad() and torch.inference_mode(), with parameters or inputs that "
        "require a gradient"
    )
