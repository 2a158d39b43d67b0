"""`millstream demo`: a live job and a guided tour of results, recovery, savepoints and upgrades."""

from __future__ import annotations

import os
import select
import signal
import sys
import tempfile
import termios
import time
import webbrowser
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from millstream.common.aliases import Value
from millstream.common.errors import JavaNotFoundError, MillstreamError
from millstream.operating_system import system

# Imported when the tour starts: they import SQL and the job master.
if TYPE_CHECKING:
    from millstream.cli.demo_program import Results
    from millstream.jobmaster.job import JobMaster

_REFRESH_SECONDS = 0.2
# How long a step may take; Spark's first start on a busy machine is the longest.
_STEP_SECONDS = 180.0
_ROWS = 5
_SAMPLES = 10
_SLOT = "millstream-s"


@click.command()
@click.option("--local", is_flag=True, help="Run in this process, without Spark and Java.")
@click.option("--yes", is_flag=True, help="Run through without waiting for Enter.")
@click.option(
    "--open/--no-open", "opens", default=None, help="Open the job's page; default: on a terminal of a desktop session."
)
def demo(local: bool, yes: bool, opens: bool | None) -> None:
    """Show a live job: results, a killed worker, a savepoint and an upgrade; nothing but this package is needed."""
    from millstream.datastream.launch_context import end_on_signals

    end_on_signals()
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if opens is None:
        opens = is_terminal and not yes and bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    with tempfile.TemporaryDirectory(prefix="millstream-demo-") as folder, _without_echo(is_terminal):
        tour = Tour(Path(folder), Screen(sys.stdout.isatty(), is_terminal and not yes), local or not _has_java(), opens)
        try:
            is_complete = tour.run()
        finally:
            tour.close()
    sys.exit(0 if is_complete else 1)


def _has_java() -> bool:
    from millstream.spark.java import find_java

    try:
        find_java()
    except JavaNotFoundError:
        click.echo("This machine has no Java 17 or newer, which Spark needs: the demo runs without Spark (--local).\n")
        return False
    return True


@contextmanager
def _without_echo(is_terminal: bool) -> Iterator[None]:
    """Hide typed characters, which would damage the table."""
    if not is_terminal:
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    silent = termios.tcgetattr(sys.stdin)
    silent[3] &= ~termios.ECHO
    termios.tcsetattr(sys.stdin, termios.TCSADRAIN, silent)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


class Screen:
    """The terminal: text that stays, and lines below it that are redrawn in place.

    Args:
        redraws: whether the output is a terminal; otherwise each line is written once, when it no longer changes.
        asks: whether steps wait for Enter.
    """

    def __init__(self, redraws: bool, asks: bool) -> None:
        self._redraws = redraws
        self.asks = asks
        self._shown = 0
        self._written: set[str] = set()

    def say(self, text: str) -> None:
        """Write text that stays, below the lines."""
        self._shown = 0
        click.echo(text)

    def show(self, changing: list[str], final: list[str]) -> None:
        """Show lines.

        Args:
            changing: all lines, in place of those shown before.
            final: the lines that will not change, for outputs that are no terminals.
        """
        if not self._redraws:
            for line in final:
                if line not in self._written:
                    self._written.add(line)
                    click.echo(line)
            return
        width = os.get_terminal_size(sys.stdout.fileno()).columns or 80
        up = f"\x1b[{self._shown}A" if self._shown else ""
        sys.stdout.write(up + "".join(f"\r\x1b[K{line[: width - 1]}\n" for line in changing))
        sys.stdout.flush()
        self._shown = len(changing)

    def entered(self, seconds: float) -> bool:
        """Wait; return whether Enter was pressed."""
        if not self.asks:
            time.sleep(seconds)
            return True
        if not select.select([sys.stdin], [], [], seconds)[0]:
            return False
        # The end of the input answers all questions.
        self.asks = sys.stdin.readline() != ""
        return True


