"""`watch` nested, in threads, interrupted, and with gradients: nothing stays behind."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.functional import scaled_dot_product_attention as imported
from torch.utils.checkpoint import checkpoint

import regard
from regard.lens import watch
from tests.lens.small_models import WIDTH, Attention, B, Block, D, H, M, N, unchanged


def test_autocast_is_seen_as_it_ran(x: Tensor) -> None:
    model = Attention()
    mask = torch.zeros(N, N)
    mask[0, 1:] = torch.finfo(torch.float32).min
    with torch.autocast("cpu", torch.bfloat16):
        seen = unchanged(model, x, attn_mask=mask)
        inside = seen[""].weights()
    look = seen[""]
    assert look.q.dtype == look.output.dtype == torch.bfloat16
    assert look._call.bias.dtype == torch.bfloat16
    assert torch.equal(inside, look.weights())
    q, k = look.q.float(), look.k.float()
    expected = torch.softmax(q @ k.mT / D**0.5 + mask, -1)
    torch.testing.assert_close(look.weights(), expected, atol=1e-6, rtol=0)


def test_watching_twice_and_nested(x: Tensor) -> None:
    model, memory = Block(), torch.randn(B, M, WIDTH)
    with watch(model) as outer:
        model(x, memory)
        with watch(model.inner) as inner, watch(model) as again:
            model(x, memory)
        model(x, memory)
    assert [len(outer.calls(name)) for name in outer] == [3, 3, 6]
    assert list(inner) == [""]
    assert len(inner.calls("")) == 1
    assert len(again.calls("inner")) == 1


def test_only_the_model_that_is_watched(x: Tensor) -> None:
    model, other = Attention(), Attention()
    with watch(model) as seen:
        model(x)
        other(x)
        F.scaled_dot_product_attention(x, x, x)
        regard.attend(x, x, x)
    assert len(seen.calls("")) == 1


def test_contexts_that_end_in_another_order(x: Tensor) -> None:
    model = Attention()
    first, second = watch(model), watch(model)
    seen_first, seen_second = first.__enter__(), second.__enter__()
    model(x)
    first.__exit__(None, None, None)
    model(x)
    second.__exit__(None, None, None)
    model(x)
    assert len(seen_first.calls("")) == 1
    assert len(seen_second.calls("")) == 2


def test_threads_see_their_own_calls_only(x: Tensor) -> None:
    model = Attention()
    counts: dict[int, int] = {}
    barrier = threading.Barrier(4)

    def work(number: int) -> None:
        barrier.wait()
        if number == 0:
            for _ in range(30):
                model(x)
            return
        with watch(model) as seen:
            for _ in range(10 * number):
                model(x)
        counts[number] = len(seen.calls(""))

    with watch(model) as main:
        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        model(x)
        for thread in threads:
            thread.join()
    assert counts == {1: 10, 2: 20, 3: 30}
    assert len(main.calls("")) == 1


def test_an_exception_ends_it(x: Tensor) -> None:
    model = Attention()

    def fail(*tensors: Tensor) -> None:
        raise ZeroDivisionError

    model.after = fail
    with pytest.raises(ZeroDivisionError), watch(model):
        model(x)
    with pytest.raises(RuntimeError, match="must match"), watch(model):
        model(x, attn_mask=torch.zeros(N + 1, N + 1))
    outer = nn.Sequential(model)
    with watch(outer) as seen:
        with pytest.raises(ZeroDivisionError):
            outer(x)
        model.after = None
        outer(x)
    assert list(seen) == ["0"]
    assert len(seen.calls("0")) == 2


def test_an_interrupt_inside_does_not_confuse_names(x: Tensor) -> None:
    """torch does not call hooks after a KeyboardInterrupt."""
    model, memory = Block(), torch.randn(B, M, WIDTH)

    def interrupt(*tensors: Tensor) -> None:
        raise KeyboardInterrupt

    with watch(model) as seen:
        model.inner.after = interrupt
        with pytest.raises(KeyboardInterrupt):
            model(x, memory)
        model.inner.after = None
        model(x, memory)
    assert list(seen) == ["inner", "", ":cross"]


def test_a_user_mode_stays(x: Tensor) -> None:
    class Counting(torch.overrides.TorchFunctionMode):
        count = 0

        def __torch_function__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            self.count += 1
            return func(*args, **(kwargs or {}))

    model = Attention()
    with watch(model) as seen, Counting() as counting:
        model(x)
    with Counting() as outer, watch(model) as again:
        model(x)
    watching, counting_too = watch(model), Counting()
    watching.__enter__()
    counting_too.__enter__()
    watching.__exit__(None, None, None)
    counting_too.__exit__(None, None, None)
    assert counting.count
    assert outer.count
    assert list(seen) == list(again) == [""]


def test_a_checkpoint_is_seen_once(x: Tensor) -> None:
    model = Attention()
    x.requires_grad_()
    with watch(model) as seen:
        checkpoint(model, x, use_reentrant=False).sum().backward()
    assert len(seen.calls("")) == 1


def test_gradients_are_those_without_watching(x: Tensor) -> None:
    model = Attention()
    gradients = []
    for watched in (False, True):
        model.zero_grad()
        if watched:
            with watch(model):
                model(x).square().sum().backward()
        else:
            model(x).square().sum().backward()
        gradients.append([parameter.grad.clone() for parameter in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


def added(module: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(x + 1 for x in args)


def patched(module: nn.Linear) -> None:
    module.forward = lambda x: F.linear(x, module.weight, module.bias)  # type: ignore[method-assign]


@pytest.mark.parametrize("change", [
    lambda module: None,
    lambda module: module.register_forward_pre_hook(added),
    lambda module: module.register_full_backward_hook(lambda *_: None),
    patched,
], ids=["unchanged", "pre-hook", "backward hook", "forward"])  # fmt: skip
def test_the_modules_of_torch_around_attention(
    x: Tensor, change: Callable[[nn.Module], object]
) -> None:
    """They are followed as wholes, unless somebody has put something into them."""
    model = Attention(imported)  # which only a mode sees
    for module in (model.q, model.k, model.v):
        change(module)
    x = x.requires_grad_()
    with watch(model) as seen:
        model(x)
    assert [seen.kind(name) for name in seen] == ["self"]
    with regard.cut(model, [(0, 1)]), watch(model) as seen:
        model(x)
    assert seen[""].weights()[..., 0, 1].count_nonzero() == 0


def test_attention_inside_a_module_of_torch_that_somebody_has_changed(x: Tensor) -> None:
    model = nn.Sequential(nn.Identity(), nn.Linear(WIDTH, WIDTH))
    model[0].forward = lambda x: imported(x, x, x)
    with watch(model) as seen:
        model(x)
    assert list(seen) == ["0"]


def test_a_mode_that_comes_while_a_module_of_torch_runs(
    x: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, mode, linear = Attention(imported), torch.overrides.BaseTorchFunctionMode(), F.linear

    def enter(*given: Tensor) -> Tensor:
        mode.__enter__()
        monkeypatch.undo()
        return linear(*given)

    monkeypatch.setattr(F, "linear", enter)
    with watch(model) as seen:
        model(x)
        mode.__exit__(None, None, None)
        model(x)
    assert len(seen.calls("")) == 2
    assert torch._C._len_torch_function_stack() == 0


def test_a_model_that_was_interrupted_is_seen_again(
    x: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of one of torch's modules, of which torch tells nobody that it has ended."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    model = Attention(imported)
    with watch(model) as seen:
        monkeypatch.setattr(F, "linear", interrupt)
        with pytest.raises(KeyboardInterrupt):
            model(x)
        monkeypatch.undo()
        model(x)
    assert [(name, seen.kind(name), len(seen.calls(name))) for name in seen] == [("", "self", 1)]
    assert torch._C._len_torch_function_stack() == 0


def test_what_was_seen_has_no_gradient_and_is_not_the_models_own(x: Tensor) -> None:
    model = nn.MultiheadAttention(WIDTH, H, batch_first=True).requires_grad_(False)
    with watch(model) as seen:
        model(x, x, x, need_weights=False)
    before = seen[""].weights()
    model.in_proj_weight.data = torch.zeros_like(model.in_proj_weight)
    torch.testing.assert_close(seen[""].weights(), before)
    own = Attention()
    with watch(own) as seen:
        own(x)
    assert not seen[""].q.requires_grad
