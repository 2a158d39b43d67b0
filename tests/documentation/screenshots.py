"""Takes the pictures of the page, docs/images/*.png, of jobs that run here without Spark (`make screenshots`)."""

from __future__ import annotations

import base64
import re
import shutil
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from playwright.sync_api import Locator, Page, sync_playwright

from tests.support.paths import DOCS

IMAGES = DOCS / "images"
PROGRAMS = Path(__file__).parent / "programs"
# Returns the size and the pixels of an image.
_PIXELS = """async (url) => {
  const image = new Image();
  image.src = url;
  await image.decode();
  const canvas = new OffscreenCanvas(image.width, image.height), context = canvas.getContext("2d");
  context.drawImage(image, 0, 0);
  const bytes = context.getImageData(0, 0, image.width, image.height).data;
  let text = "";
  for (let i = 0; i < bytes.length; i += 32768) text += String.fromCharCode(...bytes.subarray(i, i + 32768));
  return [image.width, image.height, btoa(text)];
}"""


@contextmanager
def running(program: str) -> Iterator[str]:
    """Run a program and yield the address of its page."""
    command = [sys.executable, "-m", "millstream.cli.main", "run", "--local", "-D", "rest.port=auto"]
    command += ["-D", "web.refresh-interval=500 ms", program]
    process = subprocess.Popen(command, cwd=PROGRAMS, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        address = next(found for line in process.stderr if (found := re.search(r"served at (\S+)", line)))
        yield address[1]
    finally:
        process.terminate()
        process.communicate()


def palette_png(width: int, height: int, rgba: bytes) -> bytes:
    """Encode an image with its 256 most frequent colours: a third of the size of the browser's file."""
    pixels = np.frombuffer(rgba, np.uint8).reshape(-1, 4).astype(np.int64)
    codes = pixels[:, 0] << 16 | pixels[:, 1] << 8 | pixels[:, 2]
    colors, index, counts = np.unique(codes, return_inverse=True, return_counts=True)
    channels = np.stack([colors >> 16, colors >> 8 & 255, colors & 255], axis=1)
    kept = np.argsort(-counts)[:256]
    nearest = np.array([np.argmin(np.abs(channels[kept] - color).sum(axis=1)) for color in channels], np.uint8)
    rows = nearest[index.reshape(height, width)]
    lines = b"".join(b"\0" + row.tobytes() for row in rows)
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    palette = channels[kept].astype(np.uint8).tobytes()
    chunks = [(b"IHDR", header), (b"PLTE", palette), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b"")]
    encoded = [
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(encoded)


def save(page: Page, name: str, *parts: Locator, height: float | None = None) -> None:
    """Save the area of the page that contains some parts, or all that is visible; at most `height` pixels of it."""
    size = page.viewport_size
    assert size is not None
    clip = {"x": 0.0, "y": 0.0, "width": float(size["width"]), "height": float(size["height"])}
    if parts:
        boxes = [box for part in parts if (box := part.bounding_box())]
        left, top = min(b["x"] for b in boxes) - 8, min(b["y"] for b in boxes) - 8
        right, bottom = max(b["x"] + b["width"] for b in boxes) + 8, max(b["y"] + b["height"] for b in boxes) + 8
        clip = {
            "x": max(left, 0.0),
            "y": max(top, 0.0),
            "width": right - max(left, 0.0),
            "height": bottom - max(top, 0.0),
        }
    if height is not None:
        clip["height"] = min(clip["height"], height)
    taken = page.screenshot(clip=clip, full_page=True, animations="disabled")  # type: ignore[arg-type]
    width, rows, text = page.evaluate(_PIXELS, "data:image/png;base64," + base64.b64encode(taken).decode())
    path = IMAGES / f"{name}.png"
    path.write_bytes(palette_png(width, rows, base64.b64decode(text)))
    print(f"{path.name}: {width} x {rows}, {path.stat().st_size:,} bytes")


def take_orders(page: Page) -> None:
    """Take the pictures of a job with a slow vertex."""
    with running("orders.py") as url:
        page.goto(url)
        page.get_by_role("link", name="orders by city").click()
        page.locator(".node.high, .node.low").first.wait_for()
        page.locator(".diagnostic", has_text="late").first.wait_for(state="attached")
        page.locator(".node", has_text="price in euros").click()
        drawer = page.locator(".drawer")
        drawer.get_by_role("link", name="Metrics").click()
        drawer.get_by_label("Metrics", exact=True).fill("time")
        drawer.get_by_role("checkbox", name="busyTimeMsPerSecond", exact=True).click()
        drawer.get_by_role("img", name=re.compile("^busyTimeMsPerSecond now")).wait_for()
        # The plots and rates need some history.
        time.sleep(40)
        save(page, "job", height=860)
        # The whole drawer is visible on a higher screen.
        page.set_viewport_size({"width": 1280, "height": 2000})
        drawer.get_by_role("link", name="Flame graph").click()
        drawer.get_by_role("button", name="Off-CPU").click()
        drawer.locator(".flame .user").first.wait_for()
        time.sleep(4)
        save(page, "flames", drawer.get_by_role("button", name="On-CPU"), drawer.locator(".flame-box"))
        drawer.get_by_role("button", name="Off-CPU").press("Escape")
        more = page.locator("details.more > summary")
        if more.count():
            more.click()
        for summary in page.locator(".diagnostic > summary").all():
            summary.click()
        save(page, "diagnostics", page.locator(".diagnostic").first, page.locator(".diagnostic").last)
        page.get_by_role("link", name="Checkpoints").click()
        page.locator("tbody tr", has_text="completed").nth(8).wait_for()
        save(page, "checkpoints", page.locator(".cards").last, page.locator(".panel").last, height=460)


def take_prices(page: Page) -> None:
    """Take the picture of a failure."""
    with running("prices.py") as url:
        page.goto(url)
        page.get_by_role("link", name="prices").click()
        page.get_by_role("link", name="Exceptions").click()
        failure = page.locator("details.failure").first
        failure.locator("pre", has_text="KeyError").wait_for()
        save(page, "exceptions", failure)


def take_report(page: Page) -> None:
    """Take the picture of the graph of a SQL query."""
    with running("report.py") as url:
        page.goto(url)
        page.get_by_role("link", name="insert-into").click()
        page.locator(".node").nth(3).wait_for()
        time.sleep(5)
        save(page, "sql-plan", page.locator(".graph"))


def main() -> None:
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for take in (take_orders, take_prices, take_report):
            page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme="light")
            page.set_default_timeout(60_000)
            take(page)
            page.close()
        browser.close()


if __name__ == "__main__":
    main()
