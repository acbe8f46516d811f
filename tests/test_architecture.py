"""The import diagram of ARCHITECTURE.md, held: imports point one way."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "regard"

LEAVES = {"errors", "files", "lazy", "memory", "models", "native", "notebook", "words"}
ATTENTION = LEAVES | {"attention"}
MODELS = ATTENTION | {"walkthrough", "nn", "text", "vectors", "view"}
MAY_IMPORT = {
    **{leaf: set() for leaf in LEAVES},
    "files": {"errors"},
    "words": {"errors"},
    "attention": LEAVES,
    "walkthrough": ATTENTION,
    "nn": ATTENTION | {"walkthrough"},
    "text": ATTENTION,
    "vectors": ATTENTION | {"walkthrough"},
    "view": ATTENTION,
    "hf": ATTENTION,
    "course": LEAVES | {"view"},
    "challenge": LEAVES,
    "translate": ATTENTION | {"nn", "text"},
    "lens": MODELS | {"challenge", "translate"},
    "serve": MODELS | {"challenge", "translate", "lens"},
    "cli": MODELS | {"challenge", "translate", "lens", "serve"},
    "__main__": {"cli"},
}

FILES = sorted(SOURCE.rglob("*.py"))


def part(path: Path) -> str:
    """The part of regard that a file belongs to."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """The parts of regard that a file imports, wherever in the file it does so."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide where a name comes from"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    parts = {name.split(".")[1] for name in names if name.startswith("regard.")}
    return parts - {"__version__"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_one_way(path: Path) -> None:
    if path == SOURCE / "__init__.py":
        pytest.skip("the package re-exports")
    own = part(path)
    # A look shows itself: the one import against the order, inside a method.
    shows = {"view"} if path == SOURCE / "attention" / "record.py" else set()
    assert imported(path) <= MAY_IMPORT[own] | {own} | shows


def test_kernels_do_not_know_each_other() -> None:
    kernels = SOURCE / "attention" / "kernels"
    names = {path.stem for path in kernels.glob("*.py")} - {"__init__"}
    assert names == {"reference", "native", "plain", "fused", "blocked"}
    for name in names:
        text = (kernels / f"{name}.py").read_text(encoding="utf-8")
        assert not any(f"kernels.{other}" in text or f"kernels import {other}" in text
                       for other in names - {name})  # fmt: skip


def test_no_module_bears_the_name_of_a_public_function() -> None:
    import regard

    stems = {path.stem for path in FILES}
    functions = {name for name in regard.__all__ if inspect.isfunction(getattr(regard, name))}
    assert {path.relative_to(SOURCE) for path in FILES if path.stem in functions} <= {
        Path("cli/steps.py"),
        Path("cli/judge.py"),
    }
    assert "look" not in stems
    assert "attend" not in stems


def test_the_lens_loads_neither_the_walkthrough_nor_the_challenge() -> None:
    code = (
        "import sys, regard.lens\n"
        "print([name for name in sys.modules if name.startswith(('regard.walk', 'regard.chal'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=300)
    assert done.stdout == b"[]\n", done.stderr.decode()


def test_importing_the_walkthrough_keeps_the_function_steps() -> None:
    import regard
    import regard.walkthrough

    assert regard.steps is regard.walkthrough.steps


def private_imports(path: Path) -> list[str]:
    """The private modules and names of other packages that a file imports."""
    own = part(path) if path.is_relative_to(SOURCE) else None
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] == "regard" and parts[1:2] != [own]:
                found += [name for one in parts[1:] if one.startswith("_") and one[1] != "_"]
    return found


@pytest.mark.parametrize("folder", ["src", "benchmarks", "examples", "models", "docs", "fuzz"])
def test_private_means_private(folder: str) -> None:
    root = SOURCE.parent.parent / folder
    found = {str(path): private_imports(path) for path in root.rglob("*.py")}
    assert {path: names for path, names in found.items() if names} == {}


def test_few_modules_are_private() -> None:
    private = [path for path in FILES if path.stem.startswith("_") and path.stem[1] != "_"]
    assert len(private) <= 12
