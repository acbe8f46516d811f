"""Run the campaign: ``python -m fuzz --seconds 600``."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
import traceback
from collections import Counter

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")  # see tests/conftest.py

KINDS = ("calls", "files", "commands", "api")


def run(
    kind: str, first: int, count: int | None, seconds: float
) -> tuple[int, list[int], Counter[str]]:
    """Try cases from a seed on, for so long or so many; how many, which failed, and of what."""
    one = importlib.import_module(f"fuzz.{kind}").one
    until, seed, failed = time.monotonic() + seconds, first, []
    tried: Counter[str] = Counter()
    while (seed - first < count) if count is not None else (time.monotonic() < until):
        try:
            tried.update(one(seed))
        except Exception as error:
            failed.append(seed)
            where = traceback.extract_tb(error.__traceback__)[-1]
            print(
                f"MISS  python -m fuzz {kind} --seed {seed}   {type(error).__name__}: {error}",
                flush=True,
            )
            print(f"      {where.filename}:{where.lineno}")
        seed += 1
        if (seed - first) % 5000 == 0:
            print(f"{kind}: {seed - first:,} tried, {len(failed)} failed", flush=True)
    return seed - first, failed, tried


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", help=f"of {', '.join(KINDS)}; all, if none is named")
    parser.add_argument("--seconds", type=float, default=60.0, help="for all kinds together")
    parser.add_argument("--count", type=int, help="cases of each kind, however long it takes")
    parser.add_argument("--first", type=int, default=0, help="the seed of the first case")
    parser.add_argument("--seed", type=int, help="only the case of this seed")
    options = parser.parse_args()
    for kind in options.kinds:
        if kind not in KINDS:
            parser.error(f"{kind!r} is unknown, expected {', '.join(KINDS)}")
    kinds = options.kinds or KINDS
    failures = 0
    for kind in kinds:
        began = time.monotonic()
        first = options.first if options.seed is None else options.seed
        count = options.count if options.seed is None else 1
        done, failed, tried = run(kind, first, count, options.seconds / len(kinds))
        failures += len(failed)
        print(f"{kind}: {done:,} tried in {time.monotonic() - began:.0f} s, {len(failed)} failed")
        print("  " + ", ".join(f"{what} {number:,}" for what, number in sorted(tried.items())))
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
