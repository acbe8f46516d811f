"""Photographs the viewer for the pages: ``python docs/screenshots.py`` writes pictures/viewing-*.png.

The view is the one that viewing.md makes, in the Chromium of the system.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from urllib.parse import quote

from playwright.sync_api import sync_playwright
from run import BLOCK, DOCS

CHROMIUM = "/usr/bin/chromium"
SHOTS = {
    "head": {"view": "head", "heads": [0, 1], "query": 7, "theme": "light"},
}


def main() -> None:
    """Write the pictures."""
    first = next(BLOCK.finditer((DOCS / "viewing.md").read_text(encoding="utf-8")))
    namespace: dict[str, object] = {}
    exec(first["code"], namespace)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        file = Path(folder, "view.html")
        namespace["view"].save(file)  # type: ignore[attr-defined]
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for name, state in SHOTS.items():
            page = browser.new_page(viewport={"width": 1000, "height": 640}, device_scale_factor=2)
            page.goto(f"{file.as_uri()}#{quote(json.dumps(state))}")
            page.wait_for_selector(".strands path, canvas, .answers")
            page.wait_for_timeout(300)
            page.locator(".viewer").screenshot(path=DOCS / "pictures" / f"viewing-{name}.png")
        browser.close()


if __name__ == "__main__":
    main()
