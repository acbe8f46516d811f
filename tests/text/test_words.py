"""Subwords to words, for every kind of tokenizer, by characters alone."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import tokenizers
import torch
from tokenizers import models, pre_tokenizers, processors, trainers

from regard.errors import OptionError, WordError
from regard.text import Tokenizer
from regard.text.words import Words, overlaps, shares, spelled, visible, word_spans

LINES = [
    "The animals didn't cross the street because it was too tired.",
    "Unbelievably, the cats slept; the streets were wide and the crossing was long.",
    "猫が道を渡らなかった。",
]
TEXT = "The animals didn't cross streets, because it slept."
SPELLED = ["The", "animals", "didn't", "cross", "streets", ",", "because", "it", "slept", "."]


def word_piece() -> tokenizers.Tokenizer:
    inner = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[UNK]", "[CLS]", "[SEP]"]
    inner.train_from_iterator(
        LINES, trainers.WordPieceTrainer(vocab_size=110, special_tokens=special)
    )
    inner.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    return inner


def byte_pairs() -> tokenizers.Tokenizer:
    inner = tokenizers.Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    inner.train_from_iterator(LINES, trainers.BpeTrainer(vocab_size=280, initial_alphabet=alphabet))
    return inner


def unigram() -> tokenizers.Tokenizer:
    inner = tokenizers.Tokenizer(models.Unigram())
    inner.pre_tokenizer = pre_tokenizers.Metaspace()
    inner.train_from_iterator(
        LINES, trainers.UnigramTrainer(vocab_size=90, unk_token="<unk>", special_tokens=["<unk>"])
    )
    return inner


def read(inner: tokenizers.Tokenizer, text: str) -> Words:
    found = inner.encode(text)
    special = tuple(map(bool, found.special_tokens_mask))
    return Words(text, tuple(found.tokens), tuple(found.offsets), special)


@pytest.mark.parametrize("make", [word_piece, byte_pairs, unigram])
def test_the_same_words_from_every_kind(make: object) -> None:
    words = read(make(), TEXT)  # type: ignore[operator]
    assert [n for n, real in zip(words.names, words.is_word, strict=True) if real] == SPELLED
    assert len(words.tokens) > len(SPELLED)  # some are made of several
    for number, name in enumerate(words.names):
        if words.is_word[number]:
            first, last = words.tokens_of(number)[0], words.tokens_of(number)[-1]
            assert words.text[words.spans[first][0] : words.spans[last][1]].strip() == name


def test_special_tokens_stand_apart() -> None:
    words = read(word_piece(), "it slept")
    assert words.names == ("[CLS]", "it", "slept", "[SEP]")
    assert words.is_word == (False, True, True, False)
    with pytest.raises(WordError, match="no word 'CLS'"):
        words.find("CLS")
    assert words.find("[CLS]") == 0


def test_regards_own_tokenizer() -> None:
    tokenizer = Tokenizer.train(LINES * 3, size=60)
    tokens = tuple(tokenizer.tokens(tokenizer.encode(TEXT)))
    words = Words(TEXT, tokens, tuple(tokenizer.spans(TEXT)), (False,) * len(tokens))
    assert list(words.names) == SPELLED


def test_scripts_without_spaces_end_words_where_subwords_end() -> None:
    spans = ((0, 1), (1, 2), (2, 4))
    words = Words("猫が道を", ("猫", "が", "道を"), spans, (False,) * 3)
    assert words.names == ("猫", "が", "道を")


def test_words_that_share_a_token_are_one() -> None:
    words = Words("ab c.", ("ab c", "."), ((0, 4), (4, 5)), (False, False))
    assert words.names == ("ab c", ".")
    assert words.summed(torch.tensor([0.9, 0.1])).tolist() == pytest.approx([0.9, 0.1])
    assert words.find("ab") == words.find("C") == 0


def test_a_full_stop_in_the_token_of_a_word_belongs_to_it() -> None:
    words = Words("so tired.", ("so", "tire", "d."), ((0, 2), (3, 7), (7, 9)), (False,) * 3)
    assert words.names == ("so", "tired.")
    assert words.tokens_of(words.find("tired")) == [1, 2]


def test_spaces_belong_to_the_word_behind_them() -> None:
    words = Words("a  b\n", ("a", " ", " b", "\n"), ((0, 1), (1, 2), (2, 4), (4, 5)), (False,) * 4)
    assert words.names == ("a", "b", "\n")
    assert words.places == (0, 1, 1, 2)


def test_summed_and_averaged_by_hand() -> None:
    spans = ((0, 0), (0, 3), (3, 4), (5, 8))
    words = Words("bats fly", ("<s>", "bat", "s", "fly"), spans, (True, False, False, False))
    x = torch.tensor([1.0, 2.0, 3.0, 4.0])
    assert words.summed(x).tolist() == [1.0, 5.0, 4.0]
    assert words.summed(x.expand(2, 3, 4)).shape == (2, 3, 3)
    assert words.averaged(x[:, None]).tolist() == [[1.0], [2.5], [4.0]]


def test_summing_keeps_the_total() -> None:
    words = read(byte_pairs(), LINES[2] + " " + TEXT)
    weights = torch.rand(2, len(words.tokens)).softmax(-1)
    torch.testing.assert_close(words.summed(weights).sum(-1), torch.ones(2))


def test_tokens_as_words() -> None:
    words = read(word_piece(), "animals slept").as_tokens()
    assert words.names == words.tokens
    assert words.places == tuple(range(len(words.tokens)))
    assert words.is_word[0] is False
    assert words.at(0) == 1


def test_find() -> None:
    words = read(word_piece(), "the cat saw the cat; It slept")
    assert words.names[words.find("saw")] == "saw"
    assert words.names[words.find("it")] == "It"
    assert words.find("cat#2") > words.find("cat#1")
    assert words.find(2) == 2
    assert words.find(-1) == len(words) - 1


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("cat", "the text has 'cat' 2 times; say which: cat#1 or cat#2"),
        ("cat#3", "the text has 'cat' 2 times, so there is no 'cat#3'"),
        ("sew", "the text has no word 'sew'; did you mean 'saw'\\?"),
        ("zebra", "the text has no word 'zebra'; it has the, cat, saw"),
    ],
)
def test_words_that_are_not_there(word: str, message: str) -> None:
    with pytest.raises(WordError, match=message):
        read(word_piece(), "the cat saw the cat").find(word)


def test_of_many_words_of_one_name_only_some_are_listed() -> None:
    for times, said in ((3, "it#1 or it#2 or it#3"), (170, "it#1, it#2, … it#170")):
        with pytest.raises(WordError, match=f"'it' {times} times; say which: {said}$"):
            read(word_piece(), "it " * times).find("it")


def test_what_a_name_is_called_finds_it() -> None:
    words = read(word_piece(), "the cat saw the cat; It slept")
    assert words.called(words.find("cat#2")) == "cat#2"
    assert [words.find(words.called(i)) for i in range(len(words))] == list(range(len(words)))
    tokens = read(word_piece(), "unsleeping").as_tokens()
    piece = next(name for name in tokens.names if name.startswith("##"))
    assert tokens.names[tokens.find(tokens.called(tokens.names.index(piece)))] == piece


def test_what_cannot_be_seen_is_spelled_out() -> None:
    assert [visible(text) for text in ("\n", " ", "", "a\x00", "\u200b")] == [
        "'\\n'", "' '", "''", "'a\\x00'", "'\\u200b'",
    ]  # fmt: skip
    for text in ("it", " it", "میخواهم", "می\u200cخواهم", "🙂"):
        assert visible(text) == text


def test_the_names_of_a_long_text_are_made_once() -> None:
    words = read(word_piece(), "it slept")
    assert words.names is words.names
    assert words.is_word is words.is_word


def test_numbers_that_are_not_there() -> None:
    words = read(word_piece(), "it slept")
    with pytest.raises(OptionError, match="word 9, but there are 4, numbered from 0"):
        words.find(9)
    with pytest.raises(WordError, match="no word at character 2"):
        words.at(2)


def test_overlaps_are_those_of_all_pairs() -> None:
    spans = [(0, 3), (3, 3), (2, 9), (9, 11), (5, 6)]
    words = [(0, 2), (2, 5), (5, 8), (10, 12)]
    expected = torch.zeros(len(spans), len(words))
    for i, (a, b) in enumerate(spans):
        for j, (c, d) in enumerate(words):
            expected[i, j] = max(0, min(b, d) - max(a, c)) + (a == b and c <= a < d)
    expected /= expected.sum(1, keepdim=True).clamp(min=1)
    torch.testing.assert_close(torch.from_numpy(shares(spans, words)).float(), expected)
    assert overlaps([], words) == overlaps(spans, []) == []


def test_spelling_out_takes_time_linear_in_the_length() -> None:
    text = "😀 né" * 300
    read = 0

    def decode(ids: Sequence[int]) -> str:
        nonlocal read
        read += len(ids)
        return bytes(ids).decode(errors="replace")

    ids = list(text.encode())
    spans = spelled(decode, ids, text)
    assert read < 40 * len(ids)
    assert [text[start:end] for start, end in spans if end > start] == list(text.replace(" ", ""))


def test_spelled_out() -> None:
    tokenizer = Tokenizer.train(LINES * 3, size=60)
    ids = tokenizer.encode("the cats slept")
    spans = spelled(tokenizer.decode, ids, "the cats slept")
    assert [("the cats slept"[a:b]) for a, b in spans] == [
        piece.removeprefix("▁") for piece in tokenizer.tokens(ids)
    ]


@pytest.mark.parametrize(
    ("pieces", "text", "wanted"),
    [
        (["The", " cat", " sleeps"], "The\ncat  sleeps", ["The", "cat", "sleeps"]),
        (["the", " ca", "t"], "The Cat", ["The", "Ca", "t"]),
        (["wait", "...", " there"], "wait… there", ["wait", "", "there"]),
        (["I", " like", "", " a", " lot"], "I like 🦄 a lot", ["I", "like", "", "a", "lot"]),
        (["a", " ", "b"], "a b", ["a", "", "b"]),
    ],
)
def test_what_is_spelled_otherwise_loses_nobody_else(
    pieces: list[str], text: str, wanted: list[str]
) -> None:
    spans = spelled(lambda ids: "".join(pieces[i] for i in ids), range(len(pieces)), text)
    assert [text[a:b] for a, b in spans] == wanted


def test_an_unknown_sign_stands_where_it_is() -> None:
    text, pieces = "I like 🦄 a lot", ["I", " like", "", " a", " lot"]
    spans = spelled(lambda ids: "".join(pieces[i] for i in ids), range(5), text)
    words = Words(text, tuple(pieces), tuple(spans), (False,) * 5)
    assert words.tokens_of(words.find("🦄")) == [2]
    assert words.names == ("I", "like", "🦄", "a", "lot")


def test_an_ordinal_has_plain_digits() -> None:
    words = Words("it it", ("it", "it"), ((0, 2), (3, 5)), (False, False))
    assert words.find("it#2") == 1
    with pytest.raises(WordError, match="no word 'it#²'"):
        words.find("it#²")


def test_long_texts_take_little_memory() -> None:
    text = "word " * 20_000
    spans = tuple((5 * i, 5 * i + 4) for i in range(20_000))
    words = Words(text, ("word",) * 20_000, spans, (False,) * 20_000)
    assert words.summed(torch.ones(20_000)).tolist() == [1.0] * 20_000


def test_word_spans_of_nothing() -> None:
    assert word_spans(" \n") == []
    assert len(Words("", (), (), ())) == 0


def test_what_spells_nothing_does_not_count_in_a_mean() -> None:
    words = Words("Bat a", ("⇧", "bat", "▁", "a"), ((0, 0), (0, 3), (4, 4), (4, 5)), (False,) * 4)
    x = torch.tensor([[8.0], [1.0], [8.0], [2.0]])
    assert words.averaged(x, spelled=True).tolist() == [[1.0], [2.0]]
    assert words.averaged(x).tolist() == [[4.5], [5.0]]
    assert words.summed(x[:, 0]).tolist() == [9.0, 10.0]
    alone = Words("a", ("▁", "<s>"), ((0, 0), (0, 0)), (False, True))
    assert alone.averaged(torch.tensor([[3.0], [4.0]]), spelled=True).tolist() == [[3.0], [4.0]]
