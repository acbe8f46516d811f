"""What a model attended to, and whether it mattered."""

from regard.lens.analysis import Analysis
from regard.lens.capture import Cut, Seen, cut, watch
from regard.lens.comparison import Comparison
from regard.lens.explanation import Explanation
from regard.lens.heads import Heads, HeadScores
from regard.lens.judgement import Judgement, judge
from regard.lens.lens import Lens, see
from regard.lens.results import Embedded, WatchedTranslation
from regard.lens.summary import Summary
from regard.lens.why import Flip, LinkEffect, Why, WordEffect

__all__ = [
    "Analysis",
    "Comparison",
    "Cut",
    "Embedded",
    "Explanation",
    "Flip",
    "HeadScores",
    "Heads",
    "Judgement",
    "Lens",
    "LinkEffect",
    "Seen",
    "Summary",
    "WatchedTranslation",
    "Why",
    "WordEffect",
    "cut",
    "judge",
    "see",
    "watch",
]
