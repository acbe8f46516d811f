"""Tensors and options that do not fit: the kind of the error and its text, word for word."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from regard.attention import (
    ALiBi,
    RelativeBias,
    Softcap,
    attend,
    causal,
    dense,
    keys,
    padding,
    segments,
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

pytestmark = pytest.mark.usefixtures("as_users_run")


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


@of_three
@pytest.mark.parametrize(("make", "kind", "text"), TENSORS.values(), ids=TENSORS.keys())
def test_tensors_that_do_not_fit(
    name: str, make: Callable[[], tuple[object, object, object]], kind: Kind, text: str
) -> None:
    raises(lambda: THREE[name](*make()), kind, f"{name}: {text}")


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
    "dropout of nothing": (
        lambda: {"dropout": None},
        OptionError,
        "dropout=None, expected a number",
    ),
    "score that is a class": (
        lambda: {"score": Softcap},
        OptionError,
        "score is the class Softcap, expected a name such as 'scaled_dot' or a function of "
        "blocks (q, k)",
    ),
    "mask that is an array": (
        lambda: {"mask": yes(Q, K).numpy()},
        OptionError,
        "mask is ndarray, expected a mask such as causal or window(3), or a bool tensor (…,q,k)",
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
