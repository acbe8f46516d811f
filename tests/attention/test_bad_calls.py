"""Every bad call: the kind of the error and its text, word for word."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator

import jaxtyping
import pytest
import torch
from torch import Tensor

from regard.attention import (
    Additive,
    ALiBi,
    Bilinear,
    RelativeBias,
    attend,
    causal,
    dense,
    keys,
    look,
    padding,
    prefix,
    scaled_dot_product_attention,
    segments,
    which,
    window,
)
from regard.errors import (
    DtypeError,
    MemoryLimitError,
    OptionError,
    RegardError,
    ShapeError,
    StaleError,
)

# Axes: batch 2, heads 6, queries 5, keys 7, width 11, values 13.
B, H, Q, K, D, E = 2, 6, 5, 7, 11, 13

Kind = type[RegardError]
Bad = tuple[Callable[[], object], Kind, str]


@pytest.fixture(autouse=True)
def as_users_run() -> Iterator[None]:
    """Our own errors, without the type checks that the test run adds in front of them."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", before)


def zeros(*sizes: int, **options: object) -> Tensor:
    return torch.zeros(*sizes, **options)  # type: ignore[call-overload, no-any-return]


def yes(*sizes: int) -> Tensor:
    return torch.ones(*sizes, dtype=torch.bool)


def good() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return tuple(  # type: ignore[return-value]
        torch.randn(B, H, n, d, generator=generator) for n, d in ((Q, D), (K, D), (K, E))
    )


def raises(call: Callable[[], object], kind: Kind, text: str) -> None:
    with pytest.raises(kind, match=f"^{re.escape(text)}$") as caught:
        call()
    assert type(caught.value) is kind


def test_a_good_call_is_one() -> None:
    assert attend(*good()).shape == (B, H, Q, E)


def test_the_example_of_the_design() -> None:
    raises(
        lambda: attend(zeros(2, 8, 5, 64), zeros(2, 8, 7, 48), zeros(2, 8, 7, 48)),
        ShapeError,
        "attend: k has d=48 but q has d=64 (q (2,8,5,64), k (2,8,7,48)); "
        "project both to one head_width",
    )


def test_every_kind_is_also_the_kind_that_a_stranger_would_catch() -> None:
    kinds: dict[Kind, type[Exception]] = {
        ShapeError: ValueError,
        OptionError: ValueError,
        DtypeError: TypeError,
        MemoryLimitError: MemoryError,
        StaleError: RuntimeError,
    }
    for kind, builtin in kinds.items():
        assert issubclass(kind, RegardError)
        assert issubclass(kind, builtin)


# Tensors that do not fit: the same words from attend, look and which

Tensors = dict[str, tuple[Callable[[], tuple[object, object, object]], Kind, str]]

