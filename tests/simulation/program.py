"""The simulated job: its input and its graph.

Each region has a source with several splits, which makes a request for each record. Records with a response go to a
sink, and by key to a counter, whose running counts and sums go to a second sink:

    source -> requests -> records (sink)
        '---- by key ----> counter -> counts (sink)
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

from millstream.operators.base import Operator
from millstream.operators.functions.user_function import UserFunction
from millstream.operators.runtime.blocks import Layout
from millstream.operators.runtime.chain import ChainNode
from millstream.operators.runtime.messages import JobPlan
from millstream.operators.runtime.partitioners import KeyPartitioner
from millstream.operators.runtime.record_writer import Edge
from millstream.operators.runtime.vertex import JobSettings, Vertex
from millstream.operators.sink import SinkOperator
from millstream.operators.source import Source, SourceOperator, SourceReader, SplitAssignment, SplitEnumerator

from .external import External, SimulatedSink
from .world import World

KEYS = 4
MAX_PARALLELISM = 8

# (region, split, offset)
RecordId = tuple[int, int, int]


@dataclass(frozen=True)
class Record:
    id: RecordId
    key: int
    value: int


Input = list[list[list[Record]]]


def make_input(random: Random) -> Input:
    """Return the records of the splits of the regions."""
    return [
        [
            [Record((region, split, i), random.randrange(KEYS), random.randrange(100)) for i in range(records)]
            for split, records in enumerate(random.randint(0, 14) for _ in range(random.randint(1, 3)))
        ]
        for region in range(random.choice((1, 2)))
    ]


def count(splits: list[list[Record]]) -> dict[int, tuple[int, int]]:
    """Return the number of records and the sum of values per key: the counters' expected results."""
    counts: dict[int, tuple[int, int]] = {}
    for record in (r for split in splits for r in split):
        number, total = counts.get(record.key, (0, 0))
        counts[record.key] = number + 1, total + record.value
    return counts


class Names:
    """The operator IDs of a region."""

    def __init__(self, region: int) -> None:
        self.source = f"source{region}"
        self.records = f"records{region}"
        self.counter = f"counter{region}"
        self.counts = f"counts{region}"


# --- the graph


def make_plan(world: World, external: External, records: Input, job_id: str, parallelism: int) -> JobPlan:
    vertices = []
    for region, splits in enumerate(records):
        names = Names(region)
        by_key = KeyPartitioner(UserFunction(_key, None))
        edge = Edge(region, 2 * region, 2 * region + 1, 0, by_key, Layout(False, True))
        first = _node(SourceOperator(SplitSource(world, splits)), names.source)
        raw = _node(SinkOperator(SimulatedSink(world, external)), names.records)
        counter = _node(_Counter(), names.counter)
        counts = _node(SinkOperator(SimulatedSink(world, external)), names.counts)
        vertices += [
            Vertex(2 * region, names.source, [first, raw], parallelism, MAX_PARALLELISM, 0, 0, [], [edge]),
            Vertex(2 * region + 1, names.counter, [counter, counts], parallelism, MAX_PARALLELISM, 1, 0, [edge], []),
        ]
    return JobPlan(settings=JobSettings(job_id=job_id, job_name="job", attempt=0, batch=False), vertices=vertices)


def _key(record: Record) -> int:
    return record.key


def _node(operator: Operator, name: str) -> ChainNode:
    return ChainNode(operator, name, name, name, None, False)


class _Counter(Operator):
    keyed = True


class SplitSource(Source):
    """Some splits with records at offsets."""

    def __init__(self, world: World, splits: list[list[Record]]) -> None:
        self._world = world
        self._splits = splits

    @property
    def is_bounded(self) -> bool:
        return True

    def create_enumerator(self, parallelism: int, restored: Any = None) -> SplitEnumerator:
        return _Offsets(self._world, self._splits, parallelism, restored or [0] * len(self._splits))

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        raise AssertionError("the tasks are simulated")


class _Offsets(SplitEnumerator):
    def __init__(self, world: World, splits: list[list[Record]], parallelism: int, offsets: list[int]) -> None:
        self._world = world
        self._splits = splits
        self._parallelism = parallelism
        self._offsets = list(offsets)

    def poll(self, budget: int, now: float) -> SplitAssignment:
        split_ranges: dict[int, list[list[Record]]] = {}
        for split, records in enumerate(self._splits):
            start = self._offsets[split]
            end = self._offsets[split] = min(start + self._world.random.choice((0, 0, 1, 1, 3)), len(records))
            if end > start:
                split_ranges.setdefault(split % self._parallelism, []).append(records[start:end])
        return SplitAssignment(split_ranges, limited=not self.is_finished())

    def is_finished(self) -> bool:
        return all(o == len(s) for o, s in zip(self._offsets, self._splits, strict=True))

    def snapshot(self) -> list[int]:
        return list(self._offsets)
