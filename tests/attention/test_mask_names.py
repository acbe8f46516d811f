"""Masks compared, named and drawn."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from regard.attention.masks import (
    Causal,
    Mask,
    causal,
    dense,
    keys,
    padding,
    prefix,
    segments,
    window,
)
from tests.attention.mask_cases import coins

LIKE: list[tuple[Callable[[], Mask], Callable[[], Mask]]] = [
    (lambda: window(2), lambda: window(before=1, after=1)),
    (lambda: window(before=3), lambda: window(before=3, after=0)),
    (lambda: causal, lambda: Causal()),
    (lambda: prefix(3), lambda: prefix(3)),
    (lambda: causal & window(3), lambda: causal & window(3)),
    (lambda: ~(causal | prefix(2)), lambda: ~(causal | prefix(2))),
    (lambda: padding([2, 3]), lambda: padding(torch.tensor([2, 3]))),
    (lambda: padding([2, 3]), lambda: padding(torch.tensor([2, 3], dtype=torch.int32))),
    (lambda: keys(coins(7)), lambda: keys(coins(7).clone())),
    (lambda: segments([0, 0, 1]), lambda: segments(torch.tensor([0, 0, 1]))),
    (lambda: segments([0, 0, 1]), lambda: segments(torch.tensor([0, 0, 1], dtype=torch.int32))),
    (lambda: dense(coins(5, 7)), lambda: dense(coins(5, 7).T.contiguous().T)),
]


@pytest.mark.parametrize(("make", "again"), LIKE, ids=[repr(make()) for make, _ in LIKE])
def test_masks_that_say_the_same_are_equal(
    make: Callable[[], Mask], again: Callable[[], Mask]
) -> None:
    one, other = make(), again()
    assert one is not other or one is causal
    assert one == other
    assert hash(one) == hash(other)
    assert {one: 1}[other] == 1


UNLIKE: list[tuple[Mask, object]] = [
    (window(2), window(3)),
    (window(before=1), window(after=1)),
    (causal, Causal(from_start=True)),
    (causal, ~causal),
    (causal & window(3), causal | window(3)),
    (causal & window(3), causal & window(2)),
    (prefix(3), padding(3)),
    (padding([2, 3]), padding([3, 2])),
    (keys(coins(7)), keys(~coins(7))),
    (keys(coins(1, 7)), dense(coins(1, 7))),
    (segments([0, 0, 1]), segments([0, 1, 1])),
    (dense(coins(5, 7)), dense(coins(7, 5))),
    (causal, "causal"),
    (dense(coins(5, 7)), coins(5, 7).tolist()),
]


@pytest.mark.parametrize(
    ("one", "other"), UNLIKE, ids=[f"{one!r}, {other!r}"[:40] for one, other in UNLIKE]
)
def test_masks_that_say_something_else_are_not(one: Mask, other: object) -> None:
    assert one != other
    assert not one == other  # noqa: SIM201


NAMES: list[tuple[Mask, str]] = [
    (causal, "causal"),
    (Causal(from_start=True), "causal, from the start"),
    (window(3), "window(3)"),
    (window(before=2, after=2), "window(3)"),
    (window(before=2), "window(before=2, after=0)"),
    (prefix(3), "prefix(3)"),
    (padding(3), "padding(3)"),
    (padding([2, 3]), "padding([2, 3])"),
    (padding(torch.full((17,), 5)), "padding((17))"),
    (keys(torch.tensor([True, False])), "keys([True, False])"),
    (keys(coins(3, 7)), "keys((3,7))"),
    (segments([0, 0, 1]), "segments([0, 0, 1])"),
    (dense(coins(5, 7)), "dense((5,7))"),
    (causal & window(3), "causal & window(3)"),
    (causal | prefix(3), "causal | prefix(3)"),
    (causal & window(3) | prefix(2), "causal & window(3) | prefix(2)"),
    (causal & (window(3) | prefix(2)), "causal & (window(3) | prefix(2))"),
    (~causal & window(3), "~causal & window(3)"),
    (~(causal & window(3)), "~(causal & window(3))"),
    (~(causal | window(3)) & prefix(1), "~(causal | window(3)) & prefix(1)"),
    (~~causal, "causal"),
]


@pytest.mark.parametrize(("mask", "name"), NAMES, ids=[name for _, name in NAMES])
def test_a_mask_is_named_as_it_is_written(mask: Mask, name: str) -> None:
    assert repr(mask) == name


@pytest.mark.parametrize(
    "mask",
    [mask for mask, name in NAMES if "((" not in name and "from" not in name and "[T" not in name],
    ids=repr,
)
def test_what_a_mask_is_called_makes_it_again(mask: Mask) -> None:
    names = {f.__name__: f for f in (window, prefix, padding, segments)} | {"causal": causal}
    assert eval(repr(mask), names) == mask


DRAWINGS: dict[str, tuple[str, str]] = {
    "causal | prefix(3)": (
        str(causal | prefix(3)),
        """
        █ █ █ ░ ░ ░ ░ ░
        █ █ █ ░ ░ ░ ░ ░
        █ █ █ ░ ░ ░ ░ ░
        █ █ █ █ ░ ░ ░ ░
        █ █ █ █ █ ░ ░ ░
        █ █ █ █ █ █ ░ ░
        █ █ █ █ █ █ █ ░
        █ █ █ █ █ █ █ █
        """,
    ),
    "causal & window(3)": (
        (causal & window(3)).draw(6),
        """
        █ ░ ░ ░ ░ ░
        █ █ ░ ░ ░ ░
        █ █ █ ░ ░ ░
        ░ █ █ █ ░ ░
        ░ ░ █ █ █ ░
        ░ ░ ░ █ █ █
        """,
    ),
    "cached": (
        causal.draw(2, 5),
        """
        █ █ █ █ ░
        █ █ █ █ █
        """,
    ),
    "padding": (
        str(causal & padding([2, 3])),
        """
        █ ░ ░
        █ █ ░
        █ █ ░

        █ ░ ░
        █ █ ░
        █ █ █
        """,
    ),
    "keys": (
        str(keys(torch.tensor([True, False, True]))),
        """
        █ ░ █
        █ ░ █
        █ ░ █
        """,
    ),
    "segments": (
        str(segments([0, 0, 1]) | prefix(1)),
        """
        █ █ ░
        █ █ ░
        █ ░ █
        """,
    ),
}


@pytest.mark.parametrize(("drawn", "wanted"), DRAWINGS.values(), ids=DRAWINGS.keys())
def test_drawings(drawn: str, wanted: str) -> None:
    assert drawn == "\n".join(line.strip() for line in wanted.strip().splitlines())


WRITTEN = torch.tensor([[True, False, True], [False, True, False]])


@pytest.mark.parametrize(
    ("make", "wanted"),
    [
        (lambda: dense(WRITTEN), "█ ░ █\n░ █ ░"),
        (lambda: dense(WRITTEN) & causal, "█ ░ ░\n░ █ ░"),
        (lambda: prefix(1) | dense(WRITTEN), "█ ░ █\n█ █ ░"),
        (lambda: ~dense(WRITTEN), "░ █ ░\n█ ░ █"),
        (lambda: dense(WRITTEN) & causal | prefix(1), "█ ░ ░\n█ █ ░"),
        (lambda: causal & ~dense(WRITTEN), "░ █ ░\n█ ░ █"),
    ],
    ids=["alone", "and", "or", "not", "nested", "and not"],
)
def test_a_dense_mask_is_drawn_in_its_own_size(make: Callable[[], Mask], wanted: str) -> None:
    assert str(make()) == wanted


def test_a_mask_per_head_is_drawn_head_by_head() -> None:
    assert str(dense(torch.stack([WRITTEN, ~WRITTEN]))) == "█ ░ █\n░ █ ░\n\n░ █ ░\n█ ░ █"
