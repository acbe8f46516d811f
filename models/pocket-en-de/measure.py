"""How good a model is: ``python measure.py MODEL DATA [--every N]``.

MODEL is a folder that `regard train` wrote, finished or not, or a name; DATA the folder that
corpus.py reads. One line for each row of the card. With ``--every 10`` only each tenth sentence is
measured, to see where a training stands.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from acceptance import try_all

import regard
from regard import Translator
from regard.challenge import Pair, generate, judge
from regard.challenge.senses import SENSES, wrong_forms
from regard.text import read_lines, read_pairs
from regard.text.words import Words
from regard.translate.contrastive import evaluate, read_items
from regard.translate.model_files import bundled
from regard.translate.scoring import bleu

HERE = Path(__file__).parent
QUESTIONS = 2000
BEAM = 5
HEADS_ON = 500
"""So many sentences are looked at to find the head that finds the referent."""


def translated_bleu(translator: Translator, pairs: list[tuple[str, str]]) -> float:
    """sacreBLEU of the translations of the sources."""
    found = translator.translate([source for source, _ in pairs], beam=BEAM, threads=2)
    return bleu([one.text for one in found], [target for _, target in pairs]).score


def share_right(translator: Translator, pairs: list[Pair]) -> float:
    """The percentage of pairs in the right reading; what cannot be judged counts as wrong."""
    found = translator.translate([pair.source for pair in pairs], beam=BEAM, threads=2)
    judged = [judge(pair, one.text) for pair, one in zip(pairs, found, strict=True)]
    return 100 * judged.count(True) / len(judged)


def unseen() -> list[Pair]:
    """The sentences of unseen.tsv: word, sense, and a sentence in which it has this sense."""
    pairs = []
    for line in read_lines(HERE / "unseen.tsv"):
        word, sense, source = line.split("\t")
        at = source.lower().index(word)
        wrong = wrong_forms(SENSES[sense])
        pairs.append(Pair(source, "", "senses", word, at, sense, wrong, "", (), sense=sense))
    return pairs


def contrastive(translator: Translator, data: Path, every: int) -> float:
    """The percentage of ContraPro's items whose right pronoun is the likeliest."""
    path = data / "contrapro-dev" / "dev.jsonl"
    items = read_items(read_lines(path), path.name, context=1)
    return 100 * evaluate(translator, items[::every]).total.share


def referent_head(translator: Translator, pairs: list[Pair]) -> tuple[float, str]:
    """The head of the attention to the source that finds most referents: percentage and name.

    The decoder reads the right translation; a head is right if, where the pronoun is written, the
    noun that *it* stands for gets more of its weight than the other noun.
    """
    right: dict[str, torch.Tensor] = {}
    for pair in pairs:
        source, target = (translator.tokenizer.encode(text) for text in (pair.source, pair.target))
        words = _words(translator, pair.source)
        nouns = [words.at(place) for place in (pair.referent_position, pair.other_position)]
        row = _pronoun_row(translator, pair)
        with regard.watch(translator.model) as seen, torch.inference_mode():
            translator.model(torch.tensor([[*source, 2]]), torch.tensor([[1, *target]]))
        for name in seen:
            if ".cross" in name:
                weights = seen[name].weights()[0, :, row, : len(source)]
                to = words.summed(weights)[:, nouns]
                right[name] = right.get(name, torch.zeros(len(to))) + (to[:, 0] > to[:, 1])
    name, head = max(
        ((name, int(found.argmax())) for name, found in right.items()),
        key=lambda one: float(right[one[0]][one[1]]),
    )
    return 100 * float(right[name][head]) / len(pairs), f"{name}, head {head}"


def _words(translator: Translator, text: str) -> Words:
    tokenizer = translator.tokenizer
    pieces, spans = tokenizer.tokens(tokenizer.encode(text)), tokenizer.spans(text)
    return Words(text, tuple(pieces), tuple(spans), (False,) * len(pieces))


def _pronoun_row(translator: Translator, pair: Pair) -> int:
    """The row of the decoder that writes the pronoun: that of its last subword."""
    words = _words(translator, pair.target)
    wanted = [i for i, name in enumerate(words.names) if name.lower() == pair.answer]
    return words.tokens_of(wanted[-1])[-1]


def cold_start(model: str) -> float:
    """Seconds for a new process to translate one sentence, the best of three."""
    command = [sys.executable, "-m", "regard", "translate", "--model", model]
    taken = []
    for _ in range(3):
        start = time.perf_counter()
        subprocess.run(command, input=b"The cat sleeps.\n", capture_output=True, check=True)
        taken.append(time.perf_counter() - start)
    return min(taken)


def rows(model: str, data: Path, every: int) -> Iterator[tuple[str, str]]:
    """The name and the figure of each row, measured one after the other."""
    translator = Translator.load(model)
    tatoeba = data / "tatoeba-en-de"
    sets: dict[str, Callable[[], list[tuple[str, str]]]] = {
        "Tatoeba val, BLEU": lambda: list(read_pairs(tatoeba / "val.en", tatoeba / "val.de")),
        "Europarl val, BLEU": lambda: list(read_pairs(data / "europarl-en-de" / "val.tsv")),
    }
    for name, pairs in sets.items():
        yield name, f"{translated_bleu(translator, pairs()[::every]):.1f}"
    yield "ContraPro dev, one sentence of context", f"{contrastive(translator, data, every):.1f} %"
    reference = list(generate("reference", "test", QUESTIONS))[::every]
    senses = list(generate("senses", "test", QUESTIONS))[::every]
    yield f"pronouns, {len(reference):,} held out", f"{share_right(translator, reference):.1f} %"
    yield f"senses, {len(senses):,} held out", f"{share_right(translator, senses):.1f} %"
    others = unseen()[:: min(every, 4)]
    yield f"senses, {len(others)} by others", f"{share_right(translator, others):.1f} %"
    share, head = referent_head(translator, reference[:HEADS_ON])
    yield "head that finds the referent", f"{share:.1f} % ({head})"
    tried = try_all(translator, BEAM)
    yield "accepted sentences", f"{100 * sum(one.accepted for one in tried) / len(tried):.1f} %"
    yield "parameters", f"{sum(one.numel() for one in translator.model.parameters()):,}"
    if every == 1:
        yield "first sentence of a new process", f"{cold_start(model):.1f} s"
        size = sum(file.stat().st_size for file in bundled(model).iterdir() if file.is_file())
        yield "size", f"{size / 1e6:.1f} MB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("data", type=Path)
    parser.add_argument("--every", type=int, default=1, help="measure each n-th sentence only")
    given = parser.parse_args()
    for name, figure in rows(given.model, given.data, given.every):
        print(f"{name:40} {figure}", flush=True)


if __name__ == "__main__":
    main()
