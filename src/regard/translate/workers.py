"""Several workers on one model: who this process is among them.

`torchrun` starts the workers and tells each its place by the environment; everything else is
PyTorch's DistributedDataParallel. A process that was started alone is a single worker.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch.distributed
from torch.distributed import PrefixStore  # type: ignore[attr-defined]
from torch.distributed.rendezvous import rendezvous

from regard.errors import RegardError

PATIENCE = timedelta(minutes=60)
"""So long the others wait while the first prepares data or validates."""


@dataclass(frozen=True)
class Workers:
    """This worker's place, from 0, and how many there are."""

    rank: int = 0
    count: int = 1

    @classmethod
    @contextmanager
    def joined(cls) -> Iterator[Workers]:
        """The group that torchrun started this process in, or a group of one, for as long as it is
        needed.

        When a worker fails, all of them do; but only one says why.
        """
        if int(os.environ.get("WORLD_SIZE", "1")) == 1:
            yield cls()
        elif torch.distributed.is_initialized():
            yield cls(torch.distributed.get_rank(), torch.distributed.get_world_size())
        else:
            outer, rank, count = next(rendezvous("env://", timeout=PATIENCE))
            outer.set_timeout(PATIENCE)
            store = agree_on_store(outer, rank, count)
            torch.distributed.init_process_group(
                "gloo", store=store, rank=rank, world_size=count, timeout=PATIENCE
            )
            try:
                yield cls(rank, count)
            except (Exception, KeyboardInterrupt) as error:
                raise _said_once(error, store) from None
            finally:
                torch.distributed.destroy_process_group()

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

    def together(self, values: Sequence[float]) -> list[float]:
        """The sum of each over all workers."""
        if self.count == 1:
            return list(values)
        shared = torch.tensor(values, dtype=torch.float64)
        torch.distributed.all_reduce(shared)
        return shared.tolist()


def _said_once(error: BaseException, store: torch.distributed.Store) -> BaseException:
    """What a worker that fails ends with: an error that will be told, or quietly.

    Those that wait for it fail as well, a moment later and with an unhelpful message.
    """
    if isinstance(error, RuntimeError) and not isinstance(error, RegardError) and _cut_off(error):
        error = RegardError(
            "train: another worker was lost; the same command resumes from the last checkpoint"
        )
    try:
        others = store.add("failed", 1) - 1
    except RuntimeError:  # the worker that kept the store is gone
        others = 0
    if isinstance(error, KeyboardInterrupt):
        return SystemExit(130) if others else error
    if not isinstance(error, RegardError):
        return error
    if others:
        return SystemExit(1)
    if file := os.environ.get("TORCHELASTIC_ERROR_FILE"):
        # So torchrun tells it once more at the end of its own account.
        message = {"message": str(error), "extraInfo": {"timestamp": int(time.time())}}
        Path(file).write_text(json.dumps({"message": message}), encoding="utf-8")
    return error


def _cut_off(error: RuntimeError) -> bool:
    """Whether this is what torch.distributed says of a worker that does not answer any more."""
    return isinstance(error, torch.distributed.DistError) or "gloo" in str(error)


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
