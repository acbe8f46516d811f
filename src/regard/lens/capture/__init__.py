"""Capturing attention: `watch` keeps what a model attends to, `cut` forbids links."""

from __future__ import annotations

from typing import Any

from regard.lens.capture.adapters.fast_path import FastPath
from regard.lens.capture.adapters.functional import Functional
from regard.lens.capture.adapters.own import OWN
from regard.lens.capture.adapters.transformers import TRANSFORMERS
from regard.lens.capture.adapters.written_out import WrittenOut
from regard.lens.capture.cuts import Cut, cut
from regard.lens.capture.links import Link, Links
from regard.lens.capture.seen import Seen, UnseenError
from regard.lens.capture.session import Session
from regard.lens.capture.watcher import watch

_ADAPTERS: tuple[Any, ...] = (Functional(), FastPath(), TRANSFORMERS, OWN, WrittenOut())
for _adapter in _ADAPTERS:
    Session.register(_adapter)

__all__ = ["Cut", "Link", "Links", "Seen", "UnseenError", "cut", "watch"]
