"""Packages that import each exported name when it is first used.

So ``--help`` does not import torch, which takes seconds. The names are listed once, in the
package's stub ``__init__.pyi``, which type checkers read as well.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def exports(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package, from the imports in the stub beside `file`."""
    places: dict[str, str] = {}
    stub = Path(file).with_suffix(".pyi").read_text(encoding="utf-8")
    for statement in ast.parse(stub).body:
        if isinstance(statement, ast.ImportFrom):
            places.update((alias.name, str(statement.module)) for alias in statement.names)

    def load(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if places[name] == package:
            return import_module(f"{package}.{name}")
        found = getattr(import_module(places[name]), name)
        setattr(sys.modules[package], name, found)
        return found

    return load, lambda: sorted(places)
