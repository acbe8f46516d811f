"""Reading and checking what ``regard steps …`` gives back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.cli.result import Result, Run

KEYS = ["words", "x", "q", "k", "v", "scores", "scaled", "weights", "weighted", "output"]
"""The keys of the JSON, in the order of the steps."""


def assert_fails(ran: Result, *says: str, status: int = 1) -> None:
    """Checks for this status, and for one line of error that contains each of these texts."""
    assert ran.out == ""
    assert ran.err.startswith("regard: ")
    assert ran.err.endswith("\n")
    assert ran.err.count("\n") == 1, ran.err
    assert ran.status == status
    for said in says:
        assert said in ran.err


def strict_json(text: str) -> Any:
    """JSON as every language reads it: no NaN, no Infinity."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no JSON")

    return json.loads(text, parse_constant=refuse)


def numbers(run: Run, *arguments: str) -> dict[str, Any]:
    """The JSON of a run without errors."""
    ran = run(*arguments, "--json")
    assert (ran.status, ran.err) == (0, "")
    return strict_json(ran.out)


def files() -> list[str]:
    """The names in the current folder."""
    return sorted(path.name for path in Path().iterdir())
