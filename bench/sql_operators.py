"""Measures single SQL operators, and candidate lookups from key to slot: one core, CPU time, batches in memory.

python -m bench.sql_operators             all of them
python -m bench.sql_operators join ...    those with these prefixes
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.operators.base import Operator, OperatorSetup, RuntimeServices
from millstream.operators.functions.context import RuntimeContext
from millstream.operators.functions.metrics import MetricGroup
from millstream.operators.runtime.partitioners import PartitionerContext
from millstream.runtime_services import requests
from millstream.sql.columns.batch import Batch
from millstream.sql.columns.index import DictIndex, KeyIndex
from millstream.sql.expressions import AggregateCall, Call, Column, Constant
from millstream.sql.operators.aggregate.group_aggregate import GroupAggregateOperator
from millstream.sql.operators.aggregate.local_aggregate import LocalWindowAggregateOperator
from millstream.sql.operators.base import ColumnKeyPartitioner
from millstream.sql.operators.io.calc import CalcOperator
from millstream.sql.operators.join.regular_join import JoinOperator, JoinSide
from millstream.sql.operators.query_context import Session
from millstream.sql.operators.window.window_aggregate import (
    GlobalWindowAggregateOperator,
    WindowAggregateOperator,
    WindowTimes,
)
from millstream.sql.operators.window.windowing import Windowing
from millstream.sql.plan.nodes import JoinKind, WindowKind
from millstream.sql.types import DataTypes
from millstream.state.array_storage import IN_MEMORY
from millstream.state.keyed import KeyedState
from millstream.testing.local_job import MemoryStorage

ROWS, BATCHES = 1 << 15, 40
_BIGINT, _STRING, _TIME = DataTypes.BIGINT(), DataTypes.STRING(), pa.timestamp("ms")
_CALLS = [AggregateCall("COUNT", (), _BIGINT), AggregateCall("SUM", (1,), _BIGINT)]

_random = np.random.default_rng(1)


def _prepared(operator: Any, emit: Any = lambda batches, t=None: None) -> Any:
    storage = MemoryStorage()
    state = KeyedState("bench", 0, storage, lambda: 0)
    context = RuntimeContext("bench", 0, 1, 128, 0, {}, MetricGroup(("bench",)), state)
    services = RuntimeServices(lambda: 0, requests, lambda: 0.0)
    operator.prepare(OperatorSetup(context, state, emit, False, services))
    state.prepare(None)
    state.begin()
    operator.open()
    return operator


def _ints(keys: int) -> list[Batch]:
    draw = _random.integers
    return [Batch([pa.array(draw(0, keys, ROWS)), pa.array(draw(0, 1000, ROWS))]) for _ in range(BATCHES)]


def _texts(keys: int) -> list[Batch]:
    names = pa.array([f"key-{i}" for i in range(keys)])
    return [Batch([names.take(b.columns[0]), b.columns[1]]) for b in _ints(keys)]


def _consumed(batches: Iterable[Batch]) -> None:
    for _ in batches:
        pass


def _aggregate(batches: list[Batch], **options: Any) -> Callable[[], None]:
    kinds = [c.type for c in batches[0].columns]
    operator: Operator = _prepared(GroupAggregateOperator([0], _CALLS, kinds, **options))

    def run() -> None:
        for batch in batches:
            _consumed(operator.process(batch))  # type: ignore[attr-defined]

    return run


def _projection() -> Callable[[], None]:
    batches = [Batch([*b.columns, b.columns[1]]) for b in _ints(1000)]
    a, b = Column(_BIGINT, 0), Column(_BIGINT, 1)
    expressions = [a, Call(_BIGINT, "+", (a, b)), Call(_BIGINT, "*", (b, Constant(_BIGINT, 2)))]
    keep = Call(DataTypes.BOOLEAN(), ">", (a, Constant(_BIGINT, 100)))
    operator = _prepared(CalcOperator(expressions, keep, Session()))

    def run() -> None:
        for batch in batches:
            _consumed(operator.process(batch))

    return run


def _window(kind: WindowKind, size: int, step: int) -> Callable[[], None]:
    times = [pa.array(np.arange(i * ROWS, (i + 1) * ROWS) // 10).view(_TIME) for i in range(BATCHES)]
    batches = [Batch([*b.columns, t]) for b, t in zip(_ints(10_000), times, strict=True)]

    def run() -> None:
        kinds, properties = [pa.int64(), pa.int64(), _TIME], [("start", _TIME), ("end", _TIME)]
        windows, times = Windowing(kind, size, step), WindowTimes(2, True, "UTC")
        operator = _prepared(WindowAggregateOperator(windows, times, [0], _CALLS, kinds, properties))
        for i, batch in enumerate(batches):
            _consumed(operator.process(batch))
            operator.on_watermark((i + 1) * ROWS // 10 - 1)

    return run


def _two_phases(keys: int, phases: int) -> Callable[[], None]:
    """A tumbling window with its exchange: rows are split for two subtasks, and half of them are decoded."""
    times = [pa.array(np.arange(i * ROWS, (i + 1) * ROWS) // 10).view(_TIME) for i in range(BATCHES)]
    batches = [Batch([*b.columns, t]) for b, t in zip(_ints(keys), times, strict=True)]
    kinds, properties = [pa.int64(), pa.int64(), _TIME], [("start", _TIME), ("end", _TIME)]

    def run() -> None:
        windows = Windowing(WindowKind.TUMBLE, 10_000, 10_000)
        arguments = (windows, WindowTimes(2, True, "UTC"), [0], _CALLS, kinds)
        parts: list[list[Batch]] = [[], []]
        send = ColumnKeyPartitioner((0,)).sender([p.append for p in parts], PartitionerContext(0, 2, 128))
        held: list[Batch] = []
        local = _prepared(LocalWindowAggregateOperator(*arguments, False), held.extend) if phases == 2 else None
        operator = _prepared(
            (GlobalWindowAggregateOperator if local else WindowAggregateOperator)(*arguments, properties)
        )
        for i, batch in enumerate(batches):
            watermark = (i + 1) * ROWS // 10 - 1
            if local is None:
                send(batch)
            else:
                held += local.process(batch)
                local.on_watermark(watermark)
                for one in held:
                    send(one)
                held.clear()
            for part in parts:
                for one in part:
                    _consumed(operator.process(Batch.from_ipc(one.to_ipc(), len(one.columns), False)))
                part.clear()
            operator.on_watermark(watermark)

    return run


def _join() -> Callable[[], None]:
    def side() -> list[Batch]:
        keys = [_random.permutation(np.arange(i * ROWS, (i + 1) * ROWS)) for i in range(BATCHES // 2)]
        return [Batch([pa.array(k), pa.array(k)]) for k in keys]

    left, right = side(), side()

    def run() -> None:
        one = JoinSide((pa.int64(), pa.int64()), (0,))
        operator = _prepared(JoinOperator(JoinKind.INNER, one, one, (False,), None, Session()))
        for a, b in zip(left, right, strict=True):
            _consumed(operator.process_left(a))
            _consumed(operator.process_right(b))

    return run


def _shuffle() -> Callable[[], None]:
    batches = _ints(10_000)
    parts: list[list[Batch]] = [[], []]
    send = ColumnKeyPartitioner((0,)).sender([p.append for p in parts], PartitionerContext(0, 2, 128))

    def run() -> None:
        for batch in batches:
            send(batch)
            for part in parts:
                for one in part:
                    Batch.from_ipc(one.to_ipc(), 2, False)
                part.clear()

    return run


# --- candidates for the lookup from key to slot


def _index(batches: list[Batch], index: Any) -> Callable[[], None]:
    def run() -> None:
        for batch in batches:
            index.find_or_add(batch.columns[:1], len(batch))

    return run


def _group_by(batches: list[Batch]) -> Callable[[], None]:
    """Arrow's group_by for each batch, then a dict from key to slot."""
    slots: dict[Any, int] = {}

    def run() -> None:
        for b in batches:
            keys = pa.table({"k": b.columns[0]}).group_by("k", use_threads=False).aggregate([]).column("k").to_pylist()
            np.fromiter((slots.setdefault(k, len(slots)) for k in keys), np.int64, len(keys))

    return run


