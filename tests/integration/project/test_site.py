"""The documentation site: its strict build, its API reference, and its pages in a browser."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
import threading
import zlib
from collections.abc import Iterator
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from millstream.common import unsupported
from tests.support.browser import axe_violations, chromium, needs_chromium
from tests.support.paths import DOCS, ROOT
from tests.unit.project.test_public_docstrings import documented

# A build takes twenty seconds on a quiet machine.
pytestmark = pytest.mark.timeout(900)


def build(folder: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """Build the site of a folder with mkdocs.yml."""
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(site)]
    env = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=900)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT, folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_site_contains_each_page_of_docs(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text())
    found = {entry["location"].partition("#")[0] for entry in index["docs"]}
    overview = (site / "llms.txt").read_text()
    for page in DOCS.rglob("*.md"):
        path = f"{page.relative_to(DOCS).with_suffix('').as_posix()}/"
        location = re.sub(r"(^|/)(index|README)/$", r"\1", path)
        assert location in found
        assert f"]({location or './'}): " in overview
    assert len((site / "llms-full.txt").read_text()) > 300_000


class Resources(HTMLParser):
    """Collects what a page loads: scripts, styles, fonts, images, frames."""

    def __init__(self) -> None:
        super().__init__()
        self.urls: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = dict(attrs)
        if tag != "a":
            self.urls += [url for name in ("src", "srcset", "href", "data", "poster") if (url := names.get(name))]


def test_site_loads_nothing_from_other_hosts(site: Path) -> None:
    foreign = set()
    for page in site.rglob("*.html"):
        resources = Resources()
        resources.feed(page.read_text())
        assert resources.urls
        foreign |= {url for url in resources.urls if re.match(r"(\w+:)?//", url)}
    for style in site.rglob("*.css"):
        foreign |= set(re.findall(r"""(?:url\(|@import)\s*["']?((?:https?:)?//[^"')]+)""", style.read_text()))
    assert foreign == set()


def inventory(site: Path) -> set[str]:
    """Return the names that the API reference documents."""
    lines = zlib.decompress((site / "objects.inv").read_bytes().split(b"\n", 4)[4]).decode().splitlines()
    return {line.split()[0] for line in lines}


def test_site_documents_methods_of_each_exported_class(site: Path) -> None:
    names = inventory(site)
    parts: dict[str, object] = {}
    for name, thing in documented():
        exported = thing.__all__ if isinstance(thing, ModuleType) else []
        parts |= {f"{name}.{part}": getattr(thing, part) for part in exported} or {name: thing}
    classes = {name: part for name, part in parts.items() if inspect.isclass(part) and documented_methods(part)}
    assert len(classes) > 200
    missing = [name for name in classes if name not in names]
    # An inherited method is at the class, or at a base class that is documented too.
    homes = {part: name for name, part in classes.items()}
    for name, cls in classes.items():
        for method, owner in documented_methods(cls).items():
            owners = [homes[base] for base in cls.__mro__ if base in homes]
            owners.append(f"{owner.__module__}.{owner.__qualname__}")
            if not any(f"{each}.{method}" in names for each in owners):
                missing.append(f"{name}.{method}")
    assert missing == []


def documented_methods(cls: type) -> dict[str, type]:
    """Return the methods that a class has from ours, with the class of each; not undocumented or missing ones."""
    methods: dict[str, tuple[type, object]] = {}
    for owner in cls.__mro__:
        for name, method in vars(owner).items() if owner.__module__.startswith("millstream") else ():
            methods.setdefault(name, (owner, method))
    return {
        name: owner
        for name, (owner, method) in methods.items()
        if inspect.isfunction(method)
        and not name.startswith("_")
        and method.__doc__
        # The names that PyFlink has and Millstream lacks raise an error.
        and method.__module__ != unsupported.__name__
    }


FAULTS = {
    "index.md": "# Home\n\n[a](gone.md) [b](page.md#gone) [c](../gone.py) [millstream.Gone][]\n\n[d](../program.py)\n",
    "page.md": "# Page\n",
    "orphan.md": "# Orphan\n",
}


def test_build_fails_with_each_fault_of_the_docs(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    for name, text in FAULTS.items():
        (docs / name).write_text(text)
    (tmp_path / "program.py").write_text("print()\n")
    config = f"""
        INHERIT: {ROOT}/mkdocs.yml
        hooks: [{ROOT}/tests/site/hooks.py]
        theme: {{custom_dir: {ROOT}/tests/site/theme}}
        watch: []
        nav: [index.md, page.md, missing.md]
    """
    (tmp_path / "mkdocs.yml").write_text(inspect.cleandoc(config))
    done = build(tmp_path, tmp_path / "site")
    assert done.returncode == 1
    for fault in (
        'not included in the "nav" configuration:\n  - orphan.md',
        "'missing.md' is included in the 'nav' configuration",
        "'gone.md', but the target is not found",
        "'page.md#gone', but the doc 'page.md' does not contain an anchor '#gone'",
        "'../gone.py'",
        "Could not find cross-reference target 'millstream.Gone'",
    ):
        assert fault in done.stderr
    # The link to a file outside docs is no fault.
    assert "program.py" not in done.stderr


class Quiet(SimpleHTTPRequestHandler):
    """Serves files without a log."""

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


@pytest.fixture(scope="module")
def url(site: Path) -> Iterator[str]:
    """The address of a server of the site."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


PAGES = [
    "",
    "get-started/tutorial/1-first-program/",
    "guides/savepoints/",
    "reference/connectors/kafka/",
    "reference/api/metrics/",
    "examples/late_data.py/",
]


@needs_chromium
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_are_accessible_and_fit_the_screen(url: str, browser: Any, scheme: str) -> None:
    page = browser.new_page(color_scheme=scheme)
    page.set_default_timeout(60_000)
    requests: list[str] = []
    errors: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    problems: list[tuple[object, ...]] = []
    for path in PAGES:
        for width in (390, 1366, 1920):
            page.set_viewport_size({"width": width, "height": 900})
            page.goto(url + path)
            # The layouts of a phone and of a computer.
            if width < 1900:
                problems += [(path, width, violation) for violation in axe_violations(page)]
            if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
                problems.append((path, width, "is wider than the screen"))
        assert page.evaluate("document.body.dataset.mdColorScheme") == {"light": "default", "dark": "slate"}[scheme]
    page.close()
    assert problems == []
    assert errors == []
    assert [request for request in requests if not request.startswith((url, "data:", "blob:"))] == []