class Tour:
    """The steps, on one job and its successor.

    Args:
        folder: for checkpoints and savepoints.
        screen: the terminal.
        local: whether to run without Spark.
        opens: whether to open the page.
    """

    def __init__(self, folder: Path, screen: Screen, local: bool, opens: bool) -> None:
        from millstream.cli.demo_program import Results

        self._folder = folder
        self._screen = screen
        self._is_local = local
        self._opens = opens
        self._failure = folder / "failure"
        self._results: Results = Results.empty()
        self._job: JobMaster | None = None
        self._settings = {
            "millstream.engine": "local" if local else "spark",
            "millstream.quiet": "true",
            "parallelism.default": "2",
            "rest.port": "auto",
            "execution.checkpointing.interval": "500 ms",
            "execution.checkpointing.dir": str(folder / "checkpoints"),
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "1000",
            "restart-strategy.fixed-delay.delay": "100 ms",
        }

    def run(self) -> bool:
        """Take all steps; return whether the results are complete."""
        self.show_results()
        self.recover()
        savepoint = self.take_savepoint()
        self.change(savepoint)
        return self.check()

    def close(self) -> None:
        """Cancel a job that still runs."""
        if self._job is not None and not self._job.result.done():
            self._job.cancel()
            self._job.result.exception()

    @property
    def job(self) -> JobMaster:
        assert self._job is not None
        return self._job

    # --- the steps

    def show_results(self) -> None:
        """Start the job, and show its results."""
        from millstream.cli.demo_program import BY_CITY, LATENESS_MS, RATE

        say = self._screen.say
        say("Orders arrive out of order, and SQL adds them up by city in windows of ten seconds:\n")
        say(_indented(BY_CITY))
        say(f"\nAn order may be {LATENESS_MS // 1000} s late. A few are a minute late: they are listed separately.")
        say(f"{RATE} orders arrive per second, and event time passes ten times as fast as the clock.")
        self._title("1 of 5: results", "Starting without Spark ..." if self._is_local else "Starting Spark ...")
        started = time.monotonic()
        self._start({}, with_products=False)
        self._await(lambda: bool(self._results.windows))
        say(f"The first results came after {time.monotonic() - started:.1f} s.")
        if (url := self._page()) is not None:
            say(f"The page of the job: {url}")
            if self._opens:
                webbrowser.open(url)
        self._watch(lambda: len(self._windows()) >= 3, "kill a worker" if not self._is_local else "let the job fail")

    def recover(self) -> None:
        """Kill a worker process, or let a function fail if there is none, and wait for the recovery."""
        say = self._screen.say
        self._title("2 of 5: recovery")
        before, failed_at = self.job.view, time.monotonic()
        slots = [] if self._is_local else slot_processes()
        if slots:
            os.kill(slots[0], signal.SIGKILL)
            say(f"Killed worker process {slots[0]} of {', '.join(map(str, slots))} (kill -9).")
        else:
            reason = "Without Spark there is no worker process to kill"
            if not self._is_local:
                reason = "On this system worker processes have no names by which to find them"
            say(f"{reason}. Instead, a function raises an exception.")
            self._failure.touch()
        self._await(lambda: self.job.view.restarts > before.restarts)
        failed = self.job.view
        latest = failed.checkpoints.latest
        if latest is None:
            raise MillstreamError("The demo's job failed before its first checkpoint: run the demo again.")
        message = [line for line in failed.failures[-1].message.splitlines() if line and not line.startswith(" ")]
        say(f"The job has failed: {next(line for line in message if 'Traceback' not in line)}")
        self._await(lambda: self._checkpoint() > latest.id)
        say(f"It was restored from checkpoint {latest.id} and works again after {time.monotonic() - failed_at:.1f} s.")
        if slots:
            say(f"Its worker processes are {', '.join(map(str, slot_processes()))} now.")
        say("Orders since that checkpoint were processed again, and count once in the results.")
        windows = len(self._windows())
        self._watch(lambda: len(self._windows()) >= windows + 2, "take a savepoint and stop the job")

    def take_savepoint(self) -> str:
        """Stop the job with a savepoint; return its path."""
        self._title("3 of 5: savepoint")
        path = self._stop(drain=False)
        self._screen.say(f"The job was stopped with savepoint {path}")
        self._screen.say(
            f"It contains the position of the generator, order {_position(path):,}, and the orders and totals of the\n"
            "windows that are still open. `millstream state show` prints the contents of a savepoint."
        )
        return path

    def change(self, savepoint: str) -> None:
        """Start a changed program from the savepoint."""
        from millstream.cli.demo_program import BY_PRODUCT

        self._title("4 of 5: upgrade", "The new version of the program has a second query:\n")
        self._screen.say(_indented(BY_PRODUCT, "+   "))
        self._wait("start the new version from the savepoint")
        windows = len(self._windows())
        self._start({"execution.state-recovery.path": savepoint}, with_products=True)
        self._await(lambda: len(self._windows()) > windows)
        self._screen.say("\nThe new version continues the windows of the old one.")
        if (url := self._page()) is not None:
            self._screen.say(f"The page of its job: {url}")
        self._watch(
            lambda: len(self._windows()) >= windows + 2 and bool(self._results.products),
            "end the job and check its results",
        )

    def check(self) -> bool:
        """End the job, and compare its results with the generator."""
        from millstream.cli.demo_program import CITIES, expected_totals, written_totals

        self._title("5 of 5: check")
        count = _position(self._stop(drain=True))
        results = self._results
        expected, written = expected_totals(count), written_totals(results)
        rows = {"generated": expected, "windows, late": written}
        self._screen.say(_table_line("orders, EUR", CITIES))
        for label, totals in rows.items():
            self._screen.say(_table_line(label, [_cell(total) for total in totals.values()]))
        late, read = len(results.late), sum(orders for orders, _ in written.values())
        if expected != written or results.repeated:
            self._screen.say(
                f"\nWRONG: the generator produced {count:,} orders, the results have {read:,}, and {results.repeated} "
                "results were written twice."
            )
            return False
        self._screen.say(
            f"\nThe generator produced {count:,} orders: {read - late:,} are in windows and {late:,} were late. After\n"
            "a failure, a savepoint and an upgrade, no order is missing and none counts twice."
        )
        self._screen.say("\nNext: `millstream init my-orders` creates a project of your own, with tests.")
        self._wait("leave; the page ends with this program")
        return True

    # --- the job

    def _start(self, settings: Mapping[str, str], with_products: bool) -> None:
        from millstream.cli.demo_program import start

        self._job = start({**self._settings, **settings}, self._results, str(self._failure), with_products)

    def _stop(self, drain: bool) -> str:
        from millstream.datastream.collect import LocalJobClient

        path = LocalJobClient(self.job).stop_with_savepoint(drain, str(self._folder / "savepoints")).result()
        # All output is committed then.
        self.job.result.result(_STEP_SECONDS)
        return path

    def _checkpoint(self) -> int:
        latest = self.job.view.checkpoints.latest
        return 0 if latest is None else latest.id

    def _page(self) -> str | None:
        from millstream.service.run_file import running_services

        own = [service.url for service in running_services() if service.pid == os.getpid()]
        return f"{own[0]}/#/jobs/{self.job.view.job_id}" if own else None

    # --- the screen

    def _title(self, title: str, text: str = "") -> None:
        self._screen.say(f"\n== {title}\n" + (f"\n{text}" if text else ""))

    def _await(self, holds: Callable[[], bool]) -> None:
        """Wait until a condition holds; raise the job's error if it ends."""
        end = time.monotonic() + _STEP_SECONDS
        while not holds():
            if self.job.result.done():
                self.job.result.result()
                raise MillstreamError("The demo's job was ended from outside: run the demo again.")
            if time.monotonic() > end:
                raise MillstreamError(f"The demo's job made no progress for {_STEP_SECONDS:g} s: run the demo again.")
            time.sleep(0.02)

    def _wait(self, next_step: str) -> None:
        """Wait for Enter."""
        if self._screen.asks:
            self._screen.say(f"\n[Enter] {next_step}")
            while not self._screen.entered(1.0):
                pass

    def _watch(self, holds: Callable[[], bool], next_step: str) -> None:
        """Show the results until a condition holds and, on a terminal, Enter is pressed."""
        from millstream.cli.progress_line import describe, read

        self._screen.say("")
        readings = deque([read(self.job, time.time())], _SAMPLES)
        end = time.monotonic() + _STEP_SECONDS
        is_entered = False
        while not (is_entered and holds()):
            is_entered |= self._screen.entered(_REFRESH_SECONDS)
            readings.append(read(self.job, time.time()))
            status = describe(readings[0], readings[-1])
            hint = [f"[Enter] {next_step}"] if self._screen.asks else []
            lines = self._lines()
            self._screen.show([*lines[0], "", status, *hint], lines[1])
            if self.job.result.done() or (not self._screen.asks and time.monotonic() > end):
                self._await(holds)

    def _lines(self) -> tuple[list[str], list[str]]:
        """Return the lines of the results, and those that will not change."""
        from millstream.cli.demo_program import CITIES, PRODUCTS

        results = self._results
        with results.lock:
            late = len(results.late)
            tables = [
                _rows("orders, EUR", CITIES, results.windows),
                _rows("orders, largest", PRODUCTS, results.products),
            ]
        shown: list[str] = []
        final: list[str] = []
        for header, rows in tables:
            if rows:
                shown += ["", header] if shown else [header]
                shown += [line for line, _ in rows[-_ROWS:]]
                final += [header, *(line for line, is_complete in rows if is_complete)]
        return [*shown, "", f"late orders: {late}"], final

    def _windows(self) -> set[Value]:
        with self._results.lock:
            return {end for end, _ in self._results.windows}


