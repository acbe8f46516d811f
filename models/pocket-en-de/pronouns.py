"""Two sentences of which the second has *it* for a noun of the first, made from everyday sentences.

The first is a sentence of the corpus whose German has one noun with a known gender, which must be
the translation of its one English noun. The second is a short clause about *it*: written here, or a
sentence of the corpus in which *it* is German *er* or *ihn*, and so stands for something. The
German pronoun is put into the gender of the noun. Genders and translations are counted in the
corpus itself.
"""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

Pair = tuple[str, str]

ITEMS = 90_000
FORMS = {"nom": {"m": "er", "f": "sie", "n": "es"}, "acc": {"m": "ihn", "f": "sie", "n": "es"},
         "dat": {"m": "ihm", "f": "ihr", "n": "ihm"}}  # fmt: skip
DETERMINERS = "the|a|an|my|your|his|her|our|their|this|that"
ENGLISH_NOUN = re.compile(rf"\b(?:{DETERMINERS}) ([a-z]+)\b", re.IGNORECASE)
GERMAN_NOUN = re.compile(r"(?<![.!?„“\"–-] )(?<!^)(?<![„“\"])\b[A-ZÄÖÜ][a-zäöüß]{2,}\b")
SIGNS = {
    "f": re.compile(
        r"\b(?:eine|einer|meine|deine|seine|keine|zur|diese[r]?) ([A-ZÄÖÜ][a-zäöüß]{2,})\b"
    ),
    "m": re.compile(r"\b(?:einen|meinen|deinen|seinen|keinen|diesen) ([A-ZÄÖÜ][a-zäöüß]{2,})\b"),
    "n": re.compile(r"\b(?:das|ins|dieses) ([A-ZÄÖÜ][a-zäöüß]{2,})\b", re.IGNORECASE),
}
"""Words before a noun that show its gender."""
PERSON_WORDS = """
man woman boy girl child children baby mother father mom dad mum parents brother sister son
daughter uncle aunt cousin friend girlfriend boyfriend husband wife teacher student doctor nurse
lawyer president king queen prince princess policeman police officer boss neighbor neighbour
people person guy lady gentleman kid grandfather grandmother grandma grandpa actor actress
singer writer author painter driver waiter waitress secretary soldier thief murderer criminal
enemy stranger foreigner guest customer patient colleague manager captain pilot player winner
leader scientist engineer farmer hunter priest witch wizard hero god american german englishman
frenchman japanese judge dentist baker cook chef lot few same way time day morning evening night
year week month hour minute fact truth reason rest first last next other only family couple team
group audience crowd crew
"""
PERSONS = frozenset(PERSON_WORDS.split())
"""English nouns for which *it* is not said, or that stand for nothing that *it* could mean."""
CLAUSES = """
it is very old|{nom} ist sehr alt
it is new|{nom} ist neu
it was expensive|{nom} war teuer
it was too expensive|{nom} war zu teuer
it is beautiful|{nom} ist schön
it is really good|{nom} ist wirklich gut
it was very good|{nom} war sehr gut
it is too small|{nom} ist zu klein
it is too big|{nom} ist zu groß
it is broken|{nom} ist kaputt
it was broken|{nom} war kaputt
it is empty|{nom} ist leer
it is not mine|{nom} gehört mir nicht
it belongs to me|{nom} gehört mir
it belongs to my brother|{nom} gehört meinem Bruder
it's mine|{nom} gehört mir
it's over there|{nom} ist da drüben
it's in the kitchen|{nom} ist in der Küche
it's in the car|{nom} ist im Auto
it is here|{nom} ist hier
it's right here|{nom} ist genau hier
it's gone|{nom} ist weg
it was here yesterday|{nom} war gestern hier
it's not there|{nom} ist nicht da
it has disappeared|{nom} ist verschwunden
it is important|{nom} ist wichtig
it was very important to her|{nom} war ihr sehr wichtig
it is still warm|{nom} ist noch warm
it looks nice|{nom} sieht schön aus
it looks terrible|{nom} sieht schrecklich aus
it looks good|{nom} sieht gut aus
it smells strange|{nom} riecht seltsam
it works|{nom} funktioniert
it doesn't work|{nom} funktioniert nicht
it isn't working anymore|{nom} funktioniert nicht mehr
it didn't help|{nom} hat nicht geholfen
it disappeared|{nom} verschwand
it fell down|{nom} fiel herunter
it came yesterday|{nom} kam gestern
it came too late|{nom} kam zu spät
it was stolen|{nom} wurde gestohlen
it was destroyed|{nom} wurde zerstört
it was found yesterday|{nom} wurde gestern gefunden
it can be dangerous|{nom} kann gefährlich sein
it could be useful|{nom} könnte nützlich sein
it must be here somewhere|{nom} muss hier irgendwo sein
it has always been here|{nom} war schon immer hier
it will be ready tomorrow|{nom} wird morgen fertig sein
it should be enough|{nom} sollte reichen
it cost a lot of money|{nom} hat viel Geld gekostet
it was a present|{nom} war ein Geschenk
it's a good one|{nom} ist gut
it is the talk of the town|{nom} ist in aller Munde
it comes from Italy|{nom} kommt aus Italien
it makes me happy|{nom} macht mich glücklich
it makes me nervous|{nom} macht mich nervös
it changed everything|{nom} hat alles verändert
it ended badly|{nom} endete schlecht
is it far|ist {nom} weit weg
is it yours|gehört {nom} dir
where is it|wo ist {nom}
where was it|wo war {nom}
what does it look like|wie sieht {nom} aus
how old is it|wie alt ist {nom}
how big is it|wie groß ist {nom}
does it work|funktioniert {nom}
was it expensive|war {nom} teuer
is it real|ist {nom} echt
I like it|ich mag {acc}
I love it|ich liebe {acc}
I hate it|ich hasse {acc}
I don't like it|ich mag {acc} nicht
I need it|ich brauche {acc}
I don't need it anymore|ich brauche {acc} nicht mehr
I can't find it|ich kann {acc} nicht finden
I saw it yesterday|ich habe {acc} gestern gesehen
I've seen it|ich habe {acc} gesehen
I have it here|ich habe {acc} hier
I don't have it|ich habe {acc} nicht
I lost it|ich habe {acc} verloren
I found it|ich habe {acc} gefunden
I bought it last week|ich habe {acc} letzte Woche gekauft
I sold it|ich habe {acc} verkauft
I want to see it|ich will {acc} sehen
I want it back|ich will {acc} zurück
I know it very well|ich kenne {acc} sehr gut
I'll take it|ich nehme {acc}
I'll bring it tomorrow|ich bringe {acc} morgen mit
I made it myself|ich habe {acc} selbst gemacht
I gave it to Tom|ich habe {acc} Tom gegeben
we must find it|wir müssen {acc} finden
we have to sell it|wir müssen {acc} verkaufen
we can use it|wir können {acc} benutzen
he stole it|er hat {acc} gestohlen
he wants to buy it|er will {acc} kaufen
she threw it away|sie hat {acc} weggeworfen
she has never seen it|sie hat {acc} noch nie gesehen
they destroyed it|sie haben {acc} zerstört
Tom broke it|Tom hat {acc} kaputtgemacht
Mary took it|Maria hat {acc} genommen
nobody wants it|niemand will {acc}
everybody knows it|jeder kennt {acc}
can I see it|kann ich {acc} sehen
may I have it|darf ich {acc} haben
do you like it|magst du {acc}
do you want it|willst du {acc}
did you see it|hast du {acc} gesehen
did you find it|hast du {acc} gefunden
where did you find it|wo hast du {acc} gefunden
where did you buy it|wo hast du {acc} gekauft
when did you lose it|wann hast du {acc} verloren
who gave it to you|wer hat {acc} dir gegeben
why did you sell it|warum hast du {acc} verkauft
what did you do with it|was hast du mit {dat} gemacht
give it to me|gib {acc} mir
show it to me|zeig {acc} mir
don't touch it|fass {acc} nicht an
put it on the table|leg {acc} auf den Tisch
bring it here|bring {acc} her
keep it|behalte {acc}
leave it here|lass {acc} hier
look at it|sieh {acc} dir an
take it with you|nimm {acc} mit
"""
SLOTS = {"er": "{nom}", "ihn": "{acc}", "Er": "{Nom}", "Ihn": "{Acc}"}
QUESTION = re.compile(
    r"(is|was|does|did|do|can|may|where|what|how|when|who|why)\b(?!.*\bit looks)", re.IGNORECASE
)


