"""A translation that is written again is what greedy search writes, whatever the draft."""

from __future__ import annotations

from typing import cast

import pytest

from regard.lens import Lens
from regard.lens.adapters import TranslatorAdapter
from regard.lens.capture import Cut
from regard.lens.decoding import continue_draft
from tests.lens.small_models import TEXT


def test_the_draft_saves_passes_and_changes_nothing(
    lens: Lens, monkeypatch: pytest.MonkeyPatch
) -> None:
    analysis = lens.analyse(TEXT)
    adapter, said = cast(TranslatorAdapter, analysis.adapter), analysis.translated.tokens
    memory = analysis.translated.memory.expand(2, -1, -1)
    cuts = [Cut(1, 1, row=0, kind="cross")]
    passes = 0
    step_logits = adapter.step_logits

    def counted(*given: object) -> object:
        nonlocal passes
        passes += 1
        return step_logits(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(adapter, "step_logits", counted)
    begun = [said[:1], said[:2]]
    plain = continue_draft(adapter, memory, begun, [], cuts, 12)
    alone, passes = passes, 0
    assert continue_draft(adapter, memory, begun, plain[1], cuts, 12) == plain
    assert passes < alone
    assert continue_draft(adapter, memory, begun, [5, 3, 7] * 4, cuts, 12) == plain
    assert [row[:1] for row in plain] == [said[:1]] * 2
    assert max(map(len, plain)) <= 12
