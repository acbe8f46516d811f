"""A translation that is written again is what greedy search writes, whatever the draft."""

from __future__ import annotations

from typing import cast

import pytest
import torch

from regard.lens import Lens
from regard.lens.adapters import TranslatorAdapter
from regard.lens.adapters.regard_models import RegardTranslator
from regard.lens.capture import Cut
from regard.lens.decoding import continue_draft, decode_without
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
    begun, decode = [said[:1], said[:2]], decode_without(adapter, memory, cuts)
    plain = continue_draft(adapter, decode, begun, [], [12, 12])
    alone, passes = passes, 0
    assert continue_draft(adapter, decode, begun, plain[1], [12, 12]) == plain
    assert passes < alone
    assert continue_draft(adapter, decode, begun, [5, 3, 7] * 4, [12, 12]) == plain
    assert continue_draft(adapter, decode, begun, plain[1], [12, 3]) == [plain[0], plain[1][:3]]
    assert [row[:1] for row in plain] == [said[:1]] * 2
    assert max(map(len, plain)) <= 12


def test_resuming_before_a_cut_changes_nothing(lens: Lens, monkeypatch: pytest.MonkeyPatch) -> None:
    def asked() -> tuple[torch.Tensor, list[str], dict[int, str]]:
        prediction = lens.analyse(TEXT).prediction(2, None)
        logits = prediction.cut_logits(prediction.word_cuts)
        choices = prediction.chosen(logits)
        texts = prediction.text_with(prediction.word_cuts, choices)
        return logits, texts, prediction.named([*choices, 5, 9])

    logits, texts, names = asked()
    monkeypatch.setattr(RegardTranslator, "resumed", TranslatorAdapter.resumed)
    whole, same_texts, same_names = asked()
    assert (texts, names) == (same_texts, same_names)
    torch.testing.assert_close(logits, whole, atol=1e-5, rtol=1e-5)


def test_a_question_has_one_answer_whatever_was_asked_before(lens: Lens) -> None:
    fresh = [lens.why(TEXT, 1, most=8), lens.why(TEXT, 1, most=0, control=0)]
    analysis = lens.analyse(TEXT)
    lens.why(analysis, 2, most=0, control=0)
    again = [lens.why(analysis, 1, most=0, control=0), lens.why(analysis, 1, most=8)][::-1]
    for one, other in zip(fresh, again, strict=True):
        assert one.to_json() == other.to_json()
        assert torch.equal(one.effects, other.effects)
        assert one.metric == other.metric
