"""Photographs the page for the docs: ``python docs/screenshots.py`` writes pictures/*.png.

The browser is the Chromium of the system.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright
from run import BLOCK, DOCS

from regard import Lens
from regard.view import View

CHROMIUM = "/usr/bin/chromium"
TIRED = "The animal didn't cross the street because it was too tired."
BATS = ("He hit the ball with the bat and ran.", "The bat is a mammal.")


def by_hand() -> View:
    """The view of viewing.md."""
    first = next(BLOCK.finditer((DOCS / "viewing.md").read_text(encoding="utf-8")))
    namespace: dict[str, object] = {}
    exec(first["code"], namespace)
    return namespace["view"]  # type: ignore[return-value]


def finding() -> View:
    return Lens.open("pocket-en-de").view(TIRED, "es", every=False)


def explained() -> View:
    return Lens.open("pocket-en-de").explain(TIRED, "it").view()


def compared() -> View:
    return Lens.open("pocket-en-de").compare(*BATS, "bat").view()


SHOTS: dict[str, tuple[Callable[[], View], bool, list[str], str]] = {
    "viewing-page": (by_hand, False, ['[data-read="7"]'], ".wrap"),
    "viewing-cut": (finding, False, [".scissors"], ".wrap"),
    "viewing-circuit": (finding, False, ["[data-door=circuit]"], ".deeper"),
    "viewing-matrix": (finding, True, ["[data-door=matrix]"], ".deeper"),
    "explaining-it": (explained, False, [], ".wrap"),
    "explaining-overview": (finding, True, ["[data-door=heads]"], ".deeper"),
    "explaining-bat": (compared, False, [], ".wrap"),
}
"""For each picture: the view, whether it is dark, what is clicked, and what is photographed."""


def photograph(browser: Browser, file: Path, name: str) -> None:
    _, dark, clicks, part = SHOTS[name]
    page = browser.new_page(
        viewport={"width": 1180, "height": 800},
        device_scale_factor=2,
        color_scheme="dark" if dark else "light",
    )
    page.goto(file.as_uri())
    page.wait_for_selector(".doors button")
    for click in clicks:
        page.click(click)
    page.mouse.move(0, 0)  # points at nothing
    page.wait_for_timeout(800)
    shot = Image.open(BytesIO(page.locator(part).screenshot())).convert("RGB")
    small = shot.quantize(256, dither=Image.Dither.NONE)  # a third of the size
    small.save(DOCS / "pictures" / f"{name}.png", optimize=True)
    page.close()


def main() -> None:
    """Write the pictures."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for name, (made, *_) in SHOTS.items():
            file = Path(folder, f"{name}.html")
            made().save(file)
            photograph(browser, file, name)
        browser.close()


if __name__ == "__main__":
    main()
