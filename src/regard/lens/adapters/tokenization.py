"""Tokenizers of transformers and of the tokenizers library, asked in one way."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import tokenizers

from regard.errors import OptionError
from regard.lens.adapters.adapter import Reading, or_named
from regard.text.words import Words, spelled


class ForeignTokenizer:
    """A tokenizer that reads whole texts, whatever truncation or padding it was saved with."""

    def __init__(self, tokenizer: Any) -> None:
        self._given, self._fast = tokenizer, _fast(tokenizer)

    def read(self, text: str) -> Reading:
        """The tokens of a text, and where they stand in it."""
        if self._fast is not None:
            found = self._fast.encode(text)
            special = tuple(
                bool(apart) or (i in self.special_ids and text[slice(*span)].strip() == token)
                for i, token, span, apart in zip(
                    found.ids, found.tokens, found.offsets, found.special_tokens_mask, strict=True
                )
            )
            words = Words(text, tuple(found.tokens), tuple(found.offsets), special)
            return Reading(found.ids, words)
        ids = self._given(text)["input_ids"]
        special = self.special(ids)
        own = [i for i, apart in zip(ids, special, strict=True) if not apart]
        spans = iter(spelled(self.decode, own, text))
        places = tuple((0, 0) if apart else next(spans) for apart in special)
        names = tuple(self._given.convert_ids_to_tokens(ids))
        return Reading(ids, Words(text, names, places, special))

    def encode_target(self, text: str) -> list[int]:
        """The tokens of a translation, without special ones."""
        if not callable(self._given):
            return [i for i in self.read(text).ids if i not in self.special_ids]
        found: list[int] = self._given(text_target=text, add_special_tokens=False)["input_ids"]
        return found

    def decode(self, ids: Sequence[int]) -> str:
        """The text of these tokens, special ones left out."""
        if self._fast is not None:
            return str(self._fast.decode(list(ids)))
        return str(
            self._given.decode(
                list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False
            )
        )

    def decode_or_name(self, ids: Sequence[int]) -> str:
        """The text of these tokens, or their names if they spell nothing."""
        return or_named(self.decode(ids), self.names(ids))

    def names(self, ids: Sequence[int]) -> list[str]:
        """The tokens with these ids; a model may know more than its tokenizer names."""
        if self._fast is None:
            names = self._given.convert_ids_to_tokens(list(ids))
        else:
            names = [self._fast.id_to_token(i) for i in ids]
        return [f"token {i}" if name is None else name for i, name in zip(ids, names, strict=True)]

    def special(self, ids: Sequence[int]) -> tuple[bool, ...]:
        """Which of the tokens stand for no text."""
        return tuple(i in self.special_ids for i in ids)

    @cached_property
    def special_ids(self) -> set[int]:
        """Tokens that stand for no text; the token of an unknown word stands for a word."""
        if self._fast is not None:
            added = self._fast.get_added_tokens_decoder()
            named = {i for i, token in added.items() if token.special}
        else:
            named = set(self._given.all_special_ids)
        return named - {getattr(self._given, "unk_token_id", None)}

    @cached_property
    def unknown_id(self) -> int | None:
        """The token that stands for any unknown word, unless it also ends a text (GPT-2)."""
        found: int | None = getattr(self._given, "unk_token_id", None)
        if found is None and self._fast is not None:
            name = getattr(self._fast.model, "unk_token", None)
            found = None if name is None else self._fast.token_to_id(name)
        return None if found == getattr(self._given, "eos_token_id", None) else found


def _fast(tokenizer: Any) -> tokenizers.Tokenizer | None:
    """A copy of the `tokenizers.Tokenizer` inside, without truncation; None for a slow one."""
    inner = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if isinstance(inner, tokenizers.Tokenizer):
        copy = tokenizers.Tokenizer.from_str(inner.to_str())
        copy.no_truncation()
        copy.no_padding()
        return copy
    if callable(tokenizer) and hasattr(tokenizer, "convert_ids_to_tokens"):
        return None
    raise OptionError(
        f"Lens: tokenizer is {type(tokenizer).__name__}, expected one of transformers or of the "
        "tokenizers library"
    )
