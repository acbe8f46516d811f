"""Exercises of the course: answers are checked, and every exercise of a page has one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from regard.course import check
from regard.course.exercises import ANSWERS
from regard.errors import OptionError

PAGES = Path(__file__).parents[2] / "docs" / "course"


def test_numbers_and_words() -> None:
    assert check("heads-1", 64) == "Right."
    assert check("heads-1", torch.tensor(64.2)) == "Right."
    assert check("heads-1", 512) == "Not yet. The heads share the width."
    assert check("cross-attention-2", " Source ") == "Right."
    assert check("cross-attention-2", "target").startswith("Not yet.")


def test_bad_input_says_what_was_expected() -> None:
    with pytest.raises(OptionError, match="'heads1' is unknown; did you mean 'heads-1'"):
        check("heads1", 64)
    with pytest.raises(OptionError, match=r"'heads-1' expected a number, got 'wide'"):
        check("heads-1", "wide")


def test_every_exercise_is_asked_and_solved() -> None:
    pages = "\n".join(page.read_text(encoding="utf-8") for page in PAGES.glob("*.md"))
    asked = set(re.findall(r'`check\("([^"]+)", …\)`', pages))
    assert asked == set(ANSWERS)
    for name in ANSWERS:
        assert pages.count(f'check("{name}"') == 2, name
