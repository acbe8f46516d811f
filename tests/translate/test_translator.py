"""Texts come back translated, in order, whole, and with their alignments."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from regard.errors import FileError, OptionError
from regard.nn import Transformer, TransformerConfig
from regard.text import Tokenizer
from regard.translate import Beam, Greedy, Sampling, Translation, Translator
from regard.translate.model_files import save_model
from regard.translate.search import search
from regard.translate.translator import CHUNKS

LINES = [
    "the cat sleeps.", "a dog barks at the cat!", "who sees the bird? the cat sees it.",
    "it rains, and the dog sleeps.", "birds sing.", "the old dog and the young cat eat.",
]  # fmt: skip
TEXTS = [*LINES, "the", "cat cat cat cat", "rains", "a bird sings; it rains."]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(LINES * 20, size=50)


def sharp(vocabulary: int, seed: int = 1) -> Transformer:
    """A model in float64 with strong opinions, which says the end now and then."""
    torch.manual_seed(seed)
    config = TransformerConfig(
        vocabulary=vocabulary, width=12, encoder_depth=1, decoder_depth=3, heads=3,
        feed_forward=20, output_bias=True, max_length=64, dropout=0.5,
    )  # fmt: skip
    model = Transformer(config).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(1.6)
        assert model.output_bias is not None
        model.output_bias[Tokenizer.end] = 6.0
    return model


@pytest.fixture(scope="module")
def translator(tokenizer: Tokenizer) -> Translator:
    return Translator(sharp(tokenizer.size), tokenizer)


def texts(found: list[Translation]) -> list[str]:
    return [one.text for one in found]


# ── translating ───────────────────────────────────────────────────────────────────────────────


def test_each_text_gets_its_own_translation(translator: Translator) -> None:
    found = translator.translate(TEXTS, beam=3)
    assert [one.source for one in found] == TEXTS
    assert len(set(texts(found))) > 5
    for text, one in zip(TEXTS, found, strict=True):
        ((wanted,),) = search(translator.model, [translator.tokenizer.encode(text)], Beam(3))
        assert one.text == translator.tokenizer.decode(wanted.tokens)
        assert one.tokens == tuple(translator.tokenizer.tokens(wanted.tokens))
        assert one.score == pytest.approx(wanted.score)
        assert one.log_probability == pytest.approx(wanted.log_probability)
        assert (one.parts, one.ended, one.alternatives) == (1, wanted.ended, ())
        assert str(one) == one.text


@pytest.mark.parametrize("batch", [1, 90, 10_000])
def test_the_size_of_batches_changes_nothing(translator: Translator, batch: int) -> None:
    assert texts(translator.translate(TEXTS, beam=3, batch=batch)) == texts(
        translator.translate(TEXTS, beam=3)
    )


def test_empty_lines_stay_empty_lines(translator: Translator) -> None:
    found = translator.translate(["", "birds sing.", "  \t", "\u2028"], beam=2)
    assert [bool(one.text) for one in found] == [False, True, False, False]
    assert [one.source for one in found] == ["", "birds sing.", "  \t", "\u2028"]
    assert (found[0].score, found[0].tokens, found[0].ended) == (0.0, (), True)
    assert found[0].alignment.target_words == ()
    assert translator.translate([]) == []


def test_a_beam_of_five_if_nothing_is_said(translator: Translator) -> None:
    assert translator.translate(TEXTS) == translator.translate(TEXTS, Beam(5))
    assert translator.translate(TEXTS, beam=1) != translator.translate(TEXTS)


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
    assert len(set(texts(translator.translate(["the cat"] * 5, Sampling())))) > 1


def test_a_model_in_training_translates_without_dropout_and_goes_on(
    translator: Translator,
) -> None:
    wanted = texts(translator.translate(TEXTS, beam=2))
    translator.model.train()
    try:
        assert texts(translator.translate(TEXTS, beam=2)) == wanted
        assert translator.model.training
    finally:
        translator.model.eval()


def test_streams_read_no_more_than_they_must(translator: Translator) -> None:
    read = 0

    def lines() -> Iterator[str]:
        nonlocal read
        for i in range(40):
            read += 1
            yield TEXTS[i % len(TEXTS)]

    found = translator.stream(lines(), Greedy())
    first = next(found)
    assert read == CHUNKS[0]
    rest = list(found)
    assert read == 40
    wanted = translator.translate((TEXTS * 4)[:40], Greedy())
    assert texts([first, *rest]) == texts(wanted)


def test_streams_draw_as_if_all_had_come_at_once(translator: Translator) -> None:
    drawn = translator.stream(iter(TEXTS * 3), Sampling(), n_best=2)
    assert texts(list(drawn)) == texts(translator.translate(TEXTS * 3, Sampling(), n_best=2))


# ── long texts ────────────────────────────────────────────────────────────────────────────────


def test_a_long_text_is_translated_sentence_by_sentence(translator: Translator) -> None:
    limited = Translator(translator.model, translator.tokenizer, longest=14)
    text = "the cat sleeps.  a dog barks! it rains, and the dog sleeps."
    pieces = ["the cat sleeps.", "a dog barks!", "it rains,", "and the dog sleeps."]
    each = limited.translate(pieces, beam=2)
    whole, short = limited.translate([text, "birds sing."], beam=2)
    assert whole.parts == 4
    assert whole.text == " ".join(one.text for one in each)
    assert whole.log_probability == pytest.approx(sum(one.log_probability for one in each))
    length = sum(len(one.tokens) + one.ended for one in each)
    assert whole.score == pytest.approx(whole.log_probability / length)
    assert short.parts == 1
    assert " ".join(whole.alignment.source_words) == (
        "the cat sleeps . a dog barks ! it rains , and the dog sleeps ."
    )
    assert whole.alignment.weights.sum(1) == pytest.approx(1.0)
    # A word of one part has nothing from another.
    words = len(each[0].alignment.target_words)
    assert whole.alignment.weights[:words] == pytest.approx(
        np.pad(each[0].alignment.weights, ((0, 0), (0, 12))), abs=1e-6
    )


def test_learned_positions_have_room_for_the_end(tokenizer: Tokenizer) -> None:
    config = TransformerConfig(
        vocabulary=tokenizer.size, width=12, encoder_depth=1, decoder_depth=1, heads=3,
        feed_forward=20, position="learned", max_length=10,
    )  # fmt: skip
    translator = Translator(Transformer(config), tokenizer)
    assert translator.longest == 9
    found = translator.translate(TEXTS, beam=2)
    assert max(one.parts for one in found) > 1
    assert max(len(one.tokens) for one in found if one.parts == 1) <= 10


# ── alignments ────────────────────────────────────────────────────────────────────────────────


def test_an_alignment_is_the_attention_of_the_last_but_one_block(translator: Translator) -> None:
    """Computed by hand, softmax and all, from the block's own weights."""
    (one,) = translator.translate(["the cat sees"], beam=2)
    model, tokenizer = translator.model, translator.tokenizer
    ids = tokenizer.encode("the cat sees")
    said = list(one._parts[0].found.tokens)
    layer = model.decoder.blocks[1].cross
    assert layer is not None
    inputs: list[torch.Tensor] = []
    hook = layer.register_forward_pre_hook(lambda _, given: inputs.append(given[0]))
    with torch.no_grad():
        memory = model.encode(torch.tensor([[*ids, Tokenizer.end]]))
        model.decode(torch.tensor([[Tokenizer.start, *said]]), memory)
        hook.remove()
        q = (inputs[0] @ layer.w_q + layer.b_q).view(-1, 3, 4).transpose(0, 1)
        k = (memory @ layer.w_k + layer.b_k).view(-1, 3, 4).transpose(0, 1)
        weights = torch.softmax(q @ k.mT / 2, -1).mean(0)[1:, :-1]
    weights /= weights.sum(1, keepdim=True)
    spans = tokenizer.spans("the cat sees")
    starts = [0, 4, 8]
    columns = [[i for i, (a, _) in enumerate(spans) if word <= a < word + 4] for word in starts]
    merged = torch.stack([weights[:, column].sum(1) for column in columns], 1)
    rows = [[]]  # type: list[list[int]]
    for i, piece in enumerate(one.tokens):
        if piece.startswith("▁") and rows[-1]:
            rows.append([])
        rows[-1].append(i)
    if any(mark in one.text for mark in ".,;!?"):
        pytest.fail("choose another seed: punctuation makes words of its own")
    wanted = torch.stack([merged[row].mean(0) for row in rows])
    assert one.alignment.source_words == ("the", "cat", "sees")
    assert one.alignment.target_words == tuple(one.text.split())
    assert one.alignment.weights == pytest.approx(wanted.numpy(), abs=1e-5)
    assert one.alignment is one.alignment


