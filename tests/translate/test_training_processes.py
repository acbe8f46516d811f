"""Training in real processes: killed, resumed, in several workers, one of them lost."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

MODEL = [
    "--vocabulary=40", "--width=32", "--encoder-depth=1", "--decoder-depth=1", "--heads=2",
    "--feed-forward=64", "--batch-tokens=256", "--warmup=20", "--learning-rate=0.005",
    "--select-by=loss", "--average=2", "--valid-every=40", "--checkpoint-every=10",
]  # fmt: skip
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def command(corpus: Any, out: Path, *more: str) -> list[str]:
    return ["-m", "regard", "train", *corpus.options(), *MODEL, f"--out={out}", *more]


def run(arguments: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        arguments, capture_output=True, text=True, env=ENVIRONMENT, timeout=600, **options
    )


def alone(corpus: Any, out: Path, *more: str) -> dict[str, torch.Tensor]:
    done = run([sys.executable, *command(corpus, out, *more)])
    assert done.returncode == 0, done.stderr
    return load_file(out / "model.safetensors")


def wait_for_step(out: Path, step: int, process: subprocess.Popen[str]) -> None:
    """Until a checkpoint of this update or a later one is there."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and process.poll() is None:
        found = [int(path.name[5:]) for path in (out / "checkpoints").glob("step-*")]
        if max(found, default=0) >= step:
            return
        time.sleep(0.02)
    raise AssertionError(f"no checkpoint of update {step}: {process.poll()}")


def assert_same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    for name in one:
        assert torch.equal(one[name], other[name]), name


def test_killed_and_resumed_is_bit_for_bit_uninterrupted(corpus: Any, tmp_path: Path) -> None:
    more = ("--max-steps=120", "--dropout=0.2")
    killed = 0
    for step in (10, 50):
        process = subprocess.Popen(
            [sys.executable, *command(corpus, tmp_path / "killed", *more)],
            stderr=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        )
        wait_for_step(tmp_path / "killed", step, process)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        killed += 1
    assert killed == 2
    assert not (tmp_path / "killed" / "model.safetensors").exists()
    resumed = alone(corpus, tmp_path / "killed", *more)
    assert_same(resumed, alone(corpus, tmp_path / "whole", *more))


def test_two_workers_give_the_single_workers_weights(corpus: Any, tmp_path: Path) -> None:
    more = ("--max-steps=20", "--dropout=0.0", "--average=1", "--learning-rate=0.001")
    done = run([*TORCHRUN, "--nproc-per-node=2", *command(corpus, tmp_path / "two", *more)])
    assert done.returncode == 0, done.stderr
    two, one = (
        load_file(tmp_path / "two" / "model.safetensors"),
        alone(corpus, tmp_path / "one", *more),
    )
    for name in one:
        # Adding one vector to all keys changes no weight: the gradient of b_k is rounding alone,
        # which Adam makes as large as any.
        if not name.endswith("b_k"):
            assert torch.allclose(one[name], two[name], atol=2e-4), name
    assert "2 workers" in done.stderr
    logs = [
        [json.loads(line) for line in (tmp_path / run / "log.jsonl").read_text().splitlines()]
        for run in ("one", "two")
    ]
    for mine, theirs in zip(*logs, strict=True):
        assert mine["step"] == theirs["step"]
        assert mine["loss"] == pytest.approx(theirs["loss"], rel=1e-4)


def test_of_several_workers_one_says_what_is_wrong(corpus: Any, tmp_path: Path) -> None:
    (tmp_path / "short.de").write_text("eins\nzwei\n")
    bad = command(corpus, tmp_path / "run", f"--target={tmp_path / 'short.de'}")
    done = run([*TORCHRUN, "--nproc-per-node=2", *bad])
    assert done.returncode != 0
    wrong = f"{corpus.source} has 600 lines but {tmp_path / 'short.de'} has 2;"
    before, after = done.stderr.split("ChildFailedError", 1)
    assert f"regard: {wrong}" in before
    assert before.count(wrong) == 1
    assert before.count("Traceback") == 1  # which is torchrun's own
    assert f"traceback : {wrong}" in after.splitlines()[-2]
    statuses = re.findall(r"exitcode  : (-?\d+)", after)
    assert len(statuses) == 2
    assert "0" not in statuses


def test_a_lost_worker_is_restarted_and_training_goes_on(corpus: Any, tmp_path: Path) -> None:
    out, more = tmp_path / "run", ("--max-steps=150", "--dropout=0.0")
    process = subprocess.Popen(
        [*TORCHRUN, "--nproc-per-node=2", "--max-restarts=4", *command(corpus, out, *more)],
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )
    wait_for_step(out, 20, process)
    workers = [int(pid) for pid in _children(process.pid) if _trains(pid)]
    assert len(workers) == 2
    os.kill(workers[1], signal.SIGKILL)
    _, told = process.communicate(timeout=400)
    assert process.returncode == 0, told
    assert "Resuming from the checkpoint of update" in told
    log = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    assert max(line["step"] for line in log) == 150
    assert (out / "model.safetensors").exists()


def test_two_workers_that_are_told_to_stop_save_and_resume(corpus: Any, tmp_path: Path) -> None:
    out, rare = tmp_path / "run", ("--checkpoint-every=100000", "--valid-every=100000")
    process = subprocess.Popen(
        [*TORCHRUN, "--nproc-per-node=2", *command(corpus, out, *rare, "--epochs=100000")],
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )
    deadline = time.monotonic() + 200
    while not (out / "log.jsonl").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.terminate()  # torchrun passes it on to both
    _, told = process.communicate(timeout=200)
    (saved,) = (out / "checkpoints").glob("step-*")
    step = int(saved.name[5:])
    assert step >= 50
    assert told.count(f"the checkpoint of update {step:,} is written, and the same") == 1, told
    more = (*rare, "--epochs=100000", f"--max-steps={step + 2}")
    resumed = run([sys.executable, *command(corpus, out, *more)])
    assert resumed.returncode == 0, resumed.stderr
    assert f"checkpoint of update {step:,}" in resumed.stderr


def _children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def _trains(pid: str) -> bool:
    return b"train" in Path(f"/proc/{pid}/cmdline").read_bytes()


@pytest.mark.skipif(sys.platform != "linux", reason="needs a limit on file sizes")
def test_a_full_disk_leaves_the_last_checkpoint_intact(corpus: Any, tmp_path: Path) -> None:
    out, more = tmp_path / "run", ("--max-steps=30",)
    alone(corpus, out, "--max-steps=20")
    whole = sorted(path.name for path in (out / "checkpoints" / "step-00000020").iterdir())
    size = (out / "checkpoints" / "step-00000020" / "optimizer.safetensors").stat().st_size

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size - 1000, size - 1000))

    done = run([sys.executable, *command(corpus, out, *more)], preexec_fn=limit)
    assert done.returncode == 1
    assert "cannot be written" in done.stderr
    assert "the checkpoint of update 20 is intact" in done.stderr
    assert sorted(path.name for path in (out / "checkpoints" / "step-00000020").iterdir()) == whole
    assert not list((out / "checkpoints").glob(".writing*"))
    alone(corpus, out, *more)


def test_bad_input_is_one_line_and_a_status(corpus: Any, tmp_path: Path) -> None:
    done = run([sys.executable, *command(corpus, tmp_path / "run", "--preset=huge")])
    assert done.returncode == 1
    assert done.stderr == (
        "regard: train: --preset huge is unknown, expected one of tiny, pocket, small, base, big\n"
    )
