"""The page: one self-contained HTML file with the payload and the program that shows it.

The files in ``static/`` are parts of one program, joined as they are and run as one module: nothing
is global to the page, and no bundler is needed. tsc checks them together.
"""

from __future__ import annotations

import base64
import hashlib
import html
import zlib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from regard.view.payload import text_of

DEFLATED = ("findings", "vectors", "steps")
"""Parts that shrink by a third; the weights of the layers shrink less than inflating them takes."""
_STATIC = files("regard.view") / "static"


def page(payload: Mapping[str, Any], title: str) -> str:
    """A page that shows the payload, opens from disk, and may not load or send anything."""
    code, look = "\n" + script(), style()
    policy = (
        "default-src 'none'; "
        f"script-src '{content_hash(code)}'; style-src '{content_hash(look)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    return _document(
        payload,
        title,
        f'<meta http-equiv="Content-Security-Policy" content="{policy}"><style>{look}</style>',
        f'<script type="module">{code}</script>',
    )


def served_page(payload: Mapping[str, Any]) -> str:
    """The page of a server, which sends `script` as page.js and `style` as page.css."""
    return _document(
        payload,
        "regard",
        '<link rel="icon" href="mark.svg" type="image/svg+xml">'
        '<link rel="stylesheet" href="page.css">',
        '<script type="module" src="page.js"></script>'
        "<noscript>This page needs JavaScript, all of which it contains.</noscript>",
    )


def _document(payload: Mapping[str, Any], title: str, head: str, end: str) -> str:
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="referrer" content="no-referrer">'
        f"<title>{html.escape(title)}</title>{head}</head>\n"
        '<body><div id="page"></div>\n'
        f'<script type="application/json" id="payload">{compressed(payload)}</script>\n'
        f"{end}</body></html>\n"
    )


def compressed(payload: Mapping[str, Any]) -> str:
    """The payload as JSON, with the numbers and sentences of findings and steps deflated."""
    rest = {name: value for name, value in payload.items() if name not in DEFLATED}
    bulk = text_of({name: payload[name] for name in DEFLATED}).encode()
    deflated = base64.b64encode(zlib.compress(bulk)).decode("ascii")
    return text_of({**rest, "deflated": deflated})


def source(name: str) -> str:
    """The text of a file in ``static/``."""
    return (_STATIC / name).read_text(encoding="utf-8")


@cache
def script() -> str:
    """The program of the page: all files of ``static/``, the one that starts it last."""
    names = sorted(part.name for part in _STATIC.iterdir() if part.name.endswith(".js"))
    return "\n".join(source(name) for name in sorted(names, key="page.js".__eq__))


@cache
def style() -> str:
    """The style sheet of the page."""
    return source("page.css")


def content_hash(text: str) -> str:
    """The hash by which a content security policy allows a script or a style sheet."""
    digest = hashlib.sha256(text.encode()).digest()
    return "sha256-" + base64.b64encode(digest).decode("ascii")
