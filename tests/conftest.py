"""Every shape annotation in regard is enforced while the tests run."""

from __future__ import annotations

import os
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
from jaxtyping import install_import_hook

install_import_hook("regard", "beartype.beartype")

import torch  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402

CHROMIUM = Path("/usr/bin/chromium")


@pytest.fixture(autouse=True)
def seed() -> None:
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
