"""Evaluation of explanation methods against the measured effect of cuts."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import astuple
from pathlib import Path
from typing import Any

from regard.errors import FileError
from regard.files import write_text
from regard.lens.arguments import whole
from regard.lens.judgement.evaluation import evaluate
from regard.lens.judgement.items import Item, items_of
from regard.lens.judgement.record_file import RecordFile
from regard.lens.judgement.result import Estimate, Judgement, MethodResult, summarise
from regard.lens.lens import Lens
from regard.lens.methods import find_methods
from regard.models import POCKET

ITEMS = 100
"""The default number of items."""


def judge(
    data: str | Path | Iterable[object] = "reference",
    *,
    model: str | Lens = POCKET,
    methods: Iterable[str] | None = None,
    most: int = ITEMS,
    out: str | Path | None = None,
    progress: Callable[[int, int], object] = lambda done, of: None,
) -> Judgement:
    """How well explanation methods predict the effect of cuts, next to a random baseline.

    Args:
        data: ``"reference"`` or ``"senses"``, the built-in sentences (for a translator from English
            to German); a file of JSON lines with text and, if wanted, word, instead, target and
            evidence; or a list of such mappings.
        model: a name as `Lens.open` takes it, or a lens.
        methods: names of `regard.lens.methods.METHODS`; all if None.
        most: items, at most.
        out: a file for the judgement as JSON. Finished items are kept beside it, in
            ``<out>.items.jsonl``, and are not computed again when the same run is started anew.
        progress: called with how many items are done, of how many.

    See `MethodResult` for the measures. Items for which the model prefers the alternative are
    skipped: there is nothing to explain.
    """
    chosen = find_methods(methods)
    items = items_of(data, whole("judge: most", most))
    target = None if out is None else Path(out)
    if target is not None and target.is_dir():
        raise FileError(f"judge: cannot write {target}: Is a directory")
    lens = model if isinstance(model, Lens) else Lens.open(model)
    called = type(lens.model).__name__ if isinstance(model, Lens) else str(model)
    source = str(data) if isinstance(data, str | Path) else "given"
    names = [one.name for one in chosen]
    digest = hashlib.sha256(repr([astuple(one) for one in items]).encode()).hexdigest()[:16]
    run = {"model": called, "data": source, "methods": names, "items": digest}
    kept = None if target is None else target.with_name(f"{target.name}.items.jsonl")
    with nullcontext() if kept is None else RecordFile(kept, run) as file:
        records: list[dict[str, Any]] = [] if file is None else file.records
        add = records.append if file is None else file.add
        for item in items[len(records) :]:
            progress(len(records), len(items))
            add(evaluate(lens, item, chosen))
        progress(len(records), len(items))
    judgement = summarise(records, called, source, names)
    if target is not None:
        write_text(target, {target.suffix.lower(): judgement.to_json}, "judge")
    return judgement


__all__ = ["Estimate", "Item", "Judgement", "MethodResult", "judge"]
