"""Nexmark q0 to q22 compared with Flink's Java SQL: the same events, the same SQL, parallelism 2, into blackhole.

    python -m bench.sql.nexmark [--only q4,q7] [--seconds 30] [--rounds 1] [--set key=value] [--engine local]
    python -m bench.sql.nexmark --checkpoints --only q4,q20 [--seconds 30] [--rounds 3]

Every query has one process per system. Both warm up: they run the query on few events, then on more until it takes at
least three seconds. Then both run it on the same number of events, one after the other; the number is chosen such that
the slower system takes `--seconds`. Of several rounds the best counts. Before the queries, the generated events of both
systems are compared. Flink rejects q6, an OVER by a column that is no time attribute, so it has no ratio. `--set`
applies to both systems. A run of all queries stores its results in bench/results/.

`--checkpoints` omits Flink and measures the cost of a checkpoint every second in Millstream. A process with and one
without checkpoints alternate; the best round of each counts.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.results import store
from bench.venvs import CACHE, existing_venv

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

TEXTS = ROOT / "tests" / "sql" / "nexmark"
NAMES = [f"q{i}" for i in range(23)]
# Flink rejects it, and Millstream processes it row by row.
NOT_IN_FLINK = frozenset(["q6"])
FEW, VERY_FEW = 100_000, 5000
# Subtasks have the same number of events, a multiple of fifty.
_ROUND = 1000
OPENS = ["java.lang", "java.util", "java.util.concurrent", "java.net", "java.io", "java.nio", "java.time", "sun.nio.ch"]
_ALL_COLUMNS = """
SELECT CONCAT_WS('|', CAST(event_type AS STRING), CAST(`dateTime` AS STRING),
    CAST(person.id AS STRING), person.name, person.emailAddress, person.creditCard, person.city, person.state,
    CAST(person.`dateTime` AS STRING), person.extra,
    CAST(auction.id AS STRING), auction.itemName, auction.description, CAST(auction.initialBid AS STRING),
    CAST(auction.reserve AS STRING), CAST(auction.`dateTime` AS STRING), CAST(auction.expires AS STRING),
    CAST(auction.seller AS STRING), CAST(auction.category AS STRING), auction.extra,
    CAST(bid.auction AS STRING), CAST(bid.bidder AS STRING), CAST(bid.price AS STRING), bid.channel, bid.url,
    CAST(bid.`dateTime` AS STRING), bid.extra) FROM events
"""


def ddl() -> str:
    """Return the declarations of Nexmark's tables, over `{events}` events."""
    text = (TEXTS / "ddl.sql").read_text()
    text = text.replace("'connector' = 'values'", "'connector' = 'nexmark', 'events' = '{events}'", 1)
    return text.replace("'connector' = 'values'", "'connector' = 'nexmark-side'", 1)


class Side:
    """A process that runs one query on request."""

    def __init__(self, command: Sequence[str], environment: dict[str, str], log: Path, folder: Path = ROOT) -> None:
        self._log = log
        self._command = command
        self._errors = log.open("w")
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=environment,
            cwd=folder,
        )
        self._answer()

    def run(self, events: int) -> float:
        """Return the seconds that the query takes on a number of events."""
        self._send(f"run {events}")
        return float(self._answer()[0].split()[0])

    def rows(self, events: int) -> list[str]:
        """Return the query's rows, sorted."""
        self._send(f"rows {events}")
        return sorted(self._answer()[1])

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def _answer(self) -> tuple[str, list[str]]:
        assert self._process.stdout is not None
        lines: list[str] = []
        for line in self._process.stdout:
            if line.startswith("@"):
                return line[1:], [s[1:].rstrip("\n") for s in lines if s.startswith("=")]
            lines.append(line)
        reported = "".join(lines[-20:]) + self._log.read_text()[-3000:]
        raise RuntimeError(f"{' '.join(self._command[-4:])} has ended:\n{reported}")

    def close(self) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
            self._process.wait(30)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        self._errors.close()


