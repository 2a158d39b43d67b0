"""Measures candidate formats of SQL state in a savepoint: size, write, read. One core, CPU time, best of three.

    python -m bench.sql_savepoints [ROWS]     default: one million

Reading yields Arrow batches, from which an operator builds its index; that takes the same time for all formats.
"""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from millstream.operators.base import OperatorSetup, RuntimeServices
from millstream.operators.functions.context import RuntimeContext
from millstream.operators.functions.metrics import MetricGroup
from millstream.runtime_services import requests
from millstream.sql.columns.batch import Batch
from millstream.sql.expressions import AggregateCall
from millstream.sql.operators.aggregate.group_aggregate import GroupAggregateOperator
from millstream.sql.operators.join.regular_join import JoinOperator, JoinSide
from millstream.sql.operators.query_context import Session
from millstream.sql.plan.nodes import JoinKind
from millstream.sql.types import DataTypes
from millstream.state.changelog import Section
from millstream.state.keyed import KeyedState
from millstream.state.savepoint_part import decode_part, encode_part
from millstream.testing.local_job import MemoryStorage

_AT_ONCE = 1 << 16
_GROUPS = 128
_random = np.random.default_rng(1)


def _batches(rows: int, text: bool) -> Iterator[Batch]:
    numbers = pa.array(_random.permutation(rows) * 7919)
    keys = pa.array([f"customer-{n}" for n in numbers.to_pylist()]) if text else numbers
    values = pa.array(_random.integers(0, 1000, rows))
    for start in range(0, rows, _AT_ONCE):
        yield Batch([keys.slice(start, _AT_ONCE), values.slice(start, _AT_ONCE)])


def _sections_of(operator: Any, feed: Callable[[Any], None]) -> list[Section]:
    """Return an operator's state after its input, in the format of a savepoint."""
    storage = MemoryStorage()
    state = KeyedState("bench", 0, storage, lambda: 0)
    context = RuntimeContext("bench", 0, 1, _GROUPS, 0, {}, MetricGroup(("bench",)), state)
    services = RuntimeServices(lambda: 0, requests, lambda: 0.0)
    operator.prepare(OperatorSetup(context, state, lambda batches, t=None: None, False, services))
    state.prepare(None)
    state.begin()
    operator.open()
    feed(operator)
    stored = state.export("saved", _GROUPS, "0")
    assert stored is not None
    return list(decode_part(stored.file, storage.read(stored.file), stored.checksum))


def _aggregate(rows: int, text: bool) -> list[Section]:
    bigint = DataTypes.BIGINT()
    calls = [AggregateCall("COUNT", (), bigint), AggregateCall("SUM", (1,), bigint)]
    operator = GroupAggregateOperator([0], calls, [pa.string() if text else pa.int64(), pa.int64()])

    def feed(to: Any) -> None:
        for batch in _batches(rows, text):
            for _ in to.process(batch):
                pass

    return _sections_of(operator, feed)


def _join(rows: int, text: bool) -> list[Section]:
    side = JoinSide((pa.string() if text else pa.int64(), pa.int64()), (0,))
    operator = JoinOperator(JoinKind.INNER, side, side, (False,), None, Session())

    def feed(to: Any) -> None:
        for batch in _batches(rows, text):
            for _ in to.process_left(batch):
                pass

    return _sections_of(operator, feed)


# --- formats: bytes of sections, and batches of bytes


def _tables(sections: list[Section]) -> list[pa.Table]:
    """Return each state table as one batch, in order of key groups."""
    by_name: dict[str, list[pa.RecordBatch]] = {}
    for section in sections:
        for content in section.rows.values():
            by_name.setdefault(section.table, []).extend(change.rows for change in content)
    return [pa.Table.from_batches(batches) for batches in by_name.values()]


def _ipc(codec: str | None) -> tuple[Callable[[list[Section]], list[bytes]], Callable[[list[bytes]], None]]:
    def write(sections: list[Section]) -> list[bytes]:
        parts = []
        for table in _tables(sections):
            out = pa.BufferOutputStream()
            with pa.ipc.new_stream(out, table.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
                writer.write_table(table)
            parts.append(out.getvalue().to_pybytes())
        return parts

    def read(data: list[bytes]) -> None:
        for one in data:
            pa.ipc.open_stream(one).read_all()

    return write, read


def _parquet(codec: str) -> tuple[Callable[[list[Section]], list[bytes]], Callable[[list[bytes]], None]]:
    """State columns as columns of the file, a row group per key group."""

    def write(sections: list[Section]) -> list[bytes]:
        parts = []
        for table in _tables(sections):
            out = io.BytesIO()
            with pq.ParquetWriter(out, table.schema, compression=codec) as writer:
                for batch in table.to_batches():
                    writer.write_batch(batch)
            parts.append(out.getvalue())
        return parts

    def read(data: list[bytes]) -> None:
        for one in data:
            pq.ParquetFile(pa.BufferReader(one)).read(use_threads=False)

    return write, read


def _current(sections: list[Section]) -> list[bytes]:
    return [b"".join(encode_part(sections, _GROUPS))]


def _read_current(data: list[bytes]) -> None:
    for one in data:
        for _ in decode_part("part", one, None):
            pass


FORMS = {
    "now: Arrow in a Parquet file, zstd": (_current, _read_current),
    "Arrow": _ipc(None),
    "Arrow, lz4": _ipc("lz4"),
    "Arrow, zstd": _ipc("zstd"),
    "Parquet of columns, snappy": _parquet("snappy"),
    "Parquet of columns, zstd": _parquet("zstd"),
}
STATES = {"aggregate": _aggregate, "join": _join}


def _best(run: Callable[[], Any]) -> tuple[float, Any]:
    times, result = [], None
    for _ in range(3):
        start = time.process_time()
        result = run()
        times.append(time.process_time() - start)
    return min(times), result


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    for name, make_state in STATES.items():
        for text in (False, True):
            sections = make_state(rows, text)
            for form, (write, read) in FORMS.items():
                writing, data = _best(lambda: write(sections))  # noqa: B023
                reading, _ = _best(lambda: read(data))  # noqa: B023
                size = sum(map(len, data)) / 1e6
                keys = "texts" if text else "ints"
                print(f"{name:9} {keys:5} {form:36} {size:7.1f} MB  write {writing:6.3f} s  read {reading:6.3f} s")


if __name__ == "__main__":
    main()
