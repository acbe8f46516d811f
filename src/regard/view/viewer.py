"""`View`: a finding, or attention, to look at: a page, a picture, a notebook cell, a terminal."""

from __future__ import annotations

import html
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, Unpack

from rich import text as rich_text
from rich.console import RenderableType

from regard.errors import OptionError, WordError
from regard.files import write_bytes
from regard.view import parts, payload
from regard.view.choice import WHICH, Options, chosen
from regard.view.figure import terminal
from regard.view.figure.drawing import Figure
from regard.view.figure.finding import Finding, finding
from regard.view.figure.wording import spans
from regard.view.page import page
from regard.view.payload import Sparsity
from regard.view.picture import Picture
from regard.view.records import Compared, Explained, Layer, Measures, Text
from regard.view.svg import Number
from regard.view.table import Table

T = TypeVar("T")
Part = Figure | parts.Comparison | parts.Head | parts.Matrix | Table
"""One part of a view, with `text` and `picture`."""
FRAME = 860
"""Height of the page in a notebook, in pixels."""


class View:
    """What a model looked at when it wrote a word, or the attention of any text.

    A notebook shows it; ``save("x.html")`` writes one page that opens without a network; `picture`
    and `text` have one part of it for a paper or a terminal: "figure" and "ribbon" of a finding;
    "head", "matrix" and "overview" of layers; "explain"; "compare".

    Args:
        texts: by name; layers name the text that attends and the text that is attended to.
        layers: one `Layer` per layer of attention.
        findings: the data of findings about one text (`Why.to_data`, and the numbers of the six
            steps as ``row``), the first of which is shown first.
        measures: what every input word is worth by several methods, for some of the findings.
        explained: the answers to "what does this word depend on?".
        compared: one word in two sentences.
        title: stands at the top; the text itself, if not given.
        sparsity: which links a long text keeps.

    >>> import torch, regard
    >>> x = torch.eye(3)
    >>> words = ["the", "cat", "sat"]
    >>> seen = regard.look(x, x, x, score="dot")
    >>> view = View({"text": Text.of(words)}, [Layer("layer 0", "self", "text", "text", seen)])
    >>> print(view.text("head", word="cat"))
    layer 0, head 0 (self attention, words)
    the  0.212  █████
    cat  0.576  ██████████████
    sat  0.212  █████
    """

    def __init__(
        self,
        texts: Mapping[str, Text] | None = None,
        layers: Sequence[Layer] = (),
        *,
        findings: Sequence[Mapping[str, Any]] = (),
        measures: Sequence[Measures] = (),
        explained: Explained | None = None,
        compared: Compared | None = None,
        title: str = "",
        sparsity: Sparsity | None = None,
    ) -> None:
        self.texts = dict(texts or {})
        self.layers = tuple(layers)
        self.findings: list[Finding] = [finding(why) for why in findings]
        self.measures = tuple(measures)
        self.explained = explained
        self.compared = compared
        self.title = title
        self.sparsity = sparsity or Sparsity()
        for layer in self.layers:
            layer.check(self.texts)
        if explained is not None:
            explained.check(self.texts)
        if compared is not None:
            compared.values()
        if not (self.layers or self.findings or explained or compared):
            raise OptionError(
                "View: expected layers, findings, explained or compared, got none of them; "
                "there would be nothing to see"
            )

    def payload(self, steps: Iterable[str | int] | None = None) -> dict[str, Any]:
        """What the page is given, as JSON data; `steps` as of `save`."""
        return payload.build(self, self._steps(steps))

    def html(self, steps: Iterable[str | int] | None = None) -> str:
        """A page that needs nothing else."""
        return page(self.payload(steps), self.heading)

    def save(
        self,
        path: str | os.PathLike[str],
        which: str | None = None,
        *,
        steps: Iterable[str | int] | None = None,
        **options: Unpack[Options],
    ) -> None:
        """Write .html (the page), or one part as .svg, .png, .pdf or .txt.

        ``steps`` are the words whose six steps go into an .html file with all their numbers; if
        not given, every word of a short text, else the word that is explained.
        """
        forms = {
            ".html": lambda: self.html(steps).encode(),
            ".svg": lambda: self.svg(which, **options).encode() + b"\n",
            ".png": lambda: self.png(which, **options),
            ".pdf": lambda: self.pdf(which, **options),
            ".txt": lambda: self.text(which, **options).encode() + b"\n",
        }
        write_bytes(path, forms, "save")

    def picture(self, which: str | None = None, **options: Unpack[Options]) -> Picture:
        """One part as a picture; by default the figure, else explain, compare or head."""
        return self._part("picture", which, options).picture()

    def svg(self, which: str | None = None, **options: Unpack[Options]) -> str:
        """One part as an SVG document."""
        return self.picture(which, **options).svg()

    def png(
        self, which: str | None = None, *, scale: Number = 2, **options: Unpack[Options]
    ) -> bytes:
        """One part as PNG, ``scale`` pixels for each of the picture's."""
        return self.picture(which, **options).png(scale)

    def pdf(self, which: str | None = None, **options: Unpack[Options]) -> bytes:
        """One part as a page of PDF."""
        return self.picture(which, **options).pdf()

    def text(self, which: str | None = None, **options: Unpack[Options]) -> str:
        """One part as text."""
        return self._part("text", which, options).text()

    def _part(self, where: str, which: str | None, options: Options) -> Part:
        if which is None:
            there = {"figure": self.findings, "explain": self.explained, "compare": self.compared}
            which = next((name for name, one in there.items() if one), "head")
        if which not in WHICH:
            raise OptionError(f"{where}: which expected {', '.join(WHICH)}, got {which!r}")
        if which in ("figure", "ribbon"):
            found = self._has(where, which, self.findings or None, "findings")[0]
            at = found.find(options.get("word"))
            title = spans(options.get("title", "")) if which == "ribbon" else None
            return Figure(found, at, options.get("cut", False), title)
        if which == "explain":
            answers = self._has(where, which, self.explained, "explained")
            return parts.explained(answers, self.texts)
        if which == "compare":
            return parts.Comparison(self._has(where, which, self.compared, "compared"))
        layers = self._has(where, which, self.layers or None, "layers")
        if which == "overview":
            return parts.overview(layers)
        choice = chosen(self.texts, layers, where, options)
        if which == "matrix":
            return parts.Matrix(replace(choice, heads=choice.heads[:1]))
        return parts.Head(choice, options.get("threshold", 0.02))

    @staticmethod
    def _has(where: str, which: str, what: T | None, name: str) -> T:
        if what is None:
            raise OptionError(f'{where}: "{which}" expected View(…, {name}=…), got none')
        return what

    @property
    def heading(self) -> str:
        """The title; else the finding, or the text."""
        if self.title:
            return self.title
        if self.findings:
            return "".join(text for text, _ in self.findings[0].headline)
        if not self.texts:
            return self.compared.word if self.compared else ""
        name = self.layers[0].queries if self.layers else next(iter(self.texts))
        text = self.texts[name].text
        return text if len(text) <= 160 else text[:160] + "…"

    def __str__(self) -> str:
        return self.text()

    def __rich__(self) -> RenderableType:
        return terminal.whole(self.findings[0]) if self.findings else rich_text.Text(self.text())

    def __repr__(self) -> str:
        if self.findings:
            found = self.findings[0]
            read = found.reads[found.selected]
            return (
                f"View({found.word!r} → {read.word!r} {read.looked:.2f}; .save('it.html') opens it)"
            )
        parts = [f"{len(self.layers)} layers"] if self.layers else []
        named = ", ".join([*parts, *self.texts]) or self.heading
        return f"View({named}; .save('view.html') opens it)"

    def _repr_html_(self) -> str:
        """The page in a frame; where frames are not shown, as on GitHub, a picture."""
        return (
            "<style>iframe.regard + div { display: none }</style>"
            f'<iframe srcdoc="{html.escape(self.html())}" sandbox="allow-scripts allow-downloads" '
            f'class="regard" title="regard" width="100%" height="{FRAME}" style="border:0">'
            f'</iframe><div><img alt="{html.escape(self.heading)}" '
            f'src="{self.picture().data_url()}"></div>'
        )

    def _steps(self, words: Iterable[str | int] | None) -> dict[str, list[int]]:
        """Per text, the tokens whose steps are put into a payload."""
        if words is None:
            own = dict(list(self.texts.items())[:1]) if self.findings else self.texts
            layers = [layer for layer in self.layers if layer.queries in own]
            if payload.steps_bytes(layers) <= payload.STEPS_BUDGET:
                return {name: list(range(len(text.tokens))) for name, text in own.items()}
            if self.explained is None:
                return {}
            text = self.texts[self.explained.text]
            return {self.explained.text: _tokens(text, [self.explained.word])}
        if isinstance(words, str):
            raise OptionError(f"save: steps expected a list of words, got one text {words!r}")
        found: dict[str, list[int]] = {name: [] for name in self.texts}
        for word in words:
            errors = []
            for name, text in self.texts.items():
                try:
                    found[name].append(text.find(word, "save: steps"))
                except WordError as error:
                    errors.append(error)
            if errors and len(errors) == len(self.texts):
                raise errors[0]
        return {name: _tokens(self.texts[name], there) for name, there in found.items()}


def _tokens(text: Text, words: Sequence[int]) -> list[int]:
    return [i for i, place in enumerate(text.places) if place in words]
