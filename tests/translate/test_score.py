"""Log-probabilities of given translations equal a plain loop over the model's logits."""

from __future__ import annotations

import math
from copy import deepcopy

import pytest
import torch

from regard import watch
from regard.errors import OptionError
from regard.nn import Transformer, TransformerConfig
from regard.text import Tokenizer
from regard.translate import Translator
from regard.translate.probability import log_probabilities

WORDS = ["one", "two", "three", "four", "five", "eins", "zwei", "drei", "vier", "fünf"]
SOURCES = ["one two", "three", "one two", "five four three two one", "", "two"]
TARGETS = ["eins zwei", "drei drei drei drei", "zwei eins eins", "fünf", "eins", ""]


@pytest.fixture(scope="module")
def translator() -> Translator:
    """A model with random weights, so that no two sentences are equally probable."""
    torch.manual_seed(0)
    tokenizer = Tokenizer.train(WORDS * 3, size=30)
    config = TransformerConfig(
        vocabulary=tokenizer.size, width=32, encoder_depth=2, decoder_depth=2, heads=4,
        feed_forward=64, max_length=64,
    )  # fmt: skip
    model = Transformer(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2)
    return Translator(model, tokenizer)


def by_loop(translator: Translator, source: str, target: str) -> list[float]:
    """log p of each subword and of the end, one at a time, in float64."""
    model = deepcopy(translator.model).double().eval()
    encode = translator.tokenizer.encode
    memory = model.encode(torch.tensor([[*encode(source), Tokenizer.end]]))
    read, found = [Tokenizer.start], []
    for word in [*encode(target), Tokenizer.end]:
        hidden = model.decode(torch.tensor([read]), memory)
        found.append(model.logits(hidden)[0, -1].log_softmax(0)[word].item())
        read.append(word)
    return found


def test_equals_a_plain_loop(translator: Translator) -> None:
    found = translator.score(SOURCES, TARGETS, tokens=True)
    wanted = [by_loop(translator, *pair) for pair in zip(SOURCES, TARGETS, strict=True)]
    assert [len(one) for one in found] == [len(one) for one in wanted]
    for one, right in zip(found, wanted, strict=True):
        assert one == pytest.approx(right, rel=1e-5, abs=1e-5)
    sums = translator.score(SOURCES, TARGETS)
    assert sums == [math.fsum(one) for one in found]
    assert len({round(value, 3) for value in sums}) == len(sums)


@pytest.mark.parametrize("batch", [1, 12, 30, 10_000])
@pytest.mark.parametrize("threads", [1, 2])
def test_batches_and_threads_change_nothing(
    translator: Translator, batch: int, threads: int
) -> None:
    model = deepcopy(translator.model).double().eval()
    ids = [translator.tokenizer.encode_batch(texts) for texts in (SOURCES, TARGETS)]
    found = log_probabilities(model, *ids, batch=batch, threads=threads)
    for pair, one in zip(zip(SOURCES, TARGETS, strict=True), found, strict=True):
        assert one == pytest.approx(by_loop(translator, *pair), abs=1e-12)


def test_is_what_translating_reports() -> None:
    pocket = Translator.load("pocket-en-de")
    said = pocket.translate(["The cat sleeps.", "I have a red house."], beam=2)
    found = pocket.score([one.source for one in said], [one.text for one in said])
    assert found == pytest.approx([one.log_probability for one in said], abs=1e-4)


def test_dropout_is_off_and_comes_back(translator: Translator) -> None:
    assert translator.model.training
    assert translator.score(SOURCES, TARGETS) == translator.score(SOURCES, TARGETS)
    assert translator.model.training


def test_bfloat16_is_near(translator: Translator) -> None:
    narrow = Translator(translator.model, translator.tokenizer, precision="bfloat16")
    found = narrow.score(SOURCES, TARGETS)
    assert found == pytest.approx(translator.score(SOURCES, TARGETS), rel=0.1)
    assert found != translator.score(SOURCES, TARGETS)


def test_watching_sees_it_and_changes_nothing(translator: Translator) -> None:
    wanted = translator.score(SOURCES, TARGETS, threads=1)
    with watch(translator.model) as seen:
        assert translator.score(SOURCES, TARGETS) == wanted
    assert len(seen) == 6


def test_nothing_to_score(translator: Translator) -> None:
    assert translator.score([], []) == []


@pytest.mark.parametrize(
    ("sources", "targets", "message"),
    [
        ("one", ["eins"], "score: sources is one text, expected a list; use [text]"),
        (["one"], "eins", "score: targets is one text, expected a list; use [text]"),
        (["one"], [1], "score: targets[0] is int, expected a text (str)"),
        (["one", None], ["eins"], "score: sources[1] is NoneType, expected a text (str)"),
        (None, ["eins"], "score: sources is NoneType, expected a list of texts"),
        (["one"], [], "score: 1 sources but 0 targets; give one source per target"),
        (
            ["one", "one " * 64],
            ["eins"] * 2,
            "score: sources[1] has 64 subwords, but the model takes 63; score its sentences one by"
            " one",
        ),
        (
            ["one"],
            ["eins " * 64],
            "score: targets[0] has 64 subwords, but the model takes 63; score its sentences one by"
            " one",
        ),
    ],
)
@pytest.mark.usefixtures("as_users_run")
def test_bad_input(translator: Translator, sources: object, targets: object, message: str) -> None:
    with pytest.raises(OptionError) as error:
        translator.score(sources, targets)  # type: ignore[call-overload]
    assert str(error.value) == message


def test_a_bad_number_of_threads(translator: Translator) -> None:
    with pytest.raises(OptionError, match="score: threads=0, expected 1 or more"):
        translator.score(["one"], ["eins"], threads=0)


def test_as_long_as_the_model_takes(translator: Translator) -> None:
    [found] = translator.score(["one " * 63], ["eins " * 63], tokens=True)
    assert len(found) == 64
