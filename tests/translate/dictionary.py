"""A Transformer set by hand, which translates number words one by one: nothing is trained.

Word i of the translation is that of word i of the source. Both blocks of the decoder look at the
source word at their own position (sines and cosines of positions have their largest product where
they are equal), and the last one writes its translation: so alignments are known exactly.
"""

from __future__ import annotations

import random

import torch

from regard.nn import Transformer, TransformerConfig
from regard.text import Tokenizer
from regard.translate import Translator

WORDS = {
    "one": "eins", "two": "zwei", "three": "drei", "four": "vier", "five": "fünf",
    "six": "sechs", "seven": "sieben", "eight": "acht", "nine": "neun", "ten": "zehn",
}  # fmt: skip
SIZE, WIDTH = 47, 128
PLACES = slice(0, 64)
"""The fast waves, which tell positions apart; the slow rest of the width is for words."""


def sentence(chance: random.Random, longest: int = 6) -> tuple[str, str]:
    """Some number words, and the translation."""
    words = chance.choices(list(WORDS), k=chance.randint(1, longest))
    return " ".join(words) + ".", " ".join(WORDS[word] for word in words) + "!"


def dictionary(softness: float = 1.6) -> Translator:
    """The translator, in float64; the softer, the less sure of its words."""
    chance = random.Random(0)
    lines = [line for _ in range(300) for line in sentence(chance)]
    tokenizer = Tokenizer.train(lines, size=SIZE)
    pieces = {piece: i for i, piece in enumerate(tokenizer.vocabulary)}
    pairs = {f"▁{english}": f"▁{german}" for english, german in WORDS.items()} | {".": "!"}
    means = torch.eye(tokenizer.size, dtype=torch.float64)
    for english, german in pairs.items():
        means[pieces[english]] = means[pieces[german]]
    config = TransformerConfig(
        vocabulary=tokenizer.size, width=WIDTH, encoder_depth=0, decoder_depth=2, heads=1,
        feed_forward=1, norm="rmsnorm", norm_place="before", tied=False, max_length=256,
    )  # fmt: skip
    model = Transformer(config).double().eval()
    with torch.no_grad():
        for parameter in model.decoder.parameters():
            if parameter.dim() == 2:
                parameter.zero_()
        words = slice(PLACES.stop, PLACES.stop + tokenizer.size)
        for table in (model.source.table, model.target.table, model.output):
            table.zero_()
            table[:, words] = torch.eye(tokenizer.size, dtype=torch.float64)
        model.output /= softness
        looks, writes = (block.cross for block in model.decoder.blocks)
        assert looks is not None
        assert writes is not None
        for layer in (looks, writes):
            layer.w_q[PLACES, PLACES] = 40 * torch.eye(64, dtype=torch.float64)
            layer.w_k[PLACES, PLACES] = 40 * torch.eye(64, dtype=torch.float64)
        writes.w_v[words, words] = means
        writes.w_o[words, words] = 8 * torch.eye(tokenizer.size, dtype=torch.float64)
    return Translator(model, tokenizer)
