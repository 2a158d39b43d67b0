"""LiveView: the rows of a running job in a notebook cell, updated in place.

One thread reads the rows; another replaces the cell's output at most twice a second, so the output stays small.
"""

from __future__ import annotations

import importlib.util
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from importlib import import_module
from typing import Generic, Protocol, TypeVar

from millstream.common.aliases import Value
from millstream.common.errors import InvalidProgramError, JobCancelledError
from millstream.common.types import Row
from millstream.common.watermark_strategy import MAX_WATERMARK, MIN_WATERMARK
from millstream.jobmaster.job import JobMaster

# Rows that a view shows by default.
MAX_ROWS = 20
# Seconds between two updates of the output.
_INTERVAL = 0.5
# Updates over which the rate is averaged.
_RATE_UPDATES = 10
# Characters of a value that are shown.
_MAX_TEXT = 200

# How to stop a job without a button.
WHILE_CELL_RUNS = "Interrupt the kernel to stop the job."
IN_BACKGROUND = "The job runs in the background; <code>_.stop()</code> in the next cell stops it."

B_contra = TypeVar("B_contra", contravariant=True)
B = TypeVar("B")


@dataclass(frozen=True)
class ShownRows:
    """The content of a table in HTML.

    Attributes:
        names: the names of the columns.
        rows: the texts of each row.
        note: what is shown, if not all rows.
        types: the types of the columns; empty if unknown.
    """

    names: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    types: Sequence[str] = ()

    def html(self) -> str:
        """Return the table."""
        types = self.types or [""] * len(self.names)
        cells = zip(self.names, types, strict=True)
        head = "".join(f'<th title="{escape(t)}">{escape(n)}</th>' for n, t in cells)
        body = "".join(f"<tr>{''.join(f'<td>{escape(v)}</td>' for v in row)}</tr>" for row in self.rows)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


class RowBuffer(Protocol[B_contra]):
    """Keeps the rows that a view shows."""

    def add(self, batch: B_contra) -> int:
        """Add rows or changes; return their number."""

    def shown(self) -> ShownRows:
        """Return the rows to show."""


class LastValues:
    """The last records of a stream: NamedTuples and named Rows in columns, other records as text."""

    def __init__(self, max_rows: int) -> None:
        self._values: deque[Value] = deque(maxlen=max_rows)
        self._count = 0

    def add(self, batch: Value) -> int:
        self._values.append(batch)
        self._count += 1
        return 1

    def shown(self) -> ShownRows:
        values = list(self._values)
        note = f"the last {len(values)} records" if self._count > len(values) else ""
        names = {_names_of(value) for value in values}
        if len(names) == 1 and (columns := names.pop()) is not None:
            return ShownRows(columns, [[_shortened(str(v)) for v in value] for value in values], note)
        return ShownRows(["record"], [[_shortened(str(value))] for value in values], note)


def _names_of(value: Value) -> tuple[str, ...] | None:
    if isinstance(value, Row):
        try:
            return tuple(value.as_dict())
        except TypeError:
            # Its fields have no names.
            return None
    return getattr(value, "_fields", None) if isinstance(value, tuple) else None


def _shortened(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}..."


