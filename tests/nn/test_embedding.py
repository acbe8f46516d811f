"""Embeddings that start from word vectors."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from regard.errors import OptionError, ShapeError
from regard.nn import Classifier, Embedding, TransformerConfig
from regard.text import Tokenizer

WIDTH = 6


class Table:
    """What word vectors must be able to do, and nothing else."""

    width = WIDTH

    def __init__(self, *words: str) -> None:
        rows = np.random.default_rng(0).normal(0.3, 2.0, (len(words), WIDTH)).astype(np.float32)
        self.rows = dict(zip(words, rows, strict=True))

    def __contains__(self, word: object) -> bool:
        return word in self.rows

    def __getitem__(self, word: str) -> np.ndarray:
        return self.rows[word]


def config_of(pieces: int, **changes: object) -> TransformerConfig:
    return TransformerConfig(
        **{"vocabulary": pieces, "width": WIDTH, "heads": 1, "position": "alibi", **changes}
    )


def vector(embedding: Embedding, number: int) -> np.ndarray:
    """What comes out for a number, before its position."""
    return embedding.eval()(torch.tensor([[number]]))[0, 0].detach().numpy()


@pytest.mark.parametrize(
    ("pieces", "whole"),
    [
        (["<pad>", "▁the", "▁cat", "cat", "s", ".", "▁"], {1: "the", 2: "cat", 5: "."}),
        (["Ġthe", "the", "Ġcat", "Ġc", "."], {0: "the", 2: "cat", 4: "."}),
        (["[PAD]", "the", "##cat", "cat", ".", "##s"], {1: "the", 3: "cat", 4: "."}),
        (["the", "cat", "dog"], {0: "the", 1: "cat"}),
    ],
    ids=["unigram", "bytes", "wordpiece", "words"],
)
def test_whole_words_get_their_vectors(pieces: list[str], whole: dict[int, str]) -> None:
    table = Table("the", "cat", "s", ".")
    embedding = Embedding.from_vectors(table, pieces, config_of(len(pieces)))
    for i in range(len(pieces)):
        found = vector(embedding, i)
        if i in whole:
            assert np.allclose(found, table[whole[i]], rtol=1e-6)
        else:
            assert not any(np.allclose(found, row, rtol=0.1) for row in table.rows.values())


def test_with_a_tokenizer() -> None:
    lines = ["die Straße und die Katze", "eine Katze sieht die Straße", "die Katzen sehen"] * 5
    table = Table("die", "Straße", "Katze", "und")
    for tokenizer in (Tokenizer.train(lines, 30), Tokenizer.train(lines, 320, "bytes")):
        embedding = Embedding.from_vectors(table, tokenizer, config_of(tokenizer.size))
        ids = tokenizer.encode("und die Straße")
        found = embedding.eval()(torch.tensor([ids]))[0].detach().numpy()
        assert np.allclose(found[-1], table["Straße"], rtol=1e-6)
        assert np.allclose(found[-2], table["die"], rtol=1e-6)


def test_with_a_tokenizer_of_hugging_face() -> None:
    lines = ["the cat sees the cat", "the cats see"] * 5
    tokenizer = Tokenizer.train(lines, 16)._inner
    table = Table("cat", "the")
    embedding = Embedding.from_vectors(table, tokenizer, config_of(tokenizer.get_vocab_size()))
    assert np.allclose(vector(embedding, tokenizer.token_to_id("▁cat")), table["cat"], rtol=1e-6)


def test_other_pieces_have_the_spread_of_those_found() -> None:
    words = [f"w{i}" for i in range(500)]
    table = Table(*words)
    pieces = words + [f"##{i}" for i in range(2000)]
    embedding = Embedding.from_vectors(table, pieces, config_of(len(pieces)))
    drawn = embedding.table[500:] * embedding.scale
    spread = np.std(list(table.rows.values()))
    assert drawn.std().item() == pytest.approx(spread, rel=0.05)
    assert len(drawn.unique(dim=0)) == 2000


def test_frozen_or_not() -> None:
    pieces = ["the", "cat"]
    for frozen in (False, True):
        embedding = Embedding.from_vectors(Table("the"), pieces, frozen=frozen)
        assert isinstance(embedding.table, torch.nn.Parameter)
        assert embedding.table.requires_grad is not frozen
        assert embedding.table.shape == (2, WIDTH)
        model = Classifier(config_of(2, encoder_depth=1, feed_forward=8, dropout=0.0), classes=2)
        model.source = embedding
        before = embedding.table.detach().clone()
        optimizer = torch.optim.SGD([w for w in model.parameters() if w.requires_grad], 1.0)
        model(torch.tensor([[0, 1]])).square().sum().backward()
        optimizer.step()
        assert torch.equal(before, embedding.table) is frozen


def test_what_does_not_fit() -> None:
    with pytest.raises(ShapeError) as error:
        Embedding.from_vectors(Table("the"), ["the"], TransformerConfig(vocabulary=1, width=512))
    assert str(error.value) == (
        "Embedding.from_vectors: vectors of width 6 for 1 pieces do not fit config, which has "
        "width=512 and vocabulary=1"
    )
    with pytest.raises(OptionError) as none:
        Embedding.from_vectors(Table("der"), ["▁the", "der"])
    assert str(none.value) == (
        "Embedding.from_vectors: none of the 2 pieces is a word that has a vector; are vectors "
        "and tokenizer of the same language?"
    )
