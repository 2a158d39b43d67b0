"""The rules in their order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from millstream.sql.optimizer.rewrite import bottom_up
from millstream.sql.optimizer.rules.calcs import merge_calcs, remove_calc, skip_renaming, to_calc
from millstream.sql.optimizer.rules.column_pruning import prune_columns
from millstream.sql.optimizer.rules.distinct_split import split_distinct
from millstream.sql.optimizer.rules.emit_strategy import fired
from millstream.sql.optimizer.rules.factoring import factor_conditions
from millstream.sql.optimizer.rules.filter_pushdown import filters_into_scan, push_filter, push_join_condition
from millstream.sql.optimizer.rules.folding import fold_constants
from millstream.sql.optimizer.rules.intervals import find_interval_join
from millstream.sql.optimizer.rules.join_order import order_joins
from millstream.sql.optimizer.rules.join_strategy import choose_strategy
from millstream.sql.optimizer.rules.joins import find_equal_keys
from millstream.sql.optimizer.rules.lookups import find_lookup_join
from millstream.sql.optimizer.rules.ranks import find_deduplicate, find_rank
from millstream.sql.optimizer.rules.sources import filter_in_normalize, limit_scan, normalize_changes, share_scans
from millstream.sql.optimizer.rules.subqueries import without_subqueries
from millstream.sql.optimizer.rules.time_attributes import check_times, retimed
from millstream.sql.optimizer.rules.window_rows import find_window_join, find_window_rank
from millstream.sql.optimizer.rules.windows import find_window_aggregate
from millstream.sql.plan.nodes import Node


def optimized(node: Node, settings: Mapping[str, str], batch: bool) -> Node:
    """Return a plan that gives the same rows for less."""
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
    """Return plans of one job that read each table once."""
    filtered = filter_in_normalize([_with_calcs(plan) for plan in share_scans(plans)])
    return [skip_renaming(_with_calcs(plan)) for plan in filtered]


def _with_calcs(node: Node) -> Node:
    return bottom_up(node, lambda n: remove_calc(fold_constants(merge_calcs(to_calc(n)))))