def test_alignments_of_many_are_those_of_each(translator: Translator) -> None:
    found = translator.translate([*TEXTS, ""], beam=2)
    for one, together in zip(found, translator.align(found), strict=True):
        assert together.target_words == one.alignment.target_words
        assert together.weights == pytest.approx(one.alignment.weights, abs=1e-5)
    other = translator.align(found, layer=2)[0]
    assert not np.allclose(other.weights, found[0].alignment.weights, atol=1e-3)


def test_alternatives_have_alignments_too(translator: Translator) -> None:
    (one,) = translator.translate(["a dog barks"], beam=3, n_best=2)
    other = one.alternatives[0].alignment
    assert other.weights.shape == (len(other.target_words), 3)


def test_a_layer_that_is_not_there(translator: Translator) -> None:
    with pytest.raises(OptionError, match=r"layer=3, but the decoder has 3 blocks, numbered from"):
        translator.align(translator.translate(["a dog"]), layer=3)


# ── from a folder, and errors ─────────────────────────────────────────────────────────────────


def test_a_folder_is_all_that_is_needed(translator: Translator, tmp_path: Path) -> None:
    save_model(tmp_path, translator.model, longest=17)
    translator.tokenizer.save(tmp_path / "tokenizer.json")
    again = Translator.load(tmp_path)
    assert again.longest == 17
    found, wanted = again.translate(TEXTS, beam=2), translator.translate(TEXTS, beam=2)
    assert sum(a.text == b.text for a, b in zip(found, wanted, strict=True)) >= len(TEXTS) - 1


