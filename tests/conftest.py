"""Every shape annotation in regard is enforced while the tests run."""

from __future__ import annotations

import os

# Two workers of the suite with two threads each would wait for one another most of the time.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Some machines announce matrix instructions for bfloat16 that they then forbid.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

import pytest
from jaxtyping import install_import_hook

install_import_hook("regard", "beartype.beartype")

import torch  # noqa: E402


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)
