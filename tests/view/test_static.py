"""The modules of the viewer: they join to one script, and put text in as text."""

from __future__ import annotations

import base64
import hashlib
import re
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

import pytest

from regard.view import View, html

STATIC = Path(str(files("regard.view") / "static"))
TOP_LEVEL = re.compile(
    r"^(?:export )?(?:async )?(?:function|class|const|let)\s+(?:\[([^\]]+)\]|(\w+))", re.MULTILINE
)


def test_every_module_is_part_of_the_viewer() -> None:
    assert set(html.modules()) == {path.name for path in STATIC.glob("*.js")}
    assert html.modules()[-2:] == ["index.js", "page.js"]


def test_no_two_modules_share_a_name() -> None:
    """They are joined to one, so that a name given twice would break the viewer."""
    owners: dict[str, str] = {}
    for name in html.modules():
        for several, single in TOP_LEVEL.findall(html.source(name)):
            for each in (several or single).split(","):
                assert owners.setdefault(each.strip(), name) == name, each
    assert owners["render"] == "index.js"
    assert owners["HIGH"] == "compare.js"


def test_text_never_becomes_markup() -> None:
    forbidden = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|"
                           r"new Function|DOMParser|srcdoc|setHTML")  # fmt: skip
    for path in STATIC.glob("*.js"):
        assert not forbidden.search(path.read_text("utf-8")), path.name


def test_nothing_comes_from_elsewhere(view: View) -> None:
    page = view.html()
    addresses = set(re.findall(r"https?://[^\s\"'`]+", page))
    assert addresses <= {"http://www.w3.org/2000/svg"}
    assert "fetch(" not in page
    assert "import " not in re.findall(r'<script type="module">(.*)</script>', page, re.DOTALL)[0]


def test_the_policy_allows_exactly_this_script_and_style(view: View) -> None:
    page = view.html()
    policy = re.findall(r'Content-Security-Policy" content="([^"]+)"', page)[0]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    script = re.findall(r'<script type="module">(.*?)</script>', page, re.DOTALL)[0]
    style = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)[0]
    for kind, text in (("script", script), ("style", style)):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy


def test_the_module_for_notebooks_is_one_text_that_exports_render() -> None:
    module = html.module()
    assert "import " not in module.replace("@typedef {import", "")
    assert module.rstrip().endswith("export { render };\nexport default { render };")
    assert len(re.findall(r"^export", module, re.MULTILINE)) == 2


def test_modules_are_valid_scripts(tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    (tmp_path / "viewer.mjs").write_text(html.module(), encoding="utf-8")
    (tmp_path / "try.mjs").write_text(
        'import { render } from "./viewer.mjs"; console.log(typeof render);', encoding="utf-8"
    )
    done = subprocess.run(
        [node, "try.mjs"], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=30
    )
    assert done.stdout == "function\n"
