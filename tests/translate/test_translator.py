"""Texts come back translated, in order, whole, and with their alignments."""

from __future__ import annotations

import importlib.util
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from regard.errors import FileError, OptionError
from regard.nn import Transformer, TransformerConfig
from regard.text import Tokenizer
from regard.translate import (
    Beam,
    Greedy,
    Sampling,
    Translation,
    Translator,
)
from regard.translate import translator as module
from regard.translate.alignment import attention_to_source
from regard.translate.model_files import save_model
from regard.translate.search import search
from regard.translate.translator import CHUNKS


def dictionary() -> ModuleType:
    """The model set by hand that stands beside this file."""
    path = Path(__file__).with_name("dictionary.py")
    spec = importlib.util.spec_from_file_location("dictionary", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CHANCE = random.Random(3)
PAIRS = [dictionary().sentence(CHANCE) for _ in range(12)]
TEXTS = [source for source, _ in PAIRS]


@pytest.fixture(scope="module")
def translator() -> Translator:
    return dictionary().dictionary()  # type: ignore[no-any-return]


def texts(found: list[Translation]) -> list[str]:
    return [one.text for one in found]


# ── translating ───────────────────────────────────────────────────────────────────────────────


def test_several_threads_find_the_same(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    seen: set[int] = set()
    shared = torch.get_num_threads()

    def noticed(*args: object, **kwargs: object) -> object:
        seen.add(threading.get_ident())
        assert torch.get_num_threads() == 1
        return search(*args, **kwargs)  # type: ignore[arg-type]

    wanted = translator.translate(TEXTS * 3, beam=3, batch=100)
    monkeypatch.setattr(module, "search", noticed)
    assert translator.translate(TEXTS * 3, beam=3, batch=100, threads=3) == wanted
    assert threading.get_ident() not in seen
    assert torch.get_num_threads() == shared


def test_a_single_batch_is_shared_out(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One thread would have to do it all, while the others wait."""
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    sizes: list[int] = []

    def noticed(model: object, sources: list[list[int]], *args: object, **kwargs: object) -> object:
        sizes.append(len(sources))
        return search(model, sources, *args, **kwargs)  # type: ignore[arg-type]

    wanted = translator.translate(TEXTS, beam=2)
    monkeypatch.setattr(module, "search", noticed)
    for threads, least in ((1, 1), (2, 2)):
        sizes.clear()
        assert translator.translate(TEXTS, beam=2, threads=threads) == wanted
        assert len(sizes) >= least
        assert max(sizes) <= len(TEXTS) // threads + 1
    assert translator.translate([""], threads=2)[0].text == ""


def test_never_more_threads_than_cores(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: set[int] = set()

    def noticed(*args: object, **kwargs: object) -> object:
        seen.add(threading.get_ident())
        return search(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr("os.cpu_count", lambda: 2)
    monkeypatch.setattr(module, "search", noticed)
    translator.translate(TEXTS, beam=1, batch=1, threads=1000)
    assert len(seen) <= 2 < len(TEXTS)


def test_an_error_in_a_thread_is_raised(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*args: object, **kwargs: object) -> object:
        raise ValueError("lost")

    shared = torch.get_num_threads()
    monkeypatch.setattr(module, "search", failing)
    with pytest.raises(ValueError, match="lost"):
        translator.translate(TEXTS, batch=50, threads=2)
    assert torch.get_num_threads() == shared
    with pytest.raises(OptionError, match="threads=0, expected 1 or more"):
        translator.translate(TEXTS, threads=0)


def test_each_text_gets_its_own_translation(translator: Translator) -> None:
    found = translator.translate(TEXTS, beam=3)
    assert [(one.source, one.text) for one in found] == PAIRS
    for text, one in zip(TEXTS, found, strict=True):
        ((wanted,),) = search(translator.model, [translator.tokenizer.encode(text)], Beam(3))
        assert one.tokens == tuple(translator.tokenizer.tokens(wanted.tokens))
        assert one.score == pytest.approx(wanted.score)
        assert one.log_probability == pytest.approx(wanted.log_probability)
        assert (one.parts, one.ended, one.alternatives) == (1, True, ())
        assert str(one) == one.text


@pytest.mark.parametrize("batch", [1, 90, 10_000])
def test_the_size_of_batches_changes_nothing(translator: Translator, batch: int) -> None:
    found = translator.translate(TEXTS, Sampling(seed=2), batch=batch)
    assert texts(found) == texts(translator.translate(TEXTS, Sampling(seed=2)))
    assert texts(translator.translate(TEXTS, beam=3, batch=batch)) == [said for _, said in PAIRS]


def test_empty_lines_stay_empty_lines(translator: Translator) -> None:
    found = translator.translate(["", "one two.", "  \t", "\u2028"], beam=2)
    assert [bool(one.text) for one in found] == [False, True, False, False]
    assert [one.source for one in found] == ["", "one two.", "  \t", "\u2028"]
    assert (found[0].score, found[0].tokens, found[0].ended) == (0.0, (), True)
    assert found[0].alignment.target_words == ()
    assert translator.translate([]) == []


def test_a_beam_of_five_if_nothing_is_said(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    monkeypatch.setattr(
        module, "search", lambda *given, **more: asked.append(given[2]) or search(*given, **more)
    )
    translator.translate(TEXTS)
    translator.translate(TEXTS, beam=2)
    translator.translate(TEXTS, Beam(3, 0.5))
    assert list(dict.fromkeys(asked)) == [Beam(5), Beam(2), Beam(3, 0.5)]


def test_the_n_best_follow_on_the_best(translator: Translator) -> None:
    best = translator.translate(TEXTS, beam=4)
    for one, ranked in zip(best, translator.translate(TEXTS, beam=4, n_best=3), strict=True):
        assert (ranked.text, ranked.score) == (one.text, pytest.approx(one.score))
        assert len(ranked.alternatives) == 2
        scores = [ranked.score, *(each.score for each in ranked.alternatives)]
        assert scores == sorted(scores, reverse=True)
        assert {each.source for each in ranked.alternatives} == {ranked.source}


def test_numbers_of_texts_go_on_for_drawing(translator: Translator) -> None:
    whole = translator.translate(TEXTS, Sampling(seed=5))
    assert texts(translator.translate(TEXTS[4:], Sampling(seed=5), first=4)) == texts(whole)[4:]
    assert texts(translator.translate(TEXTS[4:], Sampling(seed=5))) != texts(whole)[4:]
    assert len(set(texts(translator.translate(["one two three"] * 5, Sampling())))) > 1


def test_a_model_in_training_translates_without_dropout_and_goes_on(
    translator: Translator,
) -> None:
    config = TransformerConfig(vocabulary=47, width=8, encoder_depth=1, decoder_depth=1, heads=2,
                               feed_forward=8, dropout=0.5)  # fmt: skip
    other = Translator(Transformer(config).eval(), translator.tokenizer)
    wanted = texts(other.translate(TEXTS, Greedy()))
    other.model.train()
    assert texts(other.translate(TEXTS, Greedy())) == wanted
    assert other.model.training


def test_streams_read_no_more_than_they_must(translator: Translator) -> None:
    read = 0

    def lines() -> Iterator[str]:
        nonlocal read
        for i in range(40):
            read += 1
            yield TEXTS[i % len(TEXTS)]

    found = translator.stream(lines(), Greedy())
    first = next(found)
    assert read == CHUNKS[0] < 40
    rest = list(found)
    assert read == 40
    wanted = translator.translate((TEXTS * 4)[:40], Greedy())
    assert texts([first, *rest]) == texts(wanted)


def test_streams_draw_as_if_all_had_come_at_once(translator: Translator) -> None:
    drawn = translator.stream(iter(TEXTS * 3), Sampling(), n_best=2)
    assert texts(list(drawn)) == texts(translator.translate(TEXTS * 3, Sampling(), n_best=2))


# ── long texts ────────────────────────────────────────────────────────────────────────────────


def test_a_long_text_is_translated_sentence_by_sentence(translator: Translator) -> None:
    limited = Translator(translator.model, translator.tokenizer, longest=4)
    text = "one two three.  four five. six seven eight nine ten."
    pieces = ["one two three.", "four five.", "six seven eight nine", "ten."]
    each = limited.translate(pieces, beam=2)
    whole, short = limited.translate([text, "one two."], beam=2)
    assert (whole.parts, short.parts) == (4, 1)
    assert whole.text == "eins zwei drei! vier fünf! sechs sieben acht neun zehn!"
    assert whole.log_probability == pytest.approx(sum(one.log_probability for one in each))
    length = sum(len(one.tokens) + one.ended for one in each)
    assert whole.score == pytest.approx(whole.log_probability / length)
    alignment = whole.alignment
    assert " ".join(alignment.source_words) == (
        "one two three . four five . six seven eight nine ten ."
    )
    assert alignment.pairs == [(i, i) for i in range(13)]
    assert alignment.weights[4:7, :4] == pytest.approx(0.0), "one part has nothing from another"


def test_learned_positions_have_room_for_the_end(translator: Translator) -> None:
    config = TransformerConfig(
        vocabulary=47, width=12, encoder_depth=1, decoder_depth=1, heads=3, feed_forward=20,
        position="learned", max_length=6,
    )  # fmt: skip
    small = Translator(Transformer(config), translator.tokenizer)
    assert small.longest == 5
    found = small.translate(TEXTS, beam=2)
    assert max(one.parts for one in found) == 2
    assert max(len(one.tokens) for one in found) <= 12


# ── alignments ────────────────────────────────────────────────────────────────────────────────


def test_alignments_are_found(translator: Translator) -> None:
    for one in translator.translate(TEXTS):
        alignment = one.alignment
        assert alignment.pairs == [(i, i) for i in range(len(alignment.target_words))]
        assert alignment.weights.sum(1) == pytest.approx(1.0)
    assert translator.translate(["two ten."])[0].alignment.of(1)[0][0] == "ten"


def test_an_alignment_is_the_attention_of_the_last_two_blocks(translator: Translator) -> None:
    """Computed by hand, softmax and all, from the weights of a model that was never trained."""
    config = TransformerConfig(
        vocabulary=47, width=12, encoder_depth=1, decoder_depth=3, heads=3, feed_forward=20
    )
    model = Transformer(config).double().eval()
    ids, said = [5, 7, 9], [16, 18, 20, 22]
    weights = []
    with torch.no_grad():
        memory = model.encode(torch.tensor([[*ids, Tokenizer.end]]))
        for block in model.decoder.blocks[1:]:
            layer, inputs = block.cross, list[torch.Tensor]()
            hook = layer.register_forward_pre_hook(
                lambda _, given, kept=inputs: kept.append(given[0])
            )
            model.decode(torch.tensor([[Tokenizer.start, *said]]), memory)
            hook.remove()
            q = (inputs[0] @ layer.w_q + layer.b_q).view(-1, 3, 4).transpose(0, 1)
            k = (memory @ layer.w_k + layer.b_k).view(-1, 3, 4).transpose(0, 1)
            weights.append(torch.softmax(q @ k.mT / 2, -1).mean(0)[:-1, :-1])
    # Beside a longer pair, so that both are padded.
    longer = [4, 5, 6, 7, 8], [9, 10, 11, 12, 13, 14]
    found = attention_to_source(model, [ids, longer[0]], [said, longer[1]])
    assert [tuple(one.shape) for one in found] == [(4, 3), (6, 5)]
    mean = sum(weights) / 2
    assert torch.allclose(found[0], mean / mean.sum(1, keepdim=True))
    one = attention_to_source(model, [ids], [said], layer=1)[0]
    assert torch.allclose(one, weights[0] / weights[0].sum(1, keepdim=True))
    assert not torch.allclose(one, found[0], atol=1e-3)


def test_alignments_of_many_are_those_of_each(translator: Translator) -> None:
    found = translator.translate([*TEXTS, ""], Sampling(seed=1))
    for one, together in zip(found, translator.align(found), strict=True):
        assert together.target_words == one.alignment.target_words
        assert together.weights == pytest.approx(one.alignment.weights, abs=1e-5)
        assert one.alignment is one.alignment


def test_alternatives_have_alignments_too(translator: Translator) -> None:
    (one,) = translator.translate(["one two"], beam=3, n_best=2)
    other = one.alternatives[0].alignment
    assert other.weights.shape == (len(other.target_words), 2)


def test_a_layer_that_is_not_there(translator: Translator) -> None:
    with pytest.raises(OptionError, match=r"layer=2, but the decoder has 2 blocks, numbered from"):
        translator.align(translator.translate(["one"]), layer=2)


# ── from a folder, and errors ─────────────────────────────────────────────────────────────────


def test_a_folder_is_all_that_is_needed(translator: Translator, tmp_path: Path) -> None:
    save_model(tmp_path, translator.model, longest=17)
    translator.tokenizer.save(tmp_path / "tokenizer.json")
    again = Translator.load(tmp_path)
    assert again.longest == 17
    assert texts(again.translate(TEXTS, beam=2)) == [said for _, said in PAIRS]


def test_folders_that_do_not_fit(translator: Translator, tmp_path: Path) -> None:
    save_model(tmp_path, translator.model)
    with pytest.raises(FileError, match=r"tokenizer\.json: cannot be read: No such file"):
        Translator.load(tmp_path)
    Tokenizer.train(["a b c d e f"] * 9, size=11).save(tmp_path / "tokenizer.json")
    with pytest.raises(FileError, match=r"tokenizer\.json: has 11 subwords but the model 47; it"):
        Translator.load(tmp_path)
    with pytest.raises(OptionError, match=r"the tokenizer has 11 subwords but the model 47; use"):
        Translator(translator.model, Tokenizer.load(tmp_path / "tokenizer.json"))


@pytest.mark.usefixtures("as_users_run")
def test_what_is_no_model_and_no_tokenizer(translator: Translator) -> None:
    model, tokenizer = translator.model, translator.tokenizer
    with pytest.raises(OptionError, match="model is NoneType, expected a Transformer of regard"):
        Translator(None, tokenizer)
    with pytest.raises(OptionError, match="tokenizer is str, expected a Tokenizer of regard"):
        Translator(model, "tokenizer.json")


def test_bad_calls(translator: Translator) -> None:
    with pytest.raises(OptionError, match=r"translate: texts is one text, expected a list; use"):
        translator.translate("one two")
    with pytest.raises(OptionError, match=r"both how=Greedy\(\) and beam=2 given; give one"):
        translator.translate(TEXTS, Greedy(), beam=2)
    with pytest.raises(OptionError, match=r"batch=0, expected 1 or more"):
        translator.translate(TEXTS, batch=0)
    with pytest.raises(OptionError, match=r"Beam: size=0, expected 1 or more"):
        translator.translate(TEXTS, beam=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beam": 2.5}, r"Beam: size=2\.5, expected a whole number"),
        ({"beam": "5"}, r"Beam: size='5', expected a whole number"),
        ({"beam": True}, r"Beam: size=True, expected a whole number"),
        ({"n_best": 0}, r"translate: n_best=0, expected 1 or more"),
        ({"n_best": "2"}, r"translate: n_best='2', expected a whole number"),
        ({"n_best": 6}, r"translate: n_best=6 of a beam of 5; use a beam of 6 or more"),
        ({"batch": 10.5}, r"translate: batch=10\.5, expected a whole number"),
        ({"threads": 1.5}, r"translate: threads=1.5, expected a whole number"),
        ({"first": -1}, r"translate: first=-1, expected 0 or more"),
        ({"how": "beam"}, r"translate: how is str, expected Beam, Greedy or Sampling"),
        ({"texts": None}, r"translate: texts is NoneType, expected a list of texts"),
        ({"texts": ["one", 2]}, r"translate: texts\[1\] is int, expected a text"),
        ({"texts": ["one", b"two"]}, r"translate: texts\[1\] is bytes, expected a text"),
    ],
)
@pytest.mark.usefixtures("as_users_run")
def test_calls_with_nonsense(translator: Translator, options: dict[str, Any], message: str) -> None:
    """Even where there is nothing to translate."""
    with pytest.raises(OptionError, match=message):
        translator.translate(**{"texts": [""], **options})


@pytest.mark.usefixtures("as_users_run")
def test_nonsense_elsewhere(translator: Translator) -> None:
    for longest, message in ((0, "longest=0, expected 1 or more"), ("9", "'9', expected a whole")):
        with pytest.raises(OptionError, match=message):
            Translator(translator.model, translator.tokenizer, longest=longest)
    (one,) = translator.translate(["one two"])
    with pytest.raises(OptionError, match=r"Alignment\.of: word 'two' asked for, but there are 2"):
        one.alignment.of("two")
    with pytest.raises(OptionError, match=r"layer=0\.5, but the decoder has 2 blocks, numbered"):
        translator.align([one], layer=0.5)
    with pytest.raises(OptionError, match=r"align: got one translation, expected a list; use \["):
        translator.align(one)
