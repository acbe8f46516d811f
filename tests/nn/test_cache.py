"""What has been read comes back as it was, whatever rows go on."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.errors import ShapeError
from regard.nn import Cache, KeyValues, MultiHeadAttention
from regard.nn.cache import BlockCache


@given(
    parts=st.lists(st.integers(0, 5), min_size=1, max_size=9),
    room=st.integers(0, 20),
    picks=st.data(),
    seed=st.integers(0, 2**31),
)
@settings(max_examples=60, deadline=None)
def test_appended_and_selected_like_plain_lists(
    parts: list[int], room: int, picks: st.DataObject, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    kept = KeyValues(room)
    k, v = torch.empty(3, 2, 0, 5), torch.empty(3, 2, 0, 5)
    for n in parts:
        new_k, new_v = (torch.randn(len(k), 2, n, 5, generator=generator) for _ in range(2))
        k, v = torch.cat((k, new_k), 2), torch.cat((v, new_v), 2)
        found = kept.append(new_k, new_v)
        assert torch.equal(found[0], k)
        assert torch.equal(found[1], v)
        assert kept.length == k.shape[2]
        if picks.draw(st.booleans()):
            rows = torch.tensor(
                picks.draw(st.lists(st.integers(0, len(k) - 1), min_size=1, max_size=4))
            )
            kept.select(rows)
            k, v = k[rows], v[rows]
            assert torch.equal(kept.known()[0], k)
            assert torch.equal(kept.known()[1], v)


def test_some_take_the_places_of_others() -> None:
    kept = KeyValues(room=8)
    k, v = torch.randn(5, 2, 3, 4), torch.randn(5, 2, 3, 4)
    kept.append(k, v)
    kept.move(torch.tensor([4, 3]), torch.tensor([0, 2]), 3)
    assert torch.equal(kept.known()[0], k[[4, 1, 3]])
    assert torch.equal(kept.known()[1], v[[4, 1, 3]])
    more = torch.randn(3, 2, 7, 4)  # past the room
    assert torch.equal(kept.append(more, more)[0], torch.cat((k[[4, 1, 3]], more), 2))


def test_moving_in_nothing_is_nothing() -> None:
    kept = KeyValues()
    kept.move(torch.tensor([1]), torch.tensor([0]), 1)
    assert kept.length == 0


def test_room_grows_by_doubling_also_when_rows_are_picked() -> None:
    kept, places = KeyValues(), set()
    for i in range(100):
        kept.append(torch.full((2, 1, 1, 3), float(i)), torch.zeros(2, 1, 1, 3))
        kept.select(torch.tensor([1, 0]))
        assert kept._kv is not None
        places.add(kept._kv[0].shape[2])
    assert len(places) <= 7
    assert kept.known()[0][0, 0, :, 0].tolist() == list(range(100))


def test_what_was_given_first_is_not_written_over() -> None:
    kept, k, v = KeyValues(), torch.ones(1, 1, 2, 3), torch.ones(1, 1, 2, 3)
    kept.append(k, v)
    kept.append(torch.zeros(1, 1, 1, 3), torch.zeros(1, 1, 1, 3))
    assert k.min() == v.min() == 1


def test_selecting_from_nothing_is_nothing() -> None:
    kept = KeyValues()
    kept.select(torch.tensor([0, 0]))
    assert kept.length == 0


def test_other_rows_than_before_are_refused() -> None:
    kept = KeyValues()
    kept.append(torch.zeros(4, 1, 2, 3), torch.zeros(4, 1, 2, 3))
    text = "KeyValues: 1 sequences are continued, but 4 were read before; select those to continue"
    with pytest.raises(ShapeError, match=text):
        kept.append(torch.zeros(1, 1, 1, 3), torch.zeros(1, 1, 1, 3))
    assert kept.length == 2


def test_a_context_is_read_once_and_kept() -> None:
    layer, x, context = MultiHeadAttention(6, 2), torch.randn(3, 4, 6), torch.randn(3, 5, 6)
    cache = KeyValues()
    wanted = layer(x, context)
    assert torch.equal(layer(x, context, cache=cache), wanted)
    assert cache.length == 5
    assert torch.equal(layer(x, torch.full_like(context, torch.nan), cache=cache), wanted)
    assert cache.length == 5


def test_a_cache_holds_both_sides_of_each_block() -> None:
    cache = Cache(2)
    assert cache.length == 0
    assert [type(block) for block in cache.blocks] == [BlockCache, BlockCache]
    for block in cache.blocks:
        block.own.append(torch.randn(4, 2, 1, 3), torch.randn(4, 2, 1, 3))
        block.memory.append(torch.randn(2, 2, 5, 3), torch.randn(2, 2, 5, 3))
    own, memory = cache.blocks[1].own.known()[0], cache.blocks[1].memory.known()[0]
    cache.select(torch.tensor([3, 3, 0]))
    cache.select_memory(torch.tensor([1]))
    assert torch.equal(cache.blocks[1].own.known()[0], own[[3, 3, 0]])
    assert torch.equal(cache.blocks[1].memory.known()[0], memory[[1]])
