"""The files of the page: modules that put text in as text, and nothing from elsewhere."""

from __future__ import annotations

import re
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

import pytest

STATIC = Path(str(files("regard.serve") / "static"))
VIEWER = Path(str(files("regard.view") / "static"))


def test_text_never_becomes_markup() -> None:
    forbidden = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|"
                           r"new Function|DOMParser|srcdoc|setHTML|localStorage|sessionStorage|"
                           r"document\.cookie")  # fmt: skip
    for path in STATIC.glob("*.js"):
        assert not forbidden.search(path.read_text("utf-8")), path.name


def test_nothing_is_inline_or_from_elsewhere() -> None:
    page = (STATIC / "index.html").read_text("utf-8")
    assert re.findall(r"<script[^>]*>", page) == [
        '<script type="module" src="serve/static/main.js">'
    ]
    assert not re.search(r"<style|\sstyle=|\son\w+=", page)
    for path in STATIC.iterdir():
        addresses = set(re.findall(r"https?://[^\s\"'`]+", path.read_text("utf-8")))
        assert addresses <= {"http://www.w3.org/2000/svg"}, path.name


def test_imports_lead_somewhere() -> None:
    for path in STATIC.glob("*.js"):
        for name in re.findall(r'from "([^"]+)"', path.read_text("utf-8")):
            assert (path.parent / name).resolve().exists(), f"{path.name} imports {name}"


def test_the_colours_are_those_of_the_viewer() -> None:
    style = (VIEWER / "style.js").read_text("utf-8")
    page = (STATIC / "page.css").read_text("utf-8")
    for name in ("paper", "ink", "soft", "dim", "rule", "accent", "cut"):
        colours = re.findall(rf"--{name}: (#\w+);", style)
        assert len(colours) == 2
        assert re.findall(rf"--{name}: (#\w+);", page) == [*colours, colours[1]]


def test_modules_are_valid(tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    for path in STATIC.glob("*.js"):
        copied = tmp_path / f"{path.stem}.mjs"
        copied.write_text(path.read_text("utf-8"), encoding="utf-8")
        subprocess.run([node, "--check", str(copied)], check=True, timeout=60)
