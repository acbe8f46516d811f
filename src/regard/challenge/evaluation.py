"""Which reading a German translation has."""

from __future__ import annotations

import re

from regard.challenge.german import PRONOUNS
from regard.challenge.nouns import NOUNS
from regard.challenge.pair import Pair
from regard.challenge.senses import WORDS

_CONJUNCTIONS = "weil da denn obwohl obgleich sodass dass bevor ehe nachdem als wenn damit bis"
CONJUNCTIONS = frozenset(re.findall(r"\w+", _CONJUNCTIONS))
"""Words that begin the clause of the pronoun."""
_WORDS = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*|[.,;:!?]")
_GENDER = {word: gender for gender, words in PRONOUNS.items() for word in words}
COMPOUND = 6
"""Minimum letters of a noun that is also recognised as the end of a compound."""


def chosen_gender(translation: str) -> str | None:
    """The gender (m, f, n) of the first er, ihn, sie or es in the clause about *it*.

    The clause begins after the first conjunction (*weil*, *denn*, *obwohl* …), or else after the
    first punctuation mark.

    >>> chosen_gender("Das Tier überquerte die Straße nicht, denn sie war zu breit.")
    'f'
    """
    words = [word.lower() for word in _WORDS.findall(translation)]
    opening = [place for place, word in enumerate(words) if word in CONJUNCTIONS]
    marks = [place for place, word in enumerate(words) if not word[0].isalpha()]
    for place in (opening or marks)[:1]:
        for word in words[place + 1 :]:
            if word in _GENDER:
                return _GENDER[word]
    return None


def judge_reference(pair: Pair, translation: str) -> bool | None:
    """Whether the pronoun has the gender of the noun that *it* refers to.

    None instead of False if the translation uses another noun.
    """
    gender = chosen_gender(translation)
    referent = NOUNS[str(pair.referent)]
    if gender is None:
        return None
    if gender == referent.gender:
        return True
    forms = referent.german.lower(), referent.oblique.lower()
    named = any(word.lower().endswith(forms) for word in _WORDS.findall(translation))
    return False if named else None


def judge_sense(pair: Pair, translation: str) -> bool | None:
    """Whether the translation has the noun of the right sense only; None if both or none."""
    forms = {form: one.name for one in WORDS[pair.word] for form in one.forms}
    right = wrong = False
    for word in _WORDS.findall(translation):
        fitting = [form for form in forms if _is(word, form.lower())]
        if fitting:
            form = max(fitting, key=len)
            right |= forms[form] == pair.sense
            wrong |= form in pair.wrong
    return right if right != wrong else None


def _is(word: str, form: str) -> bool:
    """Whether a word of a translation is this form, or a compound that ends in it.

    Compounds only of long forms: *Verkäufer* ends in *Ufer*, but is no compound of it.
    """
    lower = word.lower()
    if not word[0].isupper():
        return False
    return lower == form or (len(form) >= COMPOUND and lower.endswith(form))
