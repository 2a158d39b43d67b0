"""Recovered input: in-flight data of channels that no longer exist after a change of parallelism or graph.

It is processed before all other input. Its watermarks and end markers are dropped, because the current senders emit
theirs again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import compress

from millstream.common.aliases import Key, Value
from millstream.operators.runtime.blocks import BatchLayout, Layout, Record
from millstream.operators.runtime.chain import ChainCompiler
from millstream.operators.runtime.input_gate import Queue
from millstream.operators.runtime.partitioners import KeyPartitioner, Partitioner
from millstream.operators.runtime.record_writer import Edge, EdgeWriter
from millstream.operators.runtime.runtime_snapshot import Blocks, RecoveredBlocks
from millstream.operators.runtime.vertex import Vertex
from millstream.state.key_groups import hashable, key_group, owned_groups

# Placeholder edges of recovered input have ids below those of other inputs.
_FIRST_ID = -10


class RecoveredQueue(Queue):
    """Recovered blocks of one input of an operator.

    Attributes:
        node_index: the operator's index in the chain.
        edge: a placeholder for the former edge.
    """

    def __init__(self, node_index: int, edge: Edge, blocks: list[bytes]) -> None:
        super().__init__(edge.layout, blocks)
        self.node_index = node_index
        self.edge = edge


class RecoveredInputChain:
    """The chain with record writers of its own for recovered input.

    Recovered records may have other types than those that the chain's own writers are specialized for.
    """

    def __init__(self, compiler: ChainCompiler, writers: Collection[EdgeWriter]) -> None:
        self._compiler = compiler
        self._writers = writers
        self._loops: dict[tuple[int, int, Layout], Callable[[Iterable[Value]], None]] = {}

    def loop(self, node_index: int, edge: Edge, layout: Layout) -> Callable[[Iterable[Value]], None]:
        """Return the loop over blocks of a layout for the operator at an index of the chain."""
        key = node_index, edge.input_index, layout
        if key not in self._loops:
            self._loops[key] = self._compiler.input_function(edge, layout, False, node_index)
        return self._loops[key]

    def drain(self) -> Iterator[tuple[Edge, int, bytes]]:
        """Yield the outgoing blocks: the edge, the target subtask, and the block."""
        for writer in self._writers:
            for target, block in writer.drain():
                yield writer.edge, target, block


class RecoveredInput:
    """The recovered input of one subtask that one epoch leaves to the next."""

    def __init__(self, vertex: Vertex, subtask: int) -> None:
        self._vertex = vertex
        self._node_indexes = {node.id: node_index for node_index, node in enumerate(vertex.nodes)}
        self._groups = owned_groups(subtask, vertex.parallelism, vertex.max_parallelism)
        self.pending: Sequence[RecoveredBlocks] = ()
        # The same input with its read offsets, see `PendingSplitRanges`.
        self._open: list[RecoveredQueue] | None = None

    def restore(self, recovered: Sequence[RecoveredBlocks]) -> None:
        """Set the recovered input; input that is partitioned by key may be that of all subtasks."""
        self._open = None
        inputs = [
            (operator, number, self._of_subtask(operator, number, blocks)) for operator, number, blocks in recovered
        ]
        self.pending = [(operator, number, blocks) for operator, number, blocks in inputs if blocks[2]]

    def open(self) -> list[RecoveredQueue]:
        """Return the pending queues."""
        queues, self._open = self._open, None
        if queues is None:
            queues = [self._queue(i, *blocks) for i, blocks in enumerate(self.pending)]
        return queues

    def leave(self, queues: list[RecoveredQueue]) -> None:
        """Retain the queues that this epoch has not finished."""
        nodes = self._vertex.nodes
        self.pending = [(nodes[q.node_index].id, q.edge.input_index, q.remaining()) for q in queues]
        self._open = queues

    def _queue(self, number: int, operator: str, input_index: int, blocks: Blocks) -> RecoveredQueue:
        node_index = self._node_indexes[operator]
        layout = self._layout(node_index, *blocks[:2])
        edge = Edge(
            _FIRST_ID - number, -1, self._vertex.id, input_index, self._partitioner(operator, input_index), layout
        )
        return RecoveredQueue(node_index, edge, blocks[2])

    def _layout(self, node_index: int, has_key: bool, has_timestamp: bool) -> Layout:
        takes_batches = self._vertex.nodes[node_index].operator.takes_batches
        return (BatchLayout if takes_batches else Layout)(has_key, has_timestamp)

    def _partitioner(self, operator: str, input_index: int) -> Partitioner:
        """Return how the operator's input is partitioned now."""
        if self._node_indexes[operator]:
            return Partitioner()
        return next(e.partitioner for e in self._vertex.in_edges if e.input_index == input_index)

    def _of_subtask(self, operator: str, input_index: int, blocks: Blocks) -> Blocks:
        """Retain only records; of input that is partitioned by key, only this subtask's own."""
        has_key, has_timestamp, bodies = blocks
        layout, partitioner = Layout(has_key, has_timestamp), self._partitioner(operator, input_index)
        retained = []
        for body in bodies:
            received = layout.decode(body)
            records: Iterable[Record] = received.records()
            if partitioner.splits:
                groups, max_parallelism = self._groups, self._vertex.max_parallelism
                parts = (partitioner.own_part(value, groups, max_parallelism) for _, value, _ in records)
                records = [(None, part, None) for part in parts if len(part)]
            elif isinstance(partitioner, KeyPartitioner):
                keys, values, _ = received.columns()
                selected = keys if has_key else map(partitioner.select, values)
                records = compress(records, map(self._is_own, selected))
            block = layout.block_of(records)
            if len(block):
                retained.append(block.encode())
        return has_key, has_timestamp, retained

    def _is_own(self, key: Key) -> bool:
        return key_group(hashable(key), self._vertex.max_parallelism) in self._groups