def genders(pairs: Iterable[Pair]) -> dict[str, str]:
    """German nouns in the singular and their gender, where the corpus leaves no doubt."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for _, german in pairs:
        for gender, sign in SIGNS.items():
            for noun in sign.findall(german):
                counts[noun][gender] += 1
    found = {}
    for noun, of_noun in counts.items():
        [(gender, most)] = of_noun.most_common(1)
        if most >= 3 and most >= 0.85 * of_noun.total():
            found[noun] = gender
    return found


def translations(pairs: list[Pair], known: dict[str, str]) -> dict[str, set[str]]:
    """English nouns and their German nouns, by how much more often than not they come together."""
    ours: Counter[str] = Counter()
    theirs: Counter[str] = Counter()
    together: Counter[Pair] = Counter()
    for english, german in pairs:
        nouns = set(ENGLISH_NOUN.findall(english.lower())) - PERSONS
        others = {noun for noun in GERMAN_NOUN.findall(german) if noun in known}
        ours.update(nouns)
        theirs.update(others)
        together.update((a, b) for a in nouns for b in others)
    found: dict[str, set[str]] = defaultdict(set)
    for (a, b), count in together.items():
        if count >= 2 and 2 * count / (ours[a] + theirs[b]) > 0.25:
            found[a].add(b)
    return found


def frames(pairs: list[Pair]) -> list[Pair]:
    """Clauses about *it*, with a slot for the German pronoun."""
    found = []
    for line in CLAUSES.strip().splitlines():
        english, german = line.split("|")
        end = "?" if QUESTION.match(english) else "."
        found += 4 * [(_capital(english) + end, _capital(german) + end)]
    for english, german in pairs:
        words, others = (re.findall(r"\w+", side.lower()) for side in (english, german))
        if (
            words.count("it") != 1
            or len(words) > 9
            or {"he", "him", "his", "she", "her"} & {*words}
        ):
            continue
        if others.count("er") + others.count("ihn") == 1 and not {"sie", "es", "seine", "sein"} & {
            *others
        }:
            found.append(
                (english, re.sub(r"\b(er|ihn|Er|Ihn)\b", lambda one: SLOTS[one[0]], german))
            )
    return found


def pronoun_items(pairs: list[Pair], draw: random.Random) -> Iterator[tuple[str, str, str, str]]:
    """Different items, as many of each gender: second sentence, its German, first, its German."""
    known = genders(pairs)
    lexicon = translations(pairs, known)
    firsts: dict[str, list[Pair]] = {"m": [], "f": [], "n": []}
    for english, german in pairs:
        nouns = [noun for noun in ENGLISH_NOUN.findall(english.lower()) if noun in lexicon]
        others = [noun for noun in GERMAN_NOUN.findall(german) if noun in known]
        whole = english[-1] in ".!?" and german[-1] in ".!?" and len(english.split()) <= 14
        if whole and len(nouns) == len(others) == 1 and others[0] in lexicon[nouns[0]]:
            firsts[known[others[0]]].append((english, german))
    clauses = frames(pairs)
    print({gender: len(found) for gender, found in firsts.items()}, len(clauses), "clauses")
    seen = set()
    while len(seen) < ITEMS:
        gender = draw.choice("mfn")
        first, (english, german) = draw.choice(firsts[gender]), draw.choice(clauses)
        forms = {case: form[gender] for case, form in FORMS.items()}
        forms |= {_capital(case): _capital(form) for case, form in forms.items()}
        item = (english, german.format(**forms), *first)
        if item not in seen:
            seen.add(item)
            yield item


def _capital(text: str) -> str:
    return text[0].upper() + text[1:] if text[0] != "{" else "{" + text[1].upper() + text[2:]
