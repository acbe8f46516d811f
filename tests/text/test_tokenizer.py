"""Subwords: there and back, the same every time, and never a special piece by accident."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.errors import FileError, OptionError
from regard.text import Tokenizer, read_lines
from tests.text.tokenizer_cases import ALL, BYTES, LARGE, SMALL, lines, tidy

DATA = Path(__file__).parents[3] / "shared" / "data" / "multi30k"


@ALL
def test_the_specials_come_first(tokenizer: Tokenizer) -> None:
    assert tokenizer.vocabulary[:4] == ["<pad>", "<s>", "</s>", "<unk>"]
    assert (Tokenizer.pad, Tokenizer.start, Tokenizer.end, Tokenizer.unknown) == (0, 1, 2, 3)
    assert tokenizer.size == len(tokenizer) == len(tokenizer.vocabulary)
    assert len(set(tokenizer.vocabulary)) == tokenizer.size


def test_a_frequent_word_is_a_piece_though_no_other_begins_with_it() -> None:
    tokenizer = Tokenizer.train(["the dog sees a cat", "a cat sees the dog"] * 10, 25)
    assert tokenizer.tokens(tokenizer.encode("the cat sees")) == ["▁the", "▁cat", "▁sees"]
    assert not any("\uffff" in piece for piece in tokenizer.vocabulary)


def test_size_and_kind() -> None:
    assert (SMALL.size, SMALL.kind) == (100, "unigram")
    assert (LARGE.size, LARGE.kind) == (2000, "unigram")
    assert (BYTES.size, BYTES.kind) == (400, "bytes")
    assert repr(LARGE) == "Tokenizer('unigram', 2,000 pieces)"


@settings(deadline=None)
@given(text=st.text())
def test_bytes_give_back_every_text(text: str) -> None:
    assert BYTES.decode(BYTES.encode(text)) == text


@settings(deadline=None)
@given(text=st.text())
def test_unigram_with_bytes_gives_back_every_text_but_its_spaces(text: str) -> None:
    assert LARGE.decode(LARGE.encode(text)) == tidy(text)


@settings(deadline=None)
@given(text=st.text(alphabet="Straße Königs, 0123.\t"))
def test_unigram_gives_back_what_it_knows(text: str) -> None:
    assert SMALL.decode(SMALL.encode(text)) == tidy(text)


def test_every_white_space_is_a_space() -> None:
    spaces = [chr(c) for c in range(sys.maxunicode + 1) if chr(c).isspace()]
    assert len(spaces) > 20
    expected = LARGE.encode("König Hund")
    assert [hex(ord(s)) for s in spaces if LARGE.encode(f"König{s}Hund{s}") != expected] == []


def test_the_form_of_characters() -> None:
    assert LARGE.encode("Ko\u0308nig") == LARGE.encode("König")  # typed in two ways
    assert LARGE.decode(LARGE.encode("Straße, 5 m², ﬁ, ½, Ⅷ")) == "Straße, 5 m², ﬁ, ½, Ⅷ"


def test_unknown_characters_of_a_small_vocabulary() -> None:
    ids = SMALL.encode("the 猫 the")
    assert SMALL.tokens(ids) == ["▁the", "▁", "<unk>", "▁the"]
    assert SMALL.decode(ids) == "the the"


def test_unknown_characters_of_a_large_vocabulary() -> None:
    assert LARGE.tokens(LARGE.encode("猫")) == ["▁", "<0xE7>", "<0x8C>", "<0xAB>"]


HOSTILE = [
    "</s>",
    "<pad>",
    "a<s>b",
    "<unk>",
    "<0x41>",
    "<</s>>",
    "x </s> y<pad><pad>",
    "▁<s>",
    "< s>",
    "<0x00><0xFF>",
]


@ALL
@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_is_a_special_piece(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert not {Tokenizer.pad, Tokenizer.start, Tokenizer.end} & set(ids)
    if tokenizer is not SMALL:
        expected = text if tokenizer is BYTES else tidy(text)
        assert Tokenizer.unknown not in ids
        assert tokenizer.decode(ids) == expected  # nor is "<0x41>" a byte, which would be "A"


def test_specials_of_the_text_that_was_trained_on() -> None:
    trained = Tokenizer.train([f"{line} </s> <pad>" for line in lines()], 100)
    ids = trained.encode("The cat </s> <pad>")
    assert not {0, 1, 2, 3} & set(ids)
    assert trained.decode(ids) == "The cat </s> <pad>"


def test_decoding_leaves_out_the_specials() -> None:
    ids = SMALL.encode("The cat")
    assert SMALL.decode([1, *ids, 2, 0, 0]) == "The cat"
    assert SMALL.decode_batch([[1, *ids, 2], []]) == ["The cat", ""]
    assert SMALL.tokens([1, 2, 0, 3]) == ["<s>", "</s>", "<pad>", "<unk>"]


@settings(deadline=None)
@given(ids=st.lists(st.integers(0, 1999)))
def test_any_numbers_are_a_text(ids: list[int]) -> None:
    text = LARGE.decode(ids)
    assert LARGE.decode_batch([ids]) == [text]
    assert LARGE.decode(LARGE.encode(text)) == tidy(text)


@ALL
def test_batches_are_the_same_as_one_by_one(tokenizer: Tokenizer) -> None:
    texts = [*lines(20), "", " ", "猫 ab"]
    assert tokenizer.encode_batch(texts) == [tokenizer.encode(text) for text in texts]
    assert tokenizer.encode_batch([]) == []
    assert tokenizer.encode("") == []


@ALL
@settings(deadline=None)
@given(text=st.text(alphabet="The König,< \t猫é😀", max_size=30))
def test_spans_cover_the_text(tokenizer: Tokenizer, text: str) -> None:
    spans = tokenizer.spans(text)
    assert len(spans) == len(tokenizer.encode(text))
    assert all(0 <= start <= end <= len(text) for start, end in spans)
    assert spans == sorted(spans, key=lambda span: span[1])
    covered = {place for start, end in spans for place in range(start, end)}
    assert covered == {place for place, letter in enumerate(text) if not letter.isspace()}


def test_spans_by_hand() -> None:
    text = "  The\tkings "
    found = [text[start:end] for start, end in SMALL.spans(text)]
    assert "".join(found) == "Thekings"
    assert SMALL.spans("The the") == [(0, 0), (0, 3), (4, 7)]
    assert LARGE.spans("König 猫") == [(0, 5), (6, 6), (6, 7), (6, 7), (6, 7)]
    assert LARGE.spans("猫 猫") == [(0, 0), *[(0, 1)] * 3, (2, 2), *[(2, 3)] * 3]


CASED = Tokenizer.train(
    [
        "The bat flies. It is a bat.",
        "Tom saw the bats, and Tom fed the bat.",
        "That is Tom.",
        "It bats; Tom's bat.",
        "Die Katze sieht eine Katze.",
        "Katzen sehen die Katze.",
        'He said: "The bat!" (It is.)',
    ]
    * 9,
    size=60,
)


def test_a_word_is_the_same_subword_wherever_it_stands() -> None:
    for text in ("bat", "Bat", "the bat.", "the bat, it", "bat!", 'said: "Bat!"', "(Bat)", "bat's"):
        assert CASED.tokens(CASED.encode(text)).count("▁bat") == 1, text
        assert CASED.decode(CASED.encode(text)) == text


def test_a_capital_that_begins_a_sentence_is_a_piece_of_its_own() -> None:
    text = "It is Tom. The bat flies."
    pieces = CASED.tokens(CASED.encode(text))
    assert pieces[:3] == ["▁⇧", "▁it", "▁is"]
    assert CASED.spans(text)[:3] == [(0, 0), (0, 2), (3, 5)]
    assert pieces.count("▁⇧") == 2
    assert CASED.decode(CASED.encode(text)) == text


def test_names_and_german_nouns_keep_their_capital() -> None:
    assert CASED.tokens(CASED.encode("Tom is Tom")).count("▁Tom") == 2
    assert "▁Katze" in CASED.tokens(CASED.encode("Katze"))
    assert "▁⇧" not in CASED.tokens(CASED.encode("Katze THE"))


def test_no_piece_joins_a_word_and_punctuation() -> None:
    tokenizer = Tokenizer.train(["we like cats. we like dogs! it's 1990..."] * 50, size=40)
    for piece in tokenizer.vocabulary[4:]:
        kinds = {"letter" if one.isalpha() else one for one in piece if one not in "▁'"}
        assert len(kinds) <= 1, piece
        assert sum(map(str.isdigit, piece)) <= 1, piece
    assert tokenizer.tokens(tokenizer.encode("it's cats."))[0] == "▁it"


def test_a_capital_without_a_letter_behind_it_is_left_out() -> None:
    capital = CASED.vocabulary.index("▁⇧")
    assert CASED.decode([capital]) == ""
    assert CASED.decode([*CASED.encode("bat"), capital]) == "bat"
    assert CASED.decode(CASED.encode("⇧ bat")) == "bat"


def test_the_same_text_gives_the_same_tokenizer_again() -> None:
    # Few characters are pieces of their own here: the library lets chance order the others.
    rare = [*lines(60), "q w x y z Q W X Y Z ä ö ü ! ? ; : ( ) & % $ # @ + = * é è ñ ø å"]
    found = {Tokenizer.train(rare, 100).fingerprint for _ in range(6)}
    assert len(found) == 1


def test_more_pieces_than_the_text_supports() -> None:
    with pytest.raises(OptionError) as caught:
        Tokenizer.train(lines(), 30_000)
    found = re.fullmatch(
        r"Tokenizer.train: size=30,000, but the text supports only ([\d,]+) pieces; "
        r"ask for \1 or fewer, or give more text",
        str(caught.value),
    )
    assert found
    size = int(found[1].replace(",", ""))
    assert Tokenizer.train(lines(), size).size == size
    with pytest.raises(OptionError, match="supports only"):
        Tokenizer.train(lines(), 30_000, kind="bytes")


def test_fewer_pieces_than_the_text_needs() -> None:
    text = ["ab ba e\u0301"]
    message = (
        "Tokenizer.train: size=7, but the text has 3 different characters, each of which needs a "
        "piece; ask for 8 or more"
    )
    with pytest.raises(OptionError) as caught:
        Tokenizer.train(text, 7)
    assert str(caught.value) == message
    assert sorted(Tokenizer.train(text, 8).vocabulary[4:]) == sorted("abé▁")
    for size in (-5, 0, 3, 4):
        with pytest.raises(OptionError, match="ask for 8 or more"):
            Tokenizer.train(text, size)
    with pytest.raises(OptionError) as caught:
        Tokenizer.train(text, 100, kind="bytes")
    assert str(caught.value) == (
        "Tokenizer.train: size=100, expected 260 or more for kind='bytes': 256 bytes and 4 "
        "special pieces"
    )


@pytest.mark.parametrize("kind", ["unigram", "bytes"])
@pytest.mark.parametrize("text", [[], [""], ["  ", "\t", "▁"]])
def test_no_text(kind: str, text: list[str]) -> None:
    with pytest.raises(OptionError) as caught:
        Tokenizer.train(text, 300, kind)
    assert str(caught.value) == "Tokenizer.train: there is no text: lines are empty or blank"


def test_what_is_not_text() -> None:
    with pytest.raises(OptionError, match="kind='bpe', expected 'unigram' or 'bytes'"):
        Tokenizer.train(["a"], 9, kind="bpe")
    with pytest.raises(OptionError, match=r"Tokenizer\.train: lines is one text, expected several"):
        Tokenizer.train("a b c", 9)
    with pytest.raises(OptionError, match=r"Tokenizer\.train: 'a.ud800' has half a surrogate pair"):
        Tokenizer.train(["a\ud800"], 9)
    with pytest.raises(OptionError, match=r"Tokenizer\.train: expected text, got int"):
        Tokenizer.train((number for number in (1, 2)), 9)  # type: ignore[misc]
    for use in (SMALL.encode, SMALL.spans, lambda text: SMALL.encode_batch(["a", text])):
        with pytest.raises(OptionError, match=r"Tokenizer\.\w+: 'a.ud800' has half a surrogate"):
            use("a\ud800")
    with pytest.raises(OptionError, match="texts is one text, expected several; use encode"):
        SMALL.encode_batch("one")


def test_the_error_of_a_file_comes_through(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"no\.txt: cannot be read: No such file"):
        Tokenizer.train(read_lines(tmp_path / "no.txt"), 100)


@pytest.mark.parametrize("number", [-1, 100])
def test_numbers_outside_the_vocabulary(number: int) -> None:
    for name in ("decode", "tokens"):
        with pytest.raises(OptionError) as caught:
            getattr(SMALL, name)([5, number])
        assert str(caught.value) == (f"Tokenizer.{name}: id {number} is not in a vocabulary of 100")


@pytest.mark.skipif(not DATA.is_dir(), reason="Multi30k is not beside the repository")
def test_multi30k() -> None:
    text = [line for side in ("en", "de") for line in read_lines(DATA / f"val.{side}")]
    tokenizer = Tokenizer.train(text, 2500)
    assert tokenizer.size == 2500
    again = tokenizer.decode_batch(tokenizer.encode_batch(text))
    assert again == [tidy(line) for line in text]
    assert Tokenizer.train(text, 2500).fingerprint == tokenizer.fingerprint