def test_folders_that_do_not_fit(translator: Translator, tmp_path: Path) -> None:
    save_model(tmp_path, translator.model)
    with pytest.raises(FileError, match=r"tokenizer\.json: cannot be read: No such file"):
        Translator.load(tmp_path)
    Tokenizer.train(["a b c d e f"] * 9, size=11).save(tmp_path / "tokenizer.json")
    with pytest.raises(FileError, match=r"tokenizer\.json: has 11 subwords but the model 50; it"):
        Translator.load(tmp_path)
    with pytest.raises(OptionError, match=r"the tokenizer has 11 subwords but the model 50; use"):
        Translator(translator.model, Tokenizer.load(tmp_path / "tokenizer.json"))


def test_bad_calls(translator: Translator) -> None:
    with pytest.raises(OptionError, match=r"translate: texts is one text, expected a list; use"):
        translator.translate("the cat")
    with pytest.raises(OptionError, match=r"both how=Greedy\(\) and beam=2 given; give one"):
        translator.translate(TEXTS, Greedy(), beam=2)
    with pytest.raises(OptionError, match=r"batch=0, expected 1 or more"):
        translator.translate(TEXTS, batch=0)
    with pytest.raises(OptionError, match=r"Beam: size=0, expected 1 or more"):
        translator.translate(TEXTS, beam=0)
