"""What a model attended to, and whether it mattered."""

from regard.lens.comparing import Comparison
from regard.lens.cutting import Cut, cut
from regard.lens.explanation import Explanation
from regard.lens.heads import Heads, HeadScores
from regard.lens.lens import Embedded, Lens, Told
from regard.lens.summary import Summary
from regard.lens.watching import Seen, watch

__all__ = [
    "Comparison",
    "Cut",
    "Embedded",
    "Explanation",
    "HeadScores",
    "Heads",
    "Lens",
    "Seen",
    "Summary",
    "Told",
    "cut",
    "watch",
]
