"""Models that change their weights after the softmax."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.errors import OptionError
from regard.lens import watch

H, N, D = 2, 5, 4
Change = Callable[[Tensor], Tensor]


class Changing(nn.Module):
    """Heads whose weights a function changes before they are multiplied with values."""

    def __init__(self, change: Change) -> None:
        super().__init__()
        self.change, self.weights = change, torch.zeros(0)

    def forward(self, x: Tensor) -> Tensor:
        weights = torch.softmax(x @ x.mT, -1)
        self.weights = self.change(weights)
        return self.weights @ x.to(self.weights.dtype)


def normalised(x: Tensor) -> Tensor:
    return x / x.sum(-1, keepdim=True)


def masked(x: Tensor) -> Tensor:
    return x * torch.ones(N, N).tril()


def masked_and_normalised(x: Tensor) -> Tensor:
    return normalised(masked(x))


@pytest.mark.parametrize("change", [masked, masked_and_normalised, torch.clone])
@pytest.mark.parametrize("shape", [(1, N, D), (2, H, N, D)])
def test_the_weights_that_were_multiplied_are_seen(change: Change, shape: tuple[int, ...]) -> None:
    model = Changing(change).eval()
    with torch.no_grad(), watch(model) as seen:
        output = model(torch.randn(shape))
    look = seen[""]
    torch.testing.assert_close(look.weights(), model.weights)
    torch.testing.assert_close(look.weights() @ look.v, output)


@pytest.mark.parametrize("change", [F.dropout, Tensor.bfloat16, normalised])
def test_dropout_and_rounding_are_no_change(change: Change) -> None:
    model, x = Changing(change).eval(), torch.randn(2, H, N, D)
    with torch.no_grad(), watch(model) as seen:
        model(x)
    torch.testing.assert_close(seen[""].weights(), torch.softmax(x @ x.mT, -1), atol=0, rtol=1e-6)


def test_numbers_that_are_no_weights_are_not_shown_as_such() -> None:
    model = Changing(lambda x: x - 0.5).eval()
    message = "made no call of attention that can be seen"
    with pytest.raises(OptionError, match=message), torch.no_grad(), watch(model):
        model(torch.randn(2, H, N, D))


def test_effects_are_those_of_masked_weights_and_not_made_up_for_others() -> None:
    x = torch.randn(1, H, N, D, requires_grad=True)
    model, other = Changing(masked).eval(), Changing(masked_and_normalised).eval()
    for one in (model, other):
        with watch(one, gradients=True) as seen:
            one(x).sum().backward()
        if one is model:
            torch.testing.assert_close(
                seen[""].gradient_of_weights(), x.sum(-1)[..., None, :].expand(1, H, N, N).tril()
            )
    with pytest.raises(OptionError, match="there is no gradient of the weights"):
        seen[""].effects()
