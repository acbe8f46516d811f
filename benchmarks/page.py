"""The page: ``python benchmarks/page.py``.

From Enter in the sentence field of `regard serve` to the figure, in Chromium, for a sentence that
was not asked about before; how long a cut takes, without any request; the size of a saved page.
"""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright
from timing import machine

from regard import Lens

TIRED = "The animal didn't cross the street because it was too tired."
OTHERS = ("The cat sleeps.", "The dog is old.")
"""Asked about first, so that everything is warm."""
ENTER = """text => new Promise(done => {
  const field = document.querySelector("input.field");
  const main = document.querySelector("main");
  const seen = new MutationObserver(() => { seen.disconnect(); done(performance.now() - began); });
  seen.observe(main, { childList: true });
  field.value = text;
  const began = performance.now();
  field.form.requestSubmit();
})"""
CUT = """() => {
  const began = performance.now();
  document.querySelector(".scissors").click();
  document.body.getBoundingClientRect();
  return performance.now() - began;
}"""


def measure(page: Page) -> tuple[float, list[float]]:
    """Milliseconds from Enter to the figure, and those of some cuts."""
    for text in OTHERS:
        page.evaluate(ENTER, text)
    entered = page.evaluate(ENTER, TIRED)
    page.wait_for_timeout(300)
    return entered, [page.evaluate(CUT) for _ in range(10)]


def main() -> None:
    command = [sys.executable, "-m", "regard", "serve", "--port", "0"]
    entered, cuts = [], []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        for _ in range(3):  # a new server each time: it keeps its replies
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
                line = server.stdout.readline() if server.stdout else ""
                address = re.search(r"http://\S+/", line)
                page = browser.new_page()
                page.goto(f"{address[0] if address else ''}?text=The+cat+sat.")
                page.wait_for_selector("main .card")
                first, cut = measure(page)
                entered.append(first)
                cuts += cut
                page.close()
                server.terminate()
        browser.close()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "it.html")
        Lens.open("pocket-en-de").view(TIRED, "es").save(file)
        size = file.stat().st_size
    print(machine())
    print(
        f"Enter to figure: {min(entered):.0f} ms at best, {statistics.median(entered):.0f} median"
    )
    print(f"a cut: {statistics.median(cuts):.1f} ms median, {max(cuts):.1f} at most")
    print(f"the saved page, every written word: {size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
