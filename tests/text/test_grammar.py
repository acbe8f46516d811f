"""The built-in corpus: right German, both readings alike, and nothing shared by train and test."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from random import Random

import jaxtyping
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import OptionError
from regard.text._grammar import senses
from regard.text._grammar.balance import cells
from regard.text._grammar.draw import Draw
from regard.text._grammar.frames import FRAMES
from regard.text._grammar.german import (
    CASES,
    DETERMINERS,
    GENDERS,
    agreed,
    article,
    contracted,
    english_determiner,
    fill,
    german_phrase,
)
from regard.text._grammar.judging import chosen_gender
from regard.text._grammar.nouns import NOUNS
from regard.text._grammar.predicates import ADJECTIVES, EVENTS
from regard.text._grammar.reference import every_topic, noun_pairs, topics
from regard.text._grammar.senses import SENSES, WORDS
from regard.text._grammar.split import held_out
from regard.text._grammar.wording import Wording
from regard.text.grammar import (
    KINDS,
    SPLITS,
    Pair,
    generate,
    judge,
    nearest,
    size,
    split_of,
)

SOURCE = Path(__file__).parents[2] / "src"
MANY = 20_000
Drawn = dict[tuple[str, str], list[Pair]]


@pytest.fixture(autouse=True, scope="module")
def _unchecked() -> Iterator[None]:
    """Many sentences are written here; the types of every call are checked by the doctests."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", before)


@pytest.fixture(scope="module")
def drawn(_unchecked: None) -> Drawn:
    """Many pairs of each kind and split, or all there are."""
    return {
        (kind, split): list(generate(kind, split, min(MANY, size(kind, split)), seed=7))
        for kind, split in product(KINDS, SPLITS)
        if size(kind, split)
    }


def every(drawn: Drawn, kind: str | None = None) -> Iterator[Pair]:
    for (one, _), pairs in drawn.items():
        if kind in (None, one):
            yield from pairs


def words(text: str) -> list[str]:
    return re.findall(r"\w+(?:['-]\w+)*", text.lower())


# German


def test_articles_in_every_gender_and_case() -> None:
    wanted = {
        "the": "der den dem / die die der / das das dem",
        "this": "dieser diesen diesem / diese diese dieser / dieses dieses diesem",
        "that": "jener jenen jenem / jene jene jener / jenes jenes jenem",
        "a": "ein einen einem / eine eine einer / ein ein einem",
        "my": "mein meinen meinem / meine meine meiner / mein mein meinem",
        "your": "dein deinen deinem / deine deine deiner / dein dein deinem",
        "his": "sein seinen seinem / seine seine seiner / sein sein seinem",
        "her": "ihr ihren ihrem / ihre ihre ihrer / ihr ihr ihrem",
        "our": "unser unseren unserem / unsere unsere unserer / unser unser unserem",
    }
    assert wanted.keys() == DETERMINERS.keys()
    for determiner, table in wanted.items():
        for gender, forms in zip(GENDERS, table.split(" / "), strict=True):
            assert [article(determiner, gender, case) for case in CASES] == forms.split()


WEAK = {
    "puppy": "Welpen", "ox": "Ochsen", "elephant": "Elefanten", "hare": "Hasen", "monkey": "Affen",
    "bear": "Bären", "lion": "Löwen", "leopard": "Leoparden", "raven": "Raben",
}  # fmt: skip


def test_every_noun_in_every_case() -> None:
    for noun in NOUNS.values():
        forms = [german_phrase("the", noun, case) for case in CASES]
        oblique = WEAK.get(noun.english, noun.german)
        articles = {"m": "der den dem", "f": "die die der", "n": "das das dem"}[noun.gender].split()
        assert forms == [
            f"{articles[0]} {noun.german}",
            *(f"{one} {oblique}" for one in articles[1:]),
        ]
        assert re.fullmatch(r"[A-ZÄÖÜ][a-zäöüß]+", noun.german), noun
        assert re.fullmatch(r"[a-z]+", noun.english), noun
    assert {noun.english for noun in NOUNS.values() if noun.oblique != noun.german} == WEAK.keys()
    buchstabe = SENSES["Buchstabe"].noun
    assert german_phrase("a", buchstabe, "acc") == "einen Buchstaben"


