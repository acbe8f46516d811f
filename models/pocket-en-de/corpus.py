"""Write the sentence pairs that the model learns from: ``python corpus.py DATA FOLDER``.

DATA is a folder with ``tatoeba-en-de``, ``tatoeba-new-en-de`` and ``europarl-en-de``, and with
``contrapro-dev``, of which nothing is used but the sentences that must not be trained on. Into
FOLDER go TSV files of four columns: source, target, and the sentence before each, which may be
empty.

    tatoeba.tsv      everyday sentences, cleaned, each pair once
    europarl.tsv     debates, in today's spelling
    debates.tsv      the same with the sentence before, where a pronoun may need it
    unmarked.tsv     everyday sentences without the mark at their end
    reference.tsv    regard's built-in corpus about *it*, training split
    senses.tsv       the built-in corpus about words of two senses, training split
    senses-written.tsv  sentences with these words in wider contexts, by a language model
    pronouns.tsv     two sentences, of which the second has a pronoun for a noun of the first
    everyday.tsv     sentences from small tables, for words and forms that the corpora hardly have
    by-hand.tsv      sentences about language, learning and machines
    two.tsv          two everyday sentences that have nothing to do with each other
    valid.tsv        half of Tatoeba's validation part and half of Europarl's
    tokenizer.json   12,000 subwords, of which no word of the built-in corpus needs more than three

Nothing is kept that is in an evaluation set, whether word by word or but for one word.
"""

from __future__ import annotations

import json
import lzma
import random
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from everyday import by_hand, everyday
from pronouns import pronoun_items

from regard.challenge import generate, size
from regard.text import Tokenizer, read_lines, read_pairs

HERE = Path(__file__).parent
BUILT_IN = {"reference": 120_000, "senses": 60_000, "cues": 69_976}
BARE = 12_000
"""So many sentences of the built-in corpus begin with a noun that has lost its article."""
TWO = UNMARKED = 40_000
MARKS = ".!?"
VOCABULARY = 12_000
MOST_PIECES, SHOWN_MORE = 3, 300
"""The most subwords of a word of the built-in corpus; and how often a word that has more is shown
to the tokenizer's training in addition."""
LEAD = "the"
"""A word before another one, which then begins no sentence."""
SHARE = 0.3
"""The share of the mix that the subwords are learned from."""
NEAR = 6
"""Sentences of at least so many words are near one another if they differ in one word."""
CONTEXT_WORDS = 36
"""The most English words of a sentence and the one before it."""
SPELLING = {
    "daß": "dass", "muß": "muss", "mußte": "musste", "mußten": "mussten", "müßte": "müsste",
    "müßten": "müssten", "müßt": "müsst", "läßt": "lässt", "laßt": "lasst", "bewußt": "bewusst",
    "Bewußtsein": "Bewusstsein", "gewiß": "gewiss", "Beschluß": "Beschluss", "Prozeß": "Prozess",
    "Ausschuß": "Ausschuss", "Schluß": "Schluss", "Kompromiß": "Kompromiss", "Anlaß": "Anlass",
    "Einfluß": "Einfluss", "Abschluß": "Abschluss", "Zuschuß": "Zuschuss", "Haß": "Hass",
    "Mißbrauch": "Missbrauch", "mißt": "misst", "wußte": "wusste", "wüßte": "wüsste",
    "gewußt": "gewusst", "faßt": "fasst", "paßt": "passt", "Fluß": "Fluss", "Streß": "Stress",
    "Adreß": "Adress", "Rußland": "Russland", "müßig": "müßig", "Kuß": "Kuss", "Schuß": "Schuss",
}  # fmt: skip
"""German spelling before 1996 and today's."""
OLD = re.compile(rf"\b({'|'.join(SPELLING)})\b")
REFERS = re.compile(r"\b(it|its|they|them|this|these)\b", re.IGNORECASE)
GERMAN_PRONOUN = re.compile(
    r"\b(er|ihn|ihm|sie|es|ihr|ihnen|dieser|diese|dieses|der|die|das)\b", re.IGNORECASE
)

Pair = tuple[str, str]


