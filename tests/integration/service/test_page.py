"""The dashboard, in a real browser."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from millstream.common import WatermarkStrategy
from millstream.common.configuration import Configuration
from millstream.common.job_client import JobClient
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.number_seq import NumberSequenceSource
from millstream.service.app import make_app
from millstream.service.archive import Archiver, ArchiveStore, history_app
from millstream.service.options import ServiceOptions
from millstream.service.registry import Registry
from millstream.service.server import PublicServer, Sampler, service_of
from tests.support.browser import axe_violations, chromium, needs_chromium
from tests.support.helpers import job_of

pytestmark = needs_chromium


class Site:
    """A service with jobs, and a page in a browser that shows it."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.registry = Registry()
        options = ServiceOptions.read(Configuration.from_dict({"rest.port": "auto", "web.refresh-interval": "500 ms"}))
        assert options is not None
        service = service_of(self.registry, {"millstream.rest.token": "abc"}, options.token, options.refresh_ms)
        self._sampler = Sampler(self.registry)
        self._sampler.start()
        self._server = PublicServer(make_app(service), options)
        self._server.start()
        self.url = self._server.url
        self.jobs: list[JobClient] = []

    def start(self, name: str, first: Any = lambda x: x, last: Any = lambda x: x, parallelism: int = 2) -> JobClient:
        settings = {
            "millstream.engine": "local",
            "millstream.quiet": "true",
            "parallelism.default": str(parallelism),
            "execution.checkpointing.interval": "200 ms",
        }
        env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
        numbers = env.from_source(NumberSequenceSource(1, 10**9), WatermarkStrategy.no_watermarks(), "numbers")
        keyed = numbers.map(first).key_by(lambda x: x % 7).reduce(lambda a, b: a + b)
        keyed.map(last).name("last").add_sink(lambda v: None)
        job = env.execute_async(name)
        self.jobs.append(job)
        self.registry.add(job_of(job), settings)
        return job

    def close(self) -> None:
        for job in self.jobs:
            job.cancel().result()
        self._server.stop()
        self._sampler.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def site(browser: Any) -> Iterator[Site]:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(20_000)
    errors: list[str] = []
    page.on("pageerror", lambda e: errors.append(str(e)))
    site = Site(page)
    yield site
    page.close()
    site.close()
    assert errors == []


def _slow(x: int) -> int:
    time.sleep(0.002)
    return x


def test_page_shows_running_job_and_slow_vertex(site: Site) -> None:
    site.start("orders", _slow, parallelism=1)
    site.page.goto(site.url)
    site.page.get_by_role("link", name="orders").click()
    node = site.page.locator(".node", has_text="Source: numbers")
    node.wait_for()
    site.page.locator(".node.high, .node.low").first.wait_for()
    node.click()
    drawer = site.page.locator(".drawer")
    drawer.locator("tbody tr").first.wait_for()
    assert drawer.locator("tbody tr").count() == 1
    assert re.search(r"test_page.py:\d+", drawer.inner_text())
    # The flame graph shows that it waits in a user function.
    drawer.get_by_role("link", name="Flame graph").click()
    drawer.get_by_role("button", name="Off-CPU").click()
    drawer.locator(".flame .user", has_text=re.compile(r"test_page.py:\d+ _slow")).first.wait_for()
    # The keyboard is enough: it closes the drawer and opens it.
    drawer.get_by_role("button", name="Off-CPU").press("Escape")
    drawer.wait_for(state="hidden")
    node.press("Enter")
    drawer.wait_for()