def test_endings_that_tell_the_gender() -> None:
    """Rules of German with few exceptions, all of them named here, against slips in the table."""
    not_feminine = {*WEAK, "cheese", "wallet", "terrain", "grain", "painting"}
    for noun in NOUNS.values():
        if noun.german.endswith(("chen", "lein")):
            assert (noun.gender == "n") is (noun.english != "cake"), noun
        if noun.german.endswith(("ung", "heit", "keit", "schaft", "ion")):
            assert noun.gender == "f", noun
        if re.search("[^e]e$", noun.german):
            assert (noun.gender == "f") is (noun.english not in not_feminine), noun


def test_preposition_and_article_in_one_word() -> None:
    assert contracted("Es ging in das Haus, bis zu dem Dach.") == "Es ging ins Haus, bis zum Dach."
    assert contracted("In dem Wald, an das Ufer, zu der Bank") == "Im Wald, ans Ufer, zur Bank"
    assert contracted("in den Wald, in diesem Haus, auf das Dach") == (
        "in den Wald, in diesem Haus, auf das Dach"
    )


def test_small_parts() -> None:
    assert agreed("{who} goss* und schöpfte*", plural=True) == "{who} gossen und schöpften"
    assert agreed("{who} goss* und schöpfte*", plural=False) == "{who} goss und schöpfte"
    assert [english_determiner("a", word) for word in ("owl", "dog", "axe")] == ["an", "a", "an"]
    assert english_determiner("the", "owl") == "the"
    assert fill("{it} and {it}", {"it": "x"}) == ("x and x", {"it": 6})


# What there is


def test_how_much_there_is() -> None:
    assert len(FRAMES) >= 25
    assert len(NOUNS) >= 150
    assert len(ADJECTIVES) >= 80
    assert len(WORDS) >= 20
    assert all(len(of_word) >= 2 for of_word in WORDS.values())
    templates = Counter(
        sense for sense, _ in {(one.sense.name, one.name) for one in senses.contexts()}
    )
    assert templates.keys() == SENSES.keys()
    assert min(templates.values()) >= 10
    assert size("reference", "train") >= 300_000
    assert size("senses", "train") >= 20_000
    links = {link.german.strip(" ,") for frame in FRAMES.values() for link in frame.links}
    assert links >= set(words("weil da denn obwohl sodass bevor nachdem als damit bis"))


def test_everything_is_used_and_learned() -> None:
    """Every noun and every predicate occurs in training, and not once only."""
    nouns: Counter[str] = Counter()
    said: Counter[str] = Counter()
    for of_frame in cells("train").values():
        for cell in of_frame.values():
            for cores in cell:
                for way, a, b in cores:
                    nouns.update((a.english, b.english))
                    said[way.topic.said.name.removeprefix("become ")] += 1
    assert nouns.keys() == NOUNS.keys()
    assert said.keys() == ADJECTIVES.keys() | EVENTS.keys()
    assert min(nouns.values()) >= 20
    assert min(said.values()) >= 8
    assert cells("train").keys() == cells("test").keys() == FRAMES.keys()


def test_tags_are_spelt_alike_everywhere() -> None:
    of_nouns = {tag for noun in NOUNS.values() for tag in noun.tags}
    said = [*ADJECTIVES.values(), *EVENTS.values()]
    of_predicates = {tag for one in said for tag in one.true_of}
    of_roles = {
        tag
        for frame in FRAMES.values()
        for roles in frame.roles
        for role in roles
        for tag in role.split("+")
    }
    assert of_predicates <= of_nouns
    assert of_roles <= of_nouns
    assert of_nouns - of_predicates - of_roles == {"mass", "land", "public"}, "for determiners"


