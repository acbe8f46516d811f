"""Searches find what those of Hugging Face's transformers find."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch

from regard.nn import Transformer
from regard.translate.search import longest, search
from regard.translate.strategies import Beam
from tests.translate.search_cases import CONFIG, END, START, sharp


def huggingface() -> ModuleType:
    """The conversion that the benchmark of decoding uses."""
    pytest.importorskip("transformers")
    path = Path(__file__).parents[2] / "benchmarks" / "huggingface.py"
    spec = importlib.util.spec_from_file_location("huggingface", path)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


@pytest.fixture(scope="module", params=["after", "before"])
def peer(request: pytest.FixtureRequest) -> tuple[Transformer, object]:
    """A model and its like: Marian, or Pegasus with its norms before."""
    config = replace(CONFIG, width=24, vocabulary=60, norm_place=request.param)
    model = sharp(config, end=3.0, seed=4).float()
    return model, huggingface().to_huggingface(model)


def test_the_peer_has_the_same_logits(peer: tuple[Transformer, object]) -> None:
    model, theirs = peer
    source, target = torch.tensor([[5, 6, 7, END]]), torch.tensor([[START, 8, 9]])
    with torch.no_grad():
        wanted = theirs(input_ids=source, decoder_input_ids=target).logits  # type: ignore[operator]
        assert torch.allclose(model(source, target), wanted, atol=1e-4)


@pytest.mark.parametrize("patient", [False, True])
@pytest.mark.parametrize("penalty", [1.0, 0.5, 0.0])
def test_beams_are_those_of_transformers(
    peer: tuple[Transformer, object], penalty: float, patient: bool
) -> None:
    model, theirs = peer
    chance = torch.Generator().manual_seed(1)
    source = torch.randint(4, 60, (40, 6), generator=chance)
    found = search(model, source.tolist(), Beam(4, penalty, patient), n_best=2)
    given = torch.cat((source, torch.full((40, 1), END)), 1)
    with torch.no_grad():
        wanted = theirs.generate(  # type: ignore[attr-defined]
            input_ids=given, attention_mask=torch.ones_like(given), num_beams=4, do_sample=False,
            num_return_sequences=2, length_penalty=penalty, early_stopping=not patient,
            max_length=1 + longest(6), return_dict_in_generate=True, output_scores=True,
        )  # fmt: skip
    assert {one.ended for ranked in found for one in ranked} >= {True}
    sequences = [row[1:] for row in wanted.sequences.tolist()]
    theirs_said = [tuple(row[: row.index(END)] if END in row else row) for row in sequences]
    ours_said = [
        tuple(one.tokens) + (0,) * (max(map(len, sequences)) - len(one.tokens)) * (not one.ended)
        for ranked in found
        for one in ranked
    ]
    assert ours_said == theirs_said
    scores = [one.score for ranked in found for one in ranked]
    assert scores == pytest.approx(wanted.sequences_scores.tolist(), abs=1e-4)
