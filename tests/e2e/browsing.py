"""A real Chromium without a window, and a page in it that remembers everything that went wrong."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect, sync_playwright

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
MISSING = (
    "no browser: install Chromium, on Debian with `make browser` "
    "or apt-get install chromium fonts-dejavu-core"
)
PATIENCE = 120_000
"""milliseconds: for a machine that is busy with everything else."""
# What a page's policy forbade, as the browser itself tells it; it runs beside the page, whatever its policy.
VIOLATIONS = """
window.violations = [];
document.addEventListener("securitypolicyviolation", event => violations.push(event.violatedDirective));
"""


def program() -> str:
    """The path of a Chromium; empty when there is none."""
    return next(filter(None, map(shutil.which, PROGRAMS)), "") or ""


@contextmanager
def chromium() -> Iterator[Browser]:
    """One that runs until the block ends."""
    with sync_playwright() as playing:
        browser = playing.chromium.launch(executable_path=program(), timeout=PATIENCE)
        expect.set_options(timeout=PATIENCE)
        yield browser
        browser.close()


@dataclass
class Tab:
    """A page and what it complained of."""

    page: Page
    context: BrowserContext
    wrong: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    """every address that was asked for."""

    def flawless(self) -> None:
        """Nothing was written to the console, nothing failed, and no policy was violated."""
        assert self.wrong == [], self.wrong
        assert self.page.evaluate("window.violations") == []


@contextmanager
def tab(browser: Browser, **options: Any) -> Iterator[Tab]:
    """A fresh profile with one page."""
    context = browser.new_context(**options)
    context.set_default_timeout(PATIENCE)
    context.add_init_script(VIOLATIONS)
    opened = Tab(context.new_page(), context)

    def console(message: ConsoleMessage) -> None:
        opened.wrong.append(f"{message.type}: {message.text}")

    opened.page.on("console", console)
    opened.page.on("pageerror", lambda error: opened.wrong.append(str(error)))
    opened.page.on("requestfailed", lambda request: opened.wrong.append(f"failed: {request.url}"))
    opened.page.on("dialog", lambda dialog: opened.wrong.append(f"dialog: {dialog.message}"))
    opened.page.on("request", lambda request: opened.asked.append(request.url))
    yield opened
    context.close()


# The least contrast of any text with what is behind it, and which text it is (WCAG 2.2, 1.4.3).
CONTRAST = """
() => {
  const numbers = colour => colour.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => {
    const linear = v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
    const [x, y, z] = [r, g, b].map(v => linear(v / 255));
    return .2126 * x + .7152 * y + .0722 * z;
  };
  const behind = element => {
    for (let at = element; at; at = at.parentElement) {
      const colour = numbers(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  let worst = [99, ""];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement, text = walker.currentNode.data.trim();
    if (!text || !element.getClientRects().length || element.closest("title")) continue;
    const style = getComputedStyle(element);
    const front = element.closest("svg") ? style.fill : style.color;
    const [a, b] = [light(numbers(front)), light(behind(element))];
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    if (ratio < worst[0]) worst = [ratio, text.slice(0, 40)];
  }
  return worst;
}
"""