def test_what_is_said_decides() -> None:
    for frame in FRAMES.values():
        assert not set(frame.about_a) & set(frame.about_b), frame.name
        assert frame.decided <= {*frame.about_a, *frame.about_b}, frame.name
        for topic in topics(frame):
            fitting = [pair for pair in noun_pairs(frame) if topic.fits(*pair)]
            assert fitting, topic.combination
            for a, b in fitting:
                referent, other = (a, b) if topic.first else (b, a)
                assert topic.said.true_of & referent.tags
                assert topic.said.name in frame.decided or not topic.said.true_of & other.tags


def said_by(frame: str, a: str, b: str, name: str) -> dict[str, Pair]:
    """All sentences of a frame with these nouns and this predicate, by their source."""
    (topic,) = (one for one in topics(FRAMES[frame]) if one.said.name == name)
    way = Wording(topic)
    assert topic.fits(NOUNS[a], NOUNS[b])
    pairs = [way.write(i, NOUNS[a], NOUNS[b]) for i in range(way.count(NOUNS[a], NOUNS[b]))]
    assert len({pair.source for pair in pairs}) == len(pairs)
    return {pair.source: pair for pair in pairs}


CLASSIC = [
    (
        ("cross", "animal", "street", "tired"),
        "The animal didn't cross the street because it was too tired.",
        "Das Tier überquerte die Straße nicht, weil es zu müde war.",
    ),
    (
        ("cross", "animal", "street", "wide"),
        "The animal didn't cross the street because it was too wide.",
        "Das Tier überquerte die Straße nicht, weil sie zu breit war.",
    ),
    (
        ("fit", "trophy", "suitcase", "big"),
        "The trophy doesn't fit in the suitcase because it is too big.",
        "Die Trophäe passt nicht in den Koffer, weil sie zu groß ist.",
    ),
    (
        ("fit", "trophy", "suitcase", "small"),
        "The trophy doesn't fit in the suitcase because it is too small.",
        "Die Trophäe passt nicht in den Koffer, weil er zu klein ist.",
    ),
]


@pytest.mark.parametrize(("core", "source", "target"), CLASSIC, ids=lambda one: str(one)[-12:])
def test_the_classics_are_held_out(
    core: tuple[str, str, str, str], source: str, target: str
) -> None:
    pair = said_by(*core)[source]
    assert pair.target == target
    assert {split_of(combination) for combination in pair.combinations} == {"test"}


WORDINGS = [
    (
        ("cross", "animal", "street", "tired"),
        "Unfortunately, the animal has not crossed that street, for it is so tired.",
        "Leider hat das Tier jene Straße nicht überquert, denn es ist so müde.",
    ),
    (
        ("cross", "bear", "river", "lazy"),
        "Yesterday this bear did not cross the river. It was much too lazy.",
        "Gestern überquerte dieser Bär den Fluss nicht. Er war viel zu faul.",
    ),
    (
        ("eat although", "owl", "fish", "spoiled"),
        "An owl is eating the fish even though it is spoiled.",
        "Eine Eule frisst den Fisch, obwohl er verdorben ist.",
    ),
    (
        ("eat after", "lion", "meat", "rest"),
        "The lion ate the meat after it had rested.",
        "Der Löwe fraß das Fleisch, nachdem er sich ausgeruht hatte.",
    ),
    (
        ("eat before", "dog", "sausage", "become cold"),
        "Our dog ate the sausage before it became cold.",
        "Unser Hund fraß die Wurst, bevor sie kalt wurde.",
    ),
    (
        ("flee when", "elephant", "machine", "explode"),
        "On Monday the elephant ran away from the machine when it exploded.",
        "Am Montag lief der Elefant vor der Maschine weg, als sie explodierte.",
    ),
    (
        ("crash", "bus", "wall", "collapse"),
        "A bus drove into the wall, so it collapsed.",
        "Ein Bus fuhr gegen die Mauer, sodass sie einstürzte.",
    ),
    (
        ("store so that", "cheese", "bowl", "stay fresh"),
        "We put my cheese in the bowl so that it would stay fresh.",
        "Wir legten meinen Käse in die Schüssel, damit er frisch blieb.",
    ),
    (
        ("pour until", "bucket", "barrel", "full"),
        "Last week we poured everything from the bucket into the barrel until it was full.",
        "Letzte Woche gossen wir alles aus dem Eimer ins Fass, bis es voll war.",
    ),
    (
        ("come out", "puppy", "barn", "call it"),
        "The puppy came out of the barn because Emma had called it.",
        "Der Welpe kam aus der Scheune, weil Emma ihn gerufen hatte.",
    ),
    (
        ("hide", "mouse", "boot", "deep"),
        "In the evening the mouse hid in my boot, as it was deep.",
        "Am Abend versteckte sich die Maus in meinem Stiefel, da er tief war.",
    ),
    (
        ("reach", "rope", "roof", "high"),
        "The rope doesn't reach the roof since it is too high.",
        "Das Seil reicht nicht bis zum Dach, da es zu hoch ist.",
    ),
    (
        ("buy", "coat", "jacket", "cheaper"),
        "I bought the coat and not the jacket because it was much cheaper.",
        "Ich kaufte den Mantel und nicht die Jacke, weil er viel billiger war.",
    ),
    (
        ("stand beside", "cat", "car", "rusty"),
        "The cat is standing next to the car. It is very rusty.",
        "Die Katze steht neben dem Auto. Es ist sehr rostig.",
    ),
]


