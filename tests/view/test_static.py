"""The modules of the page: they join to one script, and put text in as text."""

from __future__ import annotations

import re
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from regard.view import View, page

STATIC = Path(str(files("regard.view") / "static"))
FORBIDDEN = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|DOMParser|"
    r"srcdoc|setHTML|localStorage|sessionStorage|document\.cookie"
)


def test_every_part_is_there_and_the_one_that_starts_is_last() -> None:
    code = page.script()
    assert all(path.read_text("utf-8") in code for path in STATIC.glob("*.js"))
    assert code.endswith(page.source("page.js"))


def test_every_function_and_constant_is_used() -> None:
    code = page.script()
    names = re.findall(r"^(?:async function|function|class|const) (\w+)", code, re.MULTILINE)
    assert len(names) > 100
    assert [name for name in names if len(re.findall(rf"\b{name}\b", code)) < 2] == []


def test_text_never_becomes_markup_and_nothing_is_kept() -> None:
    for path in STATIC.glob("*.js"):
        assert not FORBIDDEN.search(path.read_text("utf-8")), path.name


def test_nothing_comes_from_elsewhere(view: View) -> None:
    addresses = set(re.findall(r"https?://[^\s\"'`]+", view.html()))
    assert addresses <= {"http://www.w3.org/2000/svg"}
    code = page.script()
    assert not re.search(r"^\s*(?:import|export)\b|await import", code, re.MULTILINE)
    assert re.findall(r"fetch\((.*?),", code) == ["`api/${kind}`"]  # the server's own


def test_the_policy_allows_exactly_this_script_and_style(view: View) -> None:
    made = view.html()
    policy = re.findall(r'Content-Security-Policy" content="([^"]+)"', made)[0]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    script = re.findall(r'<script type="module">(.*?)</script>', made, re.DOTALL)[0]
    style = re.findall(r"<style>(.*?)</style>", made, re.DOTALL)[0]
    assert f"script-src '{page.content_hash(script)}'" in policy
    assert f"style-src '{page.content_hash(style)}'" in policy


def test_the_script_is_valid(tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    path = tmp_path / "page.mjs"
    path.write_text(page.script(), encoding="utf-8")
    subprocess.run([node, "--check", str(path)], check=True, timeout=60)


# Machado, Oliveira and Fernandes, 2009: severity 1.0, in linear RGB.
MATRICES = {
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
               [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
               [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
               [0.004733, 0.691367, 0.303900]],
}  # fmt: skip


def simulated(colour: str, kind: str) -> np.ndarray:
    channels = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.array(MATRICES[kind]) @ linear, 0, 1)
    return np.where(seen <= 0.0031308, seen * 12.92, 1.055 * seen ** (1 / 2.4) - 0.055)


@pytest.mark.parametrize("kind", MATRICES)
def test_for_and_against_can_be_told_apart(kind: str) -> None:
    """Protanopes, deuteranopes and tritanopes see that blue is not orange, on either paper."""
    pairs = dict(re.findall(r"--(\w+): light-dark\((#\w{6}, #\w{6})\)", page.style()))
    for theme in (0, 1):
        seen = [
            simulated(pairs[name].split(", ")[theme], kind) for name in ("paper", "accent", "cut")
        ]
        apart = [np.linalg.norm(a - b) for i, a in enumerate(seen) for b in seen[:i]]
        assert min(apart) > 0.2, theme
