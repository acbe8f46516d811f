"""Every shape annotation in regard is enforced while the tests run."""

from __future__ import annotations

import functools
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Two workers of the suite with two threads each would wait for one another most of the time.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Virtual machines that announce AMX and then forbid it end the process at the first bfloat16
# product; oneDNN reads this when it is first used.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

import jaxtyping
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

CHROMIUM = Path("/usr/bin/chromium")
SOURCE = Path(__file__).parent.parent / "src"
CHECKED = 20
"""How many calls of each function are checked in each test: shapes seldom change after that, and
checking every call took more than half the time of the suite."""
_calls: Counter[Any] = Counter()
_jaxtyped = jaxtyping.jaxtyped


def _has_shapes(checked: Any) -> bool:
    """Whether annotations name a shape; the other types are mypy's to check."""
    names = re.findall(r"\w+", " ".join(map(str, checked.__annotations__.values())))
    known = vars(sys.modules[checked.__module__])
    return any(
        isinstance(known.get(name), type) and hasattr(known[name], "dtypes") for name in names
    )


def check_shapes(checked: Any = None, *, typechecker: Any) -> Any:
    """In place of the decorator that the import hook applies: checks shapes, and only at first."""
    if checked is None:
        return lambda given: check_shapes(given, typechecker=typechecker)
    if not hasattr(checked, "__annotations__") or not _has_shapes(checked):
        return checked
    strict = _jaxtyped(checked, typechecker=typechecker)
    if isinstance(checked, type):
        return strict

    @functools.wraps(checked)
    def counted(*args: Any, **options: Any) -> Any:
        if torch.compiler.is_compiling():
            return checked(*args, **options)
        _calls[checked] += 1
        call = strict if _calls[checked] <= CHECKED else checked
        return call(*args, **options)

    return counted


jaxtyping.jaxtyped = check_shapes
jaxtyping.install_import_hook(
    [
        ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
        for path in SOURCE.rglob("*.py")
        if "from jaxtyping import" in path.read_text(encoding="utf-8")
    ],
    "beartype.beartype",
)


@pytest.fixture(autouse=True)
def seed() -> None:
    _calls.clear()
    torch.manual_seed(0)


@pytest.fixture
def as_users_run() -> Iterator[None]:
    """Our own errors, without the checks that the test run adds in front of them."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", before)


@pytest.fixture
def largest() -> type[Any]:
    """What finds the number of elements of the largest tensor that any operation makes."""

    class Largest(TorchDispatchMode):
        found = 0

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            made = func(*args, **(kwargs or {}))
            for one in tree_leaves(made):
                if isinstance(one, torch.Tensor):
                    self.found = max(self.found, one.numel())
            return made

    return Largest


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A real Chromium: the system's, else Playwright's own. It keeps an event loop running, so its
    scope is one module."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync_api.sync_playwright() as driver:
        path = CHROMIUM if CHROMIUM.exists() else Path(driver.chromium.executable_path)
        if not path.exists():
            pytest.skip(f"no Chromium at {CHROMIUM} nor at {path}")
        made = driver.chromium.launch(executable_path=str(path), args=["--no-sandbox"])
        yield made
        made.close()
