"""Several workers on one model: who this process is among them.

`torchrun` starts the workers and tells each its place by the environment; everything else is
PyTorch's DistributedDataParallel. A process that was started alone is a single worker.
"""

from __future__ import annotations

import os
import time
import uuid
from dataclasses import dataclass
from datetime import timedelta

import torch.distributed
from torch.distributed import PrefixStore  # type: ignore[attr-defined]
from torch.distributed.rendezvous import rendezvous

PATIENCE = timedelta(minutes=60)
"""So long the others wait while the first prepares data or validates."""


@dataclass(frozen=True)
class Workers:
    """This worker's place, from 0, and how many there are."""

    rank: int = 0
    count: int = 1

    @classmethod
    def join(cls) -> Workers:
        """The group that torchrun started this process in, or a group of one."""
        if int(os.environ.get("WORLD_SIZE", "1")) == 1:
            return cls()
        if not torch.distributed.is_initialized():
            store, rank, count = next(rendezvous("env://", timeout=PATIENCE))
            store.set_timeout(PATIENCE)
            torch.distributed.init_process_group(
                "gloo",
                store=agree_on_store(store, rank, count),
                rank=rank,
                world_size=count,
                timeout=PATIENCE,
            )
        return cls(torch.distributed.get_rank(), torch.distributed.get_world_size())

    @property
    def first(self) -> bool:
        """Whether this is the one that writes files and speaks."""
        return self.rank == 0

    def wait(self) -> None:
        """Until all are here."""
        if self.count > 1:
            torch.distributed.barrier()

    def agree(self, value: float) -> float:
        """The first worker's value, for all."""
        if self.count == 1:
            return value
        shared = torch.tensor(value, dtype=torch.float64)
        torch.distributed.broadcast(shared, 0)
        return shared.item()

    def leave(self) -> None:
        """Leave the group."""
        if self.count > 1 and torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


def agree_on_store(
    store: torch.distributed.Store, rank: int, count: int
) -> torch.distributed.Store:
    """A part of the store that only the workers which are alive now know.

    After a worker was lost, torchrun starts all of them again on the same store, and a worker that
    finds a dead one's address there before the living one has written its own tries it forever
    (github.com/pytorch/pytorch/issues/135712). So each takes a new name and writes it until the
    first worker, who rubs out what is there and takes whatever is written after that, has answered
    with a list that contains it. The list's first name is the part's.
    """
    name = uuid.uuid4().hex
    if rank == 0:
        for other in range(1, count):
            store.delete_key(f"regard/{other}")
        names = [name, *(store.get(f"regard/{other}").decode() for other in range(1, count))]
        store.set("regard/workers", " ".join(names))
        return PrefixStore(name, store)
    while True:
        store.set(f"regard/{rank}", name)
        if store.check(["regard/workers"]):
            names = store.get("regard/workers").decode().split()
            if name in names:
                return PrefixStore(names[0], store)
        time.sleep(0.05)
