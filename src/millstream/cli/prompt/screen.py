"""Full-screen display of a query's rows, redrawn as they change."""

from __future__ import annotations

import os
import queue
import select
import shutil
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from contextlib import contextmanager

from millstream.cli.prompt.views import ChangelogView, TableView
from millstream.gateway.session import Outcome
from millstream.sql.columns.batch import Batch

# Minimum seconds between two drawings.
_DRAW_SECONDS = 0.2
# Maximum number of batches not shown yet: more backpressure the query.
_MAX_PENDING = 64
_OTHER_SCREEN, _FIRST_SCREEN = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_HOME, _REST_OF_LINE, _REST = "\x1b[H", "\x1b[K", "\x1b[J"
_INTERRUPT = "\x03"


class RowReader:
    """Reads a query's rows on its own thread, so that keys are read meanwhile."""

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome
        self._batches: queue.Queue[Batch] = queue.Queue(_MAX_PENDING)
        self._is_closed = threading.Event()
        self.has_ended = threading.Event()
        self.error: Exception | None = None
        threading.Thread(target=self._read, name="millstream-rows", daemon=True).start()

    def _read(self) -> None:
        try:
            for batch in self._outcome.batches:
                while not self._is_closed.is_set():
                    try:
                        self._batches.put(batch, timeout=0.1)
                        break
                    except queue.Full:
                        continue
        except Exception as e:
            self.error = e
        finally:
            self.has_ended.set()

    def take_batches(self) -> list[Batch]:
        """Return the batches since the last call."""
        batches = []
        while True:
            try:
                batches.append(self._batches.get_nowait())
            except queue.Empty:
                return batches

    def leave(self) -> None:
        """End the query."""
        self._is_closed.set()
        if not self.has_ended.is_set():
            self._outcome.cancel()
            self.has_ended.wait(60)
            self.error = None


def show(outcome: Outcome, view: TableView | ChangelogView) -> None:
    """Show rows until Q is pressed; raise the query's error."""
    reader, page = RowReader(outcome), list[int | None]([None])
    with _whole_screen():
        while True:
            ended = reader.has_ended.is_set()
            for batch in reader.take_batches():
                view.add(batch)
            if reader.error is not None:
                break
            width, height = shutil.get_terminal_size()
            lines, shown = view.page(page[0], width, height, "Finished" if ended else "Refresh: 0.2 s")
            sys.stdout.write(_HOME + "\r\n".join(line + _REST_OF_LINE for line in lines) + _REST)
            sys.stdout.flush()
            key = _key()
            if key in ("q", "Q", _INTERRUPT):
                break
            page[0] = _page_after_key(key, page[0], shown)
    reader.leave()
    if reader.error is not None:
        raise reader.error


def _page_after_key(key: str, page: int | None, shown: int) -> int | None:
    """Return the page after a key press; None follows the last page."""
    pages: dict[str, int | None] = {"n": shown + 1, "p": max(shown - 1, 1), "f": 1, "l": None}
    return pages.get(key.lower(), page)


def _key() -> str:
    """Return a pressed key, or an empty string after a short wait."""
    ready, _, _ = select.select([sys.stdin.fileno()], [], [], _DRAW_SECONDS)
    return os.read(sys.stdin.fileno(), 1).decode("latin-1") if ready else ""


@contextmanager
def _whole_screen() -> Iterator[None]:
    """Use the alternate screen in raw mode, and restore the terminal."""
    before = termios.tcgetattr(sys.stdin.fileno())
    tty.setraw(sys.stdin.fileno())
    sys.stdout.write(_OTHER_SCREEN)
    try:
        yield
    finally:
        sys.stdout.write(_FIRST_SCREEN)
        sys.stdout.flush()
        termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, before)
