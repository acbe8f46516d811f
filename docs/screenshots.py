"""Photographs the viewer for the pages: ``python docs/screenshots.py`` writes pictures/*.png.

The views are the one that viewing.md makes by hand, and those of the model that comes with regard;
the browser is the Chromium of the system.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from urllib.parse import quote

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


def explained() -> View:
    return Lens.open("pocket-en-de").view(TIRED, "it")


def compared() -> View:
    return Lens.open("pocket-en-de").compare("bat", *BATS).view()


SHOTS: dict[str, tuple[Callable[[], View], dict[str, object]]] = {
    "viewing-head": (by_hand, {"view": "head", "heads": [0, 1], "query": 7, "theme": "light"}),
    "explaining-it": (explained, {"view": "explain", "theme": "light"}),
    "explaining-overview": (explained, {"view": "overview", "theme": "dark"}),
    "explaining-bat": (compared, {"view": "compare", "theme": "light"}),
}


def photograph(browser: Browser, file: Path, state: dict[str, object], picture: Path) -> None:
    page = browser.new_page(viewport={"width": 1000, "height": 640}, device_scale_factor=2)
    page.goto(f"{file.as_uri()}#{quote(json.dumps(state))}")
    page.wait_for_selector(".viewer .main > *")
    page.wait_for_timeout(800)
    shot = Image.open(BytesIO(page.locator(".viewer").screenshot())).convert("RGB")
    shot.quantize(256, dither=Image.Dither.NONE).save(picture, optimize=True)  # a third of the size
    page.close()


def main() -> None:
    """Write the pictures."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for name, (made, state) in SHOTS.items():
            file = Path(folder, f"{name}.html")
            made().save(file)
            photograph(browser, file, state, DOCS / "pictures" / f"{name}.png")
        browser.close()


if __name__ == "__main__":
    main()