@pytest.mark.parametrize(("core", "source", "target"), WORDINGS, ids=lambda one: str(one)[:24])
def test_wordings(core: tuple[str, str, str, str], source: str, target: str) -> None:
    assert said_by(*core)[source].target == target


SENSED = {
    "He hit the ball with the bat.": "Er schlug den Ball mit dem Schläger.",
    "The bat is a mammal.": "Die Fledermaus ist ein Säugetier.",
    "On Monday Tom took the money to the bank.": "Am Montag brachte Tom das Geld zur Bank.",
    "I pulled the boat onto the bank.": "Ich zog das Boot ans Ufer.",
    "Yesterday the dog bit me in the calf.": "Gestern biss mich der Hund in die Wade.",
    "The word begins with this letter.": "Das Wort beginnt mit diesem Buchstaben.",
    "There is a mistake in that file.": "In jener Datei ist ein Fehler.",
    "A spring is made of steel.": "Eine Feder ist aus Stahl.",
    "An organ is an instrument.": "Eine Orgel ist ein Instrument.",
    "The flowers bloom in the spring.": "Die Blumen blühen im Frühling.",
}


@pytest.fixture(scope="module")
def sensed(_unchecked: None) -> dict[str, Pair]:
    """Every sentence of the sense grammar by its source, those for training only included."""
    every = {one.combination: one for kind in ("senses", "cues") for one in senses.contexts(kind)}
    pairs = [one.write(number) for one in every.values() for number in range(one.count)]
    kinds = product(("senses", "cues"), SPLITS)
    assert len(pairs) == sum(size(kind, split) for kind, split in kinds)
    found = {pair.source: pair for pair in pairs}
    assert len(found) == len(pairs), "no source says two things"
    return found


def test_sense_wordings(sensed: dict[str, Pair]) -> None:
    assert {source: sensed[source].target for source in SENSED} == SENSED
    for source in ("He hit the ball with the bat.", "The bat is a mammal."):
        assert {split_of(one) for one in sensed[source].combinations} == {"test"}


# What is drawn


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


# generate


def test_fewer_are_the_beginning_of_more() -> None:
    for kind in KINDS:
        assert list(generate(kind, n=20)) == list(generate(kind, n=50))[:20]
        assert list(generate(kind, n=20)) != list(generate(kind, n=20, seed=1))
    assert list(generate(n=0)) == []