TENSORS: Tensors = {
    "rank 1": (
        lambda: (zeros(D), zeros(K, D), zeros(K, D)),
        ShapeError,
        "q has shape (11), expected (n,d), (b,n,d) or (…,h,n,d)",
    ),
    "rank 0": (
        lambda: (zeros(Q, D), zeros(K, D), zeros(())),  # type: ignore[arg-type]
        ShapeError,
        "v has shape (), expected (n,d), (b,n,d) or (…,h,n,d)",
    ),
    "no tensor": (
        lambda: (zeros(Q, D), zeros(K, D).tolist(), zeros(K, D)),
        DtypeError,
        "k is list, expected a tensor; use torch.as_tensor",
    ),
    "array": (
        lambda: (zeros(Q, D).numpy(), zeros(K, D), zeros(K, D)),
        DtypeError,
        "q is ndarray, expected a tensor; use torch.as_tensor",
    ),
    "two dtypes": (
        lambda: (zeros(Q, D), zeros(K, D, dtype=torch.bfloat16), zeros(K, D)),
        DtypeError,
        "q is torch.float32, k is torch.bfloat16, v is torch.float32; convert them to one dtype",
    ),
    "whole numbers": (
        lambda: (zeros(Q, D).long(), zeros(K, D).long(), zeros(K, D).long()),
        DtypeError,
        "q, k and v are torch.int64, expected float32, bfloat16, float16 or float64",
    ),
    "complex": (
        lambda: tuple(zeros(n, D, dtype=torch.complex64) for n in (Q, K, K)),
        DtypeError,
        "q, k and v are torch.complex64, expected float32, bfloat16, float16 or float64",
    ),
    "devices": (
        lambda: (zeros(Q, D, device="meta"), zeros(K, D), zeros(K, D)),
        DtypeError,
        "q is on meta, k on cpu, v on cpu; move them to one",
    ),
    "widths": (
        lambda: (zeros(Q, D), zeros(K, E), zeros(K, E)),
        ShapeError,
        "k has d=13 but q has d=11 (q (5,11), k (7,13)); project both to one head_width",
    ),
    "no width": (
        lambda: (zeros(B, H, Q, 0), zeros(B, H, K, 0), zeros(B, H, K, E)),
        ShapeError,
        "q has d=0 (q (2,6,5,0), k (2,6,7,0), v (2,6,7,13)); vectors need at least one number",
    ),
    "lengths": (
        lambda: (zeros(B, H, Q, D), zeros(B, H, K, D), zeros(B, H, 3, E)),
        ShapeError,
        "v has k=3 but k has k=7 (q (2,6,5,11), k (2,6,7,11), v (2,6,3,13)); "
        "there is one value per key",
    ),
    "kv_heads": (
        lambda: (zeros(B, H, Q, D), zeros(B, 3, K, D), zeros(B, 2, K, E)),
        ShapeError,
        "v has h=2 but k has h=3 (q (2,6,5,11), k (2,3,7,11), v (2,2,7,13)); "
        "keys and values have the same kv_heads",
    ),
    "heads that do not divide": (
        lambda: (zeros(B, H, Q, D), zeros(B, 5, K, D), zeros(B, 5, K, E)),
        ShapeError,
        "q has h=6, which is not a multiple of the kv_heads h=5 of k "
        "(q (2,6,5,11), k (2,5,7,11), v (2,5,7,13)); choose kv_heads that divide the heads",
    ),
    "more kv_heads than heads": (
        lambda: (zeros(B, 3, Q, D), zeros(B, H, K, D), zeros(B, H, K, E)),
        ShapeError,
        "q has h=3, which is not a multiple of the kv_heads h=6 of k "
        "(q (2,3,5,11), k (2,6,7,11), v (2,6,7,13)); choose kv_heads that divide the heads",
    ),
    "no kv_heads": (
        lambda: (zeros(B, H, Q, D), zeros(B, 0, K, D), zeros(B, 0, K, E)),
        ShapeError,
        "q has h=6, which is not a multiple of the kv_heads h=0 of k "
        "(q (2,6,5,11), k (2,0,7,11), v (2,0,7,13)); choose kv_heads that divide the heads",
    ),
    "batches": (
        lambda: (zeros(B, H, Q, D), zeros(3, H, K, D), zeros(3, H, K, E)),
        ShapeError,
        "the leading axes do not fit together (q (2,6,5,11), k (3,6,7,11), v (3,6,7,13)); "
        "they must be equal or 1",
    ),
    "batches without heads": (
        lambda: (zeros(B, Q, D), zeros(B, K, D), zeros(3, K, E)),
        ShapeError,
        "the leading axes do not fit together (q (2,5,11), k (2,7,11), v (3,7,13)); "
        "they must be equal or 1",
    ),
    "leading axes": (
        lambda: (zeros(B, 3, H, Q, D), zeros(3, B, H, K, D), zeros(H, K, E)[None]),
        ShapeError,
        "the leading axes do not fit together "
        "(q (2,3,6,5,11), k (3,2,6,7,11), v (1,6,7,13)); they must be equal or 1",
    ),
    "rank 3 beside rank 4": (
        lambda: (zeros(B, H, Q, D), zeros(B, K, D), zeros(B, K, E)),
        ShapeError,
        "q (2,6,5,11), k (2,7,11), v (2,7,13): a tensor of rank 3 is (b,n,d), one head, and does "
        "not fit beside (…,h,n,d); insert the head axis with unsqueeze(-3)",
    ),
    "rank 3 beside rank 5": (
        lambda: (zeros(B, Q, D), zeros(3, B, 1, K, D), zeros(3, B, 1, K, E)),
        ShapeError,
        "q (2,5,11), k (3,2,1,7,11), v (3,2,1,7,13): a tensor of rank 3 is (b,n,d), one head, and "
        "does not fit beside (…,h,n,d); insert the head axis with unsqueeze(-3)",
    ),
}
THREE: dict[str, Callable[..., object]] = {"attend": attend, "look": look, "which": which}
of_three = pytest.mark.parametrize("name", THREE)


