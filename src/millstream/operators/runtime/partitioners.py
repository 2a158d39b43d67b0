"""Partitioners: choose the target subtask of a record, and which subtasks are connected at all."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle
from random import Random
from typing import TYPE_CHECKING

from millstream.common.aliases import Key, Value
from millstream.common.coercion import Converter
from millstream.common.errors import MillstreamError, TypeMismatchError
from millstream.common.inferred_types import ANYTHING, InferredType, within
from millstream.common.typeinfo import TypeInformation
from millstream.operators.codegen.code_writer import CodeWriter
from millstream.operators.codegen.coercion_codegen import test_of
from millstream.operators.codegen.inline import is_path
from millstream.operators.codegen.return_types import result_of
from millstream.operators.functions.user_function import UserFunction
from millstream.state.key_groups import PLAIN_KEYS, freeze, hashable, key_group, owner

if TYPE_CHECKING:
    from millstream.operators.runtime.blocks import Block

Append = Callable[[Value], None]

# A sender caches the routes of this many keys, then clears the cache to bound its memory.
MAX_CACHED_KEYS = 1 << 20


class Partitioner:
    """Chooses the channel of a record.

    `name` is Flink's ship strategy. A pointwise partitioner connects a subtask with a part of the next vertex's
    subtasks; any other connects all with all.
    """

    name = ""
    pointwise = False
    # Whether one bucket serves all targets.
    broadcasts = False
    # Whether the target depends on the record's key alone.
    by_key = False
    # Whether a record is a batch of rows with different targets: then `sender` is used instead of `code`.
    splits = False

    def between(self, parallelism: int, next_parallelism: int) -> Partitioner:
        """Return the partitioner to use between operators of these parallelisms."""
        return self

    def targets(self, subtask: int, parallelism: int, next_parallelism: int) -> range:
        """Return the target subtasks of a subtask."""
        if not self.pointwise:
            return range(next_parallelism)
        return pointwise_targets(subtask, parallelism, next_parallelism)

    def code(
        self,
        w: CodeWriter,
        value: str,
        operator: object,
        appends: list[Append],
        context: PartitionerContext,
        inferred_type: InferredType = ANYTHING,
    ) -> tuple[str, str | None]:
        """Write how the bucket is chosen; return the variable with its `append` and the variable with the key.

        Args:
            w: writes the loop.
            value: the variable of the record.
            operator: the operator that emits the record.
            appends: the append function of each bucket.
            context: the sender's subtask and targets.
            inferred_type: the inferred type of the record.
        """
        return w.bind(appends[0], "append"), None

    def sender(self, appends: list[Append], context: PartitionerContext) -> Append:
        """Return a function that appends the rows of a batch to their buckets."""
        raise NotImplementedError(f"{type(self).__name__} does not split batches")

    def some_keys(self, block: Block, random: Random) -> list[Key]:
        """Return the keys of a few records of a block, as a sample for hot keys."""
        return []

    def own_part(self, batch: Value, groups: range, max_parallelism: int) -> Value:
        """Return the rows of a batch whose keys are in one of the key groups."""
        raise NotImplementedError(f"{type(self).__name__} does not split batches")


class PartitionerContext:
    """The sender's subtask, and the numbers of target subtasks and key groups."""

    __slots__ = ("next_max_parallelism", "next_parallelism", "subtask")

    def __init__(self, subtask: int, next_parallelism: int, next_max_parallelism: int) -> None:
        self.subtask = subtask
        self.next_parallelism = next_parallelism
        self.next_max_parallelism = next_max_parallelism


