"""The page: one HTML file with the findings, the program that shows them, and nothing else."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from regard.view.figure.finding import Finding
from regard.view.html import content_hash, source
from regard.view.payload import text_of

MODULES = ("numbers.js", "words.js", "links.js", "bars.js", "steps.js", "page.js")
"""The modules of the page, dependencies first; they are joined without imports and exports."""
PACKED = ("q", "k", "v", "output")
"""Vectors of the six steps, sent as 16-bit integers."""
_IMPORT = re.compile(r"^import\s[^;]*;\n", re.MULTILINE)
_EXPORT = re.compile(r"^export ", re.MULTILINE)


def page(findings: Sequence[Finding]) -> str:
    """The page of the findings; it opens from disk, and may not load or send anything."""
    script, style = "\n" + _script(), _file("page.css")
    policy = (
        "default-src 'none'; "
        f"script-src '{content_hash(script)}'; style-src '{content_hash(style)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    title = "".join(text for text, _ in findings[0].headline)
    payload = text_of({"findings": [_data(one) for one in findings]})
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="referrer" content="no-referrer">'
        f"<title>{html.escape(title)}</title><style>{style}</style></head>\n"
        '<body><div id="page"></div>\n'
        f'<script type="application/json" id="payload">{payload}</script>\n'
        f'<script type="module">{script}</script></body></html>\n'
    )


@cache
def _script() -> str:
    parts = [source("dom.js"), *(_file(name) for name in MODULES)]
    return _EXPORT.sub("", "\n".join(_IMPORT.sub("", part) for part in parts))


def _file(name: str) -> str:
    return (files("regard.view.figure") / "static" / name).read_text(encoding="utf-8")


def _data(found: Finding) -> dict[str, Any]:
    """A finding as JSON; its vectors packed."""
    return {**asdict(found), "row": _packed(found.row)}


def _packed(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: pack(one) if name in PACKED else one for name, one in row.items()}


def pack(values: Sequence[Any]) -> dict[str, Any]:
    """Numbers as 16-bit integers, little-endian, in base64, with their shape and scale.

    >>> pack([[0.5, -1.0]])
    {'shape': [1, 2], 'scale': 3.051850947599719e-05, 'data': 'AEABgA=='}
    """
    numbers = np.nan_to_num(np.asarray(values, dtype=np.float64))
    scale = float(np.abs(numbers).max(initial=0.0)) / 32767 or 1.0
    whole = np.rint(numbers / scale).astype("<i2")
    data = base64.b64encode(whole.tobytes()).decode("ascii")
    return {"shape": list(numbers.shape), "scale": scale, "data": data}
