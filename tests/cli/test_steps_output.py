"""``regard steps``: the HTML and LaTeX files that it writes, whole or not at all."""

from __future__ import annotations

from functools import partial
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.cli.result import Run
from tests.cli.step_cases import KEYS, assert_fails, files, strict_json


@pytest.fixture
def run(program: Run) -> Run:
    """``regard steps …``."""
    return partial(program, "steps")


class Cells(HTMLParser):
    """The text of the page's tables, and its tags."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.found.append(data)


def test_html_and_latex_are_written(run: Run) -> None:
    ran = run("the <b> cat", "--word", "cat", "--html", "a.html", "--latex", "a.tex")
    assert ran == (0, "", "regard: wrote a.html\nregard: wrote a.tex\n")
    page = Path("a.html").read_text(encoding="utf-8")
    cells = Cells()
    cells.feed(page)
    assert "b" in cells.tags, "the numbers of the steps"
    assert "cat, word 5 of 5: the < b > cat" in cells.found
    assert "cat ←" in cells.found
    assert "made up (seed 0)" in page
    assert not {"script", "link", "img"} & cells.tags
    tex = Path("a.tex").read_text(encoding="utf-8")
    assert tex.startswith("\\paragraph{cat, word 5 of 5")
    assert "made up (seed 0)" in tex
    assert files() == ["a.html", "a.tex"]


def test_a_page_and_json_together(run: Run) -> None:
    ran = run("the cat", "--html", "a.html", "--json")
    assert list(strict_json(ran.out)) == KEYS
    assert ran.err == "regard: wrote a.html\n"
    assert files() == ["a.html"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--html", "a.htm"),
        ("--html", "a"),
        ("--html", "a.tex"),
        ("--latex", "a.html"),
        ("--latex", "a.txt"),
        ("--html", "none/a.html"),
        ("--latex", "none/a.tex"),
        ("--html", "taken.html"),
        ("--html", "a.html", "--latex", "a.txt"),
        ("--html", "a.html", "--latex", "none/a.tex"),
        ("--html", "a.html", "--word", "dog"),
        ("--html", "none/a.html", "--json"),
    ],
    ids=" ".join,
)
def test_nothing_is_half_written(run: Run, arguments: tuple[str, ...]) -> None:
    Path("taken.html").mkdir()
    assert_fails(run("the cat", *arguments))
    assert files() == ["taken.html"]
    assert list(Path("taken.html").iterdir()) == []


def test_an_ending_that_does_not_fit_is_named(run: Run) -> None:
    assert_fails(run("the cat", "--html", "a.txt"), "a.txt", ".html")
    assert_fails(run("the cat", "--latex", "a.html"), "a.html", ".tex")
    assert_fails(run("the cat", "--html", "none/a.html"), "none/a.html", "No such file")


def test_an_existing_page_survives_a_failure(run: Run) -> None:
    Path("a.html").write_text("what was there")
    assert_fails(run("the cat", "--html", "a.html", "--word", "dog"))
    assert Path("a.html").read_text() == "what was there"
    assert run("the cat", "--html", "a.html").status == 0
    assert Path("a.html").read_text(encoding="utf-8").startswith("<!doctype html>")
