"""The diagrams, in a real browser: their texts fit into the picture and do not overlap."""

from __future__ import annotations

import shutil

import pytest

from tests.documentation.diagrams import DIAGRAMS

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
# Of a picture's texts: those beyond its edges, those wider than the box around their centre, and pairs that overlap.
PROBLEMS = """svg => {
  const { width, height } = svg.viewBox.baseVal, found = [];
  const texts = [...svg.querySelectorAll("text")].map(t => ({ text: t.textContent, box: t.getBBox() }));
  const boxes = [...svg.querySelectorAll("rect:not(.paper):not(.lane)")].map(r => r.getBBox());
  texts.forEach(({ text, box: a }, i) => {
    const x = a.x + a.width / 2, y = a.y + a.height / 2;
    if (a.x < 2 || a.y < 0 || a.x + a.width > width - 2 || a.y + a.height > height) found.push(`outside: ${text}`);
    for (const b of boxes)
      if (b.height < 100 && b.x < x && x < b.x + b.width && b.y < y && y < b.y + b.height && a.width > b.width)
        found.push(`wider than its box: ${text}`);
    for (const { text: other, box: b } of texts.slice(i + 1))
      if (a.x < b.x + b.width && b.x < a.x + a.width && a.y + 4 < b.y + b.height && b.y + 4 < a.y + a.height)
        found.push(`overlap: ${text} and ${other}`);
  });
  return found;
}"""


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine (Debian's chromium)")
def test_diagram_texts_fit_and_do_not_overlap() -> None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        problems = []
        for name, draw in DIAGRAMS.items():
            page.set_content(draw().svg())
            problems += [f"{name}: {problem}" for problem in page.eval_on_selector("svg", PROBLEMS)]
        browser.close()
    assert problems == []
