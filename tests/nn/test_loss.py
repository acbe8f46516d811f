"""The loss in chunks against `torch.nn.functional.cross_entropy`, and what it holds at once."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from regard.errors import DtypeError, OptionError, ShapeError
from regard.nn import Loss, Transformer, TransformerConfig, cross_entropy, loss

TOKENS, WIDTH, VOCABULARY = 31, 7, 53


class Case:
    """Vectors, weights, a bias and the words they should lead to."""

    def __init__(
        self,
        tokens: int = TOKENS,
        width: int = WIDTH,
        vocabulary: int = VOCABULARY,
        *,
        seed: int = 0,
        spread: float = 1.0,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        generator = torch.Generator().manual_seed(seed)
        sizes = ((tokens, width), (vocabulary, width), (vocabulary,))
        self.hidden, self.weight, self.bias = (
            (torch.randn(size, generator=generator, dtype=torch.float64) * spread)
            .to(dtype)
            .requires_grad_()
            for size in sizes
        )
        self.expected = torch.randint(vocabulary, (tokens,), generator=generator)

    def as_type(self, dtype: torch.dtype) -> Case:
        """The same numbers in another precision."""
        copy = Case(1, 1, 1)
        copy.expected = self.expected
        copy.hidden, copy.weight, copy.bias = (
            one.detach().to(dtype).requires_grad_() for one in (self.hidden, self.weight, self.bias)
        )
        return copy

    def ours(self, smoothing: float = 0.0, bias: bool = True) -> Loss:
        return cross_entropy(
            self.hidden,
            self.weight,
            self.expected,
            bias=self.bias if bias else None,
            smoothing=smoothing,
        )

    def theirs(self, smoothing: float = 0.0, bias: bool = True) -> Tensor:
        logits = F.linear(self.hidden, self.weight, self.bias if bias else None)
        return F.cross_entropy(logits, self.expected, reduction="sum", label_smoothing=smoothing)

    def gradients(self, total: Tensor, bias: bool = True) -> list[Tensor]:
        inputs = (self.hidden, self.weight, self.bias) if bias else (self.hidden, self.weight)
        return list(torch.autograd.grad(total, inputs))


def close(found: Tensor, wanted: Tensor, tolerance: float = 1e-10) -> None:
    torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance)


@pytest.fixture(params=[1, VOCABULARY, 5 * VOCABULARY, 31 * VOCABULARY, 2**21])
def chunk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Chunks of 1 token (twice), 5 (so that one is left over), exactly all, and more than all."""
    monkeypatch.setattr(loss, "CHUNK", request.param)
    return int(request.param)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5, 0.999])
@pytest.mark.usefixtures("chunk")
def test_numbers_and_gradients_are_torchs(smoothing: float, bias: bool) -> None:
    case = Case()
    found, wanted = case.ours(smoothing, bias), case.theirs(smoothing, bias)
    close(found.total, wanted)
    close(found.likelihood, case.theirs(0.0, bias))
    for ours, theirs in zip(
        case.gradients(found.total, bias), case.gradients(wanted, bias), strict=True
    ):
        close(ours, theirs)


@given(
    tokens=st.integers(0, 9),
    width=st.integers(1, 5),
    vocabulary=st.integers(1, 11),
    smoothing=st.floats(0, 0.9),
    seed=st.integers(0, 2**31),
)
@settings(max_examples=60, deadline=None)
def test_any_size(tokens: int, width: int, vocabulary: int, smoothing: float, seed: int) -> None:
    case = Case(tokens, width, vocabulary, seed=seed)
    found, wanted = case.ours(smoothing), case.theirs(smoothing)
    close(found.total, wanted)
    for ours, theirs in zip(case.gradients(found.total), case.gradients(wanted), strict=True):
        close(ours, theirs)


