"""What capturing must withstand: precision, threads, caches, padding, compiled and odd models."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import regard
from regard.errors import OptionError
from regard.lens import Cut, cut, watch

B, H, N, D = 2, 2, 5, 4
WIDTH = H * D


class WrittenOut(nn.Module):
    """Attention as products and a softmax, with an added mask; heads may be mixed."""

    def __init__(self, mix: bool = False, einsum: bool = False) -> None:
        super().__init__()
        self.num_heads = H
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mix = nn.Parameter(torch.randn(H, H)) if mix else None
        self.einsum = einsum
        self.weights: Tensor | None = None

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.qkv(x).view(len(x), -1, 3, H, D).permute(2, 0, 3, 1, 4)
        scores = torch.einsum("bhid,bhjd->bhij", q, k) if self.einsum else q @ k.mT
        scores = scores / D**0.5
        weights = (scores if mask is None else scores + mask).softmax(-1)
        self.weights = weights.detach()
        if self.mix is not None:
            weights = torch.einsum("bhij,hg->bgij", weights, self.mix)
        output = torch.einsum("bhij,bhjd->bhid", weights, v) if self.einsum else weights @ v
        return self.out(output.transpose(1, 2).flatten(2))


class Pool(nn.Module):
    """A learned query that pools a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.kv = nn.Parameter(torch.randn(1, 1, WIDTH)), nn.Linear(WIDTH, 2 * WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        k, v = self.kv(x)[:, None].chunk(2, -1)
        return F.scaled_dot_product_attention(self.query.expand(len(x), 1, 1, WIDTH), k, v)


@pytest.fixture
def x() -> Tensor:
    return torch.randn(B, N, WIDTH)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad, torch.inference_mode])
@pytest.mark.parametrize("options", [{}, {"mix": True}, {"einsum": True}], ids=str)
def test_written_out_attention(x: Tensor, mode: type, options: dict[str, Any]) -> None:
    model = WrittenOut(**options)
    with mode():
        plain = model(x)
        with watch(model) as seen:
            watched = model(x)
        assert torch.equal(plain, watched)
        look = seen[""]
        torch.testing.assert_close(look.weights(), model.weights)
        assert seen.kind("") == "self"
        assert seen.missed == ()
        if not options.get("mix"):
            torch.testing.assert_close(look.weights() @ look.v, look.output)
        with cut(model, [(3, 1)], heads=1), watch(model) as seen:
            model(x)
    zero = seen[""].weights() == 0
    assert zero.nonzero()[:, 1:].unique(dim=0).tolist() == [[1, 3, 1]]


def test_written_out_attention_shows_its_queries_and_keys(x: Tensor) -> None:
    model = WrittenOut()
    with torch.no_grad(), watch(model) as seen:
        model(x)
        q, k, _ = model.qkv(x).view(B, N, 3, H, D).permute(2, 0, 3, 1, 4)
    look = seen[""]
    assert look.has_vectors
    torch.testing.assert_close(look.q, q)
    torch.testing.assert_close(look.k, k)
    torch.testing.assert_close(look.compared(), q @ k.mT)
    torch.testing.assert_close(look.compared(queries=2, heads=1)[:, 0, 0], (q @ k.mT)[:, 1, 2])
    torch.testing.assert_close(look.scores().softmax(-1), look.weights())


def test_queries_that_cannot_be_told_are_not_made_up(x: Tensor) -> None:
    class TwoProducts(WrittenOut):
        """Scores of contents and of places, as in DeBERTa."""

        def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
            q, k, v = self.qkv(x).view(len(x), -1, 3, H, D).permute(2, 0, 3, 1, 4)
            return ((q @ k.mT + q @ k.flip(-2).mT).softmax(-1) @ v).transpose(1, 2).flatten(2)

    model = TwoProducts()
    with torch.no_grad(), watch(model) as seen:
        model(x)
        model(x)
    for look in (seen[""], *seen.calls("")):
        assert not look.has_vectors
        assert look.v.shape[-1] == D
        for ask in (lambda: look.q, lambda: look.k, look.compared):  # noqa: B023
            with pytest.raises(OptionError, match="the queries and keys of this call could not be"):
                ask()


