"""Workers that find each other, whatever the dead have left behind."""

from __future__ import annotations

import threading
import time

import pytest
import torch.distributed

from regard.translate.workers import agree_on_store


@pytest.fixture
def server() -> torch.distributed.TCPStore:
    return torch.distributed.TCPStore("localhost", 0, is_master=True)


def start(port: int, rank: int, count: int, found: dict[int, str]) -> threading.Thread:
    """A worker that agrees with the others, then writes its number where all of them look."""

    def work() -> None:
        store = agree_on_store(torch.distributed.TCPStore("localhost", port), rank, count)
        store.set(f"address/{rank}", str(rank))
        found[rank] = "".join(store.get(f"address/{other}").decode() for other in range(count))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("late", [0, 1, 2])
def test_workers_agree_again_and_again_whoever_is_late(
    server: torch.distributed.TCPStore, late: int
) -> None:
    parts = []
    for _ in range(3):
        found: dict[int, str] = {}
        early = [start(server.port, rank, 3, found) for rank in range(3) if rank != late]
        time.sleep(0.2)
        assert not found
        for thread in [*early, start(server.port, late, 3, found)]:
            thread.join(20)
        assert found == dict.fromkeys(range(3), "012")
        parts.append(server.get("regard/workers").decode().split()[0])
    assert len(set(parts)) == 3


def test_a_worker_that_died_while_they_gathered_is_not_waited_for(
    server: torch.distributed.TCPStore,
) -> None:
    server.set("regard/1", "dead")
    server.set("regard/workers", "gone dead")
    found: dict[int, str] = {}
    first = start(server.port, 0, 2, found)
    time.sleep(0.2)
    assert not found
    second = start(server.port, 1, 2, found)
    first.join(20)
    second.join(20)
    assert found == {0: "01", 1: "01"}
    assert "dead" not in server.get("regard/workers").decode()
