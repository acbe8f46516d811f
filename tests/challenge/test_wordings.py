"""What there is in the built-in corpus, how it is worded, and how translations are judged."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

import pytest

from regard.challenge import (
    Pair,
    judge,
    nearest,
    senses,
    size,
    split_of,
)
from regard.challenge.balance import cells
from regard.challenge.evaluation import chosen_gender
from regard.challenge.frames import FRAMES
from regard.challenge.nouns import NOUNS
from regard.challenge.predicates import ADJECTIVES, EVENTS
from regard.challenge.reference import noun_pairs, topics
from regard.challenge.senses import SENSES, WORDS
from regard.challenge.wording import Wording
from regard.errors import OptionError

Drawn = dict[tuple[str, str], list[Pair]]


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
    causes = {"weil", "da", "denn", "obwohl", "sodass"}
    assert links >= causes | {"bevor", "nachdem", "als", "damit", "bis"}


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


def test_sense_wordings(sensed: dict[str, Pair]) -> None:
    assert {source: sensed[source].target for source in SENSED} == SENSED
    for source in ("He hit the ball with the bat.", "The bat is a mammal."):
        assert {split_of(one) for one in sensed[source].combinations} == {"test"}


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
