"""One run at a time in a folder, however the one before it ended."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from regard.errors import FileError
from regard.translate.locking import LOCK, locked

HOLD = """
import sys, time
from pathlib import Path
from regard.translate.locking import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_run_is_told_who_is_there_and_a_killed_one_lets_go(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    other = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True
    )
    assert other.stdout is not None
    with other:
        assert other.stdout.readline() == "held\n"
        words = rf"active in {re.escape(str(folder))}: process {other.pid} on \S+, since"
        with pytest.raises(FileError, match=words), locked(folder):
            pass
        other.kill()
    assert (folder / LOCK).exists()
    with locked(folder):
        assert f"process {os.getpid()} " in (folder / LOCK).read_text()
    assert not any(folder.iterdir())


def test_a_worker_that_was_started_again_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the one before it, which held the folder, is gone."""
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    times: list[float] = []

    def wait() -> None:
        with locked(tmp_path):
            times.append(time.monotonic())

    with locked(tmp_path):
        waiting = threading.Thread(target=wait)
        waiting.start()
        time.sleep(0.3)
        freed = time.monotonic()
    waiting.join(20)
    assert times
    assert times[0] >= freed


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(FileError, match=r"train: cannot write \S*file/run/\.lock: Not a dir"),
        locked(tmp_path / "file" / "run"),
    ):
        pass