def test_a_case_by_hand() -> None:
    hidden, weight = torch.eye(2), torch.tensor([[2.0, 0.0], [0.0, 2.0], [0.0, 0.0]])
    # In both rows the right word has e² against 1 and 1.
    e2 = torch.tensor(2.0).exp()
    found = cross_entropy(hidden, weight, torch.tensor([0, 1]))
    close(found.total, -2 * torch.log(e2 / (e2 + 2)), 1e-6)


@pytest.mark.parametrize("spread", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.usefixtures("chunk")
def test_float32_is_as_exact_as_torchs(smoothing: float, spread: float) -> None:
    precise = Case(spread=spread)
    single = precise.as_type(torch.float32)
    precise = single.as_type(torch.float64)  # of exactly the same numbers
    exact = precise.theirs(smoothing)
    truth = [exact, *precise.gradients(exact)]
    total, plain = single.ours(smoothing).total, single.theirs(smoothing)
    ours, theirs = [total, *single.gradients(total)], [plain, *single.gradients(plain)]
    for found, other, right in zip(ours, theirs, truth, strict=True):
        scale = right.abs().max()
        least = 2 * torch.finfo(torch.float32).eps * scale
        allowed = max(2 * (other - right).abs().max(), least)
        assert (found - right).abs().max() <= allowed


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype: torch.dtype) -> None:
    case = Case(dtype=dtype)
    precise = case.as_type(torch.float64)
    exact = precise.theirs(0.1)
    assert abs(case.ours(0.1).total / exact - 1) < 0.01
    for found, right in zip(
        case.gradients(case.ours(0.1).total), precise.gradients(exact), strict=True
    ):
        assert (found - right).abs().max() < 0.03 * right.abs().max()


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_probabilities_that_underflow(dtype: torch.dtype) -> None:
    # Word 0 is far ahead; words 1 and 2 have probabilities that the dtype can barely or not hold.
    far = {torch.float16: (12.0, 30.0), torch.float32: (80.0, 300.0)}.get(dtype, (600.0, 9000.0))
    weight = torch.tensor([[0.0], [-far[0]], [-far[1]]], dtype=dtype)
    hidden = torch.ones(3, 1, dtype=dtype, requires_grad=True)
    for bias in (None, torch.zeros(3, dtype=dtype)):
        found = cross_entropy(hidden, weight, torch.tensor([0, 1, 2]), bias=bias)
        close(found.total.double(), torch.tensor(sum(far), dtype=torch.float64), 1e-3)
        (gradient,) = torch.autograd.grad(found.total, hidden)
        close(gradient.double(), torch.tensor([[0.0], [far[0]], [far[1]]]).double(), 1e-3)


def test_only_rows_that_underflow_are_computed_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = torch.tensor([[0.0], [-500.0], [1.0]])
    hidden, expected = torch.ones(7, 1), torch.tensor([0, 2, 1, 0, 1, 2, 2])
    for size in (1, 6, 9, 1000):
        monkeypatch.setattr(loss, "CHUNK", size)
        found = cross_entropy(hidden, weight, expected)
        wanted = F.cross_entropy(hidden @ weight.T, expected, reduction="sum")
        close(found.total, wanted, 1e-6)


def test_a_word_that_is_forbidden() -> None:
    case = Case()
    with torch.no_grad():
        case.bias[case.expected[0]] = -torch.inf
    expected = (case.expected + 1) % VOCABULARY
    case.expected = torch.where(expected == case.expected[0], (expected + 1) % VOCABULARY, expected)
    found, wanted = case.ours(), case.theirs()
    close(found.total, wanted)
    for ours, theirs in zip(case.gradients(found.total), case.gradients(wanted), strict=True):
        close(ours, theirs)


def test_nothing_at_all() -> None:
    case = Case(tokens=0)
    found = case.ours(0.1)
    assert found.total == found.likelihood == 0
    for gradient in case.gradients(found.total):
        assert not gradient.any()


