"""How long an explanation takes: ``python benchmarks/explaining.py [--model NAME] [--long N]``.

All four ways for one word of a 20-word sentence, and the knockout of every pair of its words, after
the model is loaded. With ``--long``, all four ways for one word of N such sentences, once.
"""

from __future__ import annotations

import argparse
import time

from timing import machine, side_by_side

from regard import Lens

SENTENCE = (
    "The old animal didn't cross the wide street in front of our house yesterday because it was "
    "much too tired."
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="pocket-en-de", help="a name or a folder")
    parser.add_argument("--long", type=int, help="sentences of a long text")
    given = parser.parse_args()
    lens = Lens.open(given.model)
    if given.long:
        text = " ".join([SENTENCE] * given.long)
        words, start = sum(lens.words(text).is_word), time.perf_counter()
        lens.explain(text, f"it#{given.long}")
        seconds = time.perf_counter() - start
        print(f"{machine()}; {given.model}, {words:,} words and marks: {seconds:.1f} s")
        return
    words = sum(lens.words(SENTENCE).is_word)
    explain, every = side_by_side(
        [lambda: lens.explain(SENTENCE, "it"), lambda: lens.knockouts(SENTENCE)], rounds=3
    )
    print(f"{machine()}; {given.model}, {words} words and marks")
    print(f"\n| | seconds |\n|---|---|\n| explain, all four ways | {explain:.2f} |")
    print(f"| knockout of every pair of words | {every:.2f} |")


if __name__ == "__main__":
    main()
