"""A short, seeded run of the campaign in fuzz/, so that the campaign itself keeps working."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from fuzz.__main__ import run

pytestmark = pytest.mark.usefixtures("as_users_run")


@pytest.mark.parametrize(("kind", "count"), [("calls", 250), ("files", 60)])
def test_the_campaign_finds_nothing(
    kind: str, count: int, capsys: pytest.CaptureFixture[str]
) -> None:
    done, failed, tried = run(kind, 0, count, 0.0)
    assert (done, failed) == (count, []), capsys.readouterr().out
    assert sum(tried.values()) >= count


@pytest.mark.skipif(sys.platform != "linux", reason="needs fork")
def test_random_command_lines_end_with_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    done, failed, _ = run("commands", 0, 12, 0.0)
    assert (done, failed) == (12, []), capsys.readouterr().out


def test_the_api_is_as_it_is_described(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("schemathesis", reason="schemathesis is not installed")
    done, failed, _ = run("api", 0, 11, 0.0)
    assert (done, failed) == (11, []), capsys.readouterr().out


def test_a_miss_is_reported_with_its_seed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fuzz.calls.SLACK", 0.0)
    _, failed, _ = run("calls", 100, 20, 0.0)
    assert failed
    assert f"MISS  python -m fuzz calls --seed {failed[0]}" in capsys.readouterr().out
