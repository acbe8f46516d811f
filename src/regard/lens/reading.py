"""Reading a text with a model, with errors for what it cannot read."""

from __future__ import annotations

from regard.errors import OptionError
from regard.lens.adapters import ModelAdapter, Reading


def read(adapter: ModelAdapter, text: str, tokens: bool = False) -> Reading:
    """The text as the model reads it; with `tokens`, every token is a word of its own."""
    if not isinstance(text, str):
        raise OptionError(f"lens: text is {type(text).__name__}, expected a string")
    if not text.strip():
        raise OptionError("lens: the text is empty; give it at least one word")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise OptionError(
            f"lens: character {error.start} of the text, {text[error.start]!r}, is half a "
            "surrogate pair, which is not Unicode text"
        ) from None
    reading = adapter.read(text)
    if all(reading.words.special):
        raise OptionError(
            f"lens: the tokenizer leaves nothing of the text {text[:40]!r}; give it a word"
        )
    _check_fits(adapter, reading)
    return Reading(reading.ids, reading.words.as_tokens()) if tokens else reading


def _check_fits(adapter: ModelAdapter, reading: Reading) -> None:
    """Raise if the text is too long for the model, or its tokens are not in the vocabulary."""
    limit, known = adapter.limit, adapter.vocabulary
    if limit is not None and len(reading.ids) > limit:
        raise OptionError(
            f"lens: the text has {len(reading.ids):,} tokens, but the model can read only "
            f"{limit:,}; give it a shorter one"
        )
    highest = max(reading.ids)
    if known is not None and highest >= known:
        token = reading.words.tokens[reading.ids.index(highest)]
        raise OptionError(
            f"lens: token {token!r} has number {highest:,}, but the model has only {known:,} "
            "tokens; give it the tokenizer that it was trained with"
        )
