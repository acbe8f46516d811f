"""The group of training workers, and the rank of this process in it.

`torchrun` starts the workers and sets the rank of each in the environment; the rest is PyTorch's
DistributedDataParallel. A process started without it is a group of one.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch.distributed
from torch.distributed import PrefixStore  # type: ignore[attr-defined]
from torch.distributed.rendezvous import rendezvous

from regard.errors import RegardError

TIMEOUT = timedelta(minutes=60)
"""How long workers wait while the first one prepares data or validates."""


@dataclass(frozen=True)
class Workers:
    """The rank of this worker, from 0, and the number of workers."""

    rank: int = 0
    count: int = 1

    @classmethod
    @contextmanager
    def joined(cls) -> Iterator[Workers]:
        """Context of the group that torchrun started this process in, or of a group of one.

        When a worker fails, all do; only one reports the error.
        """
        if int(os.environ.get("WORLD_SIZE", "1")) == 1:
            yield cls()
        elif torch.distributed.is_initialized():
            yield cls(torch.distributed.get_rank(), torch.distributed.get_world_size())
        else:
            outer, rank, count = next(rendezvous("env://", timeout=TIMEOUT))
            outer.set_timeout(TIMEOUT)
            store = agree_on_store(outer, rank, count)
            torch.distributed.init_process_group(
                "gloo", store=store, rank=rank, world_size=count, timeout=TIMEOUT
            )
            try:
                yield cls(rank, count)
            except (Exception, KeyboardInterrupt) as error:
                raise _reported_once(error, store) from None
            finally:
                torch.distributed.destroy_process_group()

    @property
    def first(self) -> bool:
        """Whether this is the worker that writes files and reports."""
        return self.rank == 0

    def wait(self) -> None:
        """Wait until all workers have reached this call."""
        if self.count > 1:
            torch.distributed.barrier()

    def agree(self, value: float) -> float:
        """The first worker's value, on all workers."""
        if self.count == 1:
            return value
        shared = torch.tensor(value, dtype=torch.float64)
        torch.distributed.broadcast(shared, 0)
        return shared.item()

    def together(self, values: Sequence[float]) -> list[float]:
        """The sum of each value over all workers."""
        if self.count == 1:
            return list(values)
        shared = torch.tensor(values, dtype=torch.float64)
        torch.distributed.all_reduce(shared)
        return shared.tolist()


def _reported_once(error: BaseException, store: torch.distributed.Store) -> BaseException:
    """The error for a failing worker to raise; a plain exit if another worker has failed first.

    Workers that wait for a failed one fail as well, with an unhelpful message.
    """
    if isinstance(error, RuntimeError) and not isinstance(error, RegardError) and _is_lost(error):
        error = RegardError(
            "train: another worker was lost; the same command resumes from the last checkpoint"
        )
    try:
        others = store.add("failed", 1) - 1
    except RuntimeError:  # the worker that held the store has ended
        others = 0
    if isinstance(error, KeyboardInterrupt):
        return SystemExit(130) if others else error
    if not isinstance(error, RegardError):
        return error
    if others:
        return SystemExit(1)
    if file := os.environ.get("TORCHELASTIC_ERROR_FILE"):
        # torchrun ends its own report with the earliest failure. It counts in whole seconds and
        # takes the one it noticed first among equals, so this one is dated a second earlier.
        message = {"message": str(error), "extraInfo": {"timestamp": int(time.time()) - 1}}
        with suppress(OSError):  # the error itself is reported either way
            Path(file).write_text(json.dumps({"message": message}), encoding="utf-8")
    return error


def _is_lost(error: RuntimeError) -> bool:
    """Whether torch.distributed raised this because another worker does not answer."""
    return isinstance(error, torch.distributed.DistError) or "gloo" in str(error)


def agree_on_store(
    store: torch.distributed.Store, rank: int, count: int
) -> torch.distributed.Store:
    """A part of the store that only the workers of this start use.

    After a worker is lost, torchrun restarts all of them on the same store, and a worker that finds
    the address of a dead one there retries it forever
    (github.com/pytorch/pytorch/issues/135712). So each worker writes a new name until the first
    worker, which deletes old names and collects new ones, answers with a list that contains it. The
    first name of the list is the prefix of the part.
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