@of_three
@pytest.mark.parametrize(("make", "kind", "text"), TENSORS.values(), ids=TENSORS.keys())
def test_tensors_that_do_not_fit(
    name: str, make: Callable[[], tuple[object, object, object]], kind: Kind, text: str
) -> None:
    raises(lambda: THREE[name](*make()), kind, f"{name}: {text}")


# Options that do not fit a good q, k and v: (2,6,5,11), (2,6,7,11), (2,6,7,13)

UNKNOWN = (
    "is unknown, expected 'dot', 'scaled_dot', 'cosine', 'gaussian', Scaled(x), "
    "Softcap(x), Bilinear, "
    "Additive or a function of blocks (q, k)"
)
ONE_TO_ONE = "they must be equal or 1"
NOT_BOOL = "expected a bool tensor (True = may attend); additive terms go to bias="
OPTIONS: dict[str, tuple[Callable[[], dict[str, object]], Kind, str]] = {
    "score misspelt": (
        lambda: {"score": "scaled_dto"},
        OptionError,
        f"score='scaled_dto' {UNKNOWN}; did you mean 'scaled_dot'?",
    ),
    "score in capitals": (
        lambda: {"score": "Gaussian"},
        OptionError,
        f"score='Gaussian' {UNKNOWN}; did you mean 'gaussian'?",
    ),
    "score unknown": (lambda: {"score": "xyz"}, OptionError, f"score='xyz' {UNKNOWN}"),
    "score of a wrong type": (
        lambda: {"score": 3},
        OptionError,
        "score is int, expected a name such as 'scaled_dot' or a function of blocks (q, k)",
    ),
    "dropout of 1": (
        lambda: {"dropout": 1.0},
        OptionError,
        "dropout=1.0, expected 0 up to, but not including, 1",
    ),
    "dropout below 0": (
        lambda: {"dropout": -0.1},
        OptionError,
        "dropout=-0.1, expected 0 up to, but not including, 1",
    ),
    "dropout that is no number": (
        lambda: {"dropout": math.nan},
        OptionError,
        "dropout=nan, expected 0 up to, but not including, 1",
    ),
    "mask of a wrong type": (
        lambda: {"mask": "cusal"},
        OptionError,
        "mask is 'cusal', expected a mask such as causal or window(3), or a bool tensor (…,q,k)",
    ),
    "mask that is a factory": (
        lambda: {"mask": window},
        OptionError,
        "mask is function, expected a mask such as causal or window(3), or a bool tensor (…,q,k)",
    ),
    "mask of numbers": (
        lambda: {"mask": zeros(Q, K)},
        DtypeError,
        f"mask is torch.float32, {NOT_BOOL}",
    ),
    "mask of whole numbers": (
        lambda: {"mask": zeros(Q, K).int()},
        DtypeError,
        f"mask is torch.int32, {NOT_BOOL}",
    ),
    "mask of one axis": (
        lambda: {"mask": yes(K)},
        ShapeError,
        "mask has shape (7), expected (…,q,k)",
    ),
    "mask for other heads": (
        lambda: {"mask": yes(3, Q, K)},
        ShapeError,
        "mask has h=3 (mask (3,5,7)), but q has h=6; give one mask per head, or 1 for all",
    ),
    "mask for heads where the batch should be": (
        lambda: {"mask": yes(B, Q, K)},
        ShapeError,
        "mask has h=2 (mask (2,5,7)), but q has h=6; give one mask per head, or 1 for all",
    ),
    "dense for another batch": (
        lambda: {"mask": dense(yes(3, H, Q, K))},
        ShapeError,
        f"mask dense((3,6,5,7)) has batch axes (3,), but the call has (2,); {ONE_TO_ONE}",
    ),
    "dense with too many leading axes": (
        lambda: {"mask": dense(yes(3, B, 1, Q, K))},
        ShapeError,
        f"mask dense((3,2,1,5,7)) has batch axes (3, 2), but the call has (2,); {ONE_TO_ONE}",
    ),
    "padding for another batch": (
        lambda: {"mask": padding([3, 5, 7])},
        ShapeError,
        f"mask padding([3, 5, 7]) has batch axes (3,), but the call has (2,); {ONE_TO_ONE}",
    ),
    "keys for another batch": (
        lambda: {"mask": causal & keys(yes(3, K))},
        ShapeError,
        f"mask keys((3,7)) has batch axes (3,), but the call has (2,); {ONE_TO_ONE}",
    ),
    "segments for another batch": (
        lambda: {"mask": ~segments(zeros(5, K).long())},
        ShapeError,
        f"mask segments((5,7)) has batch axes (5,), but the call has (2,); {ONE_TO_ONE}",
    ),
    "bias of a wrong type": (
        lambda: {"bias": 0.5},
        OptionError,
        "bias is float, expected a tensor (…,h,q,k) or a bias such as ALiBi or RelativeBias",
    ),
    "bias that is a mask": (
        lambda: {"bias": window(3)},
        OptionError,
        "bias is Window, expected a tensor (…,h,q,k) or a bias such as ALiBi or RelativeBias",
    ),
    "bias for other heads": (
        lambda: {"bias": ALiBi(5)},
        ShapeError,
        "bias has heads=5 but q has h=6; make one with heads=6",
    ),
    "learned bias for other heads": (
        lambda: {"bias": RelativeBias(3)},
        ShapeError,
        "bias has heads=3 but q has h=6; make one with heads=6",
    ),
    "bias of bool": (
        lambda: {"bias": yes(Q, K)},
        DtypeError,
        "bias is torch.bool, expected floating point; "
        "a bool tensor (True = may attend) goes to mask=",
    ),
    "bias of whole numbers": (
        lambda: {"bias": zeros(Q, K).long()},
        DtypeError,
        "bias is torch.int64, expected floating point; "
        "a bool tensor (True = may attend) goes to mask=",
    ),
    **{
        f"bias {axes}": (
            lambda axes=axes: {"bias": zeros(*axes)},  # type: ignore[misc]
            ShapeError,
            f"bias has shape ({','.join(map(str, axes))}), which does not broadcast to "
            "(…,h,q,k) = (2,6,5,7); 1 where it is the same for all",
        )
        for axes in [(K, Q), (5,), (2, Q, K), (3, H, Q, K), (2, 3, Q, K), (3, B, H, Q, K)]
    },
}


