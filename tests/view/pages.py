"""What the tests of the page in a browser do with it."""

from __future__ import annotations

from typing import Any


def number(text: str) -> float:
    """A weight as the page writes it."""
    return 0.00025 if text == "<0.001" else float(text.replace("−", "-"))


def door(page: Any, name: str) -> None:
    """Opens a part of "Go deeper", and waits until it is there."""
    button = page.locator(f"[data-door={name}]")
    if button.get_attribute("aria-expanded") == "true":
        button.click()
    button.click()
    ready = {
        "heads": ".atlas button",
        "matrix": ".matrix canvas",
        "measures": "table.measures",
        "layers": "table.layers",
        "compare": ".pair",
        "data": ".data",
        "circuit": ".circuit",
    }
    page.wait_for_selector(f".panel {ready[name]}")  # fmt: skip


def cells(page: Any) -> dict[tuple[int, int], float]:
    """The weight of the selected link in each head."""
    found = page.eval_on_selector_all("[data-cell]", "a => a.map(c => ({...c.dataset}))")
    return {tuple(map(int, c["cell"].split())): float(c["weight"]) for c in found}
