"""Views to test on, with seeded random heads, and a browser that opens them without a network."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.resources import files
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import regard
from regard.view import Compared, Explained, Layer, Method, Side, Text, View

TEXT = "The animal didn't cross the street because it was too tired"
WORDS = tuple(TEXT.split())


def sentence() -> Text:
    """Eleven words in fourteen tokens, the last of them special."""
    parts = {"didn't": ["didn", "'t"], "tired": ["tir", "ed"]}
    pieces = [(token, i) for i, word in enumerate(WORDS) for token in parts.get(word, [word])]
    tokens, places = zip(*pieces, ("</s>", -1), strict=True)
    return Text(TEXT, tokens, WORDS, places)


def looked(
    queries: int,
    keys: int | None = None,
    *,
    heads: int = 4,
    kv_heads: int | None = None,
    width: int = 8,
    **options: Any,
) -> regard.Look:
    """A look at random queries, keys and values, sharp enough to have strong links."""
    draw = torch.Generator().manual_seed(queries + 7 * heads)
    q, k, v = (
        torch.randn(1, h, n, width, generator=draw) * 1.7
        for h, n in ((heads, queries), *(2 * [(kv_heads or heads, keys or queries)]))
    )
    return regard.look(q, k, v, **options)


def explained(word: int = 7) -> Explained:
    """Four answers for "it", as a lens would give them."""
    draw = torch.Generator().manual_seed(5)
    scores = torch.rand(4, 11, generator=draw)
    scores[3] -= 0.3  # cutting may also help
    methods = (
        Method("attention", scores[0], agreement=0.41, note="mean weight"),
        Method("norm", scores[1], agreement=-0.2),
        Method("rollout", scores[2], agreement=0.55),
        Method("knockout", scores[3], note="change when the link is cut"),
    )
    return Explained(word, "source", "source", methods, "Cutting it changes most.")


def compared() -> Compared:
    """Two bats."""
    one = Side(
        ("He", "hit", "the", "ball", "with", "the", "bat"), 6, (("ball", 0.41), ("hit", 0.22)),
        (("racket", 0.71),), "Er schlug den Ball mit dem Schläger",
    )  # fmt: skip
    other = Side(
        ("The", "bat", "is", "a", "mammal"), 1, (("mammal", 0.52),), (("mouse", 0.6),),
        "Die Fledermaus ist ein Säugetier",
    )  # fmt: skip
    return Compared("bat", one, other, (1.0, 0.9, 0.6, 0.44), "They part after layer 1.")


def translation() -> View:
    """Two encoder layers, a masked and a cross layer, the answers and the comparison."""
    source, target = sentence(), Text.of(["Das", "Tier", "war", "zu", "müde", "."])
    layers = (
        Layer("encoder 1", "self", "source", "source", looked(14)),
        Layer("encoder 2", "self", "source", "source", looked(14, kv_heads=2)),
        Layer("decoder 1", "masked", "target", "target", looked(6, mask=regard.causal)),
        Layer("cross 1", "cross", "target", "source", looked(6, 14)),
    )
    return View(
        {"source": source, "target": target}, layers, explained=explained(), compared=compared(),
    )  # fmt: skip


@pytest.fixture(scope="session")
def samples() -> Any:
    """The functions above, for tests that make views of their own."""
    return SimpleNamespace(
        sentence=sentence, looked=looked, explained=explained, compared=compared,
        translation=translation,
    )  # fmt: skip


@pytest.fixture(scope="module")
def view() -> View:
    """The view that most tests look at."""
    return translation()


@pytest.fixture(scope="module")
def opened(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Any]]:
    """Opens a page from disk with the network off; it may ask for nothing, and nothing may fail."""
    folder = tmp_path_factory.mktemp("pages")
    contexts: list[Any] = []
    requests: list[str] = []
    troubles: list[str] = []

    def open_page(document: str, **options: Any) -> Any:
        path = folder / f"{len(contexts)}.html"
        path.write_text(document, encoding="utf-8")
        wide = {"viewport": {"width": 1300, "height": 900}}
        context = browser.new_context(offline=True, **(wide | options))
        contexts.append(context)
        shown = context.new_page()
        shown.set_default_timeout(20_000)
        shown.on("request", lambda request: requests.append(request.url))
        shown.on("pageerror", lambda error: troubles.append(str(error)))
        shown.on("dialog", lambda dialog: (troubles.append(dialog.message), dialog.dismiss()))
        shown.on("console", lambda said: troubles.append(said.text) if said.type == "error" else 0)
        shown.goto(path.as_uri())
        shown.wait_for_selector(".doors button")
        return shown

    yield open_page
    for context in contexts:
        context.close()
    assert troubles == []
    strange = [one for one in requests if not one.startswith((folder.as_uri(), "blob:"))]
    assert strange == []


@pytest.fixture(scope="session")
def audit() -> Callable[..., list[str]]:
    """What axe-core finds critical or serious on a page, on light and on dark paper."""
    pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed")
    axe = (files("axe_playwright_python") / "axe.min.js").read_text("utf-8")

    def check(page: Any, state: str, part: str = "html") -> list[str]:
        told: list[str] = []
        if not page.evaluate("'axe' in window"):
            page.evaluate(axe)
        for theme, options in (("light", {}), ("dark", {"runOnly": ["color-contrast"]})):
            page.evaluate("theme => { document.documentElement.dataset.theme = theme; }", theme)
            found = page.evaluate("given => axe.run(...given)", [part, options])
            told += [
                f"{state}, {theme}: {one['id']} at {[node['target'] for node in one['nodes']][:4]}"
                for one in found["violations"]
                if one["impact"] in ("critical", "serious")
            ]
        page.evaluate("delete document.documentElement.dataset.theme")
        return told

    return check
