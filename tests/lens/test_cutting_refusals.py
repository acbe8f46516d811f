"""`cut` refuses links that cannot be cut, and says why."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.errors import OptionError
from regard.lens import Cut, cut
from tests.lens.small_models import Attention, Stack


def test_errors(x: Tensor) -> None:
    model = Stack()
    for edges, options, message in (
        (
            [(0, 9)],
            {},
            "cut: the link (0, 9) never occurred: there were 5 queries and 5 keys, numbered from "
            "0, in 'layers.0', 'layers.1', 'layers.2'",
        ),
        (
            [(0, 9), (9, 0), (0, 1)],
            {"layers": "layers.1"},
            "cut: the link (0, 9) never occurred, nor did 1 more: there were 5 queries and 5 keys, "
            "numbered from 0, in 'layers.1'",
        ),
        (
            [(0, 1)],
            {"layers": 7},
            "cut: the link (0, 1) never occurred: no self-attention was seen in layer 7; there was "
            "self-attention in 'layers.0', 'layers.1', 'layers.2'",
        ),
        (
            [(0, [1, 2])],
            {"kind": "cross"},
            "cut: the link (0, [1, 2]) never occurred: no cross-attention was seen in the model; "
            "there was self-attention in 'layers.0', 'layers.1', 'layers.2' (give kind='self' to "
            "cut it)",
        ),
        (
            [(0, 1)],
            {"layers": "layer.1"},
            "cut: layer 'layer.1' is not a module of the model; did you mean 'layers.1'?",
        ),
        (
            [(0, 1)],
            {"layers": "???"},
            "cut: layer '???' is not a module of the model; list(seen) gives their names",
        ),
        (
            [(0, 1)],
            {"heads": 3},
            "cut: heads=3, but there are 3 heads in 'layers.0', numbered from 0",
        ),
        (
            [Cut(0, 1, row=2)],
            {},
            "cut: row=2, but there are 2 sequences in the batch in 'layers.0', numbered from 0",
        ),
    ):
        with pytest.raises(OptionError) as caught, cut(model, edges, **options):
            model(x)
        assert str(caught.value) == message
    with cut(model, [(0, 99)]):
        pass  # the model did not run


@pytest.mark.usefixtures("as_users_run")
def test_bad_links(x: Tensor) -> None:
    model = Attention()
    for edge, message in (
        (3, "cut: edge 3, expected a pair (from, to) of positions"),
        ((1, 2, 3), "cut: edge (1, 2, 3), expected a pair (from, to) of positions"),
        (
            (0, "it"),
            "cut: key='it', expected a whole number or several; words become positions by the "
            "tokenizer that belongs to the model",
        ),
        ((None, 1), "cut: a link needs both a query and a key, two positions"),
        (
            (0.5, 1),
            "cut: query=0.5, expected a whole number or several; words become positions by the "
            "tokenizer that belongs to the model",
        ),
    ):
        with pytest.raises(OptionError) as caught:
            cut(model, [edge]).__enter__()
        assert str(caught.value) == message
    with pytest.raises(OptionError) as caught:
        cut(model, [(0, 1)], kind="both").__enter__()
    assert str(caught.value) == "cut: kind='both', expected 'self' or 'cross'"
    with pytest.raises(OptionError, match="model is str"):
        cut("bert", [(0, 1)]).__enter__()
    compiled = torch.compile(model, backend="eager")
    with pytest.raises(OptionError, match="cut: the model is compiled"):
        cut(compiled, [(0, 1)]).__enter__()


@pytest.mark.usefixtures("as_users_run")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        *(
            (
                {"heads": heads},
                f"cut: heads={heads!r} without edges, expected pairs of layer and head, such as "
                "heads=[(3, 5)]",
            )
            for heads in (1, [0, 1], [(0, 1, 2)], "ab")
        ),
        *(
            (
                {"layers": layers, "heads": heads},
                f"cut: layers={layers!r} without edges; for whole heads, expected pairs of layer "
                "and head, such as heads=[(3, 5)]",
            )
            for layers, heads in (([0], None), (0, [1]), (0, [(0, 1)]))
        ),
        (
            {"edges": [(0, 1)], "layers": 1.5},
            "cut: layers=1.5, expected the name or the number of a module, or several",
        ),
        ({"edges": 5}, "cut: edges=5, expected pairs (from, to) of positions"),
    ],
)
def test_heads_and_layers_that_name_no_links(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        cut(Attention(), **options).__enter__()
    assert str(caught.value) == message


def test_a_model_without_attention_says_what_it_called() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    message = "cut: Sequential ran, but made no call of attention .* addmm × 1, relu × 1"
    with pytest.raises(OptionError, match=message), cut(model, [(0, 1)]):
        model(torch.randn(2, 4))