def test_what_needs_no_gradient_gets_none() -> None:
    case = Case()
    found = cross_entropy(case.hidden.detach(), case.weight, case.expected, smoothing=0.1)
    close(torch.autograd.grad(found.total, case.weight)[0], case.gradients(case.theirs(0.1, False),
          False)[1])  # fmt: skip
    found = cross_entropy(case.hidden, case.weight.detach(), case.expected, smoothing=0.1)
    close(torch.autograd.grad(found.total, case.hidden)[0], case.gradients(case.theirs(0.1, False),
          False)[0])  # fmt: skip
    with torch.no_grad():
        assert not case.ours().total.requires_grad
    assert not case.ours().likelihood.requires_grad


def test_the_gradient_is_scaled_and_may_be_asked_for_twice() -> None:
    case = Case()
    total = case.ours(0.1).total
    once = torch.autograd.grad(total / 8, case.weight, retain_graph=True)[0]
    again = torch.autograd.grad(total, case.weight)[0]
    close(8 * once, again)


def test_gradients_by_finite_differences() -> None:
    case = Case(5, 3, 7)
    assert torch.autograd.gradcheck(
        lambda hidden, weight, bias: (
            cross_entropy(hidden, weight, case.expected, bias=bias, smoothing=0.1).total
        ),
        (case.hidden, case.weight, case.bias),
    )