def _sorted(batches: list[Batch]) -> Callable[[], None]:
    """A sorted array of all keys; the keys of each batch are merged into it."""
    keys_so_far = [np.zeros(0, np.int64)]

    def run() -> None:
        for b in batches:
            keys, _ = np.unique(b.columns[0].to_numpy(), return_inverse=True)
            position = np.searchsorted(keys_so_far[0], keys)
            exists = (
                keys_so_far[0][np.minimum(position, len(keys_so_far[0]) - 1)] == keys
                if len(keys_so_far[0])
                else np.zeros(len(keys), bool)
            )
            if not exists.all():
                keys_so_far[0] = np.union1d(keys_so_far[0], keys[~exists])

    return run


MEASURED: dict[str, Callable[[], Callable[[], None]]] = {
    "projection": _projection,
    "aggregate, 10k keys": lambda: _aggregate(_ints(10_000)),
    "aggregate, 1M keys": lambda: _aggregate(_ints(1_000_000)),
    "aggregate, 10k keys, mini-batch": lambda: _aggregate(_ints(10_000), mini_batch=True),
    "aggregate, 1M keys, mini-batch": lambda: _aggregate(_ints(1_000_000), mini_batch=True),
    "aggregate, 10k text keys": lambda: _aggregate(_texts(10_000)),
    "aggregate, 1M text keys": lambda: _aggregate(_texts(1_000_000)),
    "tumbling window, 10k keys": lambda: _window(WindowKind.TUMBLE, 10_000, 10_000),
    "hopping window, 10k keys, 5 slices": lambda: _window(WindowKind.HOP, 10_000, 2_000),
    "window with shuffle, 10k keys": lambda: _two_phases(10_000, 1),
    "window with shuffle, 10k keys, two phases": lambda: _two_phases(10_000, 2),
    "window with shuffle, 100 keys": lambda: _two_phases(100, 1),
    "window with shuffle, 100 keys, two phases": lambda: _two_phases(100, 2),
    "window with shuffle, 1M keys": lambda: _two_phases(1_000_000, 1),
    "window with shuffle, 1M keys, two phases": lambda: _two_phases(1_000_000, 2),
    "join, one partner": _join,
    "shuffle, 2 ways, write and read": _shuffle,
    "index, 10k ints, words in numpy": lambda: _index(_ints(10_000), KeyIndex([pa.int64()], IN_MEMORY)),
    "index, 1M ints, words in numpy": lambda: _index(_ints(1_000_000), KeyIndex([pa.int64()], IN_MEMORY)),
    "index, 10k ints, dict": lambda: _index(_ints(10_000), DictIndex()),
    "index, 1M ints, dict": lambda: _index(_ints(1_000_000), DictIndex()),
    "index, 10k texts, words in numpy": lambda: _index(_texts(10_000), KeyIndex([pa.string()], IN_MEMORY)),
    "index, 1M texts, words in numpy": lambda: _index(_texts(1_000_000), KeyIndex([pa.string()], IN_MEMORY)),
    "index, 10k texts, dict": lambda: _index(_texts(10_000), DictIndex()),
    "index, 1M texts, dict": lambda: _index(_texts(1_000_000), DictIndex()),
    "index, 10k ints, group_by and dict": lambda: _group_by(_ints(10_000)),
    "index, 1M ints, group_by and dict": lambda: _group_by(_ints(1_000_000)),
    "index, 10k ints, sorted": lambda: _sorted(_ints(10_000)),
    "index, 1M ints, sorted": lambda: _sorted(_ints(1_000_000)),
}


def main() -> None:
    """Print million rows per second, the best of three."""
    for name, make in MEASURED.items():
        if sys.argv[1:] and not name.startswith(tuple(sys.argv[1:])):
            continue
        run, best = make(), 0.0
        for _ in range(3):
            start = time.process_time()
            run()
            best = max(best, ROWS * BATCHES / (time.process_time() - start) / 1e6)
        print(f"{name:40} {best:7.2f} M rows/s", flush=True)


if __name__ == "__main__":
    main()
