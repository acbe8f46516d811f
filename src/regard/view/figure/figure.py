"""`Figure`: the finding about a written word, to show, to save or to open as a page."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.errors import OptionError, WordError
from regard.files import write_text
from regard.view.figure import drawing, page
from regard.view.figure.finding import Finding, finding, plain, spans
from regard.view.picture import Picture


class Figure:
    """Where a model looked when it wrote a word, and what it writes without that link.

    Args:
        whys: the data of one or several findings about one text (`Why.to_data`, and the numbers of
            the six steps as ``row``), the first of which is shown first.
    """

    def __init__(self, whys: Sequence[Mapping[str, Any]]) -> None:
        if not whys:
            raise OptionError("Figure: whys is empty, expected the data of at least one finding")
        self.findings: list[Finding] = [finding(why) for why in whys]

    def picture(self, word: str | int | None = None, *, cut: bool = False) -> Picture:
        """The figure as a picture, with the link to an input word, cut or not.

        Args:
            word: the input word; the one that is looked at most if not given.
            cut: whether to show what the model writes without that link.
        """
        found = self.findings[0]
        return drawing.whole(found, self._find(word), cut=cut)

    def links(
        self, word: str | int | None = None, *, cut: bool = False, title: str = ""
    ) -> Picture:
        """The links alone: input above, output below, one ribbon between them.

        Args:
            word: see `picture`.
            cut: see `picture`.
            title: the line above, with mentioned words in asterisks; the headline if not given.
        """
        return drawing.links(self.findings[0], self._find(word), cut=cut, title=spans(title))

    def _find(self, word: str | int | None) -> int:
        found = self.findings[0]
        if word is None:
            return found.selected
        names = [one.word for one in found.reads]
        if isinstance(word, int):
            if not 0 <= word < len(names):
                raise WordError(f"Figure: word {word}, expected 0 to {len(names) - 1}")
            return word
        for these in (names, [plain(name) for name in names]):
            if word in these:
                return these.index(word)
        raise WordError(f"Figure: no input word is {word!r}; there are {', '.join(names)}")

    def svg(self) -> str:
        """The figure as a complete SVG document, light or dark as the reader prefers."""
        return self.picture().svg()

    def html(self) -> str:
        """A page that needs nothing else, in which words are selected and links are cut."""
        return page.page(self.findings)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the figure to a file .svg, .png, .pdf or .html."""
        if Path(path).suffix.lower() == ".html":
            write_text(Path(path), {".html": self.html}, "save")
        else:
            self.picture().save(path)

    def _repr_html_(self) -> str:
        return self.svg()

    def __repr__(self) -> str:
        found = self.findings[0]
        read = found.reads[found.selected]
        return (
            f"Figure({found.word!r} → {read.word!r} {read.looked:.2f}; .save('it.html') opens it)"
        )
