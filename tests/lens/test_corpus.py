"""A question asked of every row of a file: resumed without losing or repeating a row."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from regard.cli.volume import answer_all
from regard.errors import FileError, OptionError, RegardError
from regard.lens import Lens
from regard.lens.corpus import JOB, Job, finished, run, start
from regard.models import BUNDLED
from regard.translate.locking import locked

pandas = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")

TEXTS = ["The cat sleeps.", "I am here.", "The dog runs.", "We eat bread."] * 5


@pytest.fixture
def lines(tmp_path: Path) -> str:
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    return str(path)


def job(question: str, source: str, out: Path, **options: Any) -> Job:
    return Job(question, source, str(out), "pocket-en-de", **options)


def answered(one: Job, **options: Any) -> Any:
    list(run(one, start(one), **{"workers": 1, **options}))
    return pandas.read_parquet(one.out).sort_values("row", ignore_index=True)


def test_vectors_of_a_file_are_those_of_its_texts(lines: str, tmp_path: Path) -> None:
    found = answered(job("embed", lines, tmp_path / "out", rows=7))
    assert list(found["row"]) == list(range(20))
    assert list(found["text"]) == TEXTS
    wanted = Lens.open("pocket-en-de").embed(TEXTS[1]).sentence()
    assert found["vector"][1] == pytest.approx(wanted.tolist(), abs=1e-5)
    assert len(list((tmp_path / "out").glob("part-*.parquet"))) == 3


def test_parquet_is_read_and_what_fails_says_why(tmp_path: Path) -> None:
    rows = [{"text": TEXTS[0], "word": "cat"}, {"text": TEXTS[1], "word": "dog"}, {"text": None}]
    pandas.DataFrame(rows).to_parquet(tmp_path / "in.parquet", row_group_size=2)
    found = answered(job("explain", str(tmp_path / "in.parquet"), tmp_path / "out", rows=2))
    assert found["error"].isna()[0]
    assert len(found["attention"][0]) == len(found["words"][0])
    assert "dog" in found["error"][1]
    assert found["error"][2].startswith("text is")


def test_why_gives_words_and_links(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text(json.dumps({"text": TEXTS[0]}) + "\n")
    found = answered(job("why", str(path), tmp_path / "out", most=4))
    assert found["chosen"][0] in found["written"][0]
    assert len(found["links"][0]) == 4
    assert {"word", "looked", "matters"} == found["words"][0][0].keys()


def test_a_complete_job_says_so(
    lines: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = job("embed", lines, tmp_path / "out", rows=7)
    for said in ("20 rows answered into", "is already complete (20 rows)"):
        answer_all(one, 1, None)
        assert said in capsys.readouterr().err
    (tmp_path / "out" / "part-000001.parquet").unlink()
    answer_all(one, 1, None)
    assert f"7 rows answered into {one.out} (13 were already there)" in capsys.readouterr().err


def test_a_second_job_in_a_folder_is_refused(lines: str, tmp_path: Path) -> None:
    one = job("embed", lines, tmp_path / "out")
    start(one)
    with (
        locked(tmp_path / "out", "embed"),
        pytest.raises(FileError, match=f"embed: a run is active in .*: process {os.getpid()} on"),
    ):
        answer_all(one, 1, None)
    answer_all(one, 1, None)
    assert finished(one) == (20, 0)


def test_lines_that_are_no_json_are_told_and_the_rest_is_answered(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text('nonsense\n{"text": "I am here."}\n[1]\n{"word": "x"}')
    found = answered(job("embed", str(path), tmp_path / "out"))
    assert list(found["error"].isna()) == [False, True, False, False]
    assert found["error"][2] == "not a JSON object"


def test_the_summary_counts_as_answered_only_what_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text('nonsense\n{"text": "I am here."}\n')
    answer_all(job("embed", str(path), tmp_path / "some"), 1, None)
    assert f"1 row answered into {tmp_path / 'some'}; 1 failed" in capsys.readouterr().err
    answer_all(job("embed", str(path), tmp_path / "some"), 1, None)
    assert "is already complete (2 rows); 1 failed, see the col" in capsys.readouterr().err
    path.write_text("nonsense\n")
    with pytest.raises(RegardError, match=r"0 rows answered into .*; 1 failed, see the column"):
        answer_all(job("embed", str(path), tmp_path / "none"), 1, None)


def test_a_job_without_an_answer_fails_however_often_it_is_run(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text("nonsense\n" * 3)
    one = job("embed", str(path), tmp_path / "out", rows=2)
    one.run(start(one)[0])  # and then it was stopped
    for said in (
        r"0 rows answered into .* \(2 were already there\)",
        r"already complete \(3 rows\)",
    ):
        with pytest.raises(RegardError, match=rf"{said}; 3 failed, see the column error"):
            answer_all(one, 1, None)


@pytest.mark.parametrize("text", [None, "word " * 400], ids=["no text", "too long"])
def test_rows_of_which_none_can_be_translated(text: str | None, tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text(json.dumps({"text": text}) + "\n" + json.dumps({"text": TEXTS[0]}) + "\n")
    found = answered(job("why", str(path), tmp_path / "out", rows=1, most=0))
    assert list(found["error"].isna()) == [False, True]


def test_bad_input_is_named(lines: str, tmp_path: Path) -> None:
    pandas.DataFrame([{"sentence": "a"}]).to_parquet(tmp_path / "in.parquet")
    with pytest.raises(FileError, match="no column text and word; its columns are sentence"):
        start(job("explain", str(tmp_path / "in.parquet"), tmp_path / "out"))
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(FileError, match=r"broken\.parquet: cannot be read"):
        start(job("embed", str(tmp_path / "broken.parquet"), tmp_path / "out"))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("dear")
    with pytest.raises(FileError, match="holds other data; give a new folder"):
        start(job("embed", lines, tmp_path / "full"))
    with pytest.raises(FileError, match=r"none: cannot be read: No such file or directory"):
        start(job("embed", "none", tmp_path / "out"))
    with pytest.raises(OptionError, match="--workers 0, expected 1 or more"):
        list(run(job("embed", lines, tmp_path / "out"), [], workers=0))


def test_a_folder_with_answers_takes_only_the_same_job(lines: str, tmp_path: Path) -> None:
    model, out = tmp_path / "model", tmp_path / "out"
    shutil.copytree(BUNDLED / "pocket-en-de", model)
    one = Job("embed", lines, str(out), str(model), rows=10)
    start(replace(one, model="nope"))  # without answers, the folder is free
    one.run(start(one)[0])
    assert len(start(one)) == 1
    with pytest.raises(FileError, match=r"holds another job \(question: 'embed', not 'why'\)"):
        start(replace(one, question="why"))
    text = Path(lines).read_text()
    Path(lines).write_text(text.replace("cat", "cow"))
    with pytest.raises(FileError, match=r"holds another job \(.*in\.jsonl has changed since\)"):
        start(one)
    Path(lines).write_text(text)
    weights = model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\1")
    with pytest.raises(FileError, match=r"\(the weights of .*model have changed since\)"):
        start(one)


@pytest.mark.parametrize("content", ["", '{"question', "[1]"])
def test_damaged_files_of_a_job_are_named(content: str, lines: str, tmp_path: Path) -> None:
    one = job("embed", lines, tmp_path / "out")
    part = one.part(start(one)[0])
    part.write_text(content)
    with pytest.raises(FileError, match=r"part-000000\.parquet is damaged; delete it"):
        finished(one)
    (tmp_path / "out" / JOB).write_text(content)
    with pytest.raises(FileError, match=r"_job\.json cannot be read: .*give a new folder"):
        start(one)


def test_a_full_disk_keeps_what_is_finished(lines: str, tmp_path: Path) -> None:
    one = job("embed", lines, tmp_path / "out", rows=10)
    first, second = start(one)
    one.run(first)
    (tmp_path / "out").chmod(0o500)
    if os.geteuid() == 0:  # root may write anywhere: put a folder in the way
        (tmp_path / "out").chmod(0o700)
        one.part(second).mkdir()
    with pytest.raises(FileError, match="finished parts are kept, and the same command resumes"):
        one.run(second)
    assert one.part(first).exists()


def test_killed_and_resumed_no_row_is_lost_or_repeated(tmp_path: Path) -> None:
    path, out = tmp_path / "in.jsonl", tmp_path / "out"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS * 10))
    one = job("embed", str(path), out, rows=5)
    script = f"""
