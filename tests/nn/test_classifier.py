"""A classifier sees the words of a sentence, and nothing of the padding behind them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from regard.errors import DtypeError, FileError, OptionError, ShapeError
from regard.nn import Classifier, TransformerConfig

VOCABULARY, CLASSES = 31, 3


def classifier(**changes: Any) -> Classifier:
    shape: dict[str, Any] = {
        "vocabulary": VOCABULARY, "width": 20, "encoder_depth": 2, "heads": 2, "feed_forward": 30,
        "dropout": 0.0, **changes,
    }  # fmt: skip
    return Classifier(TransformerConfig(**shape), CLASSES).double().eval()


@pytest.mark.parametrize("norm_place", ["before", "after"])
@pytest.mark.parametrize("position", ["sinusoidal", "learned", "rotary", "alibi"])
def test_padding_is_not_seen(position: str, norm_place: str) -> None:
    model = classifier(position=position, norm_place=norm_place)
    lengths = torch.tensor([6, 1, 4])
    words = torch.randint(VOCABULARY, (3, 6))
    together = model(words, lengths)
    assert together.shape == (3, CLASSES)
    for row, length, found in zip(words, lengths, together, strict=True):
        alone = model(row[None, :length])[0]
        torch.testing.assert_close(found, alone, rtol=0, atol=1e-12)
    other = words.clone()
    other[torch.arange(6) >= lengths[:, None]] = 7
    assert torch.equal(model(other, lengths), together)
    longer = F.pad(words, (0, 5), value=9)
    torch.testing.assert_close(model(longer, lengths), together, rtol=0, atol=1e-12)


def test_it_is_the_mean_of_the_contextual_vectors() -> None:
    model, words = classifier(), torch.randint(VOCABULARY, (3, 6))
    mean = model.encoder(model.source(words)).mean(1)
    torch.testing.assert_close(model(words), model.output(mean))
    full = torch.full((3,), 6)
    torch.testing.assert_close(model(words, full), model(words))


def test_a_batch_may_be_in_any_order() -> None:
    model, words, lengths = classifier(), torch.randint(VOCABULARY, (3, 6)), torch.tensor([6, 1, 4])
    order = torch.tensor([2, 0, 1])
    torch.testing.assert_close(model(words[order], lengths[order]), model(words, lengths)[order])


def test_the_order_of_words_counts() -> None:
    model, words = classifier(), torch.arange(6)[None]
    assert (model(words) - model(words.flip(1))).abs().max() > 1e-3


def test_an_empty_sentence_is_judged_by_the_bias_alone() -> None:
    model = classifier()
    words = torch.randint(VOCABULARY, (2, 5))
    found = model(words, torch.tensor([0, 5]))
    torch.testing.assert_close(found[0], model.output.bias)
    assert found.isfinite().all()


def test_it_learns_which_sentences_hold_a_word() -> None:
    model = classifier().train()
    words = torch.randint(4, VOCABULARY, (64, 7))
    classes = torch.arange(64) % CLASSES
    words[torch.arange(64), torch.randint(4, (64,))] = classes  # words 0 to 2 tell
    lengths = torch.randint(4, 8, (64,))
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(60):
        loss = F.cross_entropy(model(words, lengths), classes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert (model(words, lengths).argmax(1) == classes).double().mean() > 0.95


@pytest.mark.parametrize(
    ("lengths", "error", "text"),
    [
        (torch.tensor([5]), ShapeError, "lengths have shape (1) beside source (2,5); give one"),
        (torch.tensor([[5, 5]]), ShapeError, "lengths have shape (1,2) beside source (2,5)"),
        (torch.tensor([5, 6]), ShapeError, "a length is 6, but source (2,5) has only 5 places"),
        (torch.tensor([5.0, 5.0]), DtypeError, "lengths are torch.float32, expected whole num"),
        (torch.tensor([5, -1]), OptionError, "a length is -1, expected 0 or more"),
    ],
)
def test_bad_lengths(lengths: torch.Tensor, error: type, text: str) -> None:
    with pytest.raises(error, match=re.escape(text)):
        classifier()(torch.randint(VOCABULARY, (2, 5)), lengths)


def test_bad_words_and_classes() -> None:
    with pytest.raises(OptionError, match="Embedding: tokens have numbers from 31 to 31, but ther"):
        classifier()(torch.full((2, 5), VOCABULARY))
    with pytest.raises(OptionError, match="Classifier: classes=0, expected 1 or more"):
        Classifier(TransformerConfig.preset("tiny", vocabulary=9), 0)


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    model = classifier(position="learned", norm="rmsnorm")
    model.save(tmp_path / "model.safetensors")
    loaded = Classifier.load(tmp_path / "model.safetensors")
    assert loaded.config == model.config
    assert not loaded.training
    source = torch.tensor([[3, 4, 5, 6]])
    assert torch.equal(loaded(source), model(source))


def test_bad_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"expected to end in \.safetensors, got 'model\.pt'"):
        classifier().save("model.pt")
    with pytest.raises(FileError, match="not a file that"):
        Classifier.load(tmp_path / "absent.safetensors")
    (tmp_path / "bad.safetensors").write_bytes(b"no weights here")
    with pytest.raises(FileError, match="not a file that"):
        Classifier.load(tmp_path / "bad.safetensors")