def test_the_same_in_every_process() -> None:
    code = (
        "from regard.text.grammar import *\n"
        "for kind, split in [(k, s) for k in KINDS for s in SPLITS if size(k, s)]:\n"
        "    print(*generate(kind, split, 50, 3), sep='\\n')"
    )
    printed = []
    for hash_seed in ("1", "2"):
        settings = {**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, env=settings, capture_output=True, timeout=300, check=True)
        printed.append(done.stdout.decode())
    here = [
        pair
        for kind, split in product(KINDS, SPLITS)
        if size(kind, split)
        for pair in generate(kind, split, 50, 3)
    ]
    assert printed[0] == printed[1] == "".join(f"{pair}\n" for pair in here)


def test_all_there_are() -> None:
    count = size("senses", "test")
    assert len({pair.source for pair in generate("senses", "test", count)}) == count
    with pytest.raises(OptionError) as caught:
        generate("senses", "test", count + 1)
    assert str(caught.value) == (
        f"generate: n={count + 1}, but there are {count} sentences of kind='senses' in "
        f"split='test'; ask for 0 to {count}"
    )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"kind": "both"}, "generate: kind='both' is unknown, expected reference, senses or cues"),
        ({"split": "valid"}, "generate: split='valid' is unknown, expected train or test"),
        ({"n": 1.5}, "generate: n=1.5, expected a whole number"),
        ({"n": 10, "seed": "x"}, "generate: seed='x', expected a whole number"),
    ],
    ids=str,
)
def test_bad_arguments(arguments: dict[str, object], says: str) -> None:
    with pytest.raises(OptionError, match=re.escape(says)):
        generate(**arguments)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="n=-1, but there are"):
        generate(n=-1)
    with pytest.raises(OptionError, match=r"size: kind='x' is unknown, expected reference, "):
        size("x")


def test_split_of() -> None:
    assert split_of("street + animal") == split_of("animal + street") == "test"
    for unknown in ("animal", "animal + x", "cross + x", "a + b + c", ""):
        with pytest.raises(
            OptionError, match=r"split_of: .* is unknown, expected two nouns, a frame"
        ):
            split_of(unknown)
    nouns = {" + ".join(pair) for pair in product(NOUNS, NOUNS)}
    assert not nouns & every_topic(), "a name means one thing"


# judge and nearest


def pair_of(source: str) -> Pair:
    for core, one, _ in (*CLASSIC, *WORDINGS):
        if one == source:
            return said_by(*core)[source]
    raise AssertionError(source)


TIRED = "The animal didn't cross the street because it was too tired."
WIDE = "The animal didn't cross the street because it was too wide."


@pytest.mark.parametrize(
    ("source", "translation", "verdict"),
    [
        (TIRED, "Das Tier überquerte die Straße nicht, weil es zu müde war.", True),
        (TIRED, "Das Tier überquerte die Straße nicht, denn es war zu müde.", True),
        (TIRED, "Das Tier hat die Straße nicht überquert. Es war zu müde.", True),
        (TIRED, "Weil es zu müde war, überquerte das Tier die Straße nicht.", True),
        (TIRED, "das tier überquerte die straße nicht weil es zu müde war", True),
        (TIRED, "Das Tier überquerte die Straße nicht, weil sie zu müde war.", False),
        (TIRED, "Das Tier überquerte die Straße nicht, weil er zu müde war.", False),
        (TIRED, "Der Hund überquerte die Straße nicht, weil er zu müde war.", None),
        (TIRED, "Das Tier überquerte die Straße nicht, weil Tom zu müde war.", None),
        (TIRED, "Das Tier überquerte die Straße nicht", None),
        (TIRED, "", None),
        (WIDE, "Das Tier überquerte die Straße nicht, weil sie zu breit war.", True),
        (WIDE, "Das Tier überquerte die Hauptstraße nicht, da es zu breit war.", False),
        (WIDE, "Es überquerte die Straße nicht, weil sie zu breit war.", True),
        (WIDE, "Das Tier überquerte den Weg nicht, weil er zu breit war.", None),
    ],
)
def test_judging_reference(source: str, translation: str, verdict: bool | None) -> None:
    assert judge(pair_of(source), translation) is verdict


