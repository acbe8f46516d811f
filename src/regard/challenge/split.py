"""The split of combinations into training and test, by a hash of their names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from hashlib import blake2b

SPLITS = ("train", "test")
HELD_OUT = frozenset(
    (
        "animal + street",
        "cross + tired",
        "cross + wide",
        "suitcase + trophy",
        "fit + big",
        "fit + small",
        "bat + Fledermaus + {x} is a mammal",
        "bat + Schläger + {who} hit the ball with {x}",
    )
)
"""Well-known examples, which are always held out."""


def place(combination: str) -> float:
    """A number from 0 to 1, determined by the combination."""
    digest = blake2b(combination.encode(), digest_size=8).digest()
    return 0.0 if combination in HELD_OUT else int.from_bytes(digest, "big") / 2**64


def vocabulary(english: str, german: str) -> set[str]:
    """The words of both texts, marked with their language."""
    return {f"English {word}" for word in english.split()} | {
        f"German {word}" for word in german.split()
    }


def held_out(
    groups: Collection[Sequence[str]], share: float, needs: Mapping[str, Collection[str]]
) -> frozenset[str]:
    """The combinations that are held out: a share of each group, those with the lowest hash.

    At least half of the combinations with the same need (such as an adjective) stay in training, so
    a group may hold out less than its share.
    """
    left = Counter(need for names in groups for name in names for need in needs[name])
    least = {need: (count + 1) // 2 for need, count in left.items()}
    chosen = set()
    for names in groups:
        wanted = max(1, round(share * len(names)))
        for name in sorted(names, key=place):
            if wanted and all(left[need] > least[need] for need in needs[name]):
                chosen.add(name)
                left.subtract(needs[name])
                wanted -= 1
    return frozenset(chosen)
