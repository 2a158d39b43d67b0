"""Test programs of Flink's own planner tests: tables, rows, statements, and the expected rows.

    python -m tests.sql.planner_tests                   run them on Millstream and print the differences
    python -m tests.sql.planner_tests record PROGRAMS   record the output of DumpPlannerTests.java

tests/sql/flink/DumpPlannerTests.java reads them from Flink's published test jar (flink-table-planner_2.12, classifier
`tests`). Programs with Java functions or Java steps are not recorded. Excluded programs and the reasons are in
planner_exclusions.tsv: id TAB reason.
"""

from __future__ import annotations

import datetime as dt
import decimal
import gzip
import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from millstream.common.types import Row, RowKind
from millstream.sql.columns.value_text import java_double
from millstream.sql.schema import Changes
from millstream.table import ChangelogMode, EnvironmentSettings, StreamTableEnvironment
from millstream.testing import LocalEnvironment, ManualClock, ValuesTable
from tests.sql.function_tests import decoded

HERE = Path(__file__).resolve().parent

RECORDED, EXCLUDED = HERE / "planner_tests.jsonl.gz", HERE / "planner_exclusions.tsv"
_KINDS = {"+I": RowKind.INSERT, "-U": RowKind.UPDATE_BEFORE, "+U": RowKind.UPDATE_AFTER, "-D": RowKind.DELETE}
_SHORT = {kind: short for short, kind in _KINDS.items()}
_MODES = {
    "I": Changes.INSERT,
    "UB": Changes.UPDATE_BEFORE,
    "UA": Changes.UPDATE_AFTER,
    "D": Changes.DELETE,
}


# The milliseconds between two epochs: longer than all windows and TTLs of processing time.
_START, _EPOCH = 1_700_000_000_000, 20_000
# Flink's tests end these programs when the first of two windows has fired.
_SHORT_LAST = (
    "WindowTableFunctionTestPrograms/window-table-function-hop-tvf-agg-proc-time",
    "WindowTableFunctionTestPrograms/window-table-function-cumulate-tvf-agg-proc-time",
)
# Stateless programs whose expected rows show that the second run starts without a watermark: they run as two jobs.
_TWO_JOBS = ("WatermarkAssignerTestPrograms/watermark-assigner-pushdown-computed",)
# Programs whose compiled plan in Flink's test has a WatermarkAssigner; they end within its interval.
_ASSIGNED = ("ChangelogNormalizeTestPrograms/changelog-normalize-upsert-filter-watermark",)
# Flink's tests run these programs in batch mode.
_BATCH = (
    "SortTestPrograms/sort-asc",
    "SortTestPrograms/sort-desc",
    "RankTestPrograms/rank-2-test",
    "WindowTableFunctionTestPrograms/window-table-function-tumble-tvf-union-all",
)

# Flink's tests do not run this program, and Flink rejects its query: a scalar subquery has one column.
_REFUSED = ("CorrelateTestPrograms/correlate-cross-join-unnest-2",)


def programs() -> list[dict[str, Any]]:
    """Return the recorded programs."""
    return [json.loads(line) for line in gzip.decompress(RECORDED.read_bytes()).decode().splitlines()]


def exclusions() -> dict[str, str]:
    """Return the ids of programs with intended differences, with the reasons."""
    return dict(line.split("\t", 1) for line in EXCLUDED.read_text().splitlines() if line)


def record(dumped: Path) -> None:
    """Record the programs that consist of tables, settings and statements."""
    lines, seen = [], Counter[str]()
    for program in map(json.loads, dumped.read_text().splitlines()):
        if {"function", "other"} & _steps(program):
            continue
        seen[program["id"]] += 1
        number = seen[program["id"]]
        lines.append(json.dumps({**program, "id": f"{program['id']}-{number}" if number > 1 else program["id"]}))
    RECORDED.write_bytes(gzip.compress(("\n".join(lines) + "\n").encode(), mtime=0))
    print(f"{len(lines)} programs")


def _steps(program: dict[str, Any]) -> set[str]:
    return {key for step in [*program["setup"], *program["run"]] for key in step}


# --- rows


def _row(encoded: dict[str, Any]) -> Row:
    ((kind, inner),) = encoded.items()
    if kind in _KINDS:
        changed: Row = decoded(inner)
        changed.set_row_kind(_KINDS[kind])
        return changed
    row: Row = decoded(encoded)
    return row


