"""The planner: rules rewrite the bound query, then each node gets traits, a name and a uid.

A `Planned` is one operator. Places of a plan, or sinks, that need the same rows of the same nodes share one object,
which is translated once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from millstream.common.configuration import parse_duration_ms
from millstream.sql.errors import TableException, ValidationException
from millstream.sql.optimizer.changelog import (
    APPEND_FAST,
    RETRACT,
    UPDATE_FAST,
    Kinds,
    Updates,
    changelog_of,
    emitted_kinds,
    is_ordered_by,
    monotonic,
    needs_only_update_after,
    prepared,
    required_updates,
    requires_inserts,
)
from millstream.sql.optimizer.determinism import STRATEGY, Determinism
from millstream.sql.optimizer.names import name_of
from millstream.sql.optimizer.rewrite import bottom_up
from millstream.sql.optimizer.rules.aggregate_phases import assign_mini_batches, split_aggregate, split_distinct
from millstream.sql.optimizer.rules.calcs import merge_calcs, remove_calc, skip_renaming, to_calc
from millstream.sql.optimizer.rules.column_pruning import prune_columns
from millstream.sql.optimizer.rules.filter_pushdown import filters_into_scan, push_filter, push_join_condition
from millstream.sql.optimizer.rules.folding import factor_conditions, fold_constants
from millstream.sql.optimizer.rules.join_order import order_joins
from millstream.sql.optimizer.rules.joins import choose_strategy, find_equal_keys, find_interval_join, find_lookup_join
from millstream.sql.optimizer.rules.ranks import find_deduplicate, find_rank
from millstream.sql.optimizer.rules.sources import filter_in_normalize, limit_scan, normalize_changes, share_scans
from millstream.sql.optimizer.rules.subqueries import without_subqueries
from millstream.sql.optimizer.rules.time_attributes import check_times, retimed
from millstream.sql.optimizer.rules.windows import find_window_aggregate, find_window_join, find_window_rank, fired
from millstream.sql.optimizer.upsert_keys import Keys, keys_of
from millstream.sql.plan import nodes as n
from millstream.sql.plan.nodes import Node
from millstream.sql.plan.records import INPUTS, RecordEncoder, tag_of
from millstream.sql.schema import INSERTS, Changes, TimeAttribute


def _is(*words: str) -> Callable[[str], bool]:
    return lambda value: value.strip().upper() in words


_REFUSED: dict[str, tuple[Callable[[str], bool], str]] = {
    "table.exec.legacy-cast-behaviour": (_is("ENABLED"), "use TRY_CAST for values that may be invalid"),
    "table.column-expansion-strategy": (lambda value: bool(value.strip(" []")), "list the columns instead of *"),
    "table.sql-dialect": (_is("HIVE"), "write Flink's own SQL"),
}

CHOICES = {
    "table.exec.async-scalar.retry-strategy": ("FIXED_DELAY", "NO_RETRY"),
    "table.exec.sink.keyed-shuffle": ("NONE", "AUTO", "FORCE"),
    "table.exec.sink.nested-constraint-enforcer": ("IGNORE", "ROWS", "ROWS_AND_COLLECTIONS"),
    "table.exec.sink.not-null-enforcer": ("ERROR", "DROP"),
    "table.exec.sink.upsert-materialize": ("NONE", "AUTO", "FORCE"),
    "table.optimizer.agg-phase-strategy": ("AUTO", "ONE_PHASE", "TWO_PHASE"),
    "table.optimizer.non-deterministic-update.strategy": ("IGNORE", "TRY_RESOLVE"),
}


def check_settings(settings: Mapping[str, str]) -> None:
    """Reject unsupported settings, with the alternative, and invalid values."""
    for key, words in CHOICES.items():
        if settings.get(key, words[0]).strip().upper() not in words:
            raise TableException(
                f"Could not parse value '{settings[key]}' for '{key}'. It is one of {', '.join(words)}."
            )
    for key, (is_set, instead) in _REFUSED.items():
        value = settings.get(key)
        if value is not None and is_set(value):
            raise TableException(f"'{key}' = '{value}' is not supported yet: {instead}.")


def optimized(node: Node, settings: Mapping[str, str], batch: bool) -> Node:
    """Return an equivalent, cheaper plan."""
    node = without_subqueries(node)
    node = bottom_up(node, lambda n: factor_conditions(fold_constants(n)))
    node = bottom_up(node, lambda n: push_join_condition(push_filter(n)))
    if batch:
        node = order_joins(node)
        node = bottom_up(node, lambda n: push_join_condition(push_filter(n)))
    node = bottom_up(node, lambda n: limit_scan(filters_into_scan(n)))
    node = bottom_up(node, lambda n: find_equal_keys(n) if batch else find_interval_join(find_equal_keys(n)))
    if not batch:
        node = bottom_up(node, lambda n: normalize_changes(n, settings))
        node = bottom_up(node, retimed)
    node = _with_calcs(node)
    node = bottom_up(node, lambda n: find_rank(n, batch))
    node = _with_calcs(node)
    node = prune_columns(node)
    node = _with_calcs(node)
    if not batch:
        node = bottom_up(node, lambda n: find_deduplicate(retimed(n)))
        node = _with_calcs(bottom_up(node, lambda n: split_distinct(n, settings)))
    if batch:
        node = bottom_up(node, find_window_aggregate)
    else:
        node = bottom_up(node, lambda n: find_window_join(find_window_rank(find_window_aggregate(n))))
    if not batch:
        node = bottom_up(node, lambda n: fired(n, settings))
    node = skip_renaming(_with_calcs(prune_columns(node)))
    node = bottom_up(node, lambda n: find_lookup_join(n, settings))
    return bottom_up(node, lambda n: choose_strategy(n, settings) if batch else check_times(n))


def shared(plans: Sequence[Node]) -> list[Node]:
    """Return the plans of a job with shared table scans."""
    filtered = filter_in_normalize([_with_calcs(plan) for plan in share_scans(plans)])
    return [skip_renaming(_with_calcs(plan)) for plan in filtered]


def _with_calcs(node: Node) -> Node:
    return bottom_up(node, lambda n: remove_calc(fold_constants(merge_calcs(to_calc(n)))))


_WINDOWED = (
    n.WindowAggregate,
    n.LocalWindowAggregate,
    n.LocalAggregate,
    n.WindowTable,
    n.WindowRank,
    n.WindowJoin,
    n.IntervalJoin,
    n.Watermark,
    n.MiniBatch,
    n.Calc,
    n.Scan,
    n.Values,
    n.Union,
)


def plan(
    ends: Sequence[n.Sink | n.Collected | n.ToStream], settings: Mapping[str, str], batch: bool = False
) -> list[n.Planned]:
    """Return a plan for each sink, with common subplans shared."""
    check_settings(settings)
    planner = Planner(settings, batch)
    plans = shared([optimized(end, settings, batch) for end in ends])
    return [planner.planned(p if batch else assign_mini_batches(p, settings)) for p in plans]


class Planner:
    """Plans the sinks of a job."""

    def __init__(self, settings: Mapping[str, str], batch: bool) -> None:
        self._settings = settings
        self._batch = batch
        self._known: dict[int, tuple[n.Node, Kinds, Keys]] = {}
        self._planned: dict[str, list[n.Planned]] = {}
        self._ends: dict[str, int] = {}

    def planned(self, end: n.Node) -> n.Planned:
        """Return the plan of a sink."""
        end = self._with_strategies(end)
        assert isinstance(end, n.Single)
        kinds, keys = self._known_of(end.input)
        end = prepared(end, kinds, keys, self._settings, self._batch)
        if not self._batch and self._settings.get(STRATEGY, "IGNORE").strip().upper() == "TRY_RESOLVE":
            end = Determinism(self._known_of).resolved(end)
            kinds, keys = self._known_of(end.input)
        self._refuse(end, kinds)
        # A sink that needs more than UPDATE_AFTER receives UPDATE_BEFORE too, and handles it as DELETE.
        after = needs_only_update_after(end, keys) and self._can_emit(end.input, Updates.AFTER)
        return self._end(end, self._plan(end.input, Updates.AFTER if after else Updates.PAIRS))

    # --- properties of nodes, inputs first

    def _known_of(self, node: n.Node) -> tuple[Kinds, Keys]:
        result = self._known.get(id(node))
        if result is None:
            below = [self._known_of(i) for i in node.inputs]
            kinds = INSERTS if self._batch else changelog_of(node, [k for k, _ in below], self._state_ttl(node) > 0)
            if not self._batch:
                self._refuse_updates(node)
                _check_versions(node, below)
            keys = keys_of(node, [u for _, u in below])
            # Holding the node keeps its id() unique.
            result = (node, kinds, keys)
            self._known[id(node)] = result
        return result[1], result[2]

    def _with_strategies(self, node: n.Node) -> n.Node:
        def choose(node: n.Node) -> n.Node:
            if isinstance(node, (n.Rank, n.Sort)):
                return node if isinstance(node, n.WindowRank) else replace(node, strategy=self._strategy(node))
            if not isinstance(node, (n.Aggregate, n.WindowAggregate)) or self._batch:
                return node
            return split_aggregate(node, self._known_of(node.input)[0] != INSERTS, self._settings)

        return bottom_up(node, choose)

    def _strategy(self, node: n.Rank | n.Sort) -> str:
        """Return the Top-N strategy."""
        kinds, keys = self._known_of(node.input)
        if kinds == INSERTS:
            return APPEND_FAST
        partition = frozenset(node.partition) if isinstance(node, n.Rank) else frozenset()
        unique = [key for key in keys if partition <= key]
        if Changes.DELETE in kinds or not unique or not self._can_emit(node.input, Updates.AFTER):
            return RETRACT
        monotonicity = monotonic(node.input, lambda below: self._known_of(below)[0])
        if is_ordered_by(node.order, monotonicity, node.input.fields):
            return UPDATE_FAST
        return RETRACT

    # --- update kinds

    def _can_emit(self, node: n.Node, updates: Updates) -> bool:
        input_updates = self._input_updates(node, updates)
        return input_updates is not None and all(
            self._can_emit(i, a) for i, a in zip(node.inputs, input_updates, strict=True)
        )

    def _input_updates(self, node: n.Node, updates: Updates) -> list[Updates] | None:
        """Return the update kind required of a node's inputs; None if it cannot emit the required one."""
        below = [self._known_of(i) for i in node.inputs]
        if not _has_updates(self._known_of(node)[0]):
            # Without updates any requirement is met.
            updates = Updates.PAIRS
        input_updates = required_updates(node, updates, [k for k, _ in below], [u for _, u in below])
        if (
            input_updates is not None
            and isinstance(node, n.TemporalJoin)
            and not self._can_emit(node.right, Updates.AFTER)
        ):
            # The versioned side needs only UPDATE_AFTER and ignores UPDATE_BEFORE.
            return [input_updates[0], Updates.PAIRS]
        return input_updates

    def _plan(self, node: n.Node, updates: Updates) -> n.Planned:
        kinds, keys = self._known_of(node)
        if not _has_updates(kinds):
            updates = Updates.PAIRS
        input_updates = self._input_updates(node, updates)
        assert input_updates is not None
        inputs = tuple(self._plan(i, a) for i, a in zip(node.inputs, input_updates, strict=True))
        if isinstance(node, n.Scan):
            updates = Updates.PAIRS if Changes.UPDATE_BEFORE in node.source.changes else Updates.AFTER
        traits = n.Traits(emitted_kinds(kinds, updates), keys, self._state_ttl(node))
        name = name_of(node, [i.traits for i in inputs])
        uid = _uid(node, inputs)
        same_uid = self._planned.setdefault(uid, [])
        for known in same_uid:
            same = known.traits == traits and all(a is b for a, b in zip(known.inputs, inputs, strict=True))
            if same and _has_same_inputs(known.node, node):
                return known
        result = n.Planned(node, inputs, traits, name, f"{uid}-{len(same_uid)}" if same_uid else uid)
        same_uid.append(result)
        return result

    def _end(self, end: n.Single, below: n.Planned) -> n.Planned:
        name = name_of(end, [below.traits])
        uid = _uid(end, (below,))
        count = self._ends.get(uid, 0)
        self._ends[uid] = count + 1
        return n.Planned(end, (below,), below.traits, name, f"{uid}-{count}" if count else uid)

    def _state_ttl(self, node: n.Node) -> int:
        if isinstance(node, _WINDOWED):
            return 0
        if isinstance(node, (n.Aggregate, n.Join)) and node.state_ttl is not None:
            return node.state_ttl
        return parse_duration_ms(self._settings.get("table.exec.state.ttl", "0"))

    # --- rejected plans

    def _refuse(self, end: n.Single, kinds: Kinds) -> None:
        if not isinstance(end, (n.Sink, n.ToStream)):
            return
        _refuse_two_times(end)
        accepted = end.sink.changes if isinstance(end, n.Sink) else _stream_takes(end)
        for kind, word in ((Changes.UPDATE_AFTER, "update"), (Changes.DELETE, "delete")):
            if kind in kinds and kind not in accepted:
                raise TableException(
                    f"Table sink '{_called(end)}' doesn't support consuming {word} changes which is produced by node "
                    f"{self._producer(end.input, kind)}{_hint(end)}"
                )

    def _refuse_updates(self, node: n.Node) -> None:
        """Reject a node that supports only inserts on an input with updates."""
        if not requires_inserts(node):
            return
        for below in node.inputs:
            kinds = self._known_of(below)[0]
            for kind, word in ((Changes.UPDATE_AFTER, "update"), (Changes.DELETE, "delete")):
                if kind in kinds:
                    raise TableException(
                        f"{name_of(node, _no_traits(node)).split('(')[0]} doesn't support consuming {word} changes "
                        f"which is produced by node {self._producer(below, kind)}"
                    )

    def _producer(self, node: n.Node, kind: Changes) -> str:
        """Return the name of the lowest node that emits a row kind."""
        for below in node.inputs:
            if kind in self._known_of(below)[0]:
                return self._producer(below, kind)
        traits = [n.Traits(*self._known_of(i)) for i in node.inputs]
        return name_of(node, traits)


