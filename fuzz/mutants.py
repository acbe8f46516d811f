"""``python -m fuzz.mutants src/regard/attention tests/attention``: do the tests notice errors?

A copy of the package gets one small error at a time, at a random place: a comparison, an operator,
a number, a condition or a returned value. The tests run until the first that fails. A mutant that
no test notices is printed; most of those are equivalent programs or choices of speed, and the rest
want a test.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip


def bodies(tree: ast.Module) -> Iterator[ast.AST]:
    """The nodes inside functions, without annotations and docstrings."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef) and not isinstance(function, ast.Lambda):
            for statement in function.body:
                text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
                if not (text or isinstance(statement, ast.FunctionDef | ast.Raise)):
                    yield from ast.walk(statement)


def mutants(tree: ast.Module) -> Iterator[tuple[ast.AST, str, object]]:
    """Each place for an error: the node, its field, and what the field becomes."""
    for node in dict.fromkeys(bodies(tree)):
        if isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in SWAPS:
            yield node, "op", SWAPS[type(node.op)]()
        elif isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
            yield node, "ops", [SWAPS[type(node.ops[0])](), *node.ops[1:]]
        elif isinstance(node, ast.Constant) and type(node.value) is bool:
            yield node, "value", not node.value
        elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
            yield node, "value", node.value + 1
        elif isinstance(node, ast.If | ast.IfExp | ast.While):
            yield node, "test", ast.UnaryOp(ast.Not(), node.test)
        elif isinstance(node, ast.Return) and node.value is not None:
            yield node, "value", ast.Constant(None)


def mutate(path: Path, number: int) -> str:
    """Writes the mutant of that number into the file; where it is, and how the line reads now."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    node, field, value = list(mutants(tree))[number]
    setattr(node, field, value)
    path.write_text(ast.unparse(ast.fix_missing_locations(tree)), encoding="utf-8")
    return f"{path.name}:{getattr(node, 'lineno', 0)}: {ast.unparse(node).splitlines()[0]}"


def noticed(source: Path, tests: list[str], first: str, seconds: float) -> bool:
    """Whether a test fails with the package in ``source``, those of the file's name first."""
    own = sorted(str(path) for one in tests for path in Path(one).rglob(f"test_{first}*.py"))
    environment = os.environ | {"PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    for some in (own, tests):
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *some]
        try:
            if (
                some
                and subprocess.run(
                    command, cwd=ROOT, env=environment, capture_output=True, timeout=seconds
                ).returncode
            ):
                return True
        except subprocess.TimeoutExpired:
            return True
    return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("package", type=Path, help="a folder of src/regard, or one file")
    parser.add_argument("tests", nargs="+")
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=1200, help="for one mutant")
    given = parser.parse_args()
    package = (ROOT / given.package).resolve()
    files = sorted(package.rglob("*.py")) if package.is_dir() else [package]
    places = [
        (file, number)
        for file in files
        for number in range(len(list(mutants(ast.parse(file.read_text(encoding="utf-8"))))))
    ]
    chosen = random.Random(given.seed).sample(places, min(given.count, len(places)))
    killed = 0
    for done, (file, number) in enumerate(chosen, 1):
        with tempfile.TemporaryDirectory() as folder:
            source = Path(shutil.copytree(ROOT / "src", Path(folder) / "src"))
            told = mutate(source / file.relative_to(ROOT / "src"), number)
            dead = noticed(source, given.tests, file.stem, given.seconds)
        killed += dead
        print(f"{'killed  ' if dead else 'SURVIVED'} {told}   ({killed} of {done})", flush=True)


if __name__ == "__main__":
    main()