def _text(value: Any) -> str:
    """Return a value as Java writes it."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case float():
            return java_double(value)
        case decimal.Decimal():
            return f"{value:f}"
        case dt.datetime():
            return _time(value) if value.tzinfo is None else f"{value:%Y-%m-%d}T{_seconds(value, always=True)}Z"
        case dt.time():
            return _seconds(value)
        case bytes():
            return f"[{', '.join(str(b - 256 if b > 127 else b) for b in value)}]"
        case Row():
            return f"+I[{', '.join(map(_text, value))}]"
        case list():
            return f"[{', '.join(map(_text, value))}]"
        case dict():
            return "{" + ", ".join(f"{_text(k)}={_text(v)}" for k, v in value.items()) + "}"
    return str(value)


def _time(value: dt.datetime) -> str:
    return f"{value:%Y-%m-%d}T{_seconds(value)}"


def _seconds(value: dt.datetime | dt.time, always: bool = False) -> str:
    micros = f"{value.microsecond:06}"
    fraction = "" if not value.microsecond else "." + (micros[:3] if micros.endswith("000") else micros)
    seconds = f":{value.second:02}{fraction}" if value.second or fraction or always else ""
    return f"{value.hour:02}:{value.minute:02}{seconds}"


def _change_text(row: Row) -> str:
    return f"{_SHORT[row.get_row_kind()]}[{', '.join(map(_text, row))}]"


def _final_rows(changes: list[str]) -> Counter[str]:
    """Return the final rows of changes."""
    counts: Counter[str] = Counter()
    for change in changes:
        counts[change[2:]] += 1 if change[0] == "+" else -1
    return +counts


# --- one program


class _Run:
    """Runs a program. Flink runs it twice, the second time from a savepoint; here the rows arrive in two epochs.

    An epoch without rows follows each of them, and the clock advances between epochs.
    """

    def __init__(self, program: dict[str, Any]) -> None:
        self._batch = program["id"].startswith(_BATCH)
        self._batch_rows = _batch_rows(program)
        self._is_assigned = program["id"] in _ASSIGNED
        last, epoch = 5_000 if program["id"] in _SHORT_LAST else _EPOCH, 0 if self._is_assigned else _EPOCH
        mode = EnvironmentSettings.in_batch_mode() if self._batch else EnvironmentSettings.in_streaming_mode()
        self._times = [_START + equal for equal in (0, epoch, 2 * epoch, 2 * epoch + last)]
        self._clock = ManualClock(_START)
        self._sources: list[tuple[ValuesTable, list[Row], list[Row]]] = []
        self.t_env = StreamTableEnvironment.create(LocalEnvironment(clock=self._clock), mode)
        self.t_env.get_config().set("table.local-time-zone", "UTC").set("parallelism.default", "1")
        # Flink requires it by default; most of its tests override it.
        required = program["id"].startswith("SinkTestPrograms/")
        self.t_env.get_config().set("table.exec.sink.require-on-conflict", str(required))
        self.sinks: list[tuple[dict[str, Any], ValuesTable]] = []

    def step(self, step: dict[str, Any]) -> None:
        """Execute one step."""
        if "option" in step:
            self.t_env.get_config().set(step["option"], step["value"])
        elif "source" in step:
            self._create(step["source"], self._values(step))
        elif "sink" in step:
            mode = _sink_mode(step["sink"]) if step["changelog"] else None
            table = ValuesTable((), mode, metadata=_metadata(step["sink"], "writable-metadata"))
            self.sinks.append((step, table))
            self._create(step["sink"], table)
        elif "sql" in step:
            result = self.t_env.execute_sql(step["sql"])
            if result.get_job_client() is not None:
                result.wait()
        elif "statements" in step:
            statements = self.t_env.create_statement_set()
            for statement in step["statements"]:
                statements.add_insert_sql(statement)
            statements.execute().wait()

    def _values(self, step: dict[str, Any]) -> ValuesTable:
        metadata = _metadata(step["source"], "readable-metadata")
        columns = re.split(r",\s*(?![^<>()]*[>)])", ", ".join(step["source"]["schema"]))
        width = sum(map(_is_physical, columns)) + len(metadata)
        rows = [_truncated(_row(r), width) for r in step["rows"]]
        before, after = rows[: step["before"]], rows[step["before"] :]
        values = ValuesTable(
            rows,
            _mode(step["source"], "changelog-mode"),
            self._batch_rows,
            epochs=() if self._batch else (len(before), 0, len(after), 0),
            on_epoch=self._start_epoch,
            metadata=metadata,
            watermarks_on_event=not self._is_assigned and _has_watermarks(step["source"]),
        )
        self._sources.append((values, before, after))
        return values

    def _start_epoch(self, epoch: int) -> None:
        """Set the rows of lookup tables, and the clock."""
        self._clock.set(self._times[epoch])
        for values, before, after in self._sources:
            values.rows = before if epoch < 2 else after

    def _create(self, table: dict[str, Any], values: ValuesTable) -> None:
        parts = f" PARTITIONED BY ({', '.join(table['partitions'])})" if table["partitions"] else ""
        self.t_env.execute_sql(
            f"CREATE TABLE {table['name']} ({', '.join(table['schema'])}){parts} WITH {values.options}"
        )

    def difference(self, previous: _Run | None = None) -> str | None:
        """Return the difference between the output (with that of an earlier job) and the expected output, if any."""
        before = [table.results() for _, table in previous.sinks] if previous else [[] for _ in self.sinks]
        for (step, table), rows in zip(self.sinks, before, strict=True):
            actual = [_change_text(r) for r in [*rows, *table.results()]]
            if step["expected"] is not None and step["changelog"]:
                expected, ours = Counter(step["expected"]), Counter(actual)
            elif step["materialized"] is not None:
                expected, ours = Counter(r[2:] for r in step["materialized"]), _final_rows(actual)
            elif step["expected"] is not None:
                expected, ours = _final_rows(step["expected"]), _final_rows(actual)
            else:
                continue
            if expected != ours:
                return (
                    f"rows: {sorted((ours - expected).elements())} in place of {sorted((expected - ours).elements())}"
                )
        return None


def _is_physical(component: str) -> bool:
    return not re.match(r"(WATERMARK|PRIMARY KEY|CONSTRAINT|INDEX)\b|\S+ AS |.* METADATA", component, re.IGNORECASE)


def _has_watermarks(table: dict[str, Any]) -> bool:
    """Return whether the source itself emits a watermark after every row, as in Flink's tests."""
    has_watermark = any(component.startswith("WATERMARK FOR") for component in table["schema"])
    pushed_down = table["options"].get("enable-watermark-push-down", str(has_watermark).lower()) == "true"
    return pushed_down and table["options"].get("scan.watermark.emit.strategy", "on-event") == "on-event"  # type: ignore[no-any-return]