def test_page_plots_selected_metrics_and_queries_state(site: Site) -> None:
    job = site.start("measured", parallelism=2)
    site.page.goto(f"{site.url}/ui/index.html#/jobs/{job.get_job_id()}")
    site.page.locator(".node", has_text="last").click()
    drawer = site.page.locator(".drawer")
    drawer.get_by_role("region", name="Hot keys").locator("tbody tr").first.wait_for()
    drawer.get_by_role("link", name="Metrics").click()
    drawer.get_by_label("Metrics", exact=True).fill("numBytesOut")
    drawer.get_by_role("checkbox", name="numBytesOut", exact=True).wait_for()
    assert drawer.get_by_role("checkbox").count() == 2
    drawer.get_by_role("checkbox", name="numBytesOut", exact=True).click()
    drawn = drawer.get_by_role("img", name=re.compile("^numBytesOut now"))
    drawn.locator("path.line").wait_for(state="attached")
    drawer.get_by_label("Show").select_option("subtask 1")
    drawn.locator("path.line").wait_for(state="attached")
    # The selection persists.
    site.page.reload()
    site.page.get_by_role("img", name=re.compile("^numBytesOut now")).wait_for()
    drawer.get_by_role("link", name="State").click()
    drawer.locator("tbody tr", has_text="reduce").first.wait_for()
    drawer.get_by_label("Key").fill("3")
    drawer.get_by_role("button", name="Query").click()
    rows = drawer.get_by_role("region", name="Rows").locator("tbody tr")
    rows.first.wait_for()
    assert rows.count() == 1 and rows.inner_text().startswith("3")


def test_page_shows_workers_and_logs(site: Site) -> None:
    job = site.start("logged")
    logging.getLogger("millstream").warning("the mill needs oil, password=abc")
    site.page.goto(f"{site.url}/ui/index.html#/workers")
    site.page.get_by_role("link", name="local").click()
    site.page.locator("td", has_text="taskSlotsTotal").wait_for()
    site.page.get_by_role("link", name="Logs").click()
    site.page.locator("pre", has_text="the mill needs oil, password=******").wait_for()
    site.page.get_by_role("link", name="Thread dump").click()
    site.page.locator("summary", has_text="millstream-rest").first.wait_for()
    site.page.goto(f"{site.url}/ui/index.html#/jobs/{job.get_job_id()}/logs")
    site.page.locator("pre", has_text="the mill needs oil").wait_for()
    site.page.get_by_label("Filter").fill("nothing of the kind")
    site.page.locator("pre", has_text="No matching lines.").wait_for()


def test_page_shows_checkpoints_and_takes_savepoint(site: Site, tmp_path: Any) -> None:
    job = site.start("saved")
    site.page.goto(f"{site.url}/ui/index.html#/jobs/{job.get_job_id()}/checkpoints")
    site.page.locator(".card", has_text="completed").wait_for()
    site.page.get_by_role("button", name="Savepoint", exact=True).click()
    site.page.get_by_label("Directory").fill(str(tmp_path))
    site.page.get_by_role("button", name="Trigger").click()
    site.page.locator("#messages", has_text=f"{tmp_path}/savepoint-").wait_for()
    assert [p.name.startswith("savepoint-") for p in tmp_path.iterdir()] == [True]


def test_page_confirms_before_cancel(site: Site) -> None:
    job = site.start("cancelled")
    site.page.goto(f"{site.url}/ui/index.html#/jobs/{job.get_job_id()}")
    site.page.get_by_role("button", name="Cancel", exact=True).click()
    site.page.get_by_role("button", name="Back", exact=True).click()
    time.sleep(0.5)
    assert site.registry.entries()[0].view.status.name == "RUNNING"
    site.page.get_by_role("button", name="Cancel", exact=True).click()
    site.page.get_by_role("button", name="Cancel job").click()
    site.page.locator(".tag", has_text="canceled").first.wait_for()


def test_page_shows_failure_with_user_traceback(site: Site) -> None:
    def breaks(x: int) -> int:
        raise ValueError("<b>bold</b> numbers")

    job = site.start("broken", breaks)
    site.page.goto(f"{site.url}/ui/index.html#/jobs/{job.get_job_id()}/exceptions")
    trace = site.page.locator("pre", has_text="ValueError")
    trace.wait_for()
    assert "in breaks" in trace.inner_text() and "<b>bold</b>" in trace.inner_text()
    assert trace.inner_text().startswith("Traceback")
    heading = site.page.locator("details.failure > summary").first
    assert heading.inner_text().startswith("ValueError: <b>bold</b> numbers")


