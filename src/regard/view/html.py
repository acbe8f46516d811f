"""The viewer as one text: a module for notebooks, and a page that needs nothing else.

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
_PAGE_STYLE = (
    "html,body{margin:0;min-height:100%;background:#fdfdfb}"
    "@media(prefers-color-scheme:dark){html,body{background:#15171b}}"
)


def source(name: str) -> str:
    """The text of a module in ``static/``."""
    return (files("regard.view") / "static" / name).read_text(encoding="utf-8")


def modules() -> list[str]:
    """The names of the modules, dependencies first; a server may serve them as they are."""
    found: list[str] = []

    def visit(name: str) -> None:
        if name in found:
            return
        for match in _IMPORT.finditer(source(name)):
            visit(match["name"])
        found.append(name)

    visit("page.js")
    return found


@cache
def module() -> str:
    """The viewer as one ES module that exports ``render`` and a default with ``render``."""
    parts = [_IMPORT.sub("", source(name)) for name in modules() if name != "page.js"]
    return _joined(parts) + "\nexport { render };\nexport default { render };\n"


@cache
def _script() -> str:
    """The viewer and what starts it in a page, as one script without exports."""
    return _joined([_IMPORT.sub("", source(name)) for name in modules()])


def _joined(parts: list[str]) -> str:
    text = "\n".join(parts)
    text = re.sub(r"^export default .*;\n", "", text, flags=re.MULTILINE)
    return re.sub(r"^export ", "", text, flags=re.MULTILINE)


def page(payload: Mapping[str, Any], title: str) -> str:
    """A page that shows the payload, opens from disk, and may not load or send anything."""
    script = "\n" + _script()
    policy = (
        "default-src 'none'; "
        f"script-src '{content_hash(script)}'; style-src '{content_hash(_PAGE_STYLE)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="referrer" content="no-referrer">'
        f"<title>{html.escape(title)}</title><style>{_PAGE_STYLE}</style></head>\n"
        '<body><div id="viewer"></div>\n'
        f'<script type="application/json" id="payload">{text_of(payload)}</script>\n'
        f'<script type="module">{script}</script></body></html>\n'
    )


def content_hash(text: str) -> str:
    """The hash by which a content security policy allows a script or a style sheet."""
    digest = hashlib.sha256(text.encode()).digest()
    return "sha256-" + base64.b64encode(digest).decode("ascii")