class LiveView(Generic[B]):
    """The rows of a job in a notebook, updated while it runs. Not in PyFlink.

    The job runs in the background, and cells can be executed meanwhile. A Stop button cancels the job if ipywidgets is
    installed; so do `stop()`, and an interrupt of the kernel during `wait()`.

    Args:
        batches: the rows of the job.
        rows: keeps those to show.
        job: the job.
        hint: how to stop the job without a button, in HTML.
    """

    def __init__(self, batches: Iterator[B], rows: RowBuffer[B], job: JobMaster, hint: str = IN_BACKGROUND) -> None:
        self._batches = batches
        self._rows = rows
        self._job = job
        self._hint = hint
        self._lock = threading.Lock()
        self._count = 0
        self._started = time.monotonic()
        self._counts: deque[tuple[float, int]] = deque([(self._started, 0)], _RATE_UPDATES)
        self._seconds = 0.0
        self._error: BaseException | None = None
        self._ended = threading.Event()
        self._button = _stop_button(self)
        self._shown = self._html()
        # Imported on use: only notebooks have it.
        notebook: Value = import_module("IPython.display")
        self._make_html = notebook.HTML
        self._output = notebook.display(notebook.HTML(self._shown), display_id=True)
        if self._button is not None:
            notebook.display(self._button)
        self._reader = threading.Thread(target=self._read, daemon=True, name="live view reader")
        self._reader.start()
        threading.Thread(target=self._update, daemon=True, name="live view").start()

    def stop(self) -> None:
        """Cancel the job; the rows stay."""
        self._job.cancel()

    def wait(self) -> None:
        """Wait until the job has ended, and raise its error; an interrupt cancels it."""
        try:
            self._ended.wait()
        except KeyboardInterrupt:
            self.stop()
            self._ended.wait()
            raise
        if self._error is not None:
            raise self._error

    def __repr__(self) -> str:
        return f"<LiveView of job {self._job.view.job_id}: {self._job.view.status.name}>"

    def _read(self) -> None:
        try:
            for batch in self._batches:
                with self._lock:
                    self._count += self._rows.add(batch)
        except JobCancelledError:
            pass
        except BaseException as e:
            self._error = e
            self._job.cancel()

    def _update(self) -> None:
        while self._reader.is_alive():
            self._reader.join(_INTERVAL)
            self._refresh()
        self._job.result.exception()
        self._seconds = time.monotonic() - self._started
        self._refresh()
        if self._button is not None:
            self._button.close()
        self._ended.set()

    def _refresh(self) -> None:
        html = self._html()
        if html != self._shown:
            self._shown = html
            self._output.update(self._make_html(html))

    def _html(self) -> str:
        with self._lock:
            shown, count = self._rows.shown(), self._count
        now = time.monotonic()
        self._counts.append((now, count))
        (before, counted), view = self._counts[0], self._job.view
        parts = [view.status.name, f"{count:,} row{'s' * (count != 1)} received"]
        if self._seconds:
            parts.append(f"{self._seconds:,.1f} s")
        else:
            parts.append(f"{(count - counted) / max(now - before, 1e-3):,.0f} rows/s")
        watermark = view.watermark
        if watermark is not None and MIN_WATERMARK < watermark < MAX_WATERMARK:
            parts.append(f"watermark {datetime.fromtimestamp(watermark / 1000, UTC):%Y-%m-%d %H:%M:%S}")
        if shown.note:
            parts.append(f"showing {shown.note}")
        error = "" if self._error is None else f"<pre>{escape(str(self._error))}</pre>"
        hint = "" if self._seconds or self._button is not None else f"<p>{self._hint}</p>"
        return f"{shown.html()}<p>{escape(' | '.join(parts))}</p>{error}{hint}"


class _Button(Protocol):
    def close(self) -> None: ...


def _stop_button(view: LiveView[B]) -> _Button | None:
    """Return a button that stops a view; None without ipywidgets."""
    if importlib.util.find_spec("ipywidgets") is None:
        return None
    button: Value = import_module("ipywidgets").Button(description="Stop")
    button.on_click(lambda _: view.stop())
    return button  # type: ignore[no-any-return]


def check_notebook(method: str) -> None:
    """Fail outside of a notebook."""
    if not in_notebook():
        raise InvalidProgramError(f"{method}() needs a notebook: use print() or a loop over the rows elsewhere.")


def in_notebook() -> bool:
    """Return whether the program runs in the kernel of a notebook."""
    if importlib.util.find_spec("IPython") is None:
        return False
    shell: Value = import_module("IPython").get_ipython()
    return hasattr(shell, "kernel")