class Bench:
    """Starts the processes of both systems.

    Args:
        folder: for files.
        settings: for both.
        engine: of millstream.
        tree: the sources of millstream.
    """

    def __init__(self, folder: Path, settings: Sequence[str], engine: str, tree: Path = ROOT) -> None:
        self._folder = folder
        self._tree = tree
        self._settings = list(settings)
        self._engine = engine
        self._ddl = folder / "ddl.sql"
        self._ddl.write_text(ddl())

    def _files(self, name: str, query: str) -> list[str]:
        path = self._folder / f"{name}.sql"
        path.write_text(query)
        return [str(self._ddl), str(path)]

    def ours(self, name: str, query: str, *more: str) -> Side:
        paths = [str(self._tree / "src"), str(self._tree), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": ":".join(paths)}
        command = [sys.executable, "-m", "bench.sql.nexmark_here", *self._files(name, query), *self._settings, *more]
        command.append(f"millstream.engine={self._engine}")
        return Side(command, environment, self._folder / f"{name}-here.log", self._tree)

    def flink(self, name: str, query: str) -> Side | None:
        python = existing_venv("pyflink")
        if python is None or shutil.which("javac") is None:
            return None
        jars = ":".join(map(str, sorted((python.parents[1] / "lib").glob("python*/site-packages/pyflink/lib/*.jar"))))
        opens = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENS]
        command = ["java", "-Xmx10g", *opens, "-cp", f"{_built(jars)}:{jars}", "Nexmark"]
        settings = [*self._files(name, query), *self._settings]
        return Side([*command, *settings], dict(os.environ), self._folder / f"{name}-flink.log")


def _built(jars: str) -> Path:
    """Return the directory of the compiled Java classes; compile them if they are older than their source."""
    built, source = CACHE / "flink-nexmark", HERE / "Nexmark.java"
    class_file = built / "Nexmark.class"
    if not class_file.exists() or class_file.stat().st_mtime < source.stat().st_mtime:
        services = built / "META-INF" / "services"
        services.mkdir(parents=True, exist_ok=True)
        (built / "log4j2.properties").write_text("rootLogger.level = OFF\n")
        factories = "Nexmark$EventsFactory\nNexmark$SideFactory\n"
        (services / "org.apache.flink.table.factories.Factory").write_text(factories)
        subprocess.run(["javac", "-nowarn", "-cp", jars, "-d", str(built), str(source)], check=True)
    return built


def check_events(bench: Bench) -> None:
    """Compare the generated events of both systems."""
    events = 20_000
    ours, theirs = bench.ours("events", _ALL_COLUMNS), bench.flink("events", _ALL_COLUMNS)
    assert theirs is not None
    try:
        mine, others = ours.rows(events), theirs.rows(events)
    finally:
        ours.close()
        theirs.close()
    if mine != others or len(mine) != events:
        different = next(((a, b) for a, b in zip(mine, others, strict=False) if a != b), ("", ""))
        raise SystemExit(f"The events differ: {len(mine)} and {len(others)}\n{different[0]}\n{different[1]}")
    print(f"{events} events are the same on both sides", flush=True)


def query_text(name: str) -> str:
    """Return the SQL of a query."""
    return (TEXTS / f"{name}.sql").read_text()


def in_turns(sides: Sequence[Side], name: str, seconds: float, rounds: int) -> tuple[int, list[float]]:
    """Return the number of events per run, and the shortest time of each side in seconds."""
    few_events = VERY_FEW if name in NOT_IN_FLINK else FEW
    events = _rounded(seconds * min(_warm(side, min(3.0, seconds), few_events) for side in sides))
    times = [[side.run(events) for side in sides] for _ in range(rounds)]
    return events, [min(times_of_side) for times_of_side in zip(*times, strict=True)]


def measured(bench: Bench, name: str, seconds: float, rounds: int, with_flink: bool) -> tuple[int, float, float | None]:
    """Return the number of events per run, and the events per second of both systems."""
    query = query_text(name)
    theirs = bench.flink(name, query) if with_flink and name not in NOT_IN_FLINK else None
    sides = [bench.ours(name, query), *([theirs] if theirs is not None else [])]
    try:
        events, times = in_turns(sides, name, seconds, rounds)
    finally:
        for side in sides:
            side.close()
    rates = [events / best for best in times]
    return events, rates[0], rates[1] if len(rates) > 1 else None


