"""The effect of cutting a link, to first order."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from regard import look, watch
from regard.attention.link_effects import link_effects
from regard.errors import OptionError


def change_without(scores: Tensor, values: Tensor, g: Tensor, cut: list[int]) -> Tensor:
    """g · (o′ - o) in float64 by masking, for each row."""
    whole = torch.softmax(scores, -1) @ values
    left = scores.clone()
    left[..., cut] = -torch.inf
    changed = torch.softmax(left, -1).nan_to_num(0.0) @ values
    return ((changed - whole) * g).sum(-1)


@pytest.fixture
def case() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    scores = 3 * torch.randn(2, 5, 7, generator=generator, dtype=torch.float64)
    values = torch.randn(2, 7, 4, generator=generator, dtype=torch.float64)
    g = torch.randn(2, 5, 4, generator=generator, dtype=torch.float64)
    return scores, values, g


def test_each_link_is_the_renormalised_output_without_it(
    case: tuple[Tensor, Tensor, Tensor],
) -> None:
    scores, values, g = case
    weights, effects = link_effects(scores, g @ values.mT)
    torch.testing.assert_close(weights, torch.softmax(scores, -1))
    for key in range(7):
        torch.testing.assert_close(effects[..., key], change_without(scores, values, g, [key]))


def test_groups_are_cut_together(case: tuple[Tensor, Tensor, Tensor]) -> None:
    scores, values, g = case
    groups = torch.tensor([0, 0, 1, -1, 2, 2, 2])
    weights, effects = link_effects(scores, g @ values.mT, groups, 3)
    assert weights.shape == effects.shape == (2, 5, 3)
    for group, keys in enumerate(([0, 1], [2], [4, 5, 6])):
        torch.testing.assert_close(effects[..., group], change_without(scores, values, g, keys))


@pytest.mark.parametrize("groups", [None, torch.tensor([0, 0, 1, -1, 2, 2, 2])])
def test_a_sink_is_a_key_of_value_zero(
    case: tuple[Tensor, Tensor, Tensor], groups: Tensor | None
) -> None:
    scores, values, g = case
    sink = torch.tensor([2.0, -30.0, 30.0, 0.0, -torch.inf], dtype=torch.float64).expand(2, 5)
    weights, effects = link_effects(scores, g @ values.mT, groups, sink=sink)
    scores, values = torch.cat([scores, sink[..., None]], -1), F.pad(values, (0, 0, 0, 1))
    whole = torch.softmax(scores, -1)
    for group in range(weights.shape[-1]):
        keys = [group] if groups is None else (groups == group).nonzero().flatten().tolist()
        torch.testing.assert_close(weights[..., group], whole[..., keys].sum(-1))
        torch.testing.assert_close(effects[..., group], change_without(scores, values, g, keys))


def test_a_saturated_link_is_not_divided_by_almost_nothing() -> None:
    scores = torch.tensor([[30.0, 0.0, 1.0]])
    values, g = torch.tensor([[1.0], [2.0], [5.0]]), torch.tensor([[1.0]])
    _, effects = link_effects(scores, g @ values.T)
    expected = change_without(scores.double(), values.double(), g.double(), [0])
    assert float(effects[0, 0]) == pytest.approx(float(expected), rel=1e-5)


def test_the_only_link_leaves_nothing() -> None:
    scores = torch.tensor([[0.0, -torch.inf]])
    _, effects = link_effects(scores, torch.tensor([[3.0, 9.0]]))
    assert effects.tolist() == [[-3.0, 0.0]]


def test_a_query_that_sees_nothing_has_no_effects() -> None:
    weights, effects = link_effects(torch.full((1, 2), -torch.inf), torch.ones(1, 2))
    assert weights.tolist() == effects.tolist() == [[0.0, 0.0]]


class Attention(torch.nn.Module):
    """Two heads, written with PyTorch's own function."""

    def __init__(self) -> None:
        super().__init__()
        self.project = torch.nn.Linear(8, 24)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.project(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(q, k, v)


def test_effects_of_a_watched_model_are_those_of_the_formula() -> None:
    torch.manual_seed(0)
    model = Attention()
    with watch(model, gradients=True) as seen:
        model(torch.randn(1, 5, 8)).square().sum().backward()
    found = seen[""]
    scores, g = found.scores(), found.output_gradient
    assert g is not None
    torch.testing.assert_close(found.effects(), link_effects(scores, g @ found.v.mT)[1])
    some = found.effects(queries=[0, 3], heads=1)
    torch.testing.assert_close(some, found.effects()[:, 1:, [0, 3]])


def test_without_a_gradient_it_is_said_how_to_get_one() -> None:
    found = look(torch.randn(3, 4), torch.randn(3, 4), torch.randn(3, 4))
    with pytest.raises(OptionError, match="gradients=True"):
        found.effects()