class Known:
    """Sentences that must not be trained on, in either language."""

    def __init__(self, sentences: Iterable[str]) -> None:
        self._exact: set[str] = set()
        self._near: set[str] = set()
        for words in map(_words, sentences):
            self._exact.add(" ".join(words))
            self._near.update(_shortened(words))

    def __contains__(self, sentence: str) -> bool:
        words = _words(sentence)
        return " ".join(words) in self._exact or any(one in self._near for one in _shortened(words))


def _words(sentence: str) -> list[str]:
    text = sentence.casefold().replace("’", "'").replace("n't", " not").replace("'s", " is")
    return re.findall(r"\w+", text)


def _shortened(words: list[str]) -> Iterator[str]:
    """The sentence with each of its words left out; two share one if they differ in one word."""
    if len(words) >= NEAR:
        for i in range(len(words)):
            yield " ".join(["_", *words[:i], *words[i + 1 :]])


def evaluation(data: Path) -> tuple[Known, Known]:
    """The English and the German sentences of every evaluation set."""
    english = list(read_lines(data / "tatoeba-en-de" / "val.en"))
    german = list(read_lines(data / "tatoeba-en-de" / "val.de"))
    for source, target in read_pairs(data / "europarl-en-de" / "val.tsv"):
        english.append(source)
        german.append(target)
    for line in read_lines(data / "contrapro-dev" / "dev.jsonl"):
        item = json.loads(line)
        english += [item["source"], item["context"]]
        german += [*item["targets"], item["context_target"]]
    english += [line.split("\t")[2] for line in read_lines(HERE / "unseen.tsv")]
    english += [line.split("\t")[0] for line in read_lines(HERE / "acceptance.tsv")]
    return Known(english), Known([one for one in german if len(_words(one)) > 3])


def clean(source: str, target: str) -> Pair | None:
    """The pair with tidy spaces and quotation marks, or None if it is no translation."""
    source, target = (" ".join(side.replace("\u00ad", "").split()) for side in (source, target))
    source = source.replace("’", "'").replace("“", '"').replace("”", '"')
    target = target.replace("’", "'").replace("»", "„").replace("«", "“")
    lengths = len(source.split()), len(target.split())
    if not all(lengths) or max(lengths) > 3 * min(lengths) + 4:
        return None
    if source == target and lengths[0] > 2:
        return None
    return source, target


def tatoeba(data: Path) -> Iterator[Pair]:
    yield from read_pairs(data / "tatoeba-en-de" / "train.en", data / "tatoeba-en-de" / "train.de")
    for name in ("direct.tsv", "pivot.tsv"):
        yield from read_pairs(data / "tatoeba-new-en-de" / name)


def europarl(data: Path) -> Iterator[Pair]:
    with lzma.open(data / "europarl-en-de" / "train.tsv.xz", "rt", encoding="utf-8") as file:
        for line in file:
            source, target = line.rstrip("\n").split("\t")[:2]
            yield source, OLD.sub(lambda found: SPELLING[found[0]], target)


def reference() -> Iterator[Pair]:
    for pair in generate("reference", "train", BUILT_IN["reference"]):
        yield pair.source, pair.target


def senses() -> Iterator[Pair]:
    """Words of two senses; some sentences begin with such a noun without its article."""
    bare = 0
    for kind in ("senses", "cues"):
        for pair in generate(kind, "train", BUILT_IN[kind]):
            yield pair.source, pair.target
            noun = pair.source.removeprefix("The ")
            if bare < BARE and noun.startswith(pair.word + " "):
                bare += 1
                yield noun[0].upper() + noun[1:], pair.target


def written_senses() -> Iterator[Pair]:
    """Sentences with these words, by a language model, that are near none of the held-out ones."""
    held_out = Known(pair.source for pair in generate("senses", "test", size("senses", "test")))
    for line in read_lines(HERE / "senses-written.tsv"):
        _, source, target = line.split("\t")
        if source not in held_out:
            yield source, target


def unmarked(pairs: list[Pair], draw: random.Random) -> Iterator[Pair]:
    """Pairs without the mark at their end, which newcomers often leave out."""
    marked = [pair for pair in pairs if pair[0][-1] in MARKS and pair[1][-1] in MARKS]
    for source, target in draw.sample(marked, UNMARKED):
        yield source.rstrip(MARKS), target.rstrip(MARKS)


