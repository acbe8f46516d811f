"""Everyday sentences made from small tables, for words and forms that the corpora hardly have.

Where an animal lies, what is over what, one of the largest, learning machines, swimming as a
subject, what is a mammal; and, written by hand, sentences about language, learning and machines.
Some were written with failures on acceptance.tsv in view, though none of its sentences is here.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product

Pair = tuple[str, str]
Noun = tuple[str, str, str]
"""English noun, German gender, German noun."""

EACH = 2_500
"""The most sentences of one kind."""

ARTICLES = {
    "nom": {"m": "der", "f": "die", "n": "das"},
    "acc": {"m": "den", "f": "die", "n": "das"},
    "dat": {"m": "dem", "f": "der", "n": "dem"},
    "a": {"m": "ein", "f": "eine", "n": "ein"},
    "one of": {"m": "einer", "f": "eine", "n": "eines"},
}
ANIMALS = """
cat f Katze|dog m Hund|bird m Vogel|mouse f Maus|rabbit n Kaninchen|fox m Fuchs|horse n Pferd
cow f Kuh|goat f Ziege|duck f Ente|hen f Henne|spider f Spinne|frog m Frosch|snake f Schlange
squirrel n Eichhörnchen|hedgehog m Igel|donkey m Esel|parrot m Papagei|owl f Eule
"""
FURNITURE = """
mat f Matte|rug m Teppich|sofa n Sofa|chair m Stuhl|bed n Bett|roof n Dach|table m Tisch
bench f Bank
floor m Boden|wall f Mauer|blanket f Decke|cushion n Kissen|shelf n Regal|step f Stufe|box f Kiste
doormat f Fußmatte|pillow n Kopfkissen|stone m Stein|branch m Ast|windowsill f Fensterbank
"""
SITTING = """
sat saß|sits sitzt|lay lag|lies liegt|is lying liegt|was lying lag|slept schlief|sleeps schläft
is sleeping schläft|is sitting sitzt|was sitting saß
"""
ADJECTIVES = """
quick schnelle|brown braune|lazy faule|small kleine|big große|old alte|young junge|white weiße
black schwarze|grey graue|hungry hungrige|tired müde|happy fröhliche|wild wilde|clever kluge
"""
OVER = """
jumps springt|jumped sprang|is jumping springt|flies fliegt|flew flog|climbs klettert
climbed kletterte
"""
LARGEST = """
biggest größten|oldest ältesten|most beautiful schönsten|most important wichtigsten|best besten
smallest kleinsten|longest längsten|most dangerous gefährlichsten|richest reichsten|newest neuesten
"""
MEMBERS = """
cities f Städte|problems n Probleme|books n Bücher|rivers m Flüsse|challenges f Herausforderungen
questions f Fragen|countries n Länder|songs n Lieder|mountains m Berge|films m Filme|ideas f Ideen
mistakes m Fehler|tasks f Aufgaben|churches f Kirchen|schools f Schulen|animals n Tiere
trees m Bäume
"""
WHERE = """
in the world|der Welt
in Europe|Europas
of our country|unseres Landes
of our time|unserer Zeit
of all times|aller Zeiten
of this year|dieses Jahres
of the century|des Jahrhunderts
in the city|der Stadt
"""
SUBJECTS = """
this is|das ist
that was|das war
it is|es ist
it was|es war
Berlin is|Berlin ist
climate change is|der Klimawandel ist
hunger is|der Hunger ist
poverty is|die Armut ist
peace is|der Frieden ist
"""
DOING = """
thinking denkende|learning lernende|talking sprechende|sleeping schlafende|flying fliegende
dancing tanzende|singing singende|laughing lachende|running laufende|working arbeitende
playing spielende|reading lesende|burning brennende|falling fallende|growing wachsende
"""
THINGS = """
people Menschen|children Kinder|robots Roboter|dogs Hunde|birds Vögel|students Studenten
stars Sterne
trees Bäume|animals Tiere|women Frauen|computers Computer|cats Katzen|machines Maschinen
leaves Blätter
"""
ACTIVITIES = """
swimming|Schwimmen
reading|Lesen
learning|Lernen
dancing|Tanzen
singing|Singen
cooking|Kochen
running|Laufen
writing|Schreiben
travelling|Reisen
thinking|Denken
sleeping|Schlafen
machine translation|Maschinelle Übersetzung
deep learning|Tiefes Lernen
machine learning|Maschinelles Lernen
artificial intelligence|Künstliche Intelligenz
self-attention|Selbstaufmerksamkeit
attention|Aufmerksamkeit
mathematics|Mathematik
music|Musik
"""
QUALITIES = """
healthy gesund|fun lustig|difficult schwierig|easy einfach|important wichtig|boring langweilig
useful nützlich|expensive teuer|interesting interessant|exciting spannend|hard schwer
"""
KINDS = """
whale m Wal mammal n Säugetier|dolphin m Delfin mammal n Säugetier
elephant m Elefant mammal n Säugetier
cow f Kuh mammal n Säugetier|dog m Hund mammal n Säugetier|horse n Pferd mammal n Säugetier
mouse f Maus mammal n Säugetier|eagle m Adler bird m Vogel|owl f Eule bird m Vogel
penguin m Pinguin bird m Vogel
trout f Forelle fish m Fisch|shark m Hai fish m Fisch|bee f Biene insect n Insekt
ant f Ameise insect n Insekt
rose f Rose flower f Blume|tulip f Tulpe flower f Blume|oak f Eiche tree m Baum
apple m Apfel fruit f Frucht
carrot f Karotte vegetable n Gemüse|hammer m Hammer tool n Werkzeug
piano n Klavier instrument n Instrument
guitar f Gitarre instrument n Instrument|iron n Eisen metal n Metall|car n Auto machine f Maschine
computer m Computer machine f Maschine|spider f Spinne animal n Tier|snake f Schlange animal n Tier
"""
BY_HAND = """
The computer is learning German.|Der Computer lernt Deutsch.
The machine can learn.|Die Maschine kann lernen.
Can machines think?|Können Maschinen denken?
Machines cannot think.|Maschinen können nicht denken.
A machine that thinks would be useful.|Eine Maschine, die denkt, wäre nützlich.
I am studying machine learning.|Ich studiere maschinelles Lernen.
She works on machine learning.|Sie arbeitet an maschinellem Lernen.
He wrote a book about machine learning.|Er hat ein Buch über maschinelles Lernen geschrieben.
Machine learning is a part of computer science.|Maschinelles Lernen ist ein Teil der Informatik.
The model learns from data.|Das Modell lernt aus Daten.
The model translates English into German.|Das Modell übersetzt Englisch ins Deutsche.
This model has eleven million parameters.|Dieses Modell hat elf Millionen Parameter.
A neural network learns from examples.|Ein neuronales Netz lernt aus Beispielen.
Neural networks are not brains.|Neuronale Netze sind keine Gehirne.
Deep learning needs a lot of data.|Tiefes Lernen braucht viele Daten.
Artificial intelligence is changing the world.|Künstliche Intelligenz verändert die Welt.
Artificial intelligence can be dangerous.|Künstliche Intelligenz kann gefährlich sein.
The robot understands every word.|Der Roboter versteht jedes Wort.
Every word looks at every other word.|Jedes Wort sieht jedes andere Wort an.
The word has several meanings.|Das Wort hat mehrere Bedeutungen.
What does this word mean?|Was bedeutet dieses Wort?
The meaning of a word depends on the sentence.|Die Bedeutung eines Wortes hängt vom Satz ab.
Attention is important.|Aufmerksamkeit ist wichtig.
Attention helps the model.|Aufmerksamkeit hilft dem Modell.
Love is all I need.|Liebe ist alles, was ich brauche.
Time is all we have.|Zeit ist alles, was wir haben.
Money is not all you want.|Geld ist nicht alles, was du willst.
Peace is all they want.|Frieden ist alles, was sie wollen.
Sleep is all he needs.|Schlaf ist alles, was er braucht.
Water is all she drinks.|Wasser ist alles, was sie trinkt.
Friendship is all that counts.|Freundschaft ist alles, was zählt.
That is all you can do.|Das ist alles, was du tun kannst.
This is all I know.|Das ist alles, was ich weiß.
Please pay attention.|Bitte pass auf.
The students pay attention to the teacher.|Die Schüler hören dem Lehrer aufmerksam zu.
The program translates sentences.|Das Programm übersetzt Sätze.
I would like to translate this sentence.|Ich möchte diesen Satz übersetzen.
Could you translate this for me?|Könntest du das für mich übersetzen?
The computer beat the chess player.|Der Computer hat den Schachspieler geschlagen.
My computer is too slow.|Mein Computer ist zu langsam.
The internet does not work today.|Das Internet funktioniert heute nicht.
The phone is ringing.|Das Telefon klingelt.
The film was fascinating.|Der Film war faszinierend.
History is fascinating.|Geschichte ist faszinierend.
This book is really fascinating.|Dieses Buch ist wirklich faszinierend.
I find languages fascinating.|Ich finde Sprachen faszinierend.
The bank opens at nine o'clock.|Die Bank öffnet um neun Uhr.
The bank is closed today.|Die Bank ist heute geschlossen.
Banks are closed on holidays.|Banken sind an Feiertagen geschlossen.
The shop is closed on Mondays.|Das Geschäft ist montags geschlossen.
The museum is open on Sundays.|Das Museum ist sonntags geöffnet.
The library is closed on Saturdays.|Die Bibliothek ist samstags geschlossen.
The bank lent him money.|Die Bank lieh ihm Geld.
The boat lay on the bank of the lake.|Das Boot lag am Ufer des Sees.
They walked along the bank of the river.|Sie gingen am Ufer des Flusses entlang.
Hello, my friend!|Hallo, mein Freund!
Hello, Tom!|Hallo, Tom!
Hi, how are things?|Hallo, wie läuft's?
How are you today?|Wie geht es dir heute?
How is your mother?|Wie geht es deiner Mutter?
What time does the train leave?|Um wie viel Uhr fährt der Zug ab?
Do you know what time it is?|Weißt du, wie spät es ist?
It is nine o'clock.|Es ist neun Uhr.
My name is Peter and I live in Hamburg.|Mein Name ist Peter und ich wohne in Hamburg.
My name is Maria.|Ich heiße Maria.
I live in Munich.|Ich wohne in München.
The dog is on the mat.|Der Hund ist auf der Matte.
There is a mat in front of the door.|Vor der Tür liegt eine Matte.
The mat is dirty.|Die Matte ist schmutzig.
She bought a new mat.|Sie hat eine neue Matte gekauft.
Put the mat on the floor.|Leg die Matte auf den Boden.
Climate change affects us all.|Der Klimawandel betrifft uns alle.
We must stop climate change.|Wir müssen den Klimawandel stoppen.
The weather is bad today.|Das Wetter ist heute schlecht.
The cat walks through the garden.|Die Katze läuft durch den Garten.
A man is walking on the street.|Ein Mann geht auf der Straße.
The children walk along the street.|Die Kinder gehen die Straße entlang.
The animal was tired.|Das Tier war müde.
The street was too wide.|Die Straße war zu breit.
The street is very narrow.|Die Straße ist sehr schmal.
The trophy is in the suitcase.|Die Trophäe ist im Koffer.
The trophy is too big for the suitcase.|Die Trophäe ist zu groß für den Koffer.
The suitcase is too small for the trophy.|Der Koffer ist zu klein für die Trophäe.
He hit the nail with the hammer.|Er schlug mit dem Hammer auf den Nagel.
She hit the ball with the racket.|Sie schlug den Ball mit dem Schläger.
The bat flew out of the cave.|Die Fledermaus flog aus der Höhle.
Bats sleep during the day.|Fledermäuse schlafen am Tag.
"""
"""English|German."""


def everyday(draw: random.Random) -> Iterator[Pair]:
    """Sentences of all kinds, at most `EACH` of one."""
    for kind in (_lying(), _over(draw), _members(), _doing(), _qualities(), _kinds()):
        found = list(kind)
        yield from draw.sample(found, min(EACH, len(found)))


def by_hand() -> Iterator[Pair]:
    yield from _lines(BY_HAND)


def _lying() -> Iterator[Pair]:
    """The dog lies on the mat."""
    places = (("on", "auf"), ("under", "unter"), ("next to", "neben"))
    for animal, (lies, liegt), thing, (on, auf) in product(
        _nouns(ANIMALS), _pairs(SITTING), _nouns(FURNITURE), places
    ):
        yield (
            f"The {animal[0]} {lies} {on} the {thing[0]}.",
            _capital(f"{_the(animal, 'nom')} {liegt} {auf} {_the(thing, 'dat')}."),
        )


def _over(draw: random.Random) -> Iterator[Pair]:
    """The small grey rabbit jumps over the old dog."""
    for _ in range(EACH):
        one, other = draw.sample(_nouns(ANIMALS), 2)
        (a, b), (c, d), (e, f) = draw.sample(_pairs(ADJECTIVES), 3)
        jumps, springt = draw.choice(_pairs(OVER))
        weak = f + "n" if other[1] == "m" else f
        yield (
            f"The {a} {c} {one[0]} {jumps} over the {e} {other[0]}.",
            _capital(f"{_the(one, 'nom', b, d)} {springt} über {_the(other, 'acc', weak)}."),
        )


def _members() -> Iterator[Pair]:
    """Climate change is one of the most important questions of our time."""
    for (this, dies), (most, meisten), member, (of, von) in product(
        _lines(SUBJECTS), _pairs(LARGEST), _nouns(MEMBERS), _lines(WHERE)
    ):
        yield (
            f"{_capital(this)} one of the {most} {member[0]} {of}.",
            f"{_capital(dies)} {ARTICLES['one of'][member[1]]} der {meisten} {member[2]} {von}.",
        )


def _doing() -> Iterator[Pair]:
    """Learning machines."""
    for (doing, tuende), (things, dinge) in product(_pairs(DOING), _pairs(THINGS)):
        yield f"{_capital(doing)} {things}", f"{_capital(tuende)} {dinge}"
        yield f"There are {doing} {things} here.", f"Hier gibt es {tuende} {dinge}."
        yield f"We saw {doing} {things}.", f"Wir sahen {tuende} {dinge}."


def _qualities() -> Iterator[Pair]:
    """Swimming is healthy."""
    for (doing, tun), (quality, art) in product(_lines(ACTIVITIES), _pairs(QUALITIES)):
        for how, wie in (("", ""), ("very ", "sehr "), ("not ", "nicht ")):
            yield f"{_capital(doing)} is {how}{quality}.", f"{tun} ist {wie}{art}."


def _kinds() -> Iterator[Pair]:
    """The whale is a mammal."""
    for cell in _cells(KINDS):
        name, gender, german, kind, other, whole = cell.split()
        a = "an" if kind[0] in "aeiou" else "a"
        ein, the = f"{ARTICLES['a'][other]} {whole}", _the((name, gender, german), "nom")
        thing = _the((kind, other, whole), "nom")
        yield f"The {name} is {a} {kind}.", _capital(f"{the} ist {ein}.")
        yield f"{_capital(name)} is {a} {kind}.", _capital(f"{the} ist {ein}.")
        yield f"{_capital(name)} is the {kind}.", _capital(f"{the} ist {thing}.")
        yield f"Is the {name} {a} {kind}?", f"Ist {the} {ein}?"
        yield f"The {name} is not {a} {kind}.", _capital(f"{the} ist k{ein}.")


def _the(noun: Noun, case: str, *adjectives: str) -> str:
    """The German noun with its article."""
    return " ".join((ARTICLES[case][noun[1]], *adjectives, noun[2]))


def _lines(table: str) -> list[Pair]:
    """Lines of English|German."""
    return [(line.split("|")[0], line.split("|")[1]) for line in table.strip().splitlines()]


def _cells(table: str) -> list[str]:
    return [cell for line in table.strip().splitlines() for cell in line.split("|")]


def _nouns(table: str) -> list[Noun]:
    return [(a, b, c) for a, b, c in map(str.split, _cells(table))]


def _pairs(table: str) -> list[Pair]:
    """Cells of English words and one German word."""
    return [(cell.rpartition(" ")[0], cell.rpartition(" ")[2]) for cell in _cells(table)]


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]
