"""Shape annotations are checked in every test; a run without these checks proves less."""

from __future__ import annotations

import jaxtyping
import pytest
import torch

from regard.attention.call import repeat_kv


def test_a_wrong_shape_is_refused() -> None:
    assert repeat_kv(torch.zeros(1, 2, 3, 4), 4).shape == (1, 4, 3, 4)
    with pytest.raises(jaxtyping.TypeCheckError):
        repeat_kv(torch.zeros(1, 3, 4), 4)
