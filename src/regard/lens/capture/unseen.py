"""Errors about attention that could not be captured."""

from __future__ import annotations

import re
from collections import Counter

from regard.errors import OptionError
from regard.lens.capture.session import Listener, Session

_ATTENTION = re.compile("atten|attn", re.IGNORECASE)


def missed(session: Session, listener: Listener, seen: set[str]) -> tuple[str, ...]:
    """The classes of modules that attend, by their names, but completed no call that was seen.

    Of modules that multiplied activations or took a softmax, and neither they nor a module inside
    or around them was seen to attend.
    """
    found: dict[str, None] = {}
    for module in session.unread.values():
        name, kind = listener.names.get(id(module)), type(module).__name__
        if name is None or not _ATTENTION.search(kind):
            continue
        if not any(_related(name, other) for other in seen):
            found[kind] = None
    return tuple(found)


def _related(name: str, other: str) -> bool:
    """Whether two modules are the same, or one is inside the other."""
    one, two = f"{name}." if name else "", f"{other}." if other else ""
    return one.startswith(two) or two.startswith(one)


def check_seen(listener: Listener, heard: bool, session: Session, operators: Counter[str]) -> None:
    """Raise if the model ran, but no attention of it was seen."""
    if heard:
        return
    if listener.elsewhere:
        raise OptionError(
            f"{listener.caller}: the model ran in another thread, where nothing is captured; use "
            f"regard.{listener.caller} in the thread that calls the model (for a streamer, in the "
            "function that the thread runs)"
        )
    if not listener.ran:
        return
    if session.nested:
        raise OptionError(
            f"{listener.caller}: attention is called with nested tensors, which cannot be seen "
            "through; run the model on padded ones, with a mask"
        )
    if session.empty:
        return
    most = [name for name, _ in operators.most_common(12)]
    softmax = [name for name in operators if "softmax" in name and name not in most]
    calls = ", ".join(f"{name} × {operators[name]}" for name in [*most, *softmax])
    unread = missed(session, listener, set())
    why = (
        f" {' and '.join(unread)} attends in a way that cannot be read."
        if unread
        else " flex_attention, which is compiled, cannot be seen (a model of transformers may know "
        "attn_implementation='sdpa')."
    )
    raise OptionError(
        f"{listener.caller}: {type(listener.model).__name__} ran, but made no call of attention "
        "that can be seen: not scaled_dot_product_attention, torch's attention modules, "
        "regard.attend, nor a softmax of products that is multiplied with values. It called "
        f"{calls or 'no operator'}.{why}"
    )
