"""`generate`, `size` and `split_of`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from regard.challenge import (
    KINDS,
    SPLITS,
    generate,
    size,
    split_of,
)
from regard.challenge.nouns import NOUNS
from regard.challenge.reference import every_topic
from regard.errors import OptionError

SOURCE = Path(__file__).parents[2] / "src"


def test_fewer_are_the_beginning_of_more() -> None:
    for kind in KINDS:
        assert list(generate(kind, n=20)) == list(generate(kind, n=50))[:20]
        assert list(generate(kind, n=20)) != list(generate(kind, n=20, seed=1))
    assert list(generate(n=0)) == []


def test_the_same_in_every_process() -> None:
    code = (
        "from regard.challenge import *\n"
        "for kind, split in [(k, s) for k in KINDS for s in SPLITS if size(k, s)]:\n"
        "    print(*generate(kind, split, 50, 3), sep='\\n')"
    )
    printed = []
    for hash_seed in ("1", "2"):
        settings = {**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, env=settings, capture_output=True, timeout=300, check=True)
        printed.append(done.stdout.decode())
    here = [
        pair
        for kind, split in product(KINDS, SPLITS)
        if size(kind, split)
        for pair in generate(kind, split, 50, 3)
    ]
    assert printed[0] == printed[1] == "".join(f"{pair}\n" for pair in here)


def test_all_there_are() -> None:
    count = size("senses", "test")
    assert len({pair.source for pair in generate("senses", "test", count)}) == count
    with pytest.raises(OptionError) as caught:
        generate("senses", "test", count + 1)
    assert str(caught.value) == (
        f"generate: n={count + 1}, but there are {count} sentences of kind='senses' in "
        f"split='test'; ask for 0 to {count}"
    )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"kind": "both"}, "generate: kind='both' is unknown, expected reference, senses or cues"),
        ({"split": "valid"}, "generate: split='valid' is unknown, expected train or test"),
        ({"n": 1.5}, "generate: n=1.5, expected a whole number"),
        ({"n": 10, "seed": "x"}, "generate: seed='x', expected a whole number"),
    ],
    ids=str,
)
def test_bad_arguments(arguments: dict[str, object], says: str) -> None:
    with pytest.raises(OptionError, match=re.escape(says)):
        generate(**arguments)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="n=-1, but there are"):
        generate(n=-1)
    with pytest.raises(OptionError, match=r"size: kind='x' is unknown, expected reference, "):
        size("x")


def test_split_of() -> None:
    assert split_of("street + animal") == split_of("animal + street") == "test"
    for unknown in ("animal", "animal + x", "cross + x", "a + b + c", ""):
        with pytest.raises(
            OptionError, match=r"split_of: .* is unknown, expected two nouns, a frame"
        ):
            split_of(unknown)
    nouns = {" + ".join(pair) for pair in product(NOUNS, NOUNS)}
    assert not nouns & every_topic(), "a name means one thing"
