"""Long texts are cut where sentences end, and nothing is lost."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.text import Tokenizer
from regard.translate.splitting import split

TOKENIZER = Tokenizer.train(["a b c d e, f. g! (h)?"] * 9, size=25)


def parts(text: str, longest: int) -> list[str]:
    return [text[a:b] for a, b in split(text, TOKENIZER, longest)]


def size(text: str) -> int:
    return len(TOKENIZER.encode(text))


def test_each_sentence_stands_alone_in_a_text_that_does_not_fit() -> None:
    text = "a b c. d e f. g h a. b c d."
    sentences = ["a b c.", "d e f.", "g h a.", "b c d."]
    assert parts(text, max(map(size, sentences))) == sentences
    assert parts(text, size(text) - 1) == sentences
    assert parts(text, size(text)) == [text]


def test_as_many_clauses_as_fit_go_together() -> None:
    text = "a b, c d, e f, g h."
    two = max(size("a b, c d,"), size("e f, g h."))
    assert parts(text, two) == ["a b, c d,", "e f, g h."]


def test_quotes_and_brackets_end_with_their_sentence() -> None:
    wanted = ["(a b c.)", "d e f?”", "g h a!»", "b"]
    assert parts("(a b c.) d e f?”  g h a!» b", max(map(size, wanted))) == wanted


def test_other_writing_systems_end_their_sentences_too() -> None:
    tokenizer = Tokenizer.train(["我是猫。你呢？好！"] * 9, size=14)
    text = "我是猫。你呢？好！"
    wanted = ["我是猫。", "你呢？", "好！"]
    longest = len(tokenizer.encode("我是猫。"))
    assert [text[a:b] for a, b in split(text, tokenizer, longest)][:1] == wanted[:1]
    assert [text[a:b] for a, b in split(text, tokenizer, 3)][-1] == wanted[-1]


def test_a_long_sentence_is_cut_at_commas_then_at_spaces() -> None:
    longest = size("d e f g h")
    assert parts("a b c, d e f g h a b", longest) == ["a b c,", "d e f g h", "a b"]


def test_pieces_of_a_cut_sentence_do_not_join_the_next() -> None:
    longest = size("a b c d")
    assert parts("a b c d e. f.", longest) == ["a b c d", "e.", "f."]


def test_a_word_without_end_is_cut_all_the_same() -> None:
    found = parts("abcdefghabcdefgh" * 3, 6)
    assert "".join(found) == "abcdefghabcdefgh" * 3
    assert all(size(part) <= 6 for part in found)


def test_no_cut_at_points_inside_words() -> None:
    assert parts("a 3.5 b. c d", size("a 3.5 b.")) == ["a 3.5 b.", "c d"]


@settings(max_examples=150, deadline=None)
@given(text=st.text("abc ,.!?\n\té—。", max_size=80), longest=st.integers(1, 12))
def test_nothing_is_lost_and_nothing_too_long(text: str, longest: int) -> None:
    spans = split(text, TOKENIZER, longest)
    kept = "".join(text[a:b] for a, b in spans)
    assert "".join(kept.split()) == "".join(text.split())
    assert all(a < b for a, b in spans)
    assert all(before[1] <= after[0] for before, after in pairwise(spans))
    assert all(size(text[a:b]) <= longest or b - a == 1 for a, b in spans)


@pytest.mark.parametrize("text", ["", "   ", "\n"])
def test_nothing_to_split(text: str) -> None:
    assert split(text, TOKENIZER, 5) == []
