"""Batches for several threads."""

from __future__ import annotations

import pytest

from regard.translate import threads


@pytest.mark.parametrize(
    ("items", "cores", "sizes"),
    [
        (100, 1, [100]),  # one thread: nothing to balance
        (100, 2, [25, 25, 25, 25]),
        (40, 2, [20, 20]),  # small batches cost more than they balance
        (8, 2, [4, 4]),
        (1, 2, [1]),
    ],
)
def test_batches_are_balanced_over_threads(
    items: int, cores: int, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "useful", lambda threads: cores)
    found: list[list[int]] = []

    def work(rows: list[int]) -> list[int]:
        found.append(rows)
        return rows

    assert threads.in_batches(work, [5] * items, budget=8192) == list(range(items))
    assert sorted(map(len, found), reverse=True) == sizes
