"""Training of unigram subwords (Kudo 2018, https://arxiv.org/abs/1804.10959).

Pre-tokenization limits a piece to one word with the space before it, one run of a punctuation mark,
one digit, or one English clitic (*'s*, *'t*). So *bat* is the same subword before a full stop, a
comma and a space.

A capital that only marks the beginning of a sentence becomes a piece of its own before the word:
*Bat* is ``▁⇧ ▁bat``. Words with a capital elsewhere as well (*Tom*, German nouns) keep it.

All of it uses the `tokenizers` library's own normalizers, pre-tokenizers and decoders, so that its
``tokenizer.json`` gives the same pieces without regard.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from math import ceil, log

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers

from regard.errors import OptionError

SPECIALS = ("<pad>", "<s>", "</s>", "<unk>")
UNKNOWN = 3
SPACE = "▁"
"""The space before a word, in pieces; in a text it counts as a space."""
CAPITAL = "⇧"
"""The piece for the capital at the beginning of a sentence; in a text it counts as a space."""
BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))
"""Byte fallback pieces."""
FALLBACK = 2000
"""Minimum size of a unigram vocabulary with byte fallback."""
DIGITS = 4
"""Decimals of the scores."""
SURPLUS, ROUNDS = 2, 4
"""Candidates per piece, and rounds of pruning."""
LONGEST = 20
"""Maximum characters of a piece, its space included."""
UNUSED = 0.1
"""The count of a character that is never used alone."""
CHUNK = 50_000
"""Units that are segmented at once."""
SPREAD = 10
"""Minimum ratio of capitalised to lower-case uses of a word that keeps its capital."""
KEPT = 2000
"""Maximum number of words that keep their capital at the beginning of a sentence."""
SHOWN = 8_000_000
"""Approximate maximum number of words for the BPE trainer; counts are scaled down to it."""

WHITE = rf"[\s\x1c-\x1f{SPACE}{CAPITAL}]+"
"""White space as in Python's `str.split`, and the special signs of pieces."""
UNITS = rf"{SPACE}?\d|['’](?:s|re|ve|ll|d|m|t)\b|{SPACE}?([^\w\s{SPACE}])\1*"
"""Units within words: digits, clitics, runs of one punctuation mark."""
SENTENCE_START = r"(?:\A|(?<=[.!?…:] )|(?<=[.!?…:][\"“”«»'’)] )|(?<=[\"„“»«‚(¿¡])|(?<=[-–—] ))"
"""The beginning of a sentence, in text with single spaces."""
PLAIN_CAPITAL = r"(?!\p{Lu}\p{Lu})"
"""Excludes words in capitals."""
LEFT_OVER = f"{CAPITAL} ?"
"""A capital sign without a letter after it."""


def train_unigram(lines: Iterable[str], size: int, fit: bool = False) -> tokenizers.Tokenizer:
    """A trained unigram tokenizer, with byte fallback if it is large enough."""
    fallback = BYTES if size >= FALLBACK else ()
    counts, kept, letters = _count(lines)
    places = size - len(SPECIALS) - len(fallback) - len(SPACE)
    characters = len(set("".join(counts)) - {SPACE})
    if fit:
        places = max(places, characters)
    if characters > places:
        raise OptionError(
            f"Tokenizer.train: size={size:,}, but the text has {characters:,} different "
            f"characters, each of which needs a piece; ask for {size - places + characters:,} "
            "or more"
        )
    scores = _learn(counts, max(places + len(SPACE), 0))
    vocabulary = [(piece, 0.0) for piece in (*SPECIALS, *fallback)] + scores
    inner = tokenizers.Tokenizer(models.Unigram(vocabulary, UNKNOWN, byte_fallback=bool(fallback)))
    inner.normalizer = normalizers.Sequence([*_spacing(), *_lowering(kept, letters)])
    inner.pre_tokenizer = _units()
    inner.decoder = _decoder(letters)
    return inner


def is_own_pattern(pattern: str) -> bool:
    """Whether a regular expression is one of a tokenizer that regard has trained."""
    own = re.escape(SENTENCE_START) + r"\(\?=\[\w+\]\)" + re.escape(PLAIN_CAPITAL)
    own += r"(\(\?!\(\?:[\w|]+\)\(\?!\\w\)\))?"
    fixed = (WHITE, WHITE.replace(CAPITAL, ""), UNITS, LEFT_OVER)
    return pattern in fixed or re.fullmatch(own, pattern) is not None


def _count(lines: Iterable[str]) -> tuple[Counter[str], list[str], list[str]]:
    """Counts of units, the words that keep their capital, and the letters that are lowered."""
    start = Regex(rf"{SENTENCE_START}(?=\p{{Lu}}){PLAIN_CAPITAL}")
    marking = normalizers.Replace(start, CAPITAL + " ")
    normalizer, units = normalizers.Sequence([*_spacing(), marking]), _units()
    counts: Counter[str] = Counter()
    first: Counter[str] = Counter()
    for line in lines:
        follows = False
        for unit, _ in units.pre_tokenize_str(normalizer.normalize_str(line)):
            (first if follows else counts)[unit] += 1
            follows = unit.removeprefix(SPACE) == CAPITAL
    kept = _kept(counts, first)
    lowered = {unit for unit in first if _lower(unit) and unit.removeprefix(SPACE) not in kept}
    for unit, count in first.items():
        counts[_lower(unit) if unit in lowered else unit] += count
    if not lowered:
        del counts[CAPITAL], counts[SPACE + CAPITAL]
        return counts, [], []
    letters = {unit[1].upper() for unit in counts if unit[0] == SPACE and unit[1:]}
    return counts, sorted(kept), sorted(one for one in letters if _lower(SPACE + one))


