"""What a translator writes, greedily, with links cut."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.lens.adapters import TranslatorAdapter
from regard.lens.capture import Cut, cut


@torch.no_grad()
def rewrite(
    adapter: TranslatorAdapter,
    memory: Tensor,
    begun: Sequence[Sequence[int]],
    draft: Sequence[int],
    cuts: Sequence[Cut],
    limit: int,
) -> list[list[int]]:
    """Each row of tokens, continued up to the end or a limit; the end itself is left out.

    `draft` is the translation with nothing cut. A cut mostly changes a word or two of it, so each
    pass checks all the rest of the draft at once and is repeated only from where a row leaves it.

    Args:
        memory: the encoder's output of each row, ``(rows, n, width)``.
        begun: what each row begins with.
        cuts: the links that are cut, each in its row.
    """
    rows = [list(one) for one in begun]
    while any(not _done(row, adapter.end, limit) for row in rows):
        guesses = [[*row, *draft[len(row) :]] for row in rows]
        size = max(map(len, guesses))
        prefix = [[adapter.start, *one, *[adapter.end] * (size - len(one))] for one in guesses]
        first = min(len(row) for row in rows if not _done(row, adapter.end, limit))
        with cut(adapter.model, cuts):
            logits = adapter.step_logits(memory, torch.tensor(prefix, device=memory.device), first)
        for row, guess, chosen in zip(rows, guesses, logits.argmax(-1).tolist(), strict=True):
            while not _done(row, adapter.end, limit):
                row.append(chosen[len(row) - first])
                if row != guess[: len(row)]:
                    break
    return [row[:-1] if row and row[-1] == adapter.end else row for row in rows]


def _done(row: Sequence[int], end: int, limit: int) -> bool:
    return len(row) >= limit or (len(row) > 0 and row[-1] == end)