def test_under_autocast() -> None:
    case = Case(dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        hidden = case.hidden @ torch.eye(WIDTH)
        assert hidden.dtype == torch.bfloat16
        found = cross_entropy(hidden, case.weight, case.expected)
    assert found.total.dtype == torch.float32
    assert abs(found.total / case.theirs(bias=False) - 1) < 0.01


@pytest.mark.parametrize("bias", [False, True], ids=["", "bias"])
def test_gradients_under_autocast(bias: bool) -> None:
    """Products are rounded to bfloat16, three digits; gradients come as float32."""
    case = Case(200, 64, 300, dtype=torch.float32, spread=0.3)
    with torch.autocast("cpu", torch.bfloat16):
        found = case.ours(0.1, bias).total
    exact = case.as_type(torch.float64)
    wanted = exact.theirs(0.1, bias)
    assert found.dtype == torch.float32
    assert 0 < abs(found.item() / wanted.item() - 1) < 1e-3
    pairs = zip(case.gradients(found, bias), exact.gradients(wanted, bias), strict=True)
    for one, other in pairs:
        assert one.dtype == torch.float32
        assert float((one - other).norm() / other.norm()) < 0.01


def test_float16_under_autocast_does_not_overflow() -> None:
    """Exponentials end far beyond it, so products stay as they are."""
    case = Case(dtype=torch.float32, spread=3.0)
    with torch.autocast("cpu", torch.float16):
        found = case.ours()
    assert torch.equal(found.total, case.ours().total)


# Memory


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_no_tensor_is_tokens_times_vocabulary(
    smoothing: float, largest: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens, width, vocabulary = 300, 4, 211
    monkeypatch.setattr(loss, "CHUNK", 11 * vocabulary)
    case = Case(tokens, width, vocabulary)
    with largest() as ours:
        case.ours(smoothing).total.backward()
    assert ours.found == 11 * vocabulary  # the buffer, and nothing larger
    with largest() as theirs:
        case.theirs(smoothing).backward()
    assert theirs.found == tokens * vocabulary  # what the measurement finds where it is so


def test_a_whole_step_of_training_never_holds_all_logits(
    largest: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = TransformerConfig(
        vocabulary=997, width=8, encoder_depth=1, decoder_depth=1, heads=2, feed_forward=8
    )
    monkeypatch.setattr(loss, "CHUNK", 10 * 997)
    model, words = Transformer(config), torch.randint(997, (6, 17))
    with largest() as seen:
        model.loss(words, words, words, smoothing=0.1).total.backward()
    assert seen.found == 10 * 997
    assert seen.found < words.numel() * 997


# Words of a batch


def test_loss_of_a_batch_is_that_of_its_real_words() -> None:
    config = TransformerConfig.preset(
        "tiny", vocabulary=40, encoder_depth=1, decoder_depth=1, output_bias=True
    )
    model = Transformer(config).double().eval()
    source, target = torch.randint(40, (3, 6)), torch.randint(40, (3, 5))
    expected, real = torch.randint(40, (3, 5)), torch.rand(3, 5) < 0.6
    assert model.output_bias is not None
    with torch.no_grad():
        model.output_bias.normal_()
    logits = model(source, target)
    for mask in (None, real):
        picked = torch.ones_like(real) if mask is None else mask
        wanted = F.cross_entropy(
            logits[picked], expected[picked], reduction="sum", label_smoothing=0.2
        )
        found = model.loss(source, target, expected, real=mask, smoothing=0.2)
        close(found.total, wanted)


# Bad calls


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        (
            {"hidden": torch.zeros(2, 3, 4)},
            ShapeError,
            "hidden (2,3,4) and weight (5,4), expected (tokens,width) and (vocabulary,width)",
        ),
        ({"hidden": torch.zeros(3, 6)}, ShapeError, "hidden (3,6) and weight (5,4), expected"),
        ({"weight": torch.zeros(0, 4)}, ShapeError, "hidden (3,4) and weight (0,4), expected"),
        (
            {"expected": torch.zeros(4, dtype=torch.int64)},
            ShapeError,
            "expected has shape (4) beside hidden (3,4); give one word number per row",
        ),
        ({"bias": torch.zeros(4)}, ShapeError, "bias has shape (4) beside weight (5,4); give one"),
        (
            {"expected": torch.zeros(3, dtype=torch.int32)},
            DtypeError,
            "expected is torch.int32; use expected.long()",
        ),
        ({"smoothing": 1.0}, OptionError, "smoothing=1.0, expected 0 up to, but not including, 1"),
        ({"smoothing": -0.1}, OptionError, "smoothing=-0.1, expected 0 up to"),
        (
            {"expected": torch.tensor([0, 5, 4])},
            OptionError,
            "expected has numbers from 0 to 5, but there are 5 words, 0 to 4; leave padding out",
        ),
        ({"expected": torch.tensor([0, 1, -100])}, OptionError, "numbers from -100 to 1, but ther"),
    ],
)
def test_bad_calls(changes: dict[str, Any], error: type, text: str) -> None:
    good = {
        "hidden": torch.zeros(3, 4),
        "weight": torch.zeros(5, 4),
        "expected": torch.zeros(3, dtype=torch.int64),
    }
    cross_entropy(**good)
    with pytest.raises(error, match="cross_entropy: .*" + re.escape(text)):
        cross_entropy(**{**good, **changes})


def test_other_errors_stay_what_they_are() -> None:
    with pytest.raises(RuntimeError, match="dtype"):
        cross_entropy(
            torch.zeros(3, 4),
            torch.zeros(5, 4),
            torch.zeros(3, dtype=torch.int64),
            bias=torch.zeros(5, dtype=torch.int64),
        )


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {"expected": torch.zeros(3, 4, dtype=torch.int64)},
            "loss: expected has shape (3,4), but there are (3,5) words (b,n); give the word",
        ),
        (
            {"real": torch.ones(3, 4, dtype=torch.bool)},
            "loss: real is torch.bool (3,4) beside expected (3,5); give one bool per word",
        ),
        ({"real": torch.ones(3, 5)}, "loss: real is torch.float32 (3,5) beside expected (3,5)"),
    ],
)
def test_bad_batches(changes: dict[str, Any], text: str) -> None:
    config = TransformerConfig.preset("tiny", vocabulary=9, encoder_depth=1, decoder_depth=1)
    words = torch.zeros(3, 5, dtype=torch.int64)
    good = {"source": words, "target": words, "expected": words}
    with pytest.raises(ShapeError, match=re.escape(text)):
        Transformer(config).loss(**{**good, **changes})
