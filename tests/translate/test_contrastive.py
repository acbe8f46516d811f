"""Contrastive test sets: what is read, what counts as right, and the interval."""

from __future__ import annotations

import json

import pytest

from regard.errors import FileError
from regard.translate import Translator
from regard.translate.contrastive import Accuracy, Item, evaluate, read_items

ITEM = {
    "source": "It is new.",
    "targets": ["Sie ist neu.", "Er ist neu.", "Es ist neu.", "Sie ist neu."],
    "context": ["Look.", "A chair and a lamp."],
    "context_target": "Ein Stuhl und eine Lampe.",
}


def read(*objects: object, context: int = 0) -> list[Item]:
    return read_items([json.dumps(one) for one in objects], "test.jsonl", context)


@pytest.fixture(scope="module")
def pocket() -> Translator:
    return Translator.load("pocket-en-de")


def test_an_item_without_context() -> None:
    [item] = read(ITEM)
    assert (item.source, item.word) == ("It is new.", "sie")
    assert item.targets == ("Sie ist neu.", "Er ist neu.", "Es ist neu.")  # no text twice


def test_context_stands_in_front() -> None:
    [item] = read(ITEM, context=1)
    assert item.source == "A chair and a lamp. It is new."
    assert item.targets[1] == "Ein Stuhl und eine Lampe. Er ist neu."
    assert item.word == "sie"
    [item] = read(ITEM, context=2)
    assert item.source == "Look. A chair and a lamp. It is new."


def test_context_may_be_empty_and_that_of_the_target_missing() -> None:
    first, second = read(
        {**ITEM, "context": "A lamp."} | {"context_target": ""},
        {"source": "It.", "targets": ["Sie.", "Er."], "context": ""},
        context=1,
    )
    assert (first.source, first.targets[0]) == ("A lamp. It is new.", "Sie ist neu.")
    assert second.source == "It."


def test_the_word_is_the_one_that_all_others_replace() -> None:
    targets = [["Seiner, er.", "Ihrer, sie.", "Seiner, es."], ["a b", "c"], ["a", "a b"]]
    words = [item.word for item in read(*({"source": "", "targets": one} for one in targets))]
    assert words == ["er", "a", None]


def test_right_is_more_probable_than_every_other(pocket: Translator) -> None:
    good, bad, worse = "Die Katze schläft.", "Der Katze schläft.", "Der schläft Hund."
    targets = [[good, bad, worse], [bad, good, worse], [good, bad], [good, good.replace(" ", "  ")]]
    items = read(*({"source": "The cat sleeps.", "targets": one} for one in targets))
    done: list[int] = []
    found = evaluate(pocket, items, done.append)
    assert found.total == Accuracy(2, 4)  # a tie is not right
    assert found.words == {"die": Accuracy(2, 2)}
    assert (found.chance, found.targets, done) == (pytest.approx(5 / 12), 10, [4])


def test_a_text_over_the_limit_names_its_line(pocket: Translator) -> None:
    items = read(ITEM, {"source": "one " * 1100, "targets": ["a", "b"]})
    with pytest.raises(FileError, match=r"^test.jsonl, line 2: a text of 1,\d+ subwords, but the"):
        evaluate(pocket, items)


@pytest.mark.parametrize(
    ("correct", "n", "low", "high"),
    # R: prop.test(x, n, correct = FALSE)$conf.int
    [(60, 100, 0.5020026, 0.6905987), (0, 10, 0.0, 0.2775328), (10, 10, 0.7224672, 1.0)],
)
def test_the_interval(correct: int, n: int, low: float, high: float) -> None:
    assert Accuracy(correct, n).interval == pytest.approx((low, high), abs=1e-6)


@pytest.mark.parametrize(
    ("line", "context", "message"),
    [
        ("{", 0, "not JSON: Expecting property name enclosed in double quotes at column 2"),
        ("[" * 100_000, 0, "not JSON of this form: nested too deeply"),
        ("[]", 0, "a JSON list, expected an object with source and targets"),
        ("{}", 0, "source and targets missing"),
        ('{"targets": []}', 0, "source missing"),
        ('{"source": 1, "targets": []}', 0, "source holds int, expected text"),
        ('{"source": "a", "targets": "b"}', 0, "targets is str, expected a list of texts"),
        ('{"source": "a", "targets": ["b", 2]}', 0, "targets holds int, expected text"),
        ('{"source": "a", "targets": ["b", "b"]}', 0, "targets has 1 different text, expected "),
        ('{"source": "\\ud800", "targets": []}', 0, "source has half a surrogate pair, which is"),
        ('{"source": "a", "targets": ["b", "c"]}', 1, "context missing; leave out --context to"),
        (
            '{"source": "a", "targets": ["b", "c"], "context": {}}',
            1,
            "context holds dict, expected text",
        ),
    ],
)
def test_bad_lines_are_named(line: str, context: int, message: str) -> None:
    good = json.dumps(ITEM)
    with pytest.raises(FileError) as error:
        read_items([good, "", line, good], "test.jsonl", context)
    assert str(error.value).startswith(f"test.jsonl, line 3: {message}")


def test_empty_and_too_little_context() -> None:
    with pytest.raises(FileError, match=r"^test.jsonl: the file is empty$"):
        read_items(["", "  "], "test.jsonl")
    with pytest.raises(FileError, match="3 sentences of context asked for, but no line has more"):
        read(ITEM, context=3)