def _hint(end: n.Single) -> str:
    """Return a hint how to make the changes acceptable to a sink."""
    if isinstance(end, n.ToStream):
        return ". Use to_changelog_stream(), which takes every kind of change."
    return (
        ". Write to a table that takes changes (connectors upsert-kafka and jdbc with a PRIMARY KEY, format "
        "debezium-json), or make the query append-only, such as by aggregating in a window."
    )


def _check_versions(node: n.Node, below: Sequence[tuple[Kinds, Keys]]) -> None:
    """Reject a temporal join whose versioned side has no unique key."""
    if not isinstance(node, n.TemporalJoin):
        return
    if not node.left_keys:
        raise ValidationException("Currently the join key in Temporal Table Join can not be empty.")
    if node.is_event_time and not below[1][1]:
        raise ValidationException(
            "Event-Time Temporal Table Join requires both primary key and row time attribute in versioned table, but "
            "no primary key can be found."
        )
    if node.is_event_time and not any(key <= set(node.right_keys) for key in below[1][1]):
        names = node.right.fields.names
        keys = " or ".join(sorted(f"[{','.join(names[k] for k in sorted(key))}]" for key in below[1][1]))
        raise ValidationException(
            f"Temporal table's primary key {keys} must be included in the equivalence condition of temporal join, but "
            f"current temporal join condition is on [{','.join(names[k] for k in node.right_keys)}]."
        )