@of_three
@pytest.mark.parametrize(("make", "kind", "text"), OPTIONS.values(), ids=OPTIONS.keys())
def test_options_that_do_not_fit(
    name: str, make: Callable[[], dict[str, object]], kind: Kind, text: str
) -> None:
    raises(lambda: THREE[name](*good(), **make()), kind, f"{name}: {text}")


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
        "keys: the mask has 5 places but there are k=7 keys; give one bool per key",
    ),
    "keys of a batch": (
        lambda: keys(yes(B, 8)),
        "keys: the mask has 8 places but there are k=7 keys; give one bool per key",
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
        "keys: the mask has 3 places but there are k=7 keys; give one bool per key",
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


# Scores that do not fit


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


# Kernels


@pytest.mark.parametrize(("name", "call"), [("attend", attend), ("look", look)])
def test_unknown_kernels(name: str, call: Callable[..., object]) -> None:
    for kernel in ("flash", "Fused", ""):
        raises(
            lambda: call(*good(), kernel=kernel),  # noqa: B023
            OptionError,
            f"{name}: kernel={kernel!r} is unknown, "
            "expected 'auto', 'native', 'plain', 'fused', 'blocked', 'reference'",
        )


WRITTEN_OUT = "would have to be written out, queries × keys"
UNFUSED: dict[str, tuple[Callable[[], dict[str, object]], str]] = {
    "dropout": (lambda: {"dropout": 0.1}, "it has no dropout"),
    "bias with a gradient": (
        lambda: {"bias": zeros(Q, K).requires_grad_()},
        "it gives no gradient to the bias",
    ),
    "function": (
        lambda: {"score": lambda q, k: q @ k.mT},
        "the score does not reduce to a dot product",
    ),
    "additive": (
        lambda: {"score": Additive(D, 3)},
        "the score does not reduce to a dot product",
    ),
    "window": (lambda: {"mask": window(3)}, f"the mask window(3) {WRITTEN_OUT}"),
    "causal window": (
        lambda: {"mask": causal & window(3)},
        f"the mask causal & window(3) {WRITTEN_OUT}",
    ),
    "prefix or causal": (
        lambda: {"mask": causal | prefix(2)},
        f"the mask causal | prefix(2) {WRITTEN_OUT}",
    ),
    "causal with cached keys": (lambda: {"mask": causal}, f"the mask causal {WRITTEN_OUT}"),
    "segments": (
        lambda: {"mask": segments([0, 0, 1, 1, 1, 2, 2])},
        f"the mask segments([0, 0, 1, 1, 1, 2, 2]) {WRITTEN_OUT}",
    ),
    "ALiBi": (lambda: {"bias": ALiBi(H)}, f"ALiBi {WRITTEN_OUT}"),
    "RelativeBias": (lambda: {"bias": RelativeBias(H)}, f"RelativeBias {WRITTEN_OUT}"),
}


@pytest.mark.parametrize(("make", "reason"), UNFUSED.values(), ids=UNFUSED.keys())
def test_what_the_fused_kernel_cannot_do(
    make: Callable[[], dict[str, object]], reason: str
) -> None:
    q, k, _ = good()
    text = f"attend: kernel='fused' cannot do this call: {reason}; use 'auto'"
    raises(lambda: attend(q, k, k, **make(), kernel="fused"), OptionError, text)  # type: ignore[arg-type]
    assert attend(q, k, k, **make(), kernel="auto").shape == (B, H, Q, D)  # type: ignore[arg-type]


def test_what_the_fused_kernel_cannot_look_at() -> None:
    raises(
        lambda: look(*good(), kernel="fused"),
        OptionError,
        "look: kernel='fused' cannot do this call: keys have d=11 and values e=13, "
        "it wants one width; use 'auto'",
    )


UNFUSED_TENSORS: dict[str, tuple[Callable[[], tuple[Tensor, Tensor, Tensor]], str, str]] = {
    "two widths": (
        good,
        "scaled_dot",
        "keys have d=11 and values e=13, it wants one width",
    ),
    "no queries": (
        lambda: (zeros(B, H, 0, D), zeros(B, H, K, D), zeros(B, H, K, D)),
        "scaled_dot",
        "there is nothing to compute",
    ),
    "no keys": (
        lambda: (zeros(B, H, Q, D), zeros(B, H, 0, D), zeros(B, H, 0, D)),
        "scaled_dot",
        "there is nothing to compute",
    ),
    "empty batch": (
        lambda: (zeros(0, H, Q, D), zeros(0, H, K, D), zeros(0, H, K, D)),
        "scaled_dot",
        "there is nothing to compute",
    ),
    "squares in half precision": (
        lambda: tuple(zeros(B, H, n, D, dtype=torch.float16) for n in (Q, K, K)),  # type: ignore[dict-item, return-value]
        "gaussian",
        "the queries and keys that the score makes would be rounded to torch.float16",
    ),
}


@pytest.mark.parametrize(
    ("make", "score", "reason"), UNFUSED_TENSORS.values(), ids=UNFUSED_TENSORS.keys()
)
def test_what_the_fused_kernel_cannot_take(
    make: Callable[[], tuple[Tensor, Tensor, Tensor]], score: str, reason: str
) -> None:
    q, k, v = make()
    raises(
        lambda: attend(q, k, v, score=score, kernel="fused"),
        OptionError,
        f"attend: kernel='fused' cannot do this call: {reason}; use 'auto'",
    )
    assert attend(q, k, v, score=score).shape == (*q.shape[:-1], v.shape[-1])


def test_the_fused_kernel_is_for_the_cpu() -> None:
    x = zeros(B, H, Q, D, device="meta")
    raises(
        lambda: attend(x, x, x, kernel="fused"),
        OptionError,
        "attend: kernel='fused' cannot do this call: it runs on the CPU, and q is on meta; "
        "use 'auto'",
    )


def test_a_bias_that_needs_a_gradient_nobody_takes_is_fine() -> None:
    q, k, _ = good()
    bias = zeros(Q, K).requires_grad_()
    with torch.no_grad():
        assert attend(q, k, k, bias=bias, kernel="fused").shape == (B, H, Q, D)


def test_torchs_signature() -> None:
    q, k, v = good()
    raises(
        lambda: scaled_dot_product_attention(q, k, v, attn_mask=yes(Q, K), is_causal=True),
        OptionError,
        "scaled_dot_product_attention: attn_mask and is_causal are both given; give one, or "
        "use attend(…, mask=causal & …)",
    )
    raises(
        lambda: scaled_dot_product_attention(q, k[:, :3], v[:, :3]),
        OptionError,
        "scaled_dot_product_attention: query has h=6 and key h=3; "
        "grouped heads need enable_gqa=True",
    )


# Masks

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


# Looks


def test_top_of_none_or_of_more_than_there_are() -> None:
    seen = look(*good())
    for n in (0, -1, 8):
        raises(lambda: seen.top(n), OptionError, f"top: n={n}, expected 1 to k=7")  # noqa: B023
    assert seen.top(1)[0].shape == (B, H, Q, 1)
    assert seen.top(7)[0].shape == (B, H, Q, 7)


WAY_ROUND = (
    "name queries= or heads=, use top(n), entropy() or received(), which need no such matrix, "
    "or raise limit="
)


@pytest.mark.parametrize("what", ["weights", "scores", "contributions"])
def test_more_than_the_limit(what: str) -> None:
    method = getattr(look(*good()), what)
    raises(
        lambda: method(limit=1679),
        MemoryLimitError,
        f"{what}: 2 × 6 heads × 5 queries × 7 keys are 1,680 bytes, over the limit of 1,679; "
        f"{WAY_ROUND}",
    )
    assert method(limit=1680).numel() * 4 == 1680
    raises(
        lambda: method(queries=[1, 3, 4], heads=slice(2, 4), limit=99),
        MemoryLimitError,
        f"{what}: 2 × 2 heads × 3 queries × 7 keys are 336 bytes, over the limit of 99; "
        f"{WAY_ROUND}",
    )
    assert method(queries=1, heads=2, limit=99).numel() * 4 == 56


def test_the_limit_that_nobody_named() -> None:
    n = 2**14 + 1
    x = zeros(n, 1)
    seen = look(x, x, x, mask=prefix(1), kernel="blocked")
    raises(
        seen.weights,
        MemoryLimitError,
        f"weights: 1 × 1 heads × 16385 queries × 16385 keys are 1,073,872,900 bytes, "
        f"over the limit of 1,073,741,824; {WAY_ROUND}",
    )


@pytest.mark.parametrize("what", ["weights", "scores", "contributions"])
def test_queries_and_heads_that_are_not_there(what: str) -> None:
    method = getattr(look(*good()), what)
    for index in (5, -6):
        text = f"queries: {index} asked for, but there are 5, numbered from 0"
        for queries in (index, [0, index], torch.tensor([index])):
            raises(lambda: method(queries=queries), OptionError, text)  # noqa: B023
    for index in (6, -7):
        text = f"heads: {index} asked for, but there are 6, numbered from 0"
        raises(lambda: method(heads=[index]), OptionError, text)  # noqa: B023
    assert torch.equal(method(queries=-1), method(queries=[4]))
    assert torch.equal(method(heads=-6), method(heads=[0]))


STALE = (
    "Look: a tensor of the call was changed in place after it was looked at, so its weights are "
    "gone; ask before the change, or look at a clone"
)
QUESTIONS: dict[str, Callable[..., object]] = {
    "weights": lambda seen: seen.weights(),
    "scores": lambda seen: seen.scores(queries=[0]),
    "contributions": lambda seen: seen.contributions(),
    "top": lambda seen: seen.top(2),
    "entropy": lambda seen: seen.entropy(),
    "received": lambda seen: seen.received(),
    "logsumexp": lambda seen: seen.logsumexp,
    "q": lambda seen: seen.q,
    "k": lambda seen: seen.k,
    "v": lambda seen: seen.v,
}


@pytest.mark.parametrize("ask", QUESTIONS.values(), ids=QUESTIONS.keys())
def test_no_question_about_a_changed_call_is_answered(ask: Callable[..., object]) -> None:
    q, k, v = good()
    seen = look(q, k, v)
    ask(seen)
    output = seen.output.clone()
    q[1, 2, 3] = 0.5
    raises(lambda: ask(seen), StaleError, STALE)
    assert torch.equal(seen.output, output)


@pytest.mark.parametrize(
    "which_one", range(8), ids=["q", "k", "v", "bias", "bilinear", "additive", "mask", "keys"]
)
def test_a_change_of_anything_that_the_weights_came_from(which_one: int) -> None:
    q, k, v = good()
    bias, seen_by, seen_keys = zeros(Q, K), yes(Q, K), yes(K)
    bilinear, additive = Bilinear(D), Additive(D, 3)
    looks = [
        *(look(q, k, v) for _ in range(3)),
        look(q, k, v, bias=bias),
        look(q, k, v, score=bilinear),
        look(q, k, v, score=additive),
        look(q, k, v, mask=causal & seen_by),
        look(q, k, v, mask=keys(seen_keys)),
    ]
    changed = [q, k, v, bias, bilinear.weight, additive.out, seen_by, seen_keys][which_one]
    with torch.no_grad():
        changed[0] = 0
    raises(lambda: looks[which_one].weights(), StaleError, STALE)


@pytest.mark.parametrize("rank", [2, 3, 5])
def test_a_change_of_a_call_of_any_rank(rank: int) -> None:
    x = good()[1]
    x = {2: x[0, 0], 3: x[:, 0], 5: x[None]}[rank]
    seen = look(x, x, x)
    seen.weights()
    x[0] = 0.5
    raises(seen.weights, StaleError, STALE)
