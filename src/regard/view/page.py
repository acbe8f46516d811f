"""The page: one HTML file with what is shown, the program that shows it, and nothing else.

The modules in ``static/`` are joined by leaving out their imports, dependencies first. That works
because no two of them give one name to two things at their top level, which a test holds.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from regard.view.payload import text_of

_IMPORT = re.compile(r'^import\s+(?:[^;]*?\s+from\s+)?"\./(?P<name>[\w.]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export ", re.MULTILINE)


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
        "<noscript>This page needs JavaScript, all of which it brings along.</noscript>",
    )


def _document(payload: Mapping[str, Any], title: str, head: str, end: str) -> str:
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="referrer" content="no-referrer">'
        f"<title>{html.escape(title)}</title>{head}</head>\n"
        '<body><div id="page"></div>\n'
        f'<script type="application/json" id="payload">{text_of(payload)}</script>\n'
        f"{end}</body></html>\n"
    )


def source(name: str) -> str:
    """The text of a file in ``static/``."""
    return (files("regard.view") / "static" / name).read_text(encoding="utf-8")


def modules() -> list[str]:
    """The names of the modules, dependencies first."""
    found: list[str] = []

    def visit(name: str) -> None:
        if name not in found:
            for match in _IMPORT.finditer(source(name)):
                visit(match["name"])
            found.append(name)

    visit("page.js")
    return found


@cache
def script() -> str:
    """The program of the page, in one piece."""
    return _EXPORT.sub("", "\n".join(_IMPORT.sub("", source(name)) for name in modules()))


@cache
def style() -> str:
    """The style sheet of the page."""
    return source("page.css")


def content_hash(text: str) -> str:
    """The hash by which a content security policy allows a script or a style sheet."""
    digest = hashlib.sha256(text.encode()).digest()
    return "sha256-" + base64.b64encode(digest).decode("ascii")