def _refuse_two_times(end: n.Sink | n.ToStream) -> None:
    times = [f.name for f in end.input.fields.fields if f.time is TimeAttribute.ROWTIME]
    if len(times) > 1:
        raise TableException(
            f"The query contains more than one rowtime attribute column [{', '.join(times)}] for writing into table "
            f"'{_called(end)}'.\nPlease select the column that should be used as the event-time timestamp for the "
            "table sink by casting all other columns to regular TIMESTAMP or TIMESTAMP_LTZ."
        )


def _no_traits(node: n.Node) -> list[n.Traits]:
    return [n.Traits(INSERTS) for _ in node.inputs]


def _called(end: n.Single) -> str:
    return ".".join(end.name) if isinstance(end, n.Sink) else "*anonymous_datastream_sink$1*"


def _stream_takes(end: n.ToStream) -> Kinds:
    return frozenset(Changes) if end.changelog else INSERTS


def _has_same_inputs(a: n.Node, b: n.Node) -> bool:
    """Return whether two equal nodes have the same columns and inputs."""
    if a.fields != b.fields:
        return False
    if isinstance(a, n.StreamScan) and isinstance(b, n.StreamScan):
        return a.stream is b.stream
    if isinstance(a, n.Scan) and isinstance(b, n.Scan):
        return a.table == b.table
    return True


def _has_updates(kinds: Kinds) -> bool:
    return Changes.UPDATE_AFTER in kinds


def _uid(node: n.Node, inputs: Sequence[n.Planned]) -> str:
    """Return the uid of an operator: a hash of its node and its inputs."""
    types = ",".join(str(t) for t in node.fields.types)
    digest = hashlib.sha256("\n".join([signature(node), types, *(i.uid for i in inputs)]).encode()).hexdigest()
    return f"{tag_of(node)}-{digest[:16]}"


# Fields that do not affect state: column names, objects created from the catalog, TTLs and hints.
_NOT_SIGNED = INPUTS | {"fields", "table", "source", "sink", "stream", "state_ttl", "side_ttls", "hints", "text"}
_SIGNED = RecordEncoder(lambda function: getattr(function, "name", ""), _NOT_SIGNED)


def signature(node: n.Node) -> str:
    """Return a node's meaning as JSON, with columns by index."""
    return json.dumps(_SIGNED.value(node), sort_keys=True)