def compare_checkpoints(bench: Bench, name: str, seconds: float, rounds: int) -> tuple[int, float, float]:
    """Return the number of events per run, and the events per second without and with a checkpoint every second."""
    query = query_text(name)
    sides = [bench.ours(name, query), bench.ours(f"{name}-checkpointed", query, "execution.checkpointing.interval=1s")]
    try:
        events, times = in_turns(sides, name, seconds, rounds)
    finally:
        for side in sides:
            side.close()
    without, with_them = (events / best for best in times)
    return events, without, with_them


def show_checkpoints(bench: Bench, names: Sequence[str], seconds: float, rounds: int) -> None:
    """Print the cost of a checkpoint every second."""
    print("| query | million events | without, million a second | a checkpoint every second | cost |")
    print("|---|---:|---:|---:|---:|", flush=True)
    for name in names:
        events, without, with_them = compare_checkpoints(bench, name, seconds, rounds)
        cost = f"{without / with_them - 1:.1%}"
        print(f"| {name} | {events / 1e6:.2f} | {without / 1e6:.3f} | {with_them / 1e6:.3f} | {cost} |", flush=True)


def _warm(side: Side, min_seconds: float, few: int) -> float:
    """Run a query on an increasing number of events until that takes a while; return its events per second."""
    # The first run is cold and is ignored. The second is mostly the start of the job, which is subtracted.
    side.run(few)
    count, start = few, side.run(few)
    seconds = start
    while seconds - start < min_seconds:
        count = _rounded(count * min(1.5 * min_seconds / max(seconds - start, 0.1), 4.0))
        seconds = side.run(count)
    return (count - few) / (seconds - start)


def _rounded(events: float) -> int:
    return max(int(events) // _ROUND, 1) * _ROUND


def _table(lines: Sequence[str], ratios: Sequence[float]) -> str:
    head = "| query | million events | millstream, million a second | Flink | ratio |\n|---|---:|---:|---:|---:|"
    text = "\n".join([head, *lines])
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        text += f"\n\ngeometric mean of {len(ratios)} ratios {mean:.2f}, smallest {min(ratios):.2f}"
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--engine", default="spark")
    parser.add_argument("--set", action="append", default=[], dest="settings")
    parser.add_argument("--without-flink", action="store_true")
    parser.add_argument("--checkpoints", action="store_true")
    options = parser.parse_args()
    with_flink = not options.without_flink and existing_venv("pyflink") is not None and bool(shutil.which("javac"))
    chosen = options.only.split(",") if options.only else NAMES
    lines: list[str] = []
    ratios: list[float] = []
    rates: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), options.settings, options.engine)
        if options.checkpoints:
            show_checkpoints(bench, chosen, options.seconds, options.rounds)
            return
        if with_flink:
            check_events(bench)
        for name in chosen:
            started = time.perf_counter()
            try:
                events, ours, theirs = measured(bench, name, options.seconds, options.rounds, with_flink)
            except RuntimeError as e:
                print(f"{name}: {e}", flush=True)
                lines.append(f"| {name} | failed | | | |")
                continue
            ratio = f"{theirs / 1e6:.3f} | {ours / theirs:.2f}" if theirs else "- | -"
            lines.append(f"| {name} | {events / 1e6:.2f} | {ours / 1e6:.3f} | {ratio} |")
            ratios += [ours / theirs] if theirs else []
            rates[name] = {"millstream": ours, **({"flink": theirs} if theirs else {})}
            print(f"{lines[-1]} {time.perf_counter() - started:.0f} s", flush=True)
    print(f"\n{_table(lines, ratios)}", flush=True)
    if with_flink and len(rates) == len(NAMES) and not options.settings:
        store("nexmark", rates)


if __name__ == "__main__":
    main()
