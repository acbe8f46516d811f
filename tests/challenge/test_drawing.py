"""What is drawn: clean sentences, both readings alike, nothing shared by train and test."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.challenge import (
    SPLITS,
    Pair,
    generate,
    judge,
    nearest,
    senses,
    size,
    split_of,
)
from regard.challenge.draw import Draw
from regard.challenge.frames import FRAMES
from regard.challenge.nouns import NOUNS
from regard.challenge.senses import WORDS
from regard.challenge.split import held_out
from regard.errors import OptionError

Drawn = dict[tuple[str, str], list[Pair]]


def every(drawn: Drawn, kind: str | None = None) -> Iterator[Pair]:
    for (one, _), pairs in drawn.items():
        if kind in (None, one):
            yield from pairs


def words(text: str) -> list[str]:
    return re.findall(r"\w+(?:['-]\w+)*", text.lower())


def test_sentences_are_clean(drawn: Drawn) -> None:
    for pair in every(drawn):
        for text in (pair.source, pair.target):
            assert re.fullmatch(r"[A-ZÄÖÜ][^.]*\.( [A-ZÄÖÜ][^.]*\.)?", text), text
            assert not re.search(r"  | [,.]|[{}*|/_\[\]]", text), text
        assert pair.source.isascii()
        late = r"\b(in|an|zu|von|bei) (dem|der)\b|\b(in|an) das\b"
        for found in re.findall(late, pair.target):
            assert found[0] in ("in", "an", "von", "bei"), pair.target
            assert found[1] == "der", pair.target


def test_clauses_stand_behind_commas(drawn: Drawn) -> None:
    openers = r"(weil|da|denn|obwohl|sodass|bevor|nachdem|als|damit|bis)"
    for pair in every(drawn, "reference"):
        parts = re.split(rf", {openers} ", pair.target)
        if len(parts) == 1:
            assert pair.target.count(". ") == 1, pair.target
            assert ", " not in pair.target.replace(", sondern ", " ")
            continue
        _, opener, clause = parts
        said = clause.rstrip(".").split()
        copula = re.search(r"\bit (was|is) ", pair.source)
        if opener == "denn":
            assert said[1] == {"was": "war", "is": "ist"}[copula[1]], pair.target
        elif copula:
            assert said[-1] == {"was": "war", "is": "ist"}[copula[1]], pair.target
        assert said[-1][0].islower()
        assert pair.answer in said[:2]


def test_pairs_know_their_words(drawn: Drawn) -> None:
    for pair in every(drawn):
        assert pair.source[pair.position :].lower().startswith(pair.word)
        assert re.search(rf"\b{pair.answer}\b", pair.target, re.IGNORECASE), pair
        assert not set(pair.wrong) & {pair.answer}
        assert words(pair.source).count(pair.word) == 1
    for pair in every(drawn, "reference"):
        assert pair.referent_position is not None
        assert pair.other_position is not None
        assert pair.source[pair.referent_position :].startswith(str(pair.referent))
        assert pair.source[pair.other_position :].startswith(str(pair.other))
        assert max(pair.referent_position, pair.other_position) < pair.position
        assert NOUNS[str(pair.referent)].oblique in pair.target or (
            NOUNS[str(pair.referent)].german in pair.target
        )
        genders = {NOUNS[str(noun)].gender for noun in (pair.referent, pair.other)}
        assert len(pair.wrong) == len(genders) - 1


def test_all_are_different_and_none_says_two_things(drawn: Drawn) -> None:
    for pairs in drawn.values():
        assert len({pair.source for pair in pairs}) == len(pairs)
    answers = defaultdict(set)
    for pair in every(drawn):
        answers[pair.source].add(pair.target)
    assert all(len(targets) == 1 for targets in answers.values())


def test_cues_are_for_training_and_have_no_context_again(drawn: Drawn) -> None:
    assert size("cues", "test") == 0
    with pytest.raises(OptionError, match="there are 0 sentences of kind='cues' in split='test'"):
        generate("cues", "test")
    contexts, cues = (
        {one.combination for one in senses.contexts(kind)} for kind in ("senses", "cues")
    )
    assert not contexts & cues
    assert {one.sense for one in senses.contexts("cues")} == set(senses.SENSES.values())
    for pair in drawn["cues", "train"][:500]:
        assert judge(pair, pair.target)


def test_train_and_test_share_no_combination(drawn: Drawn) -> None:
    for kind in ("reference", "senses"):
        train, test = (
            {one for pair in drawn[kind, split] for one in pair.combinations} for split in SPLITS
        )
        assert train
        assert test
        assert not train & test
    for (_, split), pairs in drawn.items():
        for combination in {one for pair in pairs for one in pair.combinations}:
            assert split_of(combination) == split


def test_test_words_are_known_from_training(drawn: Drawn) -> None:
    for side in ("source", "target"):
        train, test = (
            {
                word
                for kind in ("reference", "senses")
                for pair in drawn[kind, split]
                for word in words(getattr(pair, side))
            }
            for split in SPLITS
        )
        assert test - train == set()


def test_neither_place_nor_gender_tells(drawn: Drawn) -> None:
    for split in SPLITS:
        pairs = drawn["reference", split]
        telling = [pair for pair in pairs if pair.wrong]
        if split == "test":
            assert telling == pairs
        else:
            assert 0.01 < 1 - len(telling) / len(pairs) < 0.1
        right = [nearest(pair) == pair.answer for pair in telling]
        assert 0.45 < sum(right) / len(right) < 0.55
        genders = Counter(NOUNS[str(pair.referent)].gender for pair in telling)
        assert max(genders.values()) / len(telling) < 0.45
        by_frame = defaultdict(list)
        for pair in telling:
            by_frame[pair.frame].append(nearest(pair) == pair.answer)
        assert by_frame.keys() == FRAMES.keys()
        for frame, correct in by_frame.items():
            if len(correct) >= 100:
                assert 0.45 < sum(correct) / len(correct) < 0.55, frame


def test_genders_do_not_tell_the_reading(drawn: Drawn) -> None:
    """Of two nouns of given genders in a given frame, either is meant equally often."""
    turns = defaultdict(list)
    for pair in drawn["reference", "test"]:
        first = pair.referent_position < pair.other_position  # type: ignore[operator]
        nouns = (pair.referent, pair.other) if first else (pair.other, pair.referent)
        key = (pair.frame, *(NOUNS[str(noun)].gender for noun in nouns))
        turns[key].append(first)
    assert all(abs(2 * sum(readings) - len(readings)) <= 1 for readings in turns.values())


def test_senses_are_drawn_in_turn(drawn: Drawn) -> None:
    counts = Counter(pair.sense for pair in drawn["senses", "train"][:1000])
    for of_word in WORDS.values():
        found = [counts[sense.name] for sense in of_word]
        assert min(found) >= 5
        assert max(found) - min(found) <= 1


# The shuffle, and what is held out


@given(st.integers(1, 300), st.integers(0, 1000), st.integers(0, 300))
def test_a_draw_is_a_shuffle(count: int, seed: int, taken: int) -> None:
    draw = Draw(count, Random(seed))
    drawn = [draw.next() for _ in range(min(taken, count))]
    assert len(set(drawn)) == len(drawn)
    assert set(drawn) <= set(range(count))
    assert draw.left == count - len(drawn)


def test_a_draw_is_fair() -> None:
    firsts = Counter(Draw(5, Random(seed)).next() for seed in range(2000))
    assert firsts.keys() == set(range(5))
    assert min(firsts.values()) > 300


def test_what_is_held_out_can_be_learned_from_the_rest() -> None:
    groups = [["a1", "a2", "a3", "a4"], ["b1", "b2", "b3", "b4"]]
    needs = {name: {name[1]} for names in groups for name in names}
    chosen = held_out(groups, 0.25, needs)
    assert len(chosen) == 2
    assert len({name[1] for name in chosen}) == 2, "each is needed twice, and once is left"
    assert held_out(groups, 0.25, {name: {name} for name in needs}) == frozenset()
    assert held_out(groups, 1.0, needs) < needs.keys()
