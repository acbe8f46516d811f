"""Packages that import what they export when it is first used.

So ``--help`` answers without torch, which takes seconds to import.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any


def exports(package: str, **modules: str) -> Callable[[str], Any]:
    """The ``__getattr__`` of a package: per module of it, the names it exports, space-separated.

    >>> exports("collections", abc="Mapping Sequence")("Mapping").__name__
    'Mapping'
    """
    places = {name: module for module, names in modules.items() for name in names.split()}

    def load(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(import_module(f"{package}.{places[name]}"), name)
        setattr(sys.modules[package], name, found)
        return found

    return load