def slot_processes() -> list[int]:
    """Return the processes of this program's slots, in order; none where processes have no names of their own."""
    slots = {pid: name for pid, name in system.descendants().items() if name.startswith(_SLOT)}
    return sorted(slots, key=lambda pid: slots[pid])


def _position(savepoint: str) -> int:
    """Return the position of the generator in a savepoint."""
    from millstream.state_processor import Savepoint

    (source,) = Savepoint.load(savepoint).sources()
    return int(source.position)


def _indented(text: str, indent: str = "    ") -> str:
    return "\n".join(indent + line for line in text.splitlines())


def _rows(
    label: str, names: list[str], values: Mapping[tuple[Value, str], tuple[int, int]]
) -> tuple[str, list[tuple[str, bool]]]:
    """Return a header, and a line for each window with whether it is complete."""
    rows = []
    for end in sorted({end for end, _ in values}):
        cells = [values.get((end, name)) for name in names]
        rows.append((_table_line(f"until {end:%H:%M:%S}", map(_cell, cells)), None not in cells))
    return _table_line(label, names), rows


def _cell(value: tuple[int, int] | None) -> str:
    return "" if value is None else f"{value[0]:,} {value[1]:8,}"


def _table_line(label: str, cells: Iterable[str]) -> str:
    # Four cells fit into 80 columns.
    return f"{label:15}" + "".join(f"{cell:>16}" for cell in cells)
