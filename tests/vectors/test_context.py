"""Self-attention over static vectors: the average that it is, and who pulled whom."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import regard
from regard import attend, window
from regard.errors import OptionError, WordError
from regard.vectors import Context, Vectors, contextualise

WORDS = ["he", "hit", "the", "ball", "with", "bat", "is", "a", "mammal"]
TEXT = "He hit the ball with the bat"


@pytest.fixture
def v() -> Vectors:
    rows = np.random.default_rng(0).normal(size=(len(WORDS), 13)).astype(np.float32)
    rows[5] = (rows[3] + rows[8]) / 2 + 0.1 * rows[5]  # a bat is half a thing for balls
    return Vectors(WORDS, rows)


def cosine(x: np.ndarray, y: np.ndarray) -> float:
    return float(x @ y / np.linalg.norm(x) / np.linalg.norm(y))


def test_by_hand() -> None:
    v = Vectors(["ball", "bat"], [[2.0, 0.0], [1.5, 1.5]])
    c = contextualise(v, "ball bat", score="dot")
    w = np.exp(4.5) / (np.exp(4.5) + np.exp(3.0))
    wanted = w * np.array([1.5, 1.5]) + (1 - w) * np.array([2.0, 0.0])
    assert np.allclose(c["bat"], wanted, rtol=1e-6)
    assert c.pull("bat").weights == pytest.approx((1 - w, w), rel=1e-6)


def test_it_is_attention(v: Vectors) -> None:
    c = contextualise(v, TEXT)
    x = torch.from_numpy(v.lookup(TEXT))
    assert np.array_equal(c.before, x.numpy())
    assert np.array_equal(c.after, attend(x, x, x).numpy())
    assert c.words == tuple(TEXT.split())
    assert len(c) == 7
    assert "6. " in str(c.steps.of("bat")), "the steps to show for it"
    near = contextualise(v, TEXT, mask=window(2), score="cosine")
    assert np.array_equal(near.after, attend(x, x, x, mask=window(2), score="cosine").numpy())
    assert regard.contextualise is contextualise


def test_bat_is_pulled_towards_its_company(v: Vectors) -> None:
    ball, mammal = v["ball"], v["mammal"]
    game, animal = contextualise(v, TEXT)["bat"], contextualise(v, "the bat is a mammal")["bat"]
    assert cosine(game, ball) > cosine(v["bat"], ball) > cosine(animal, ball)
    assert cosine(animal, mammal) > cosine(v["bat"], mammal) > cosine(game, mammal)


def test_who_pulled(v: Vectors) -> None:
    c = contextualise(v, TEXT)
    pull = c.pull("the", occurrence=2)
    assert pull.position == 5
    assert pull.words == c.words
    assert sum(pull.weights) == pytest.approx(1)
    assert np.allclose(np.array(pull.weights) @ c.before, c.after[5], atol=1e-6)
    for i, word in enumerate(c.words):
        assert pull.before[i] == pytest.approx(cosine(v["the"], v[word]), abs=1e-6)
        assert pull.after[i] == pytest.approx(cosine(c.after[5], v[word]), abs=1e-6)
    lines = str(pull).splitlines()
    assert lines[0] == "the   weight  cosine before    after"
    assert lines[6].endswith("←")
    assert lines[6].startswith(f"the   {pull.weights[5]:.4f}  {1:13.4f}  ")
    assert len(lines) == 8
    assert pull.to_data()["pulled_by"][3]["word"] == "ball"


def test_the_sentence_is_the_average(v: Vectors) -> None:
    c = contextualise(v, TEXT)
    assert np.allclose(c.sentence(), c.after.mean(0), atol=1e-6)
    assert c.sentence().shape == (13,)


def test_neighbours_of_the_new_vector(v: Vectors) -> None:
    c = contextualise(v, TEXT)
    assert c.nearest("bat", n=3) == v.nearest(c.after[6], 3)


def test_plain_data(v: Vectors) -> None:
    c = contextualise(v, "A bat, a ball")
    data = json.loads(json.dumps(c.to_data()))
    assert data["words"] == ["A", "bat", "a", "ball"]
    assert data["skipped"] == [","]
    assert np.allclose(data["after"], c.after)
    assert [pull["word"] for pull in data["pulls"]] == data["words"]
    assert str(c).count("weight") == 4
    assert repr(c) == "Context('A bat a ball')"


def test_words_without_a_vector(v: Vectors) -> None:
    assert contextualise(v, "the red bat").words == ("the", "bat")
    zero = contextualise(v, "the red bat", unknown="zero")
    assert zero.words == ("the", "red", "bat")
    assert zero.skipped == ()
    assert zero.before[1].tolist() == [0.0] * 13
    assert zero.pull("bat").before[1] == 0
    assert isinstance(zero, Context)
    with pytest.raises(WordError, match=r"^Vectors: 'hot' has no vector; did you mean 'hit'\?$"):
        contextualise(v, "the hot bat", unknown="error")
    with pytest.raises(WordError, match=r"^contextualise: none of the words has a vector$"):
        contextualise(v, "red, blue")
    with pytest.raises(OptionError, match=r"^contextualise: the text has no words$"):
        contextualise(v, " ")
    with pytest.raises(WordError, match=r"'bet' is not in the text; did you mean 'bat'\?"):
        contextualise(v, TEXT).pull("bet")
