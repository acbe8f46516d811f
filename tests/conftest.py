"""Every shape annotation in regard is enforced while the tests run."""

from __future__ import annotations

import pytest
from jaxtyping import install_import_hook

install_import_hook("regard", "beartype.beartype")

import torch  # noqa: E402


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)