def _kept(counts: Counter[str], first: Counter[str]) -> set[str]:
    """The words that keep their capital at the beginning of a sentence."""
    found = {
        unit
        for unit in counts.keys() | first.keys()
        if (lower := _lower(unit)) and counts[unit] > SPREAD * counts[lower] and _plain(unit)
    }
    order = sorted(found, key=lambda one: (-first[one], 0 if first[one] else -counts[one], one))
    return {unit.removeprefix(SPACE) for unit in order[:KEPT]}


def _plain(text: str) -> bool:
    """Whether a text has no special characters of regular expressions."""
    return not re.search(r"[^\w▁]|\|", text)


def _lower(unit: str) -> str:
    """The word with its capital lowered; empty if it has none that can be restored."""
    word = unit.removeprefix(SPACE)
    lower = word[:1].lower()
    reversible = len(lower) == 1 and lower != word[0] and lower.upper() == word[0]
    return SPACE + lower + word[1:] if reversible else ""


def _learn(counts: Counter[str], size: int) -> list[tuple[str, float]]:
    """The pieces of a unigram model with their scores, descending.

    Candidates come from BPE, about `SURPLUS` times as many as wanted. Then, in `ROUNDS` rounds, all
    units are segmented by Viterbi, scores are set to the log frequency of each piece, and the least
    used pieces are dropped.
    """
    units, weights = zip(*sorted(counts.items(), key=lambda one: (-one[1], one[0])), strict=True)
    characters = set("".join(units)) | {SPACE}
    pieces = characters | _joined(units, weights, SURPLUS * size)
    scores = dict.fromkeys(pieces, -1.0) | dict.fromkeys(characters, -2.0)  # few pieces a unit
    start = max(len(pieces), size)
    for number in range(ROUNDS + 1):
        used = _used(units, weights, scores)
        wanted = round(start * (size / start) ** (number / ROUNDS))
        longer = sorted(pieces - characters, key=lambda one: (-used[one], one))
        pieces = characters | set(longer[: wanted - len(characters)])
        total = log(used.total())
        scores = {one: round(log(max(used[one], UNUSED)) - total, DIGITS) for one in pieces}
    return sorted(scores.items(), key=lambda one: (-one[1], one[0]))


def _joined(units: Sequence[str], weights: Sequence[int], size: int) -> set[str]:
    """The pieces of a BPE model of the units."""
    learner = tokenizers.Tokenizer(models.BPE())
    learner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.BpeTrainer(
        vocab_size=size, min_frequency=2, show_progress=False, max_token_length=LONGEST
    )
    share = min(1.0, SHOWN / max(1, sum(weights)))
    shown = (
        " ".join([unit] * ceil(count * share)) for unit, count in zip(units, weights, strict=True)
    )
    learner.train_from_iterator(shown, trainer)
    return set(learner.get_vocab())


def _used(units: Sequence[str], weights: Sequence[int], scores: dict[str, float]) -> Counter[str]:
    """How often each piece is used in the most probable segmentation of the units."""
    model = models.Unigram([("", 0.0), *sorted(scores.items())], 0, byte_fallback=False)
    cutter = tokenizers.Tokenizer(model)
    used: Counter[str] = Counter()
    for start in range(0, len(units), CHUNK):
        chunk = slice(start, start + CHUNK)
        for cut, count in zip(cutter.encode_batch(units[chunk]), weights[chunk], strict=True):
            for piece in cut.tokens:
                used[piece] += count
    return used


def _spacing() -> list[normalizers.Normalizer]:
    """Normalizers to NFC and single spaces."""
    return [normalizers.NFC(), normalizers.Replace(Regex(WHITE), " "), normalizers.Strip()]


def _lowering(kept: list[str], letters: list[str]) -> list[normalizers.Normalizer]:
    """Normalizers that lower a sentence's first letter after `CAPITAL`, except in kept words."""
    if not letters:
        return []
    word = rf"(?=[{''.join(letters)}]){PLAIN_CAPITAL}"
    if kept:
        word += rf"(?!(?:{'|'.join(kept)})(?!\w))"
    marked = CAPITAL + " "
    return [
        normalizers.Replace(Regex(SENTENCE_START + word), marked),
        *(normalizers.Replace(marked + one, marked + one.lower()) for one in letters),
    ]


def _units() -> pre_tokenizers.PreTokenizer:
    """The pre-tokenizer: words with the space before them, split into units."""
    return pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(), pre_tokenizers.Split(Regex(UNITS), "isolated")]
    )


def _decoder(letters: list[str]) -> decoders.Decoder:
    """The decoder, which restores capitals."""
    steps = [decoders.ByteFallback(), decoders.Metaspace(), decoders.Fuse()]
    marked = CAPITAL + " "
    steps += [decoders.Replace(marked + one.lower(), one) for one in letters]
    return decoders.Sequence([*steps, decoders.Replace(Regex(LEFT_OVER), "")])
