"""Training of unigram subwords (Kudo 2018, https://arxiv.org/abs/1804.10959).

What a piece may consist of is fixed before the pieces are learned: of one word, with the space
before it, or of one run of a punctuation mark, or of one digit, and never of two of these. English
clitics (*'s*, *'t*) are pieces of their own. So *bat* is the same subword before a full stop, a
comma and a space.

A capital that only marks the beginning of a sentence is taken off the word and written before it as
a piece of its own: *Bat* becomes ``▁⇧ ▁bat``. Words that the text writes with a capital elsewhere
as well (*Tom*, German nouns) keep theirs.

All of it is expressed in the `tokenizers` library's own normalizers, pre-tokenizers and decoders,
so that its ``tokenizer.json`` gives the same pieces without regard.
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
"""How pieces show the space before a word; in a text it counts as a space."""
CAPITAL = "⇧"
"""The piece for the capital at the beginning of a sentence; in a text it counts as a space."""
BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))
"""What stands for the bytes of a character that no piece has."""
FALLBACK = 2000
"""From this size on, a unigram vocabulary gives 256 places to bytes; a smaller one needs them."""
DIGITS = 4
"""Decimals of the scores."""
SURPLUS, ROUNDS = 2, 4
"""How many times as many candidates as pieces there are, and how many rounds reduce them."""
LONGEST = 20
"""Characters of the longest piece, the space before it counted."""
UNUSED = 0.1
"""What a character counts that is always part of a longer piece."""
CHUNK = 50_000
"""Units that are cut at once."""
SPREAD = 10
"""A word keeps its capital at the beginning of a sentence if elsewhere it is written with a capital
more than so many times as often as without."""
KEPT = 2000
"""At most so many words keep their capital at the beginning of a sentence, the most frequent."""
SHOWN = 8_000_000
"""About so many words are shown to the trainer at most; counts are scaled down to it."""

WHITE = rf"[\s\x1c-\x1f{SPACE}{CAPITAL}]+"
"""What Python's `str.split` takes for white space, and the signs that pieces use themselves."""
UNITS = rf"{SPACE}?\d|['’](?:s|re|ve|ll|d|m|t)\b|{SPACE}?([^\w\s{SPACE}])\1*"
"""What is cut out of the text between spaces: digits, clitics, runs of one punctuation mark."""
SENTENCE_START = r"(?:\A|(?<=[.!?…:] )|(?<=[.!?…:][\"“”«»'’)] )|(?<=[\"„“»«‚(¿¡])|(?<=[-–—] ))"
"""Where a sentence begins, in text with single spaces."""
PLAIN_CAPITAL = r"(?!\p{Lu}\p{Lu})"
"""Not a word in capitals throughout."""
LEFT_OVER = f"{CAPITAL} ?"
"""A capital sign without a letter behind it."""


def train_unigram(lines: Iterable[str], size: int, fit: bool = False) -> tokenizers.Tokenizer:
    """Pieces under which the text is likeliest, and bytes for all that they cannot spell."""
    fallback = BYTES if size >= FALLBACK else ()
    counts, kept, letters = _count(lines)
    places = size - len(SPECIALS) - len(fallback) - len(SPACE)
    characters = len(set("".join(counts)) - {SPACE})
    if fit:
        places = max(places, characters)
    if characters > places:
        raise OptionError(
            f"Tokenizer.train: size={size:,}, but the text has {characters:,} different "
            f"characters, each of which needs a place; ask for {size - places + characters:,} "
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
    """Whether a regular expression is one that tokenizers of regard have, new or old."""
    own = re.escape(SENTENCE_START) + r"\(\?=\[\w+\]\)" + re.escape(PLAIN_CAPITAL)
    own += r"(\(\?!\(\?:[\w|]+\)\(\?!\\w\)\))?"
    fixed = (WHITE, WHITE.replace(CAPITAL, ""), UNITS, LEFT_OVER)
    return pattern in fixed or re.fullmatch(own, pattern) is not None


def _count(lines: Iterable[str]) -> tuple[Counter[str], list[str], list[str]]:
    """How often each unit occurs, the words that keep their capital, the letters that lose it."""
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
    """The words that keep their capital where a sentence begins, those that often do first."""
    found = {
        unit
        for unit in counts.keys() | first.keys()
        if (lower := _lower(unit)) and counts[unit] > SPREAD * counts[lower] and _plain(unit)
    }
    order = sorted(found, key=lambda one: (-first[one], 0 if first[one] else -counts[one], one))
    return {unit.removeprefix(SPACE) for unit in order[:KEPT]}


def _plain(text: str) -> bool:
    """Whether a text has no sign that regular expressions use."""
    return not re.search(r"[^\w▁]|\|", text)


def _lower(unit: str) -> str:
    """A word that begins with a capital, without it; empty if there is none to give back."""
    word = unit.removeprefix(SPACE)
    lower = word[:1].lower()
    reversible = len(lower) == 1 and lower != word[0] and lower.upper() == word[0]
    return SPACE + lower + word[1:] if reversible else ""


def _learn(counts: Counter[str], size: int) -> list[tuple[str, float]]:
    """The pieces of a unigram model with their scores, likeliest first.

    Candidates are made by joining the pairs that stand together most often, about `SURPLUS` times
    as many as wanted. Then, in `ROUNDS` rounds, all units are cut in the likeliest way, scores are
    set to the logarithm of how often each piece was used, and the least used pieces dropped.
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
    """Pieces of the units, made by joining the pairs that stand together most often."""
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
    """How often each piece is used when the units are cut in the likeliest way."""
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
    """Unicode's form NFC, and single spaces."""
    return [normalizers.NFC(), normalizers.Replace(Regex(WHITE), " "), normalizers.Strip()]


def _lowering(kept: list[str], letters: list[str]) -> list[normalizers.Normalizer]:
    """A sentence's first letter to lower case and `CAPITAL` before it, but for the words kept."""
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
    """Words with the space before them, and what is cut out between spaces."""
    return pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(), pre_tokenizers.Split(Regex(UNITS), "isolated")]
    )


def _decoder(letters: list[str]) -> decoders.Decoder:
    """Pieces to text, capitals put back."""
    steps = [decoders.ByteFallback(), decoders.Metaspace(), decoders.Fuse()]
    marked = CAPITAL + " "
    steps += [decoders.Replace(marked + one.lower(), one) for one in letters]
    return decoders.Sequence([*steps, decoders.Replace(Regex(LEFT_OVER), "")])