def pointwise_targets(subtask: int, parallelism: int, next_parallelism: int) -> range:
    """Return the targets of Flink's pointwise distribution: contiguous and as even as possible."""
    if parallelism >= next_parallelism:
        # The target whose range of senders [t*p//n, (t+1)*p//n) contains this subtask.
        target = ((subtask + 1) * next_parallelism - 1) // parallelism
        return range(target, target + 1)
    start = -(-subtask * next_parallelism // parallelism)
    end = -(-(subtask + 1) * next_parallelism // parallelism)
    return range(start, end)


class ForwardPartitioner(Partitioner):
    """To the subtask with the same index."""

    name = "FORWARD"
    pointwise = True


class ForwardElse(Partitioner):
    """To the subtask with the same index if the parallelisms are equal, else by another partitioner."""

    name = "FORWARD"

    def __init__(self, otherwise: Partitioner) -> None:
        self.otherwise = otherwise

    def between(self, parallelism: int, next_parallelism: int) -> Partitioner:
        return ForwardPartitioner() if parallelism == next_parallelism else self.otherwise


class OrderedPartitioner(Partitioner):
    """All records of a subtask to one target, so that they stay in order."""

    name = "ORDERED"

    def targets(self, subtask: int, parallelism: int, next_parallelism: int) -> range:
        return pointwise_targets(subtask, parallelism, next_parallelism)[:1]


class GlobalPartitioner(Partitioner):
    """To the first subtask."""

    name = "GLOBAL"

    def targets(self, subtask: int, parallelism: int, next_parallelism: int) -> range:
        return range(1)


class BroadcastPartitioner(Partitioner):
    """To every subtask."""

    name = "BROADCAST"
    broadcasts = True


class RebalancePartitioner(Partitioner):
    """Round-robin to all subtasks; senders start at different ones."""

    name = "REBALANCE"

    def code(
        self,
        w: CodeWriter,
        value: str,
        operator: object,
        appends: list[Append],
        context: PartitionerContext,
        inferred_type: InferredType = ANYTHING,
    ) -> tuple[str, str | None]:
        start = context.subtask % len(appends)
        turn = cycle(appends[start:] + appends[:start]).__next__
        out = w.var("e")
        w.line(f"{out} = {w.bind(turn, 'turn')}()")
        return out, None


class RescalePartitioner(Partitioner):
    """Round-robin to this subtask's part of the next vertex's subtasks."""

    name = "RESCALE"
    pointwise = True

    def code(
        self,
        w: CodeWriter,
        value: str,
        operator: object,
        appends: list[Append],
        context: PartitionerContext,
        inferred_type: InferredType = ANYTHING,
    ) -> tuple[str, str | None]:
        out = w.var("e")
        w.line(f"{out} = {w.bind(cycle(appends).__next__, 'turn')}()")
        return out, None


class ShufflePartitioner(Partitioner):
    """To a random subtask, uniformly."""

    name = "SHUFFLE"

    def code(
        self,
        w: CodeWriter,
        value: str,
        operator: object,
        appends: list[Append],
        context: PartitionerContext,
        inferred_type: InferredType = ANYTHING,
    ) -> tuple[str, str | None]:
        choice = Random(context.subtask).choice
        out = w.var("e")
        w.line(f"{out} = {w.bind(choice, 'choice')}({w.bind(appends, 'appends')})")
        return out, None


class _Routes:
    """Caches the bucket of each key."""

    def __init__(self, appends: list[Append], context: PartitionerContext) -> None:
        groups, parallelism = context.next_max_parallelism, context.next_parallelism
        # A plain dict has the fastest lookups.
        self.known: dict[Key, Append] = {}
        self._groups = groups
        self._by_group = [appends[owner(g, parallelism, groups)] for g in range(groups)]

    def find(self, key: Key) -> Append:
        if len(self.known) >= MAX_CACHED_KEYS:
            self.known.clear()
        append = self.known[key] = self._by_group[key_group(key, self._groups)]
        return append


class KeyPartitioner(Partitioner):
    """To the subtask that owns the key's group."""

    name = "HASH"
    by_key = True

    def __init__(self, selector: UserFunction, key_type: TypeInformation | None = None) -> None:
        self.selector = selector
        self.key_type = key_type

    @property
    def select(self) -> Callable[[Value], Value]:
        """The function that returns the key of a record, coerced to its declared type."""
        call, coerce = self.selector.call, _coercion_of(self.key_type)
        return call if coerce is None else lambda value: coerce(call(value))

    @property
    def key_is_part(self) -> bool:
        """Whether the key is a member of the record, which the receiver extracts as cheaply as the sender."""
        return is_path(self.selector.call)

    def some_keys(self, block: Block, random: Random) -> list[Key]:
        keys, values, _ = block.columns()
        return keys if block.layout.has_key else list(map(self.select, values))

    def key_code(self, w: CodeWriter, value: str, key: str, operator: object, inferred_type: InferredType) -> None:
        """Write how the key of a record is extracted."""
        w.line(f"{key} = {w.call(self.selector.call, value)}", operator, value)
        coerce = _coercion_of(self.key_type)
        if coerce is not None and self.key_type is not None:
            expected = self.key_type.inferred_type()
            if expected is not None and within(result_of(self.selector.call, [inferred_type]), expected):
                return
            test = test_of(w, key, expected) if expected is not None else ""
            coerced = f"{w.bind(coerce, 'fit')}({key})"
            w.line(f"{key} = {key} if {test} else {coerced}" if test else f"{key} = {coerced}", operator, value)

    def code(
        self,
        w: CodeWriter,
        value: str,
        operator: object,
        appends: list[Append],
        context: PartitionerContext,
        inferred_type: InferredType = ANYTHING,
    ) -> tuple[str, str | None]:
        key, out = w.var("k"), w.var("e")
        routes = _Routes(appends, context)
        known, find = w.bind(routes.known, "routes"), w.bind(routes.find, "find")
        self.key_code(w, value, key, operator, inferred_type)
        with w.block("try:"):
            w.line(f"{out} = {known}[{key}]")
        with w.block("except KeyError:"):
            # A key that contains NaN never equals itself.
            with w.block(f"if {key}.__class__ not in {w.bind(PLAIN_KEYS, 'plain')}:"):
                w.line(f"{key} = {w.bind(hashable, 'hashable')}({key})", operator, value)
            w.line(f"{out} = {find}({key})", operator, value)
        # An unhashable key, such as a list.
        with w.block("except TypeError:"):
            w.line(f"{key} = {w.bind(freeze, 'freeze')}({key})", operator, value)
            w.line(f"{out} = {find}({key})", operator, value)
        return out, key


def _coercion_of(key_type: TypeInformation | None) -> Converter | None:
    """Return the coercion of a key to its declared type, None if any value conforms."""
    convert = None if key_type is None else key_type.converter()
    if convert is None:
        return None

    def coerce(key: Key) -> Key:
        try:
            return convert(key)
        except TypeMismatchError as e:
            raise TypeMismatchError(f"The key: {e}") from None

    return coerce


class CustomPartitioner(Partitioner):
    """To the subtask that the user's partitioner returns."""

    name = "CUSTOM"

    def __init__(self, partitioner: UserFunction, selector: UserFunction) -> None:
        self.partitioner = partitioner
        self.selector = selector

    def code(
        self,
        w: CodeWriter,
        value: str,
        operator: object,
        appends: list[Append],
        context: PartitionerContext,
        inferred_type: InferredType = ANYTHING,
    ) -> tuple[str, str | None]:
        partition, count, described = self.partitioner.call, len(appends), str(self.partitioner)

        def choose(key: Key) -> Append:
            index = partition(key, count)
            if not isinstance(index, int) or not 0 <= index < count:
                raise MillstreamError(
                    f"Partitioner {described} returned {index!r} for key {key!r}: "
                    f"it must return an int from 0 to {count - 1}."
                )
            return appends[index]

        out = w.var("e")
        select = w.bind(self.selector.call, "key")
        w.line(f"{out} = {w.bind(choose, 'choose')}({select}({value}))", operator, value)
        return out, None
