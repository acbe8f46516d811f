"""What `watch` cannot see: models without attention, compiled, scripted or transformed ones."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention.flex_attention import flex_attention

from regard.errors import OptionError
from regard.lens import watch
from tests.lens.small_models import WIDTH, Attention, D, H


def test_a_model_without_attention_says_what_it_called(x: Tensor) -> None:
    model = nn.Sequential(nn.Linear(WIDTH, 3), nn.ReLU(), nn.Softmax(-1))
    with pytest.raises(OptionError) as caught, watch(model):
        model(x)
    assert str(caught.value) == (
        "watch: Sequential ran, but made no call of attention that can be seen: not "
        "scaled_dot_product_attention, torch's attention modules, regard.attend, nor a softmax of "
        "products that is multiplied with values. It called view × 2, detach × 2, t × 1, "
        "addmm × 1, relu × 1, _softmax × 1. flex_attention, which is compiled, cannot be seen (a "
        "model of transformers may know attn_implementation='sdpa')."
    )


@pytest.mark.filterwarnings("ignore")  # torch's, of flex_attention without a compiler
def test_flex_attention_is_not_disturbed_and_said_not_to_be_seen(x: Tensor) -> None:
    model, outputs = Attention(flex_attention), []
    with pytest.raises(OptionError) as caught, torch.no_grad(), watch(model):
        outputs.append(model(x))
    with torch.no_grad():
        assert torch.equal(outputs[0], model(x))
    assert "flex_attention, which is compiled, cannot be seen" in str(caught.value)


def test_a_model_that_was_not_called() -> None:
    with watch(Attention()) as seen:
        pass
    assert str(seen) == "nothing was seen"
    with pytest.raises(KeyError) as caught:
        seen["inner"]
    assert str(caught.value) == (
        "seen: 'inner' is not there, nothing was seen; call the model inside `with "
        "regard.watch(model) as seen:`, in the same thread"
    )


def test_a_compiled_model_says_what_to_do(x: Tensor) -> None:
    model = Attention()
    with pytest.raises(OptionError) as caught, watch(torch.compile(model, backend="eager")):
        pass
    assert str(caught.value) == (
        "watch: the model is compiled, so what it calls cannot be seen; use the model from before "
        "torch.compile (compiled._orig_mod), or one without model.compile()"
    )
    outer = nn.Sequential(Attention())
    outer[0].compile(backend="eager")
    with pytest.raises(OptionError, match="its module '0' is compiled"), watch(outer):
        pass


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_a_scripted_model_says_what_to_do() -> None:
    scripted = torch.jit.script(nn.Linear(2, 2))
    with pytest.raises(OptionError) as caught, watch(scripted):
        pass
    assert str(caught.value) == (
        "watch: the model is a ScriptModule, so what it calls cannot be seen; use the model from "
        "before torch.jit"
    )


@pytest.mark.usefixtures("as_users_run")
def test_what_is_no_model() -> None:
    with pytest.raises(OptionError) as caught:
        watch("bert").__enter__()  # type: ignore[arg-type]
    assert str(caught.value) == (
        "watch: model is str, expected a torch.nn.Module; for a pipeline or a trainer, pass its "
        ".model"
    )


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_transforms_say_what_to_do(x: Tensor) -> None:
    model = Attention()
    with pytest.raises(OptionError) as caught, watch(model):
        torch.vmap(model)(x[None])
    assert str(caught.value) == (
        "watch: the model runs inside a transform of torch.func or torch.compile, whose tensors "
        "cannot be kept; call it without"
    )


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_say_what_to_do() -> None:
    nested = torch.nested.nested_tensor(
        [torch.randn(2, H, D), torch.randn(4, H, D)], layout=torch.jagged
    ).transpose(1, 2)

    class Bare(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(x, x, x)

    with pytest.raises(OptionError) as caught, watch(model := Bare()):
        model(nested)
    assert str(caught.value) == (
        "watch: attention is called with nested tensors, which cannot be seen through; run the "
        "model on padded ones, with a mask"
    )


OPERATORS = [
    torch.sin, torch.cos, torch.tan, torch.exp, torch.tanh, torch.sigmoid, torch.abs, torch.neg,
    torch.relu, torch.floor, torch.ceil, torch.round, torch.sign,
]  # fmt: skip


class Elementwise(nn.Module):
    """Many operators, each called twice, and one softmax."""

    def forward(self, x: Tensor) -> Tensor:
        for operator in OPERATORS:
            x = operator(operator(x))
        return x.softmax(-1)


def test_a_softmax_is_named_among_many_operators(x: Tensor) -> None:
    model = Elementwise()
    with pytest.raises(OptionError, match="round × 2, _softmax × 1") as caught, watch(model):
        model(x)
    assert "sign × 2" not in str(caught.value)
