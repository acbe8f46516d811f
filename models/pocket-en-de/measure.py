"""How good a model is at what `pocket-en-de` is for: ``python measure.py MODEL TATOEBA``.

MODEL is a folder that `regard train` wrote, or a name; TATOEBA a folder with val.en and val.de.
Pronouns and senses are judged on the test split of the built-in corpus, of which no combination is
in what the model learned from. Senses are judged on unseen.tsv as well: sentences by somebody who
had seen nothing of that corpus but its words and their senses. A translation that cannot be judged
counts as wrong.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path

from corpus import BUILT_IN

from regard import Translator
from regard.challenge import Pair, generate, judge, nearest
from regard.challenge.senses import SENSES, wrong_forms
from regard.text import read_lines
from regard.translate.scoring import bleu, chrf

QUESTIONS = 2000
BEAM = 5


@dataclass(frozen=True)
class Figures:
    """What was measured; shares of 1, but for the last four."""

    pronoun: float
    pronoun_untold: float
    nearest_noun: float
    sense: float
    sense_untold: float
    frequent_sense: float
    unseen: float
    unseen_untold: float
    bleu: float
    chrf: float
    parameters: int
    cold_start: float


def right(translator: Translator, pairs: list[Pair]) -> tuple[float, float]:
    """The share of pairs that are translated in the right reading, and that cannot be judged."""
    found = translator.translate([pair.source for pair in pairs], beam=BEAM, threads=2)
    judged = [judge(pair, one.text) for pair, one in zip(pairs, found, strict=True)]
    return judged.count(True) / len(pairs), judged.count(None) / len(pairs)


def unseen() -> list[Pair]:
    """The sentences of unseen.tsv: word, sense, and a sentence in which it has this sense."""
    pairs = []
    for line in read_lines(Path(__file__).with_name("unseen.tsv")):
        word, sense, source = line.split("\t")
        wrong = wrong_forms(SENSES[sense])
        at = source.lower().index(word)
        pairs.append(Pair(source, "", "senses", word, at, sense, wrong, "", (), sense=sense))
    return pairs


def frequent_sense(pairs: list[Pair]) -> float:
    """How often a word's sense is the one that it has most often in training."""
    counts: dict[str, Counter[str | None]] = defaultdict(Counter)
    for pair in generate("senses", "train", BUILT_IN["second"]["senses"]):
        counts[pair.word][pair.sense] += 1
    hits = [counts[pair.word].most_common(1)[0][0] == pair.sense for pair in pairs]
    return sum(hits) / len(hits)


def cold_start(model: str) -> float:
    """Seconds for a new process to translate one sentence, the best of three."""
    command = [sys.executable, "-m", "regard", "translate", "--model", model]
    taken = []
    for _ in range(3):
        start = time.perf_counter()
        subprocess.run(command, input=b"The cat sleeps.\n", capture_output=True, check=True)
        taken.append(time.perf_counter() - start)
    return min(taken)


def measure(model: str, tatoeba: Path) -> Figures:
    translator = Translator.load(model)
    reference = list(generate("reference", "test", QUESTIONS))
    senses = list(generate("senses", "test", QUESTIONS))
    pronoun, pronoun_untold = right(translator, reference)
    sense, sense_untold = right(translator, senses)
    said = translator.translate(list(read_lines(tatoeba / "val.en")), beam=BEAM, threads=2)
    texts, references = [one.text for one in said], list(read_lines(tatoeba / "val.de"))
    return Figures(
        pronoun,
        pronoun_untold,
        sum(nearest(pair) == pair.answer for pair in reference) / len(reference),
        sense,
        sense_untold,
        frequent_sense(senses),
        *right(translator, unseen()),
        bleu(texts, references).score,
        chrf(texts, references).score,
        sum(x.numel() for x in translator.model.parameters()),
        cold_start(model),
    )


if __name__ == "__main__":
    for name, value in asdict(measure(sys.argv[1], Path(sys.argv[2]))).items():
        print(f"{name:16} {value:,.4g}" if isinstance(value, float) else f"{name:16} {value:,}")