def test_page_fits_phone_and_dark_theme(site: Site) -> None:
    job = site.start("small")
    site.page.set_viewport_size({"width": 390, "height": 800})
    site.page.goto(f"{site.url}/ui/index.html#/jobs/{job.get_job_id()}")
    site.page.locator(".node").first.wait_for()
    assert site.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    before = site.page.evaluate("getComputedStyle(document.body).backgroundColor")
    site.page.get_by_role("button", name="Toggle theme").click()
    assert site.page.evaluate("getComputedStyle(document.body).backgroundColor") != before


def test_page_masks_secrets_of_service_configuration(site: Site) -> None:
    site.page.goto(f"{site.url}/ui/index.html#/service")
    site.page.get_by_text("******").wait_for()
    assert "abc" not in site.page.locator("main").inner_text()


def test_page_shows_archived_job(site: Site) -> None:
    job = site.start("archived", parallelism=1)
    job.trigger_checkpoint().result()
    job.cancel().result()
    archives = ArchiveStore()
    archiver = Archiver(service_of(site.registry, {}, None, 500), lambda entry, archive: None)
    archives.put(archiver.now(site.registry.entries()[0]))
    options = ServiceOptions.read(Configuration.from_dict({"rest.port": "auto"}))
    assert options is not None
    server = PublicServer(history_app(archives, {}, None, 500), options, "history")
    server.start()
    try:
        site.page.goto(server.url)
        site.page.get_by_role("link", name="archived").click()
        site.page.locator(".tag", has_text="canceled").first.wait_for()
        assert site.page.get_by_role("button", name="Cancel", exact=True).count() == 0
        site.page.locator(".node", has_text="Source: numbers").click()
        site.page.locator(".drawer tbody tr").first.wait_for()
        site.page.get_by_role("link", name="Checkpoints").click()
        site.page.locator("tbody tr", has_text="completed").first.wait_for()
        assert site.page.locator("#refresh-status.bad").count() == 0
    finally:
        server.stop()


def test_page_draws_thousand_subtasks(site: Site) -> None:
    job = site.start("many", parallelism=500)
    site.page.goto(f"{site.url}/ui/index.html#/jobs/{job.get_job_id()}")
    node = site.page.locator(".node", has_text="Source: numbers")
    node.wait_for()
    node.click()
    site.page.locator(".drawer tbody tr").nth(499).wait_for()
    began = time.monotonic()
    site.page.get_by_role("link", name="Timeline").click()
    site.page.locator(".lane").first.wait_for()
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_page_has_no_serious_axe_violations(site: Site, theme: str) -> None:
    job = site.start("read aloud", _slow, parallelism=1)
    site.page.goto(site.url)
    site.page.evaluate(f"document.documentElement.dataset.theme = '{theme}'")
    violations = []
    # The first is at work nearly always, so that samples find it; the second has state.
    slow, keyed = (vertex.head.id for vertex in site.registry.entries()[0].view.plan.vertices[:2])
    mine = f"/jobs/{job.get_job_id()}"
    tabs = [f"{mine}/{tab}" for tab in ("graph", "checkpoints", "exceptions", "timeline", "logs", "configuration")]
    drawers = [f"{mine}/graph/{keyed}/{tab}" for tab in ("subtasks", "metrics", "state")]
    drawers.append(f"{mine}/graph/{slow}/time")
    parts = [f"/workers/local/{part}" for part in ("metrics", "log", "threads")]
    for location in ("/", *tabs, *drawers, "/workers", *parts, "/service"):
        site.page.goto(f"{site.url}/ui/index.html#{location}")
        site.page.locator("#refresh-status", has_text="Updated").wait_for()
        site.page.locator("main h1").wait_for()
        if location in drawers:
            site.page.locator(".drawer h2", has_text=re.compile(".")).wait_for()
        if location.endswith("/time"):
            site.page.get_by_role("button", name="Mixed").click()
            site.page.locator(".flame").first.wait_for()
        violations += [(location, v) for v in axe_violations(site.page) if v.impact in ("serious", "critical")]
    assert violations == []
