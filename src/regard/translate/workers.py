"""Several workers on one model: who this process is among them.

`torchrun` starts the workers and tells each its place by the environment; everything else is
PyTorch's DistributedDataParallel. A process that was started alone is a single worker.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta

import torch.distributed

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
            torch.distributed.init_process_group("gloo", timeout=PATIENCE)
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
