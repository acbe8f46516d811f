"""Attention between subwords becomes alignment between words."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.errors import OptionError
from regard.text import Tokenizer
from regard.translate.alignment import Alignment, aligned, written_spans

TEXT = ["Größe über alles, und doch klein.", "das Mädchen läuft", "naïve Fälle 🙂 sind selten"]
KINDS = {
    "unigram": Tokenizer.train(TEXT * 9, size=47),
    "bytes": Tokenizer.train(TEXT * 9, size=300, kind="bytes"),
}


def test_subwords_are_merged_to_words() -> None:
    """Source "cats sleep" in the pieces cat·s·sleep, target "Katzen" and "schlafen" in two each."""
    weights = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8], [0.0, 0.2, 0.8], [0.0, 0.0, 1.0]])
    found = aligned(
        "cats sleep",
        "Katzen schlafen",
        [([(0, 3), (3, 4), (5, 10)], [(0, 3), (3, 6), (7, 13), (13, 15)], weights)],
    )
    assert found.source_words == ("cats", "sleep")
    assert found.target_words == ("Katzen", "schlafen")
    assert found.weights == pytest.approx(np.array([[0.5, 0.5], [0.1, 0.9]]))
    assert found.pairs == [(0, 0), (1, 1)]


def test_a_subword_in_two_words_is_shared_by_its_characters() -> None:
    weights = torch.tensor([[1.0, 0.0], [0.2, 0.8]])
    found = aligned("so.", "ja!!", [([(0, 2), (2, 3)], [(0, 3), (3, 4)], weights)])
    assert found.source_words == ("so", ".")
    assert found.target_words == ("ja", "!", "!")
    # "ja!" has 2 of 3 characters in "ja" and one in the first "!"; both rows are its weights.
    assert found.weights == pytest.approx(np.array([[1.0, 0.0], [1.0, 0.0], [0.2, 0.8]]))


def test_a_piece_of_no_characters_belongs_to_the_word_it_stands_at() -> None:
    weights = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    found = aligned("a b", "c", [([(0, 1), (2, 3)], [(0, 0), (0, 1)], weights)])
    assert found.weights == pytest.approx(np.array([[0.5, 0.5]]))


def test_words_that_nothing_reached() -> None:
    found = aligned("a b", "c d", [([(0, 1)], [(0, 1)], torch.ones(1, 1))])
    assert found.weights == pytest.approx(np.array([[1.0, 0.0], [0.0, 0.0]]))
    assert found.pairs == [(0, 0)]
    assert str(found) == "c  ← a 1.00\nd  ←"
    nothing = aligned("", "", [])
    assert (nothing.pairs, str(nothing), nothing.weights.shape) == ([], "", (0, 0))


def test_what_an_alignment_tells() -> None:
    weights = np.array([[0.04, 0.06, 0.9], [0.5, 0.25, 0.25]], np.float32)
    found = Alignment(("x", "y", "z"), ("uno", "due"), weights)
    assert found.of(0) == [("z", pytest.approx(0.9)), ("y", pytest.approx(0.06))]
    assert [word for word, _ in found.of(1)] == ["x", "y", "z"]
    assert [word for word, _ in found.of(0, least=0)] == ["z", "y", "x"]
    assert str(found).splitlines()[0] == "uno  ← z 0.90, y 0.06"
    assert found.to_data() == {
        "source": ["x", "y", "z"],
        "target": ["uno", "due"],
        "pairs": [[0, 2], [1, 0]],
        "weights": [[0.04, 0.06, 0.9], [0.5, 0.25, 0.25]],
    }
    with pytest.raises(OptionError, match=r"Alignment\.of: word 2 asked for, but there are 2, num"):
        found.of(2)


@pytest.mark.parametrize("text", TEXT)
@pytest.mark.parametrize("kind", KINDS)
def test_spans_of_what_the_tokenizer_itself_would_write(kind: str, text: str) -> None:
    tokenizer = KINDS[kind]
    ids = tokenizer.encode(text)
    assert written_spans(tokenizer, ids, text) == tokenizer.spans(text)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_spans_of_any_pieces_are_where_their_characters_are(data: st.DataObject) -> None:
    """A model may spell a word as no tokenizer would; its pieces still follow one another."""
    tokenizer = KINDS[data.draw(st.sampled_from(sorted(KINDS)))]
    ids = data.draw(st.lists(st.integers(4, tokenizer.size - 1), min_size=1, max_size=12))
    text = tokenizer.decode(ids)
    spans = written_spans(tokenizer, ids, text)
    assert len(spans) == len(ids)
    assert all(0 <= a <= b <= len(text) for a, b in spans)
    if "\ufffd" not in text:
        starts = [a for a, b in spans if a < b]
        assert starts == sorted(starts)
        covered = {i for a, b in spans for i in range(a, b)}
        assert covered >= {i for i, letter in enumerate(text) if not letter.isspace()}


def test_spans_of_pieces_that_are_not_the_usual_ones() -> None:
    tokenizer = KINDS["unigram"]
    letters = {piece: i for i, piece in enumerate(tokenizer.vocabulary)}
    ids = [letters[piece] for piece in ("▁", "d", "a", "s", "▁", "k", "l")]
    assert tokenizer.decode(ids) == "das kl"
    assert written_spans(tokenizer, ids, "das kl") == [
        (0, 0), (0, 1), (1, 2), (2, 3), (4, 4), (4, 5), (5, 6),
    ]  # fmt: skip
