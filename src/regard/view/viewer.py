"""`View`: attention to look at, in a file, a notebook, a paper or a terminal."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.errors import OptionError, WordError
from regard.files import write_text
from regard.view import drawing, html, payload, terminal
from regard.view._cells import as_data, cell
from regard.view._svg import Number
from regard.view.choice import WHICH, Choice, chosen
from regard.view.payload import Sparsity
from regard.view.picture import Picture
from regard.view.records import Compared, Explained, Layer, Text

Answer = Callable[[dict[str, Any]], dict[str, Any]]
"""What answers a question of the viewer: a record of arguments to a record of replies."""


class View:
    """Attention of one or two texts, ready to be looked at.

    A notebook shows it; ``save("x.html")`` writes one file that opens without a network; `svg`,
    `png` and `pdf` draw one of its views for a paper; `text`, and ``str``, tell it in words. The
    views are "head", "matrix", "overview", "steps", "explain" and "compare".

    Args:
        texts: by name; layers name the text that asks and the text that is looked at.
        layers: one `Layer` per layer of attention.
        explained: the answers to "why this word?".
        compared: one word in two sentences.
        title: stands at the top; the text itself, if not given.
        sparsity: which links a long text keeps.
        answers: what else can be asked while the view is live, such as "cut".

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
        texts: Mapping[str, Text],
        layers: Sequence[Layer] = (),
        *,
        explained: Explained | None = None,
        compared: Compared | None = None,
        title: str = "",
        sparsity: Sparsity | None = None,
        answers: Mapping[str, Answer] | None = None,
    ) -> None:
        self.texts = dict(texts)
        self.layers = tuple(layers)
        self.explained = explained
        self.compared = compared
        self.title = title
        self.sparsity = sparsity or Sparsity()
        self.answers = dict(answers or {})
        for layer in self.layers:
            layer.check(self.texts)
        if explained is not None:
            explained.check(self.texts)
        if compared is not None:
            compared.values()
        if not (self.layers or explained or compared):
            raise OptionError(
                "View: expected layers, explained or compared, got none of them; "
                "there would be nothing to see"
            )

    def payload(self, steps: Iterable[str | int] | None = None) -> dict[str, Any]:
        """What the viewer in a browser is given, as JSON data; see `payload.schema.json`."""
        return payload.build(
            self.texts,
            self.layers,
            explained=self.explained,
            compared=self.compared,
            title=self.title,
            sparsity=self.sparsity,
            steps=self._steps(steps),
        )

    def html(self, steps: Iterable[str | int] | None = None) -> str:
        """A page that needs nothing else."""
        return html.page(self.payload(steps), self.heading)

    def save(
        self,
        path: str | os.PathLike[str],
        which: str | None = None,
        *,
        layer: int | str = 0,
        heads: int | Sequence[int] | None = None,
        word: str | int | None = None,
        key: str | int | None = None,
        tokens: bool = False,
        steps: Iterable[str | int] | None = None,
    ) -> None:
        """Write .html (every view), or one view as .svg, .png, .pdf or .txt.

        ``steps`` are the words whose six steps go into an .html file with all their numbers; if
        not given, every word of a short text, else the word that is explained.
        """
        target = Path(path)
        options: dict[str, Any] = {"layer": layer, "heads": heads, "word": word, "key": key}
        options["tokens"] = tokens
        ending = target.suffix.lower()
        if ending not in (".html", ".txt", ".svg", ".png", ".pdf"):
            raise OptionError(
                f"save: path expected to end in .html, .svg, .png, .pdf or .txt, got "
                f"{target.name!r}; choose one of them"
            )
        if ending in (".svg", ".png", ".pdf"):
            self.picture(which, **options).save(target)
            return
        forms = {
            ".html": lambda: self.html(steps),
            ".txt": lambda: self.text(which, **options) + "\n",
        }
        write_text(target, forms, "save")

    def picture(
        self,
        which: str | None = None,
        *,
        layer: int | str = 0,
        heads: int | Sequence[int] | None = None,
        word: str | int | None = None,
        key: str | int | None = None,
        tokens: bool = False,
        threshold: Number = 0.02,
    ) -> Picture:
        """One view as a picture: "head", "matrix", "overview", "steps", "explain", "compare".

        Args:
            which: the view; the one with most to say, if not given.
            layer: number (from 0) or name of a layer.
            heads: number or numbers (from 0); views of one head take the first.
            word: the word that asks: text, or number from 0.
            key: the word that is looked at, for "steps"; the strongest, if not given.
            tokens: tokens instead of words.
            threshold: links at or below are not drawn.
        """
        which = self._which(which, "picture")
        if which == "explain":
            return drawing.explain(self._explained("picture"), self.texts)
        if which == "compare":
            return drawing.compare(self._compared("picture"))
        if which == "overview":
            return drawing.overview(self._layers("picture"))
        choice = self._chosen("picture", layer, heads, word, key, tokens)
        if which == "steps":
            return drawing.steps(choice, self.texts)
        return drawing.matrix(choice) if which == "matrix" else drawing.head(choice, threshold)

    def svg(
        self,
        which: str | None = None,
        *,
        layer: int | str = 0,
        heads: int | Sequence[int] | None = None,
        word: str | int | None = None,
        key: str | int | None = None,
        tokens: bool = False,
    ) -> str:
        """One view as an SVG document; arguments as of `picture`."""
        return self.picture(
            which, layer=layer, heads=heads, word=word, key=key, tokens=tokens
        ).svg()

    def png(
        self,
        which: str | None = None,
        *,
        layer: int | str = 0,
        heads: int | Sequence[int] | None = None,
        word: str | int | None = None,
        key: str | int | None = None,
        tokens: bool = False,
        scale: Number = 2,
    ) -> bytes:
        """One view as PNG, ``scale`` pixels for each of the picture's; arguments as of that."""
        return self.picture(which, layer=layer, heads=heads, word=word, key=key, tokens=tokens).png(
            scale
        )

    def pdf(
        self,
        which: str | None = None,
        *,
        layer: int | str = 0,
        heads: int | Sequence[int] | None = None,
        word: str | int | None = None,
        key: str | int | None = None,
        tokens: bool = False,
    ) -> bytes:
        """One view as a page of PDF; arguments as of `picture`."""
        return self.picture(
            which, layer=layer, heads=heads, word=word, key=key, tokens=tokens
        ).pdf()

    def text(
        self,
        which: str | None = None,
        *,
        layer: int | str = 0,
        heads: int | Sequence[int] | None = None,
        word: str | int | None = None,
        key: str | int | None = None,
        tokens: bool = False,
        threshold: Number = 0.02,
    ) -> str:
        """One view in words; arguments as of `picture`."""
        which = self._which(which, "text")
        if which == "explain":
            return terminal.explain(self._explained("text"), self.texts)
        if which == "compare":
            return terminal.compare(self._compared("text"))
        if which == "overview":
            return terminal.overview(self._layers("text"))
        choice = self._chosen("text", layer, heads, word, key, tokens)
        if which == "steps":
            return terminal.steps(choice, self.texts)
        return terminal.matrix(choice) if which == "matrix" else terminal.head(choice, threshold)

    @property
    def live(self) -> list[str]:
        """The kinds of question that are answered: "steps", and what `answers` adds."""
        return [*(["steps"] if self.layers else []), *self.answers]

    def answer(self, kind: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """The reply to a question of the viewer, for a notebook or a server.

        "steps" takes ``layer``, ``head``, ``query`` and ``key`` (tokens), all numbers from 0.
        """
        if kind in self.answers:
            return self.answers[kind](arguments)
        if kind != "steps" or not self.layers:
            raise OptionError(
                f"answer: kind expected {', '.join(self.live) or 'nothing'}, got {kind!r}; "
                "give View answers={…} for others"
            )
        names = ("layer", "head", "query", "key")
        for name in names:
            given = arguments.get(name)
            if not isinstance(given, int) or isinstance(given, bool):
                raise OptionError(f"answer: {name} expected a number from 0, got {given!r}")
        layer, head, query, key = (int(arguments[name]) for name in names)
        if not 0 <= layer < len(self.layers):
            raise OptionError(
                f"answer: layer {layer} asked for, but there are {len(self.layers)}, "
                "numbered from 0"
            )
        return as_data(cell(self.layers[layer], head, query, key))

    @property
    def heading(self) -> str:
        """The title, or the text."""
        if self.title or not self.texts:
            return self.title or (self.compared.word if self.compared else "")
        name = self.layers[0].queries if self.layers else next(iter(self.texts))
        text = self.texts[name].text
        return text if len(text) <= 160 else text[:160] + "…"

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"View({len(self.layers)} layers, {', '.join(self.texts) or 'no texts'})"

    def _repr_mimebundle_(self, **options: Any) -> Any:
        """What a notebook shows: the widget, or the text where anywidget is not installed."""
        from regard.view.widget import bundle

        return bundle(self, **options)

    def _which(self, which: str | None, where: str) -> str:
        if which is None:
            return "explain" if self.explained else "compare" if self.compared else "head"
        if which not in WHICH:
            raise OptionError(f"{where}: which expected {', '.join(WHICH)}, got {which!r}")
        return which

    def _chosen(
        self,
        where: str,
        layer: int | str,
        heads: int | Sequence[int] | None,
        word: str | int | None,
        key: str | int | None,
        tokens: bool,
    ) -> Choice:
        return chosen(
            self.texts, self.layers, where,
            layer=layer, heads=heads, word=word, key=key, tokens=tokens,
        )  # fmt: skip

    def _layers(self, where: str) -> tuple[Layer, ...]:
        if not self.layers:
            raise OptionError(
                f"{where}: expected a view with layers, got none; give layers to View"
            )
        return self.layers

    def _explained(self, where: str) -> Explained:
        if self.explained is None:
            raise OptionError(f'{where}: "explain" expected View(…, explained=…), got None')
        return self.explained

    def _compared(self, where: str) -> Compared:
        if self.compared is None:
            raise OptionError(f'{where}: "compare" expected View(…, compared=…), got None')
        return self.compared

    def _steps(self, words: Iterable[str | int] | None) -> dict[str, list[int]]:
        """Per text, the tokens whose steps are put into a payload."""
        if words is None:
            if payload.steps_bytes(self.layers) <= payload.STEPS_BUDGET:
                return {name: list(range(len(text.tokens))) for name, text in self.texts.items()}
            if self.explained is None:
                return {}
            text = self.texts[self.explained.text]
            return {self.explained.text: _tokens(text, [self.explained.word])}
        if isinstance(words, str):
            raise OptionError(f"save: steps expected a list of words, got one text {words!r}")
        wanted = list(words)
        chosen_tokens: dict[str, list[int]] = {}
        missed: dict[str | int, list[WordError]] = {word: [] for word in wanted}
        for name, text in self.texts.items():
            there = []
            for word in wanted:
                try:
                    there.append(text.find(word, "save: steps"))
                except WordError as error:
                    missed[word].append(error)
            chosen_tokens[name] = _tokens(text, there)
        for errors in missed.values():
            if errors and len(errors) == len(self.texts):
                raise errors[0]
        return chosen_tokens


def _tokens(text: Text, words: Sequence[int]) -> list[int]:
    return [i for i, place in enumerate(text.places) if place in words]
