"""A small model, corpus and vectors for the campaign to damage, made once in a temporary folder."""

from __future__ import annotations

import atexit
import gzip
import os
import random
import shutil
import tempfile
from functools import cache
from pathlib import Path

import torch

from regard.nn import Transformer, TransformerConfig
from regard.text import Tokenizer
from regard.translate.model_files import save_model

ENGLISH = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
GERMAN = ["eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn"]


@cache
def folder() -> Path:
    """Where everything of this process lies; removed when it ends."""
    made, owner = Path(tempfile.mkdtemp(prefix="regard-fuzz-")), os.getpid()
    atexit.register(lambda: os.getpid() == owner and shutil.rmtree(made, ignore_errors=True))
    return made


@cache
def pairs() -> list[tuple[str, str]]:
    """Number words and their translations."""
    rng = random.Random(0)
    rows = {tuple(rng.randrange(10) for _ in range(rng.randint(2, 6))): None for _ in range(300)}
    return [(" ".join(ENGLISH[i] for i in row), " ".join(GERMAN[i] for i in row)) for row in rows]


@cache
def corpus() -> tuple[Path, Path, Path, Path]:
    """Files of sentences and of their translations, to train and to validate on."""
    sides = [(name, side) for name in ("train", "valid") for side in (0, 1)]
    found = []
    for name, side in sides:
        some = pairs()[:20] if name == "valid" else pairs()[20:]
        found.append(folder() / f"{name}.{('en', 'de')[side]}")
        found[-1].write_text("".join(f"{pair[side]}\n" for pair in some), encoding="utf-8")
    return found[0], found[1], found[2], found[3]


@cache
def model() -> Path:
    """The folder of an untrained translator."""
    place = folder() / "model"
    tokenizer = Tokenizer.train([side for pair in pairs() for side in pair], 40)
    torch.manual_seed(0)
    shape = {"width": 16, "heads": 2, "feed_forward": 24, "encoder_depth": 1, "decoder_depth": 1}
    save_model(
        place, Transformer(TransformerConfig(vocabulary=tokenizer.size, **shape)), longest=12
    )
    tokenizer.save(place / "tokenizer.json")
    return place


@cache
def vectors() -> Path:
    """Word vectors as text, binary and gzipped, and so many that they have a cache."""
    place = folder() / "vectors"
    place.mkdir()
    rng = random.Random(0)
    rows = {word: [round(rng.gauss(0, 1), 4) for _ in range(8)] for word in ENGLISH + GERMAN}
    text = "".join(f"{word} {' '.join(map(str, row))}\n" for word, row in rows.items())
    (place / "glove.txt").write_text(text, encoding="utf-8")
    (place / "word2vec.txt").write_text(f"{len(rows)} 8\n{text}", encoding="utf-8")
    (place / "glove.txt.gz").write_bytes(gzip.compress(text.encode()))
    body = b"".join(
        word.encode() + b" " + torch.tensor(row).numpy().tobytes() + b"\n"
        for word, row in rows.items()
    )
    (place / "word2vec.bin").write_bytes(f"{len(rows)} 8\n".encode() + body)
    large = "".join(f"w{i} {' '.join(['0.12345678'] * 40)}\n" for i in range(3000))
    (place / "large.txt").write_text(large, encoding="utf-8")
    return place
