"""Every page of the docs runs, prints what it says it prints, and draws the pictures it shows."""

from __future__ import annotations

import importlib
import importlib.util
import io
import re
import shlex
import shutil
from pathlib import Path
from types import ModuleType

import pytest
import typer

ROOT = Path(__file__).parent.parent


def script(name: str) -> ModuleType:
    """A script of docs/ as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


docs = script("run")
COMMANDS = re.findall(
    r"^```\n\$ (regard .+)\n((?s:.+?))^```",
    (ROOT / "README.md").read_text(encoding="utf-8"),
    re.MULTILINE,
)
PAGES = [page.relative_to(ROOT) for page in docs.pages()]


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_page_is_true(page: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(ROOT / "docs", tmp_path / "docs")
    for picture in folder.rglob("*.svg"):
        picture.unlink()
    written = (ROOT / page).read_text(encoding="utf-8")
    now = docs.run(tmp_path / page, short=True)
    assert docs.without_measured(now) == docs.without_measured(written)
    for name in re.findall(r"!\[[^\]]*\]\(([^)]+\.svg)\)", written):
        drawn = (tmp_path / page).parent / name
        committed = (ROOT / page).parent / name
        assert drawn.exists(), f"{page} shows {name} but does not draw it"
        if "measured" not in name:
            assert drawn.read_text() == committed.read_text(), f"{name} is out of date: make docs"


@pytest.mark.parametrize("page", [*PAGES, Path("README.md")], ids=str)
def test_links_lead_somewhere(page: Path) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if "://" not in target:
            assert ((ROOT / page).parent / target).exists(), f"{page} links to {target}"


def test_readme_runs(tmp_path: Path) -> None:
    copy = tmp_path / "README.md"
    shutil.copy(ROOT / "README.md", copy)
    assert docs.run(copy) == copy.read_text(encoding="utf-8")


@pytest.mark.parametrize(("command", "shown"), COMMANDS, ids=[one for one, _ in COMMANDS])
def test_commands_of_the_readme_print_what_it_shows(
    command: str, shown: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line … stands for any lines; `regard translate` reads every other line."""
    lines = shown.splitlines()
    if command == "regard translate":
        typed = "\n".join([*lines[::2], ""]).encode()
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(typed)))
        shown = "\n".join(lines[1::2])
    _, verb, *options = shlex.split(command)
    app = typer.Typer()
    app.command()(getattr(importlib.import_module(f"regard.cli.{verb}"), verb))
    app(options, standalone_mode=False)
    printed = capsys.readouterr().out.replace("\N{NO-BREAK SPACE}", " ")
    parts = [re.escape(part.strip("\n")) for part in f"\n{shown}\n".split("\n…\n")]
    assert re.fullmatch(r"(.|\n)*?".join(parts), printed.strip("\n"))


def test_a_false_page_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(1 + 1)\n```\n\n```text\n3\n```\n", encoding="utf-8")
    assert "2" in docs.run(page)
    assert docs.run(page) != page.read_text(encoding="utf-8")


def test_a_training_is_shortened_in_tests_only(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    code = "```python\nsteps = 3\nprint(steps)\n```\n\n```text measured\n{}\n```\n"
    page.write_text("<!-- in tests: steps = 3 → steps = 1 -->\n" + code.format(3), encoding="utf-8")
    assert docs.run(page) == page.read_text(encoding="utf-8")
    short = docs.run(page, short=True)
    assert short.endswith(code.format(1))
    assert docs.without_measured(short) == docs.without_measured(docs.run(page))


def test_what_a_page_shortens_is_there() -> None:
    for page in docs.pages():
        text = page.read_text(encoding="utf-8")
        for long, _ in docs.SHORTENED.findall(text):
            assert text.count(long) > 1, f"{page.name} shortens {long!r}, which it does not have"


def test_every_page_is_a_notebook_too(tmp_path: Path) -> None:
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
    notebooks = script("notebooks")
    for page in docs.pages():
        if notebooks.has_code(page):
            book = notebooks.notebook(page)
            nbformat.validate(book)
            code = "\n".join(cell.source for cell in book.cells if cell.cell_type == "code")
            for block in docs.BLOCK.finditer(page.read_text(encoding="utf-8")):
                assert block["code"].strip() in code


def test_a_notebook_brings_the_text_files_of_its_page() -> None:
    page = ROOT / "docs" / "beyond" / "summaries.md"
    first = next(c for c in script("notebooks").notebook(page).cells if c.cell_type == "code")
    text = page.with_name("the-river.txt").read_text(encoding="utf-8")
    assert first.source == f"%%writefile the-river.txt\n{text.strip()}"


def test_a_notebook_runs(tmp_path: Path) -> None:
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    book = script("notebooks").notebook(ROOT / "docs" / "course" / "heads.md")
    where = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(book, timeout=120, resources=where).execute()
    outputs = [out for cell in book.cells for out in cell.get("outputs", ())]
    assert any("image/svg+xml" in out.get("data", {}) for out in outputs)