def test_low_scores_are_no_mask(x: Tensor) -> None:
    model = WrittenOut()
    with torch.no_grad(), cut(model, [(0, 1)]), watch(model) as seen:
        model(x, torch.full((N, N), -20_000.0))  # the same for all keys
    weights = seen[""].weights()
    assert not weights[..., 0, 1].any()
    torch.testing.assert_close(weights.sum(-1), torch.ones(B, H, N))


def test_one_key_leaves_nothing_to_miss(x: Tensor) -> None:
    class OneKeyAttention(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            k = x.mean(1, keepdim=True)
            weights = torch.einsum("bid,bjd->bij", x, k).softmax(-1)
            return torch.einsum("bij,bjd->bid", weights, k)

    model = nn.Sequential(WrittenOut(), OneKeyAttention())
    with torch.no_grad(), watch(model) as seen:
        model(x)
    assert seen.missed == ()


def test_the_effects_of_links_that_are_written_out_are_those_of_cuts(x: Tensor) -> None:
    model = WrittenOut().double()
    x = x.double()
    with watch(model, gradients=True) as seen:
        metric = model(x)[0, 2].sum()
        metric.backward()
    effects = seen[""].effects()
    for head, key in ((0, 0), (1, 4)):
        with torch.no_grad(), cut(model, [Cut(2, key, heads=head, row=0)]):
            really = model(x)[0, 2].sum() - metric
        torch.testing.assert_close(effects[0, head, 2, key], really.detach())  # linear from here on
    strongest = seen.links(most=3)
    values = effects.abs().flatten().topk(3).values
    assert [abs(link.effect) for link in strongest] == pytest.approx(values.tolist())
    assert strongest[0].attention == pytest.approx(
        float(seen[""].weights()[strongest[0].row, strongest[0].head, 2, strongest[0].key])
    )
    assert list(strongest.to_frame().columns)[-2:] == ["attention", "effect"]


def test_cutting_without_a_context_for_the_backward_pass(x: Tensor) -> None:
    class Attention(nn.Module):
        def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
            return F.scaled_dot_product_attention(x, x, x, attn_mask=mask)

    model, mask = Attention(), torch.ones(N, N, dtype=torch.bool)
    mask[2, 1] = False
    given, other = (torch.randn(1, 1, N, D).requires_grad_() for _ in range(2))
    other.data = given.data.clone()
    with cut(model, [(2, 1)]):
        output = model(given)
    output.square().sum().backward()
    model(other, mask).square().sum().backward()
    torch.testing.assert_close(given.grad, other.grad)


def test_queries_are_counted_as_in_the_look(x: Tensor) -> None:
    model = Pool()
    with torch.no_grad(), cut(model, [(0, 3)]), watch(model) as seen:
        model(x)
        model(x.flip(0))
    for look in seen.calls(""):
        assert look.weights().shape == (B, 1, 1, N)
        assert (look.weights() == 0).nonzero()[:, 3].unique().tolist() == [3]
    wanted = "there were 1 queries and 5 keys"
    with pytest.raises(OptionError, match=wanted), torch.no_grad(), cut(model, [(4, 3)]):
        model(x)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_cut_on_the_fast_path_leaves_padding_alone(x: Tensor) -> None:
    layer = nn.TransformerEncoderLayer(WIDTH, H, 16, batch_first=True)
    model = nn.TransformerEncoder(layer, 2).eval()
    padded = torch.tensor([[False] * N, [False] * 3 + [True] * 2])
    with torch.no_grad():
        plain = model(x, src_key_padding_mask=padded)
        with cut(model, [(1, 0)], layers=1):
            changed = model(x, src_key_padding_mask=padded)
    assert plain[1, 3:].abs().max() == 0 == changed[1, 3:].abs().max()
    differs = (plain - changed).abs().amax(-1)
    assert differs[:, 1].min() > 1e-4
    differs[:, 1] = 0
    assert differs.max() < 1e-5


def test_a_low_number_is_a_mask(x: Tensor) -> None:
    model = WrittenOut()
    mask = torch.zeros(N, N)
    mask[:, 2:] = -10_000.0
    with torch.no_grad(), cut(model, [(0, [0, 1])]), watch(model) as seen:
        model(x, mask)
    assert not seen[""].weights()[:, :, 0].any()
    assert seen[""].weights()[:, :, 1, :2].all()


def test_a_bool_mask_that_is_added(x: Tensor) -> None:
    """Some eager code adds it, so that it masks nothing: True is 1."""
    model, mask = WrittenOut(), torch.ones(N, N, dtype=torch.bool).tril()
    with torch.no_grad(), watch(model) as seen:
        model(x, mask)
        assert model.weights is not None
        torch.testing.assert_close(seen[""].weights(), model.weights)
    with torch.no_grad(), cut(model, [(0, 3)]), watch(model) as seen:
        model(x, mask)
    assert not seen[""].weights()[..., 0, 3].any()


def test_keys_are_held_once_whether_heads_are_written_out_or_grouped(x: Tensor) -> None:
    """As in a prefill that repeats grouped heads, and decoding that does not."""

    class Cached(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.kv = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 2 * D)
            self.cache: tuple[Tensor, Tensor] | None = None

        def forward(self, x: Tensor, grouped: bool) -> Tensor:
            q = self.q(x).unflatten(-1, (H, D)).transpose(1, 2)
            k, v = self.kv(x)[:, None].chunk(2, -1)
            if self.cache is not None:
                k, v = (torch.cat(pair, 2) for pair in zip(self.cache, (k, v), strict=True))
            self.cache = k, v
            if not grouped:
                k, v = (y.repeat_interleave(H, 1) for y in (k, v))
            return F.scaled_dot_product_attention(q, k, v, enable_gqa=grouped)

    model = Cached()
    with torch.no_grad(), watch(model) as seen:
        model(x, False)
        model(x[:, :1], True)
        model(x[:, :1], True)
    look = seen[""]
    assert look.sizes == (B, H, N + 2, N + 2)
    assert model.cache is not None
    torch.testing.assert_close(look.k, model.cache[0].expand(B, H, -1, -1))
    torch.testing.assert_close(look.weights()[:, :, -1].sum(-1), torch.ones(B, H))


def test_whole_heads(x: Tensor) -> None:
    model = nn.Sequential(WrittenOut(), WrittenOut())
    with torch.no_grad(), cut(model, heads=[(1, 0), ("0", 1)]), watch(model) as seen:
        model(x)
    sums = torch.stack([seen[name].weights().sum((-2, -1))[0] for name in seen])
    torch.testing.assert_close(sums, torch.tensor([[5.0, 0.0], [0.0, 5.0]]))
    with pytest.raises(OptionError, match="cut whole heads; with edges give their numbers"):
        cut(model, [(0, 1)], heads=[(0, 1)]).__enter__()


def test_many_cuts_of_one_call_take_little_time(x: Tensor) -> None:
    model = WrittenOut()
    copies = x[:1].expand(N * N, N, WIDTH)
    cuts = [Cut(i % N, i // N, heads=i % H, row=i) for i in range(N * N)]
    with torch.no_grad(), cut(model, cuts), watch(model) as seen:
        model(copies)
    zero = (seen[""].weights() == 0).nonzero().tolist()
    assert zero == [[i, i % H, i % N, i // N] for i in range(N * N)]


@pytest.mark.parametrize("method", ["in_thread", "in_batches"])
def test_another_thread_is_told_of(x: Tensor, method: str) -> None:
    class Generating(WrittenOut):
        """Generates in a thread, as streamers and `generate_batch` of transformers do."""

        def in_thread(self, x: Tensor) -> None:
            thread = threading.Thread(target=self, args=(x,))
            thread.start()
            thread.join()

        def in_batches(self, x: Tensor) -> None:
            for part in torch.cat([x, x[:0]]).split(1):  # operators in this thread, one of nothing
                self.in_thread(part)

    model = Generating()
    with pytest.raises(OptionError) as caught, watch(model):
        getattr(model, method)(x)
    assert str(caught.value) == (
        "watch: the model ran in another thread, where nothing is captured; use regard.watch in "
        "the thread that calls the model (for a streamer, in the function that the thread runs)"
    )


def test_a_compiled_forward_says_what_to_do() -> None:
    model = WrittenOut()
    model.forward = torch.compile(model.forward, fullgraph=True, backend="eager")  # type: ignore[method-assign]
    with pytest.raises(OptionError, match="the model is compiled"), watch(model):
        pass


def test_what_was_seen_can_be_pickled(x: Tensor) -> None:
    for model in (WrittenOut(), Pool(), nn.MultiheadAttention(WIDTH, H, batch_first=True).eval()):
        given = (x, x, x) if isinstance(model, nn.MultiheadAttention) else (x,)
        with torch.no_grad(), watch(model) as seen:
            model(*given)
            model(*given)
        before = seen[""].weights()
        again = pickle.loads(pickle.dumps(seen))
        assert torch.equal(again[""].weights(), before)
        assert len(again.calls("")) == 2


def test_rotary_positions_under_autocast(sizes: dict[str, Any]) -> None:
    """Queries and keys are float32 after them, and values bfloat16."""
    transformers = pytest.importorskip("transformers", reason="needs the extra hf")
    config = transformers.LlamaConfig(vocab_size=60, **sizes["llama"])
    ids = torch.randint(5, 60, (B, N))
    for attention in ("sdpa", "eager"):
        model = transformers.LlamaModel._from_config(config, attn_implementation=attention).eval()
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            plain = model(ids, use_cache=False).last_hidden_state
            with watch(model) as seen:
                watched = model(ids, use_cache=False).last_hidden_state
        assert torch.equal(plain, watched)
        for look in seen.values():
            sums = look.weights().sum(-1)
            torch.testing.assert_close(sums, torch.ones_like(sums), atol=1e-2, rtol=0)


def test_layers_that_share_keys_attend_to_their_own_sequence(x: Tensor) -> None:
    class Layer(nn.Module):
        def __init__(self, owns: bool) -> None:
            super().__init__()
            self.q, self.kv = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 2 * WIDTH) if owns else None

        def forward(self, x: Tensor, shared: dict[str, Tensor]) -> Tensor:
            if self.kv is not None:
                shared["kv"] = self.kv(x)
            k, v = shared["kv"][:, None].chunk(2, -1)
            return F.scaled_dot_product_attention(self.q(x)[:, None], k, v)[:, 0]

    class Stack(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([Layer(True), Layer(False)])

        def forward(self, x: Tensor) -> Tensor:
            shared: dict[str, Tensor] = {}
            for layer in self.layers:
                x = layer(x, shared)
            return x

    model = Stack()
    with torch.no_grad(), cut(model, [(2, 1)]), watch(model) as seen:
        model(x)
    assert [seen.kind(name) for name in seen] == ["self", "self"]
    assert all(not seen[name].weights()[..., 2, 1].any() for name in seen)


def test_attention_that_cannot_be_read_is_named(x: Tensor) -> None:
    class OddAttention(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            scores = x @ x.mT
            weights = scores.exp() / scores.exp().sum(-1, keepdim=True)
            return weights @ x

    model = nn.Sequential(WrittenOut(), OddAttention())
    with torch.no_grad(), watch(model) as seen:
        model(x)
    assert list(seen) == ["0"]
    assert seen.missed == ("OddAttention",)
    assert str(seen).splitlines()[-1] == (
        "not seen: OddAttention (it attends in a way that cannot be read)"
    )


def test_other_threads_run_as_if_nothing_were_watched(x: Tensor) -> None:
    model: Callable[..., Tensor] = WrittenOut()
    watched: list[bool] = []

    def run() -> None:
        model(x)
        watched.append(regard.attention.operation.watched())
        watched.append(torch._C._len_torch_dispatch_stack() > 0)

    with watch(model):  # type: ignore[arg-type]
        model(x)
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    assert watched == [False, False]
