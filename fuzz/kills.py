"""Training that is killed at random moments, resumed each time, and equal to one that never was.

    python -m fuzz.kills --kills 100 --workers 3 --full 10

Each run is a process of its own, forked from this one and killed by SIGKILL. Then torchrun, one of
whose workers is killed; and runs that cannot write a file beyond a random size, as on a full disk.
Whatever happened, the same command once more must end with the weights of an uninterrupted run, bit
for bit.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

from fuzz import small
from regard.errors import RegardError
from regard.nn import TransformerConfig
from regard.translate import DataConfig, RunConfig, TrainingConfig, ValidationConfig
from regard.translate.training import train

STEPS = 24
SHAPE = {"vocabulary": 40, "width": 16, "heads": 2, "feed_forward": 24}
DEPTHS = {"encoder_depth": 1, "decoder_depth": 1}
REFUSED = 3
"""The status of a run that ended with an error of regard."""


def configuration() -> RunConfig:
    return RunConfig(
        DataConfig(*map(str, small.corpus())),
        TransformerConfig(**SHAPE, **DEPTHS, dropout=0.2),
        TrainingConfig(max_steps=STEPS, batch_tokens=128, warmup=10, learning_rate=0.005),
        ValidationConfig(valid_every=12, checkpoint_every=2, average=2),
    )


def started(out: Path, most_bytes: int | None = None) -> int:
    """A process that trains; its number."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        if most_bytes is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))
        train(configuration(), out, ())
        status = 0
    except RegardError:
        status = REFUSED
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(status)


def finished(child: int, seconds: float | None = None) -> int:
    """The status with which it ended; after so many seconds it is killed, which is -9."""
    until = None if seconds is None else time.monotonic() + seconds
    while until is not None and time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.001)
    if until is not None:
        os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def model(out: Path) -> bytes:
    return (out / "model.safetensors").read_bytes()


def killed(number: int, rng: random.Random, whole: bytes, took: float) -> int:
    """Kill so many times; the runs that were finished all the same and are not equal."""
    wrong = kills = runs = 0
    while kills < number:
        out = small.folder() / "killed"
        shutil.rmtree(out, ignore_errors=True)
        here = 0
        while kills < number and (status := finished(started(out), rng.uniform(0, took))) == -9:
            kills += 1
            here += 1
        if here and status == -9:
            status = finished(started(out))
        runs += 1
        if status != 0 or model(out) != whole:
            wrong += 1
            print(f"MISS  run {runs}, killed {here} times: status {status}, or other weights")
    print(
        f"{kills} kills in {runs} runs: {wrong} of the runs are not equal to an uninterrupted one"
    )
    return wrong


def full(number: int, rng: random.Random, whole: bytes) -> int:
    """Runs on a disk that is full at a random size of a file, then resumed."""
    wrong = refused = 0
    for _ in range(number):
        out = small.folder() / "full"
        shutil.rmtree(out, ignore_errors=True)
        status = finished(started(out, rng.randrange(200, len(whole) * 3)))
        refused += status == REFUSED
        if status not in (0, REFUSED):
            wrong += 1
            print(f"MISS  a full disk ends with status {status}")
        if finished(started(out)) != 0 or model(out) != whole:
            wrong += 1
            print("MISS  resumed after a full disk: other weights")
    print(f"{number} runs with a limit on the size of files, {refused} refused: {wrong} wrong")
    return wrong


def command(out: Path) -> list[str]:
    """The same training on two workers."""
    source, target, valid_source, valid_target = small.corpus()
    shape = {**SHAPE, **DEPTHS, "dropout": 0.2, "max_steps": STEPS, "batch_tokens": 128}
    more = {"warmup": 10, "learning_rate": 0.005, "valid_every": 12, "checkpoint_every": 2}
    named = {**shape, **more, "average": 2, "source": source, "target": target, "out": out}
    options = [f"--{name.replace('_', '-')}={value}" for name, value in named.items()]
    options += [f"--valid-source={valid_source}", f"--valid-target={valid_target}"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    return [*torchrun, "--nproc-per-node=2", "--max-restarts=3", "-m", "regard", "train", *options]


def lost_workers(number: int, rng: random.Random) -> int:
    """Runs of which torchrun loses a worker at a random moment, and starts it again."""
    if not number:
        return 0
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run(command(small.folder() / "two"), check=True, **quiet)
    whole, wrong = model(small.folder() / "two"), 0
    for _ in range(number):
        out = small.folder() / "lost"
        shutil.rmtree(out, ignore_errors=True)
        process = subprocess.Popen(command(out), **quiet)
        step = rng.randrange(3, STEPS - 10)
        while process.poll() is None and _reached(out) < step:
            time.sleep(0.01)
        workers = _workers(process.pid)
        if process.poll() is None and workers:
            os.kill(rng.choice(workers), signal.SIGKILL)
        if process.wait() != 0 or model(out) != whole:
            wrong += 1
            print(f"MISS  a worker lost after update {step}: other weights")
    print(f"{number} runs that lost a worker: {wrong} are not equal to an uninterrupted one")
    return wrong


def _reached(out: Path) -> int:
    """The update of the last checkpoint."""
    return max((int(path.name[5:]) for path in out.glob("checkpoints/step-*")), default=0)


def _workers(pid: int) -> list[int]:
    """The processes of torchrun that train."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [
            int(one) for one in children if b"train" in Path(f"/proc/{one}/cmdline").read_bytes()
        ]
    except OSError:
        return []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--full", type=int, default=10, help="runs on a full disk")
    parser.add_argument("--workers", type=int, default=3, help="runs that lose a worker")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    small.corpus()
    began = time.monotonic()
    if finished(started(small.folder() / "whole")) != 0:
        sys.exit("the uninterrupted run failed")
    took, whole = time.monotonic() - began, model(small.folder() / "whole")
    print(f"an uninterrupted run of {STEPS} updates takes {took:.1f} s", flush=True)
    wrong = killed(options.kills, rng, whole, took)
    wrong += full(options.full, rng, whole)
    wrong += lost_workers(options.workers, rng)
    print(f"seed {options.seed}, {time.monotonic() - began:.0f} s")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
