"""Views as files: ``python benchmarks/viewing.py``.

A model of 6 layers and 12 heads on texts of 512 and 4,096 words, alone and with one word explained:
how large the file is, how long it takes to write it, and how long until Chromium shows it, with the
network off.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from itertools import product
from pathlib import Path

import torch
from playwright.sync_api import Browser, sync_playwright
from timing import machine

import regard
from regard.view import Explained, Layer, Method, Text, View

LAYERS, HEADS, WIDTH = 6, 12, 32
ROUNDS = 3


def view_of(words: int, explained: bool) -> View:
    """Six layers of attention at random, sharp enough to have strong links."""
    chance = torch.Generator().manual_seed(words)
    layers = []
    for i in range(LAYERS):
        q, k, v = (torch.randn(1, HEADS, words, WIDTH, generator=chance) * 1.4 for _ in range(3))
        layers.append(Layer(f"layer {i}", "self", "text", "text", regard.look(q, k, v)))
    told = None
    if explained:
        scores = torch.rand(words, generator=chance).numpy()
        names = ("attention", "norm", "rollout", "knockout")
        told = Explained(5, "text", "text", [Method(name, scores) for name in names])
    text = Text.of([f"word{i}" for i in range(words)])
    return View({"text": text}, layers, explained=told)


def opened(browser: Browser, path: Path) -> float:
    """Seconds until it is there."""
    context = browser.new_context(offline=True)
    page = context.new_page()
    start = time.perf_counter()
    page.goto(path.as_uri())
    page.wait_for_selector("main .card")
    taken = time.perf_counter() - start
    context.close()
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    given = parser.parse_args()
    print(f"{machine()}\n\n| file | MB | seconds to write | seconds to open |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=given.chromium, args=["--no-sandbox"])
        for words, explained in product((512, 4096), (False, True)):
            view, path = view_of(words, explained), Path(folder) / f"{words}.html"
            start = time.perf_counter()
            view.save(path)
            written = time.perf_counter() - start
            shown = min(opened(browser, path) for _ in range(ROUNDS))
            size = path.stat().st_size / 1e6
            name = f"{words:,} words{', explained' * explained}"
            print(f"| {name} | {size:.2f} | {written:.2f} | {shown:.2f} |", flush=True)
        browser.close()


if __name__ == "__main__":
    main()