import os, signal
from regard.lens.corpus import *

class Killed(Job):
    def run(self, chunk):
        if chunk.number == 7:
            os.killpg(0, signal.SIGKILL)
        return super().run(chunk)

if __name__ == "__main__":
    job = Killed(**{vars(one)!r})
    list(run(job, start(job), 2))
"""
    (tmp_path / "job.py").write_text(script)
    command = [sys.executable, str(tmp_path / "job.py")]
    killed = subprocess.run(command, start_new_session=True, timeout=240)
    assert killed.returncode == -signal.SIGKILL
    before = {part: part.stat().st_mtime_ns for part in out.glob("part-*")}
    assert 3 <= len(before) < 40
    assert list(answered(one)["row"]) == list(range(200))
    assert {part: part.stat().st_mtime_ns for part in before} == before
    assert (out / JOB).exists()


@pytest.mark.parametrize(("sent", "parts"), [(signal.SIGINT, 0), (signal.SIGTERM, 1)])
def test_a_stopped_job_ends_its_workers_at_once(sent: int, parts: int, tmp_path: Path) -> None:
    path, out = tmp_path / "in.jsonl", tmp_path / "out"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS * 200))
    # As at a terminal: what a shell starts in the background has been told to ignore Ctrl-C.
    heeds = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    code = f"{heeds}; from regard.cli import main; main()"
    command = [sys.executable, "-c", code, "embed", str(path), f"--out={out}", "--workers=2"]
    running = subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 120
    while len(list(out.glob("part-*"))) < parts or not (out / JOB).exists():
        assert time.monotonic() < until
        time.sleep(0.02)
    if not parts:
        time.sleep(1)  # the workers are importing
    if sent == signal.SIGINT:
        os.killpg(running.pid, sent)  # as Ctrl-C does
    else:
        running.send_signal(sent)
    try:
        _, said = running.communicate(timeout=30)  # until no worker holds the pipe
    finally:
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
    expected = (130, "regard: stopped\n") if sent == signal.SIGINT else (143, "")
    assert (running.returncode, said) == expected


@pytest.mark.parametrize("address", ["nowhere", "auto", "localhost:1", "ray://localhost:1"])
def test_a_ray_cluster_that_is_not_there_is_named(address: str, lines: str, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    with pytest.raises(OptionError, match=f"--ray {address}, expected the address of a running"):
        list(run(job("embed", lines, tmp_path / "out"), [], 1, ray=address))


def test_ray_repeats_the_chunk_of_a_worker_that_was_killed(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS * 4))
    script = f"""
import os, signal, sys, ray
from regard.lens import corpus
from regard.lens.corpus import *

class Fragile(Job):
    def run(self, chunk):
        mark = {str(tmp_path / "killed")!r}
        if chunk.number == 5 and not os.path.exists(mark):
            open(mark, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().run(chunk)

job = Fragile("embed", {str(path)!r}, {str(tmp_path / "out")!r}, "pocket-en-de", rows=8)
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
assert sum(rows for rows, _ in run(job, start(job), 1, "local")) == 80
"""
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=300
    )
    assert found.returncode == 0, found.stderr[-2000:]
    assert (tmp_path / "killed").exists()
    rows = pandas.read_parquet(tmp_path / "out")["row"]
    assert sorted(rows) == list(range(80))