def _metadata(table: dict[str, Any], option: str) -> list[str]:
    return [key for key, _ in re.findall(r"(\w+):(\w+(?:\(\d+\))?)", table["options"].get(option, ""))]


def _truncated(row: Row, width: int) -> Row:
    """Return a row without its extra trailing values, as the sources of Flink's tests read it."""
    result = Row(*list(row)[:width])
    result.set_row_kind(row.get_row_kind())
    return result


def _mode(table: dict[str, Any], option: str) -> ChangelogMode | None:
    modes = table["options"].get(option)
    if modes is None:
        return None
    return ChangelogMode(frozenset(_MODES[word.strip()] for word in modes.split(",")))


def _sink_mode(table: dict[str, Any]) -> ChangelogMode | None:
    """Return the changelog mode of the sink of Flink's tests: with a primary key it accepts upserts."""
    if table["options"].get("sink-insert-only") == "true":
        return ChangelogMode.insert_only()
    has_key = any("PRIMARY KEY" in component.upper() for component in table["schema"])
    return _mode(table, "sink-changelog-mode-enforced") or (ChangelogMode.upsert() if has_key else None)


def difference(program: dict[str, Any]) -> str | None:
    """Return the difference between the result of a program and the result that Flink's test expects, if any."""
    try:
        previous = None
        for part in _in_two(program) if program["id"] in _TWO_JOBS else (program,):
            run = _Run(part)
            message = _failure(part, run)
            if message is not None or program["id"] in _REFUSED:
                return message
            message, previous = run.difference(previous), run
        return message
    except Exception as e:
        return f"crash: {type(e).__name__}: {e}"


def _batch_rows(program: dict[str, Any]) -> int:
    """Return the number of rows per batch: those of a mini-batch."""
    options = {s["option"]: s["value"] for s in [*program["setup"], *program["run"]] if "option" in s}
    return int(options.get("table.exec.mini-batch.size", 1))


def _in_two(program: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the program with the rows before Flink's savepoint, and with those after it."""

    def part(step: dict[str, Any], is_first: bool) -> dict[str, Any]:
        if "source" not in step:
            return step
        rows = step["rows"][: step["before"]] if is_first else step["rows"][step["before"] :]
        return {**step, "rows": rows, "before": len(rows)}

    first, second = ({**program, "setup": [part(s, is_first) for s in program["setup"]]} for is_first in (True, False))
    return first, second


def _failure(program: dict[str, Any], run: _Run) -> str | None:
    """Run the steps of a program; return the message of a failed step."""
    run_steps = program["run"]
    if program["id"] in _REFUSED:
        run_steps = [{"failing": step["sql"], "error": "$SCALAR_QUERY"} for step in run_steps]
    for step in [*program["setup"], *run_steps]:
        if "failing" in step:
            try:
                run.step({"sql": step["failing"]})
            except Exception:
                continue
            return f"not refused: {step['error']}"
        try:
            run.step(step)
        except Exception as e:
            return f"failed: {type(e).__name__}: {(str(e).splitlines() or [''])[0]}"
    return None


if __name__ == "__main__":
    if sys.argv[1:2] == ["record"]:
        record(Path(sys.argv[2]))
    else:
        selected = sys.argv[1:]
        selected_programs = [p for p in programs() if not selected or any(part in p["id"] for part in selected)]
        equal = 0
        for program in selected_programs:
            message = difference(program)
            equal += message is None
            if message is not None:
                print(f"{program['id']}\t{message[:600]}", flush=True)
        print(f"{equal} of {len(selected_programs)} as expected")
