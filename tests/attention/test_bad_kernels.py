"""Kernels that are unknown or refuse a call, and bad questions to a look: each error in full."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from regard.attention import (
    Additive,
    ALiBi,
    Bilinear,
    RelativeBias,
    Scaled,
    Softcap,
    attend,
    causal,
    keys,
    look,
    prefix,
    scaled_dot_product_attention,
    segments,
    window,
)
from regard.errors import (
    MemoryLimitError,
    OptionError,
    ShapeError,
    StaleError,
)
from tests.attention.bad_calls import B, D, H, K, Q, good, raises, yes, zeros

pytestmark = pytest.mark.usefixtures("as_users_run")


@pytest.mark.parametrize(("name", "call"), [("attend", attend), ("look", look)])
def test_unknown_kernels(name: str, call: Callable[..., object]) -> None:
    for kernel in ("flash", "Fused", ""):
        raises(
            lambda: call(*good(), kernel=kernel),  # noqa: B023
            OptionError,
            f"{name}: kernel={kernel!r} is unknown, "
            "expected 'auto', 'native', 'plain', 'fused', 'blocked', 'reference'",
        )


WRITTEN_OUT = "would have to be materialized, queries × keys"
UNFUSED: dict[str, tuple[Callable[[], dict[str, object]], str]] = {
    "dropout": (lambda: {"dropout": 0.1}, "it does not support dropout"),
    "bias with a gradient": (
        lambda: {"bias": zeros(Q, K).requires_grad_()},
        "it computes no gradient of the bias",
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
        "it needs equal widths; use 'auto'",
    )


UNFUSED_TENSORS: dict[str, tuple[Callable[[], tuple[Tensor, Tensor, Tensor]], str, str]] = {
    "two widths": (
        good,
        "scaled_dot",
        "keys have d=11 and values e=13, it needs equal widths",
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
    torch.testing.assert_close(
        scaled_dot_product_attention(q[:, :1], k, v),
        torch.nn.functional.scaled_dot_product_attention(q[:, :1], k, v),
    )


def test_top_of_none_or_of_more_than_there_are() -> None:
    seen = look(*good())
    for n in (0, -1, 8):
        raises(lambda: seen.top(n), OptionError, f"top: n={n}, expected 1 to k=7")  # noqa: B023
    assert seen.top(1)[0].shape == (B, H, Q, 1)
    assert seen.top(7)[0].shape == (B, H, Q, 7)


def test_what_is_no_number() -> None:
    seen = look(*good())
    raises(lambda: seen.top(1.5), OptionError, "top: n=1.5, expected a whole number")  # type: ignore[arg-type]
    raises(lambda: Scaled("a"), OptionError, "Scaled: factor='a', expected a number")  # type: ignore[arg-type]
    raises(lambda: Softcap("a"), OptionError, "Softcap: cap='a', expected a number")  # type: ignore[arg-type]
    raises(lambda: Softcap(1.0, "a"), OptionError, "Softcap: scale='a', expected a number")  # type: ignore[arg-type]
    raises(lambda: ALiBi(2.0), OptionError, "ALiBi: heads=2.0, expected a whole number")  # type: ignore[arg-type]


def test_a_frame_of_too_few_words() -> None:
    pytest.importorskip("pandas", reason="to_frame needs pandas")
    seen, five, seven = look(*good()), list("abcde"), list("abcdefg")
    texts = (
        "{} words given, expected 5, one for each query",
        "{} words given, expected 7, one for each key",
    )
    for words, keys_, text in (
        (["a"], None, texts[0].format(1)),
        (seven, None, texts[0].format(7)),
        (five, None, texts[1].format(5)),
        (None, five, texts[1].format(5)),
    ):
        raises(lambda: seen.to_frame(words, keys_), ShapeError, f"to_frame: {text}")  # noqa: B023
    assert len(seen.to_frame(five, seven)) == B * H * Q * K


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
    "lost; read them before the change, or look at a clone"
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
