"""Damaged files: each is read as it should be, or refused by an error of regard, and soon."""

from __future__ import annotations

import json
import random
import shutil
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fuzz import small
from regard import Translator, Vectors
from regard.errors import RegardError

SECONDS = 20
"""How long any file may take."""
ODD: tuple[Any, ...] = (
    0, -1, 1, 2, 10**9, 10**15, 10**40, -(10**18), 1.5, 1e308, -0.0, True, None, "", "x", "\u0000",
    "9" * 400, [], {}, [[]], {"a": 1}, "\ud800",
)  # fmt: skip


class SlowError(Exception):
    """It took too long."""


@contextmanager
def within(seconds: int) -> Iterator[None]:
    """A context that raises when the time is up."""

    def stop(*_: object) -> None:
        raise SlowError(f"not done after {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def one(seed: int) -> list[str]:
    """Try the file of this seed; which it was, and whether it was refused."""
    rng = random.Random(seed)
    kind = rng.choice(("model.json", "model.safetensors", "tokenizer.json", "vectors", "cache"))
    use: Callable[[], object]
    if kind in ("vectors", "cache"):
        place = small.folder() / "damaged-vectors"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        name = "large.txt" if kind == "cache" else rng.choice(sorted(_names()))
        path = Path(shutil.copy2(small.vectors() / name, place / name))
        if kind == "cache":
            Vectors.load(path)
            path = place / f".{name}.regard"
        use = lambda: Vectors.load(place / name)  # noqa: E731
    else:
        place = small.folder() / "damaged-model"
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(small.model(), place)
        path = place / kind
        use = lambda: Translator.load(place).translate(["one two", "猫 \u0301"])  # noqa: E731
    path.write_bytes(_damaged(rng, path.read_bytes(), path.suffix == ".json"))
    with within(SECONDS), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            use()
        except RegardError as error:
            if len(str(error).splitlines()) > 3 or not str(error):
                raise AssertionError(f"refused without one clear sentence: {error}") from None
            return [kind, "refused"]
    return [kind, "read"]


def _names() -> list[str]:
    return [path.name for path in small.vectors().iterdir() if path.name[0] not in ".l"]


def _damaged(rng: random.Random, content: bytes, is_json: bool) -> bytes:
    if is_json and rng.random() < 0.6:
        data = json.loads(content)
        for _ in range(rng.randint(1, 3)):
            _change(rng, data)
        return json.dumps(data).encode("utf-8", "surrogatepass")
    damaged = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        at = (
            rng.randrange(len(damaged) + 1)
            if rng.random() < 0.6
            else rng.randrange(min(200, len(damaged) + 1))
        )
        some = rng.randbytes(rng.choice((1, 2, 8, 64)))
        how = rng.choice(("flip", "cut", "insert", "drop", "overwrite", "repeat", "zero"))
        if how == "flip" and at < len(damaged):
            damaged[at] ^= 1 << rng.randrange(8)
        elif how == "cut":
            del damaged[at:]
        elif how == "insert":
            damaged[at:at] = some
        elif how == "drop":
            del damaged[at : at + len(some)]
        elif how == "overwrite":
            damaged[at : at + len(some)] = some
        elif how == "repeat":
            damaged[at:at] = damaged[at : at + 500] * rng.choice((1, 3, 50))
        else:
            damaged[at : at + 16] = bytes(16)
    return bytes(damaged)


def _change(rng: random.Random, data: Any) -> None:
    """Replace, remove or add something somewhere in it."""
    places: list[tuple[Any, Any]] = []
    todo = [data]
    while todo:
        here = todo.pop()
        items = list(here.items()) if isinstance(here, dict) else list(enumerate(here))
        for key, value in items[:60]:
            places.append((here, key))
            if isinstance(value, dict | list):
                todo.append(value)
    if not places:
        return
    where, key = rng.choice(places)
    how = rng.random()
    if how < 0.7:
        where[key] = rng.choice(ODD)
    elif how < 0.85:
        del where[key]
    elif isinstance(where, dict):
        where[rng.choice(("x", "", "format", "model"))] = rng.choice(ODD)
