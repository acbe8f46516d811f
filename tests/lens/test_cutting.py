"""`cut`: links that are forbidden while a model runs."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import regard
from regard.lens import Cut, cut, watch
from regard.nn import LanguageModel, Transformer, TransformerConfig
from tests.lens.small_models import MODES, WIDTH, Attention, B, D, H, M, N, Stack


def allowed(*pairs: tuple[int, int], q: int = N, k: int = N) -> Tensor:
    """A mask without these pairs."""
    mask = torch.ones(q, k, dtype=torch.bool)
    for pair in pairs:
        mask[pair] = False
    return mask


def close(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, atol=1e-6, rtol=0)


@pytest.mark.parametrize("mode", MODES)
def test_a_cut_link_is_a_masked_one(x: Tensor, mode: type) -> None:
    model = Attention()
    random = torch.rand(B, 1, N, N) > 0.3
    random |= torch.eye(N, dtype=torch.bool)
    bias = torch.randn(H, N, N)
    cases: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({}, {"attn_mask": allowed((1, 2), (4, 0))}),
        ({"attn_mask": random}, {"attn_mask": random & allowed((1, 2), (4, 0))}),
        (
            {"attn_mask": bias},
            {"attn_mask": bias.masked_fill(~allowed((1, 2), (4, 0)), -torch.inf)},
        ),
        ({"is_causal": True}, {"attn_mask": allowed((1, 2), (4, 0)).tril()}),
        ({"scale": 0.1}, {"scale": 0.1, "attn_mask": allowed((1, 2), (4, 0))}),
    ]
    for given, expected in cases:
        with mode():
            with cut(model, [(1, 2), (4, 0)]):
                output = model(x, **given)
            close(output, model(x, **expected))


def test_three_axes() -> None:
    class Flat(nn.Module):
        def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
            return F.scaled_dot_product_attention(x, x, x, attn_mask=mask)

    model, x = Flat(), torch.randn(B, N, D)
    with cut(model, [(1, 2)]):
        close(model(x), F.scaled_dot_product_attention(x, x, x, attn_mask=allowed((1, 2))))
    with cut(model, [Cut(1, 2, row=1)]):
        output = model(x)
    close(output[0], F.scaled_dot_product_attention(x, x, x)[0])
    five = torch.randn(2, B, H, N, D)
    with cut(model, [Cut(1, 2, row=3)]):
        output = model(five)
    plain = F.scaled_dot_product_attention(five, five, five)
    assert torch.equal(
        (output != plain).any(-1).nonzero()[:, :2].unique(dim=0), torch.tensor([[1, 1]])
    )


def test_heads_and_rows(x: Tensor) -> None:
    model = Attention()
    with cut(model, [(1, 2)], heads=[0, -1]), watch(model) as seen:
        model(x)
    assert torch.equal(seen[""].weights()[:, :, 1, 2] == 0, torch.tensor([[True, False, True]] * B))
    with cut(model, [Cut(1, 2, row=0), Cut(3, [0, 4], heads=1, row=1)]), watch(model) as seen:
        model(x)
    zero = torch.zeros(B, H, N, N, dtype=torch.bool)
    zero[0, :, 1, 2] = True
    zero[1, 1, 3, [0, 4]] = True
    assert torch.equal(seen[""].weights() == 0, zero)
    close(seen[""].weights().sum(-1), torch.ones(B, H, N))
    with cut(model, [Cut(torch.tensor([1, 3]), range(2))]), watch(model) as seen:
        model(x)
    assert not seen[""].weights()[:, :, [1, 3], :2].any()
    assert (seen[""].weights()[:, :, 2] > 0).all()


@pytest.mark.parametrize(
    "heads",
    [{(1, 0)}, zip([1], [0], strict=True), torch.tensor([[1, 0]]), [("layers.1", torch.tensor(0))]],
)
def test_whole_heads_are_any_iterable_of_pairs(x: Tensor, heads: Any) -> None:
    model = Stack()
    with cut(model, heads=heads), watch(model) as seen:
        model(x)
    gone = [[not w.any() for w in look.weights().unbind(1)] for look in seen.values()]
    assert gone == [[False] * 3, [True, False, False], [False] * 3]


def test_heads_from_an_iterator_hold_for_every_link(x: Tensor) -> None:
    model = Attention()
    with cut(model, [(0, 1), (2, 3)], heads=iter([1])), watch(model) as seen:
        model(x)
    zero = seen[""].weights()[0].eq(0).nonzero().tolist()
    assert zero == [[1, 0, 1], [1, 2, 3]]


def test_layers_by_name_and_by_number(x: Tensor) -> None:
    model, memory = Stack(), torch.randn(B, M, WIDTH)
    for layers, expected in (
        (None, [True, True, True, False]),
        ("layers.1", [False, True, False, False]),
        (2, [False, False, True, False]),
        (["layers.0", 2], [True, False, True, False]),
    ):
        with cut(model, [(0, 1)], layers=layers), watch(model) as seen:
            model(x, memory)
        assert [not look.weights()[:, :, 0, 1].any() for look in seen.values()] == expected
    with cut(model, [(0, 6)], kind="cross"), watch(model) as seen:
        model(x, memory)
    assert not seen["cross"].weights()[:, :, 0, 6].any()
    with cut(model, [(0, 6)], layers=0, kind="cross"), watch(model) as again:
        model(x, memory)
    assert torch.equal(seen["cross"].weights(), again["cross"].weights())


def test_names_that_seen_has_marked(x: Tensor) -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.project = nn.Linear(WIDTH, WIDTH)

        def forward(self, x: Tensor, memory: Tensor) -> Tensor:
            x = self.project(x)
            x = F.scaled_dot_product_attention(x, x, x)
            return F.scaled_dot_product_attention(x, memory, memory)

    model = Both()
    with cut(model, [(0, 1)], layers=":cross", kind="cross"), watch(model) as seen:
        model(x, torch.randn(B, M, WIDTH))
    assert list(seen) == ["", ":cross"]
    assert (seen[""].weights() > 0).all()
    assert not seen[":cross"].weights()[:, 0, 1].any()


def test_negative_positions_count_from_the_end(x: Tensor) -> None:
    model = Attention()
    with cut(model, [(-1, -2)]), watch(model) as seen:
        model(x)
        model(x[:, :3])
    assert seen.calls("")[0].weights().eq(0).nonzero()[:, 2:].unique(dim=0).tolist() == [[4, 3]]
    assert seen.calls("")[1].weights().eq(0).nonzero()[:, 2:].unique(dim=0).tolist() == [[2, 1]]


@pytest.mark.parametrize("low", [-torch.inf, torch.finfo(torch.float32).min])
def test_a_query_with_nothing_left_gets_zero(x: Tensor, low: float) -> None:
    model = Attention()
    bias = torch.zeros(N, N).masked_fill(~allowed().tril(), low)
    for options in ({}, {"is_causal": True}, {"attn_mask": bias}, {"attn_mask": bias == 0}):
        edges = [(0, 0)] if options else [(0, i) for i in range(N)]
        y = x.clone().requires_grad_()
        with cut(model, edges), watch(model) as seen:
            output = model(y, **options)
        assert not output[:, 0].any()
        assert (output[:, 1:] != 0).all()
        assert not seen[""].weights()[:, :, 0].any()
        assert not seen[""].output[:, :, 0].any()
        output.square().sum().backward()
        assert y.grad.isfinite().all()


def test_whoever_watches_sees_what_ran(x: Tensor) -> None:
    model = Attention()
    with cut(model, [(1, 2)]), watch(model) as inside:
        first = model(x)
    with watch(model) as outside, cut(model, [(1, 2)]):
        second = model(x)
    assert torch.equal(first, second)
    for seen in (inside, outside):
        look = seen[""]
        close(look.weights() @ look.v, look.output)
        assert not look.weights()[:, :, 1, 2].any()
        assert not look.top(N)[0][:, :, 1, -1].any()


def test_cuts_add_up_and_end(x: Tensor) -> None:
    model = Attention()
    plain = model(x)
    with cut(model, [(1, 2)]):
        with cut(model, [(1, 3)]):
            both = model(x)
        one = model(x)
    close(both, model(x, attn_mask=allowed((1, 2), (1, 3))))
    close(one, model(x, attn_mask=allowed((1, 2))))
    assert torch.equal(model(x), plain)
    with cut(model, []):
        assert torch.equal(model(x), plain)


def test_a_thread_cuts_for_itself(x: Tensor) -> None:
    model = Attention()
    plain, elsewhere = model(x), []
    with cut(model, [(1, 2)]):
        thread = threading.Thread(target=lambda: elsewhere.append(model(x)))
        thread.start()
        thread.join()
        assert not torch.equal(model(x), plain)
    assert torch.equal(elsewhere[0], plain)


def test_an_exception_ends_it(x: Tensor) -> None:
    model = Attention()

    def run() -> None:
        with cut(model, [(0, 99)]):
            model(x)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run()


def test_many_knock_outs_in_one_batch() -> None:
    """One sentence many times, each without one of its links: as if one after the other."""
    model, sentence = Stack(), torch.randn(1, N, WIDTH)
    links = [(i, j) for i in range(N) for j in range(N)]
    edges = [Cut(i, j, layer="layers.1", row=row) for row, (i, j) in enumerate(links)]
    with torch.no_grad():
        with cut(model, edges):
            together = model(sentence.expand(len(links), N, WIDTH))
        for row, link in enumerate(links):
            with cut(model, [link], layers="layers.1"):
                close(together[row], model(sentence)[0])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("option", ["plain", "add_bias_kv", "add_zero_attn"])
def test_multihead_attention(mode: type, need_weights: bool, option: str) -> None:
    options = {} if option == "plain" else {option: True}
    model = nn.MultiheadAttention(WIDTH, 2, batch_first=True, **options).eval()
    x = torch.randn(B, N, WIDTH)
    padded = torch.arange(N) >= torch.tensor([[N], [3]])
    for masks in ({}, {"key_padding_mask": padded}, {"attn_mask": ~allowed().tril()}):
        forbidden = ~allowed((1, 0), (4, 3))
        with mode():
            with cut(model, [(1, 0), (4, 3)]), watch(model) as seen:
                output, weights = model(x, x, x, need_weights=need_weights, **masks)
            other = {**masks, "attn_mask": forbidden | masks.get("attn_mask", forbidden)}
            expected, expected_weights = model(x, x, x, **other)
        close(output, expected)
        if need_weights:
            close(weights, expected_weights)
        else:
            assert weights is None
        assert not seen[""].weights()[:, :, 1, 0].any()


def test_multihead_attention_head_by_head() -> None:
    model = nn.MultiheadAttention(WIDTH, 2)
    x = torch.randn(N, WIDTH)
    with cut(model, [(2, 0), (2, 1), (2, 2)], heads=1):
        _, weights = model(x, x, x, average_attn_weights=False)
    assert weights.shape == (2, N, N)
    assert torch.equal(weights[:, 2, :3] == 0, torch.tensor([[False] * 3, [True] * 3]))
    with cut(model, [(2, range(N))]):
        output, weights = model(x, x, x)
    assert not weights[2].any()
    close(output[2], model.out_proj.bias)
    output.square().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("norm_first", [False, True])
def test_transformer_encoder(x: Tensor, mode: type, norm_first: bool) -> None:
    layer = nn.TransformerEncoderLayer(WIDTH, 2, 8, batch_first=True, norm_first=norm_first)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=not norm_first).eval()
    padded = torch.arange(N) >= torch.tensor([[N], [4]])
    with mode():
        with cut(model, [(1, 2)]):
            ours, ours_padded = model(x), model(x, src_key_padding_mask=padded)
        mask = ~allowed((1, 2))
        close(ours, model(x, mask=mask))
        expected = model(x, mask=mask, src_key_padding_mask=padded)
        close(ours_padded[~padded], expected[~padded])


def small() -> TransformerConfig:
    return TransformerConfig.preset(
        "tiny", vocabulary=50, width=16, heads=4, encoder_depth=2, decoder_depth=2
    )


def test_regards_own_models() -> None:
    model = Transformer(small()).eval()
    source, target = torch.randint(3, 50, (B, 6)), torch.randint(3, 50, (B, 4))
    with torch.no_grad():
        only = {"layers": "decoder.blocks.1.cross", "kind": "cross"}
        with cut(model, [(2, 5)], **only), watch(model) as seen:
            whole = model(source, target)
        assert not seen["decoder.blocks.1.cross"].weights()[:, :, 2, 5].any()
        assert (seen["decoder.blocks.0.cross"].weights() > 0).all()
        with cut(model, [(2, 5)], **only):
            memory, cache = model.encode(source), model.cache()
            pieces = [model.decode(word, memory, cache=cache) for word in target.split(1, 1)]
        torch.testing.assert_close(model.logits(torch.cat(pieces, 1)), whole, atol=1e-5, rtol=0)


def test_positions_with_a_cache_are_those_of_the_text() -> None:
    model = LanguageModel(small()).eval()
    text = torch.randint(3, 50, (B, 9))
    with torch.no_grad():
        with cut(model, [(6, 2), (8, 8)]), watch(model) as seen:
            whole = model(text)
        with cut(model, [(6, 2), (8, 8)]), watch(model) as by_word:
            cache = model.cache()
            first = model(text[:, :3], cache=cache)
            rest = [model(word, cache=cache) for word in text[:, 3:].split(1, 1)]
    torch.testing.assert_close(torch.cat((first, *rest), 1), whole, atol=1e-5, rtol=0)
    for name in seen:
        weights = by_word[name].weights()
        torch.testing.assert_close(weights, seen[name].weights(), atol=1e-5, rtol=0)
        assert not weights[:, :, 6, 2].any()
        assert not weights[:, :, 8, 8].any()
        assert (weights[:, :, 7, :8] > 0).all()


def test_attend_by_hand_is_cut_too(x: Tensor) -> None:
    class Own(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return regard.attend(x, x, x, mask=regard.causal)

    model = Own()
    with cut(model, [(3, 1)]):
        output = model(x)
    mask = regard.causal & regard.dense(allowed((3, 1)))
    close(output, regard.attend(x, x, x, mask=mask))
