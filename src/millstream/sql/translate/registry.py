"""The translation of each kind of plan node.

The modules with the translations import the operators, so each is imported when a plan first has one of its nodes: a
query does not pay for operators that it does not use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from millstream.sql.plan import nodes
from millstream.sql.translate.translator import Translation

if TYPE_CHECKING:
    from millstream.sql.translate import (
        aggregate_operators,
        expand_correlate,
        join_operators,
        rank_operators,
        scan_calc,
        sink_operators,
        window_operators,
    )
else:

    class _Deferred:
        """A module of this package, imported when one of its attributes is read."""

        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, attribute: str) -> object:
            return getattr(import_module(f"{__package__}.{self._name}"), attribute)

    aggregate_operators = _Deferred("aggregate_operators")
    expand_correlate = _Deferred("expand_correlate")
    join_operators = _Deferred("join_operators")
    rank_operators = _Deferred("rank_operators")
    scan_calc = _Deferred("scan_calc")
    sink_operators = _Deferred("sink_operators")
    window_operators = _Deferred("window_operators")

TRANSLATIONS: Mapping[type[nodes.Node], Callable[[], Translation]] = {
    nodes.Scan: lambda: scan_calc.scan,
    nodes.Values: lambda: scan_calc.values,
    nodes.Calc: lambda: scan_calc.calc,
    nodes.Project: lambda: scan_calc.calc,
    nodes.Filter: lambda: scan_calc.calc,
    nodes.Union: lambda: scan_calc.union,
    nodes.MiniBatch: lambda: scan_calc.union,
    nodes.Watermark: lambda: scan_calc.watermark,
    nodes.Collected: lambda: scan_calc.collected,
    nodes.StreamScan: lambda: scan_calc.stream_scan,
    nodes.ToStream: lambda: scan_calc.to_stream,
    nodes.Aggregate: lambda: aggregate_operators.aggregate,
    nodes.TableAggregate: lambda: aggregate_operators.table_aggregate,
    nodes.LocalAggregate: lambda: aggregate_operators.local_aggregate,
    nodes.GlobalAggregate: lambda: aggregate_operators.global_aggregate,
    nodes.WindowAggregate: lambda: window_operators.window_aggregate,
    nodes.LocalWindowAggregate: lambda: window_operators.local_window_aggregate,
    nodes.GlobalWindowAggregate: lambda: window_operators.global_window_aggregate,
    nodes.WindowTable: lambda: window_operators.window_table,
    nodes.WindowRank: lambda: window_operators.window_rank,
    nodes.WindowJoin: lambda: window_operators.window_join,
    nodes.Over: lambda: window_operators.over,
    nodes.Join: lambda: join_operators.join,
    nodes.IntervalJoin: lambda: join_operators.interval_join,
    nodes.TemporalJoin: lambda: join_operators.temporal_join,
    nodes.LookupJoin: lambda: join_operators.lookup_join,
    nodes.MaterializedLookupJoin: lambda: join_operators.lookup_join,
    nodes.Expand: lambda: expand_correlate.expand,
    nodes.Correlate: lambda: expand_correlate.correlate,
    nodes.SetOperation: lambda: expand_correlate.set_operation,
    nodes.Sort: lambda: rank_operators.sort,
    nodes.Rank: lambda: rank_operators.rank,
    nodes.Deduplicate: lambda: rank_operators.deduplicate,
    nodes.ChangelogNormalize: lambda: rank_operators.normalize,
    nodes.ToChangelog: lambda: rank_operators.to_changelog,
    nodes.FromChangelog: lambda: rank_operators.from_changelog,
    nodes.Match: lambda: rank_operators.match,
    nodes.Sink: lambda: sink_operators.sink,
}


def translation_of(kind: type[nodes.Node]) -> Translation | None:
    """Return the translation of a kind of node, or None if there is none."""
    load = TRANSLATIONS.get(kind)
    return load() if load else None