def fresh(pairs: Iterable[Pair], known: tuple[Known, Known]) -> Iterator[Pair]:
    """The pairs, cleaned, each once, that are in no evaluation set."""
    seen: set[Pair] = set()
    for pair in pairs:
        cleaned = clean(*pair)
        if cleaned and cleaned not in seen:
            seen.add(cleaned)
            if cleaned[0] not in known[0] and cleaned[1] not in known[1]:
                yield cleaned


def neighbours(pairs: Iterable[Pair | None]) -> Iterator[tuple[str, str, str, str]]:
    """Sentences with a pronoun, and the sentence before them."""
    before: Pair | None = None
    for pair in pairs:
        refers = pair and before and REFERS.search(pair[0]) and GERMAN_PRONOUN.search(pair[1])
        if refers and len(f"{before[0]} {pair[0]}".split()) <= CONTEXT_WORDS:
            yield (*pair, *before)
        before = pair


def make_tokenizer(folder: Path, mix: dict[str, float]) -> Tokenizer:
    """Subwords for the mix; words of the built-in corpus that need many are shown more often."""
    words: set[str] = set()
    for kind, n in BUILT_IN.items():
        for split in ("train", "test")[: 1 if kind == "cues" else 2]:
            for pair in generate(kind, split, min(n, size(kind, split))):
                words.update(word for side in (pair.source, pair.target) for word in side.split())
    words = {stripped for word in words if (stripped := word.strip(".,!?;:\"„“'"))}
    shown: list[str] = []
    while True:
        tokenizer = Tokenizer.train(chain(_drawn(folder, mix), shown), VOCABULARY)
        before = len(tokenizer.encode(LEAD))
        cut = {word: len(tokenizer.encode(f"{LEAD} {word}")) - before for word in words}
        long = sorted(word for word, pieces in cut.items() if pieces > MOST_PIECES)
        print(
            f"{len(long)} of {len(words):,} words need more than {MOST_PIECES} subwords", flush=True
        )
        if not long:
            return tokenizer
        shown += [f"{LEAD} {word}" for word in long] * SHOWN_MORE


def _drawn(folder: Path, mix: dict[str, float]) -> Iterator[str]:
    """The lines of a share of the mix."""
    draw = random.Random("subwords")
    for name, weight in mix.items():
        for pair in read_pairs(folder / name, context=True):
            if draw.random() < SHARE * weight:
                yield from pair


def write(path: Path, rows: Iterable[tuple[str, ...]]) -> None:
    count = 0
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write("\t".join(one.replace("\t", " ") for one in row) + "\n")
            count += 1
    print(f"{path}: {count:,}", flush=True)


def main(data: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    known = evaluation(data)
    write(folder / "everyday.tsv", fresh(everyday(random.Random("everyday")), known))
    write(folder / "by-hand.tsv", fresh(by_hand(), known))
    ordinary = list(fresh(tatoeba(data), known))
    write(folder / "tatoeba.tsv", ordinary)
    debates = list(fresh(europarl(data), known))
    write(folder / "europarl.tsv", debates)
    kept = set(debates)
    in_order = (cleaned if (cleaned := clean(*pair)) in kept else None for pair in europarl(data))
    write(folder / "debates.tsv", neighbours(in_order))
    write(folder / "unmarked.tsv", unmarked(ordinary, random.Random("without marks")))
    write(folder / "reference.tsv", fresh(reference(), known))
    write(folder / "senses.tsv", fresh(senses(), known))
    write(folder / "senses-written.tsv", fresh(written_senses(), known))
    draw = random.Random("second edition")
    write(folder / "pronouns.tsv", pronoun_items(ordinary, draw))
    halves = draw.sample(ordinary, 2 * TWO)
    write(folder / "two.tsv", ((*b, *a) for a, b in zip(halves[:TWO], halves[TWO:], strict=True)))
    sets = (
        read_pairs(data / "tatoeba-en-de" / "val.en", data / "tatoeba-en-de" / "val.de"),
        read_pairs(data / "europarl-en-de" / "val.tsv"),
    )
    write(folder / "valid.tsv", (pair for one in sets for pair in list(one)[::2]))
    recipe = tomllib.loads((HERE / "first.toml").read_text(encoding="utf-8"))
    mix = {Path(path).name: weight for path, weight in recipe["data"]["mix"].items()}
    make_tokenizer(folder, mix).save(folder / "tokenizer.json")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