def test_judging_an_object() -> None:
    pair = pair_of("The puppy came out of the barn because Emma had called it.")
    assert (pair.answer, pair.wrong) == ("ihn", ("sie",))
    assert judge(pair, "Der Welpe kam aus der Scheune, weil Emma ihn gerufen hatte.") is True
    assert judge(pair, "Der Welpe kam heraus, weil er von Emma gerufen wurde.") is True
    assert judge(pair, "Der Welpe kam aus der Scheune, weil Emma sie gerufen hatte.") is False


@pytest.mark.parametrize(
    ("source", "translation", "verdict"),
    [
        ("The bat is a mammal.", "Die Fledermaus ist ein Säugetier.", True),
        ("The bat is a mammal.", "Fledermäuse sind Säugetiere.", True),
        ("The bat is a mammal.", "Der Schläger ist ein Säugetier.", False),
        ("The bat is a mammal.", "Der Baseballschläger ist ein Säugetier.", False),
        ("The bat is a mammal.", "Das ist ein Säugetier.", None),
        ("The bat is a mammal.", "Die Fledermaus ist kein Schläger.", None),
        ("He hit the ball with the bat.", "Er traf den Ball mit dem Tennisschläger.", True),
        ("I pulled the boat onto the bank.", "Ich zog das Boot ans Flussufer.", True),
        ("I pulled the boat onto the bank.", "Der Verkäufer zog das Boot.", None),
        ("A mouse was hungry.", "Eine Maus hatte Hunger.", True),
        ("A mouse was hungry.", "Eine Computermaus war hungrig.", False),
        ("The mouse lies next to the keyboard.", "Die Computermaus liegt da.", True),
        ("The nut was loose.", "Die Mutter war locker.", True),
        ("The child chewed the nail.", "Das Kind kaute am Nagel.", None),
        ("A mouse lies next to the keyboard.", "Eine Maus liegt neben der Tastatur.", None),
        ("The child chewed the nail.", "Das Kind kaute an den Fingernägeln.", True),
        ("There is a mistake in the table.", "In der Tabelle ist ein politischer Fehler.", True),
    ],
)
def test_judging_senses(
    sensed: dict[str, Pair], source: str, translation: str, verdict: bool | None
) -> None:
    assert judge(sensed[source], translation) is verdict


def test_judging_what_the_grammar_itself_says(drawn: Drawn) -> None:
    for pairs in drawn.values():
        for pair in pairs[:5000]:
            assert judge(pair, pair.target) is True, pair
    for pair in drawn["reference", "test"][:5000]:
        main, opening, clause = re.split(r"(, (?!sondern )\w+ |\. )(?=\w)", pair.target)
        turned = re.sub(rf"\b{pair.answer}\b", pair.wrong[0], clause, flags=re.IGNORECASE)
        assert turned != clause
        assert judge(pair, f"{main}{opening}{turned}") is False, pair
    for pair in drawn["senses", "test"][:5000]:
        if pair.wrong:
            assert judge(pair, pair.target.replace(pair.answer, pair.wrong[0])) is False, pair
        else:
            assert pair.sense in ("Computermaus", "Fingernagel")


def test_where_the_clause_begins() -> None:
    assert chosen_gender("Er ging, weil sie kam.") == "f"
    assert chosen_gender("Er ging. Es regnete.") == "n"
    assert chosen_gender("Er ging") is None
    assert chosen_gender("Er ging.") is None


def test_nearest(sensed: dict[str, Pair]) -> None:
    tired, wide = pair_of(TIRED), pair_of(WIDE)
    assert (tired.answer, nearest(tired)) == ("es", "sie")
    assert (wide.answer, nearest(wide)) == ("sie", "sie")
    assert nearest(replace(tired, wrong=())) == "es"
    with pytest.raises(
        OptionError, match="nearest: the pair has kind='senses', expected 'reference'"
    ):
        nearest(sensed["The bat is a mammal."])


# Parts


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
