"""What a notebook shows of an object that has a text but no picture."""

from __future__ import annotations

from html import escape


def preformatted(text: str) -> str:
    """The text as HTML, in a font of fixed width.

    >>> preformatted("a < b")
    '<pre>a &lt; b</pre>'
    """
    return f"<pre>{escape(text)}</pre>"
