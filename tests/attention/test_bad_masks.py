"""Masks, biases and scores that do not fit a call, or can never fit one: each error in full."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from regard.attention import (
    Additive,
    Bilinear,
    attend,
    causal,
    dense,
    keys,
    look,
    padding,
    prefix,
    segments,
    window,
)
from regard.errors import (
    DtypeError,
    OptionError,
    RegardError,
    ShapeError,
)
from tests.attention.bad_calls import (
    THREE,
    B,
    D,
    E,
    H,
    K,
    Kind,
    Q,
    good,
    of_three,
    raises,
    yes,
    zeros,
)

Bad = tuple[Callable[[], object], Kind, str]
pytestmark = pytest.mark.usefixtures("as_users_run")
WRONG_SIZE: dict[str, tuple[Callable[[], object], str]] = {
    "dense": (
        lambda: dense(yes(K, Q)),
        "mask: has q=7, k=5 (mask (7,5)), but there are q=5 queries and k=7 keys; "
        "give a mask (…,q,k), 1 where it is the same for all",
    ),
    "tensor": (
        lambda: yes(3, K),
        "mask: has q=3, k=7 (mask (3,7)), but there are q=5 queries and k=7 keys; "
        "give a mask (…,q,k), 1 where it is the same for all",
    ),
    "keys": (
        lambda: keys(yes(Q)),
        "keys: the mask has 5 entries but there are k=7 keys; give one bool per key",
    ),
    "keys of a batch": (
        lambda: keys(yes(B, 8)),
        "keys: the mask has 8 entries but there are k=7 keys; give one bool per key",
    ),
    "padding": (
        lambda: padding([3, 8]),
        "padding: lengths reach 8 but there are k=7 keys; "
        "a length counts the keys that are not padding",
    ),
    "segments": (
        lambda: segments([0, 0, 1]),
        "segments: there are 3 ids, but q=5 queries and k=7 keys; "
        "give one id per key, and no more queries than keys",
    ),
    "inside an expression": (
        lambda: causal & ~(prefix(2) | keys(yes(3))),
        "keys: the mask has 3 entries but there are k=7 keys; give one bool per key",
    ),
}


@of_three
@pytest.mark.parametrize(("make", "text"), WRONG_SIZE.values(), ids=WRONG_SIZE.keys())
def test_masks_of_a_wrong_size(name: str, make: Callable[[], object], text: str) -> None:
    raises(lambda: THREE[name](*good(), mask=make()), ShapeError, text)


@pytest.mark.parametrize("kernel", ["reference", "blocked", "fused"])
@pytest.mark.parametrize(
    ("make", "text"),
    [WRONG_SIZE[name] for name in ("dense", "keys", "padding")],
    ids=["dense", "keys", "padding"],
)
def test_masks_of_a_wrong_size_in_every_kernel(
    kernel: str, make: Callable[[], object], text: str
) -> None:
    q, k, _ = good()
    raises(lambda: attend(q, k, k, mask=make(), kernel=kernel), ShapeError, text)


def test_segments_need_a_key_for_every_query() -> None:
    raises(
        lambda: attend(zeros(Q, D), zeros(3, D), zeros(3, D), mask=segments([0, 0, 1])),
        ShapeError,
        "segments: there are 3 ids, but q=5 queries and k=3 keys; "
        "give one id per key, and no more queries than keys",
    )


def test_a_mask_that_was_passed_is_shown_as_it_was_passed() -> None:
    q, k, v = zeros(B, Q, D), zeros(B, K, D), zeros(B, K, E)
    raises(
        lambda: attend(q, k, v, mask=yes(3, Q, K)),
        ShapeError,
        "attend: mask dense((3,5,7)) has batch axes (3,), but the call has (2,); "
        "they must be equal or 1",
    )


def test_one_sequence_has_one_head_and_one_length() -> None:
    q, k, v = zeros(Q, D), zeros(K, D), zeros(K, E)
    raises(
        lambda: attend(q, k, v, mask=yes(H, Q, K)),
        ShapeError,
        "attend: mask has h=6 (mask (6,5,7)), but q has h=1; give one mask per head, or 1 for all",
    )
    raises(
        lambda: attend(q, k, v, mask=padding([3, 5])),
        ShapeError,
        "attend: mask padding([3, 5]) has batch axes (2,), but the call has (1,); "
        "they must be equal or 1",
    )


@pytest.mark.parametrize(
    ("lead", "axes"), [((2, 3), (3, 2)), ((2, 3), (2,)), ((2, 1, 3), (2, 3, 3))]
)
def test_lengths_for_other_leading_axes(lead: tuple[int, ...], axes: tuple[int, ...]) -> None:
    q, k, v = zeros(*lead, H, Q, D), zeros(*lead, H, K, D), zeros(*lead, H, K, E)
    mask = padding(zeros(*axes).long())
    raises(
        lambda: attend(q, k, v, mask=mask),
        ShapeError,
        f"attend: mask {mask!r} has batch axes {axes}, but the call has {lead}; "
        "they must be equal or 1",
    )


def test_a_bias_on_another_device() -> None:
    with pytest.raises(DtypeError, match=r"^attend: .*bias.* meta"):
        attend(*good(), bias=zeros(Q, K, device="meta"))


@of_three
def test_learned_scores_take_other_widths_but_named_ones_do_not(name: str) -> None:
    q, k, v = zeros(Q, D), zeros(K, E), zeros(K, E)
    raises(
        lambda: THREE[name](q, k, v, score="cosine"),
        ShapeError,
        f"{name}: k has d=13 but q has d=11 (q (5,11), k (7,13)); project both to one head_width",
    )
    THREE[name](q, k, v, score=Bilinear(D, E))
    THREE[name](q, k, v, score=Additive(D, 3, E))


@pytest.mark.parametrize("kernel", ["auto", "reference", "blocked"])
@pytest.mark.parametrize(
    "make",
    [
        lambda: Bilinear(D + 1),
        lambda: Bilinear(D, E),
        lambda: Bilinear(D, heads=5),
        lambda: Additive(D + 1, 3),
        lambda: Additive(D, 3, E),
    ],
    ids=["bilinear q", "bilinear k", "bilinear heads", "additive q", "additive k"],
)
def test_learned_scores_of_other_sizes(kernel: str, make: Callable[[], Bilinear]) -> None:
    with pytest.raises(ShapeError, match=r"^attend: .*(Bilinear|Additive|score)"):
        attend(*good(), score=make(), kernel=kernel)


@pytest.mark.parametrize("kernel", ["auto", "reference", "blocked", "fused"])
def test_a_score_per_head_of_a_call_without_heads(kernel: str) -> None:
    x = zeros(B, K, D)
    with pytest.raises(ShapeError, match=r"^attend: .*(Bilinear|score)"):
        attend(x, x, x, score=Bilinear(D, heads=H), kernel=kernel)


@pytest.mark.parametrize(("name", "call"), [("attend", attend), ("look", look)])
def test_a_function_that_returns_the_wrong_shape(name: str, call: Callable[..., object]) -> None:
    raises(
        lambda: call(*good(), score=lambda q, k: (q @ k.mT).sum(1)),
        ShapeError,
        f"{name}: score returned (2,5,7) for a block q (2,6,5,11), k (2,6,7,11); "
        "expected (b,h,q,k) = (2,6,5,7)",
    )


def test_a_function_that_returns_nothing() -> None:
    with pytest.raises(RegardError, match=r"^attend: score returned NoneType"):
        attend(*good(), score=lambda q, k: None)  # type: ignore[arg-type, return-value]


MASKS: list[Bad] = [
    (lambda: window(0), OptionError, "window: n=0, expected 1 (only itself) or more"),
    (lambda: window(-3), OptionError, "window: n=-3, expected 1 (only itself) or more"),
    (
        lambda: window(3, before=1),
        OptionError,
        "window: give n, or before and after, not both",
    ),
    (
        lambda: window(3, after=0),
        OptionError,
        "window: give n, or before and after, not both",
    ),
    (lambda: window(), OptionError, "window: give n, or before and after"),
    (
        lambda: window(before=-1),
        OptionError,
        "window: before=-1, after=0, expected 0 or more",
    ),
    (
        lambda: window(before=2, after=-5),
        OptionError,
        "window: before=2, after=-5, expected 0 or more",
    ),
    *(
        (call, OptionError, f"{text}, expected a whole number")
        for call, text in [
            (lambda: window(2.5), "window: n=2.5"),  # type: ignore[arg-type]
            (lambda: window("3"), "window: n='3'"),  # type: ignore[arg-type]
            (lambda: window(before=1.5), "window: before=1.5"),  # type: ignore[arg-type]
            (lambda: prefix(1.5), "prefix: n=1.5"),  # type: ignore[arg-type]
            (lambda: prefix(None), "prefix: n=None"),  # type: ignore[arg-type]
        ]
    ),
    *(
        (
            lambda given=given: padding(given),  # type: ignore[misc]
            DtypeError,
            f"padding: lengths are {type(given).__name__}, expected whole numbers; "
            "for a bool per key use keys(…)",
        )
        for given in (None, "ab", [[1], [2, 3]])
    ),
    (
        lambda: segments("ab"),  # type: ignore[arg-type]
        DtypeError,
        "segments: ids are str, expected whole numbers (…,k)",
    ),
    (lambda: prefix(-1), OptionError, "prefix: n=-1, expected 0 or more"),
    (lambda: padding(-1), OptionError, "padding: a length is -1, expected 0 or more"),
    (lambda: padding([3, -7, 0]), OptionError, "padding: a length is -7, expected 0 or more"),
    *(
        (
            lambda kind=kind: padding(torch.ones(3, dtype=kind)),  # type: ignore[misc]
            DtypeError,
            f"padding: lengths are {kind}, expected whole numbers; for a bool per key use keys(…)",
        )
        for kind in (torch.float32, torch.bool, torch.complex64)
    ),
    (
        lambda: padding([3.0, 5.0]),  # type: ignore[list-item]
        DtypeError,
        "padding: lengths are torch.float32, expected whole numbers; "
        "for a bool per key use keys(…)",
    ),
    (
        lambda: keys(torch.tensor([1, 0, 1])),
        DtypeError,
        "keys is torch.int64, expected a bool tensor (True = may attend); "
        "additive terms go to bias=",
    ),
    (
        lambda: keys([True, False]),  # type: ignore[arg-type]
        DtypeError,
        "keys is list, expected a bool tensor (True = may attend); additive terms go to bias=",
    ),
    (lambda: keys(torch.tensor(True)), ShapeError, "keys has shape (), expected (…,k)"),
    (
        lambda: segments(3),  # type: ignore[arg-type]
        ShapeError,
        "segments: ids is one number, expected (…,k), one per key",
    ),
    (
        lambda: segments([0.0, 1.0, 1.0]),  # type: ignore[list-item]
        DtypeError,
        "segments: ids are torch.float32, expected whole numbers (…,k)",
    ),
    (
        lambda: dense(zeros(Q, K)),
        DtypeError,
        "dense is torch.float32, expected a bool tensor (True = may attend); "
        "additive terms go to bias=",
    ),
    (lambda: dense(yes(K)), ShapeError, "dense has shape (7), expected (…,q,k)"),
    (
        lambda: causal & "window",  # type: ignore[operator]
        OptionError,
        "&: mask is 'window', expected a mask such as causal or window(3), "
        "or a bool tensor (…,q,k)",
    ),
    (
        lambda: causal | None,  # type: ignore[operator]
        OptionError,
        "|: mask is NoneType, expected a mask such as causal or window(3), "
        "or a bool tensor (…,q,k)",
    ),
    (
        lambda: zeros(Q, K) & causal,
        DtypeError,
        "&: mask is torch.float32, expected a bool tensor (True = may attend); "
        "additive terms go to bias=",
    ),
    (
        lambda: causal and window(3),
        OptionError,
        "mask: has no truth value of its own; combine masks with &, | and ~",
    ),
    (
        lambda: not causal,
        OptionError,
        "mask: has no truth value of its own; combine masks with &, | and ~",
    ),
]


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    MASKS,
    ids=[f"{i} {text[:30]}" for i, (_, _, text) in enumerate(MASKS)],
)
def test_impossible_masks(call: Callable[[], object], kind: Kind, text: str) -> None:
    raises(call, kind, text)


def test_the_least_possible_masks_work() -> None:
    assert window(1).tensor(2).tolist() == [[True, False], [False, True]]
    assert window(before=0).tensor(2).tolist() == [[True, False], [False, True]]
    assert prefix(0).tensor(1, 2).tolist() == padding(0).tensor(1, 2)[0].tolist()
    assert keys(yes(1)).tensor(1).item()
