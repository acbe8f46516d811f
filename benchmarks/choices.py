"""Choices of an English language model whose evidence is known, as JSON lines for `regard judge`.

    python benchmarks/choices.py > choices.jsonl
    regard judge --data choices.jsonl --model FOLDER

Subject–verb agreement with a distracting noun (Linzen et al., 2016), where the subject decides; and
indirect objects (Wang et al., 2022), where the name that stands only once decides. In turn, so that
the first lines are as good as all of them.
"""

from __future__ import annotations

import json
from itertools import product
from random import Random

NOUNS = {
    "key": "keys", "boy": "boys", "picture": "pictures", "teacher": "teachers", "door": "doors",
    "author": "authors", "farmer": "farmers", "car": "cars", "letter": "letters", "guard": "guards",
}  # fmt: skip
BETWEEN = ("near the", "behind the", "next to the", "of the")
NAMES = ("Mary", "John", "Tom", "Anna", "James", "Sarah", "Paul", "Emma")
SCENES = (
    "When {a} and {b} went home, {b} gave a book to",
    "After {a} met {b}, {b} handed the key to",
    "Then {a} saw {b}, and {b} sent a letter to",
)


def agreement(random: Random) -> dict[str, object]:
    """A subject, and a noun of the other number between it and the verb."""
    subject, other = random.sample(sorted(NOUNS), 2)
    plural = random.random() < 0.5
    first, second = (NOUNS[subject], other) if plural else (subject, NOUNS[other])
    verbs = ("are", "is") if plural else ("is", "are")
    text = f"The {first} {random.choice(BETWEEN)} {second}"
    return {"text": text, "word": verbs[0], "instead": verbs[1], "evidence": first}


def indirect_object(random: Random) -> dict[str, object]:
    """Two names, of which the one that does not act receives."""
    receiver, actor = random.sample(NAMES, 2)
    text = random.choice(SCENES).format(a=receiver, b=actor)
    return {"text": text, "word": receiver, "instead": actor, "evidence": receiver}


if __name__ == "__main__":
    drawn = Random(0)
    for _, made in product(range(25), (agreement, indirect_object)):
        print(json.dumps(made(drawn)))
