"""Chromium, and axe's accessibility rules in it, for tests of pages."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

_CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

needs_chromium = pytest.mark.skipif(
    _CHROMIUM is None, reason="there is no Chromium on this machine (Debian's chromium)"
)


@contextmanager
def chromium() -> Iterator[Any]:
    """Run a browser without a window."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


class Violation(NamedTuple):
    """A violated rule of axe, and the first element that violates it."""

    rule: str
    impact: str
    element: str


def axe_violations(page: Any) -> list[Violation]:
    """Check the accessibility of a page that is open in a browser."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    reported = axe.Axe().run(page).response["violations"]
    return [Violation(v["id"], v["impact"], v["nodes"][0]["html"][:200]) for v in reported]
