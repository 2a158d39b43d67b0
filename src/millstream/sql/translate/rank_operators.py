"""Translation of sorting, ranking, deduplication, changelogs and MATCH_RECOGNIZE."""

from __future__ import annotations

from millstream.graph.transformations import UpstreamEdge
from millstream.operators.base import Operator
from millstream.sql.operators.batch.batch_sort import BatchSortOperator, BatchTopNOperator
from millstream.sql.operators.rank.deduplicate import (
    EarliestRowOperator,
    FilteredLastRowOperator,
    FirstRowOperator,
    LastRowOperator,
    TopOneOperator,
)
from millstream.sql.operators.rank.sort import LimitOperator, SortOperator
from millstream.sql.operators.rank.top_n import MAX_RANKS, AppendOnlyTopNOperator, TopNOperator
from millstream.sql.operators.row_kinds import FromChangelogOperator, ToChangelogOperator
from millstream.sql.optimizer.changelog import RETRACT, UPDATE_FAST
from millstream.sql.plan import nodes
from millstream.sql.plan.nodes import Planned
from millstream.sql.schema import INSERTS, Changes, TimeAttribute
from millstream.sql.translate.translator import Translator, arrow_types


def sort(to: Translator, planned: Planned) -> list[UpstreamEdge]:
    node, (before,) = planned.node, planned.inputs
    assert isinstance(node, nodes.Sort)
    kinds, last = arrow_types(before), None if node.limit is None else node.offset + node.limit
    retracts = bool(before.traits.changes - INSERTS)
    operator: Operator
    if node.order and to.session.batch and not retracts:
        operator = BatchSortOperator(node.order, kinds, node.offset, node.limit)
    elif node.order and to.session.batch:
        operator = SortOperator(node.order, kinds, node.offset, node.limit)
    elif not node.order and not retracts:
        operator = LimitOperator(node.offset, node.limit)
    elif node.order and last is None and not node.offset:
        first = before.node.fields[node.order[0][0]].time
        if first is TimeAttribute.PROCTIME:
            return to.ends(before)
        operator = SortOperator(node.order, kinds, rowtime=node.order[0][0])
    else:
        operator = _top_n(to, planned, (), node.order, node.offset + 1, last, False)
    return to.add_after(planned, operator, to.by_key(before, ()), single=True)


def rank(to: Translator, planned: Planned) -> list[UpstreamEdge]:
    node, (before,) = planned.node, planned.inputs
    assert isinstance(node, nodes.Rank)
    operator: Operator
    if to.session.batch and not before.traits.changes - INSERTS:
        kinds = arrow_types(before)
        operator = BatchTopNOperator(node.partition, node.order, kinds, node.first, node.last, node.shows_rank)
    else:
        operator = _top_n(to, planned, node.partition, node.order, node.first, node.last, node.shows_rank)
    return to.add_after(planned, operator, to.by_key(before, node.partition), single=not node.partition)


def _top_n(
    to: Translator,
    planned: Planned,
    partition: tuple[int, ...],
    order: tuple[tuple[int, bool, bool], ...],
    first: int,
    last: int | None,
    shows_rank: bool,
) -> Operator:
    node, (before,) = planned.node, planned.inputs
    assert isinstance(node, (nodes.Rank, nodes.Sort))
    changes, unique = before.traits.changes, None
    pairs, ttl = Changes.UPDATE_BEFORE in planned.traits.changes, planned.traits.state_ttl
    if Changes.UPDATE_AFTER in changes and Changes.UPDATE_BEFORE not in changes:
        unique = min((sorted(key) for key in before.traits.upsert_keys if set(partition) <= key), key=len, default=None)
    if first == last == 1 and not shows_rank and node.strategy != RETRACT:
        batch = to.session.batch
        return TopOneOperator(
            partition, order, arrow_types(before), unique=unique, pairs=pairs, final_only=batch, ttl=ttl
        )
    if partition and last is not None and last <= MAX_RANKS and not changes - INSERTS and not (ttl or to.session.batch):
        return AppendOnlyTopNOperator(partition, order, arrow_types(before), first, last, shows_rank, pairs=pairs)
    return TopNOperator(
        partition,
        order,
        arrow_types(before),
        first,
        last,
        shows_rank,
        retracts=bool(changes - INSERTS) and node.strategy != UPDATE_FAST,
        unique=unique,
        pairs=pairs,
        final_only=to.session.batch,
        ttl=ttl,
    )


def deduplicate(to: Translator, planned: Planned) -> list[UpstreamEdge]:
    node, (before,) = planned.node, planned.inputs
    assert isinstance(node, nodes.Deduplicate)
    kinds, batch = arrow_types(before), to.session.batch
    operator: Operator
    if node.keeps_last:
        operator = LastRowOperator(
            node.keys,
            kinds,
            pairs=Changes.UPDATE_BEFORE in planned.traits.changes,
            emits_equal=node.is_event_time or planned.traits.state_ttl > 0,
            rowtime=node.time if node.is_event_time else None,
            final_only=batch,
            ttl=planned.traits.state_ttl,
        )
    elif node.is_event_time:
        operator = EarliestRowOperator(node.keys, kinds, node.time, planned.traits.state_ttl)
    else:
        operator = FirstRowOperator(node.keys, kinds, planned.traits.state_ttl)
    return to.add_after(planned, operator, to.by_key(before, node.keys), single=not node.keys)


def normalize(to: Translator, planned: Planned) -> list[UpstreamEdge]:
    node, (before,) = planned.node, planned.inputs
    assert isinstance(node, nodes.ChangelogNormalize)
    ttl = planned.traits.state_ttl
    source = before
    while source.inputs:
        # The nodes in between pass row kinds on.
        (source,) = source.inputs
    pairs, both = (Changes.UPDATE_BEFORE in p.traits.changes for p in (planned, source))
    keys, kinds = node.keys, arrow_types(before)
    operator: Operator
    if node.condition is None:
        operator = LastRowOperator(keys, kinds, pairs=pairs, emits_equal=ttl > 0, ttl=ttl, ignores_update_before=both)
    else:
        operator = FilteredLastRowOperator(
            keys,
            kinds,
            node.condition,
            to.session,
            pairs=pairs,
            emits_equal=ttl > 0,
            ttl=ttl,
            ignores_update_before=both,
        )
    return to.add_after(planned, operator, to.by_key(before, keys))


def to_changelog(to: Translator, planned: Planned) -> list[UpstreamEdge]:
    node = planned.node
    assert isinstance(node, nodes.ToChangelog)
    return to.add_forward(planned, ToChangelogOperator(node.codes))


def from_changelog(to: Translator, planned: Planned) -> list[UpstreamEdge]:
    node = planned.node
    assert isinstance(node, nodes.FromChangelog)
    return to.add_forward(planned, FromChangelogOperator(node.op, node.codes))


def match(to: Translator, planned: Planned) -> list[UpstreamEdge]:
    node, (before,) = planned.node, planned.inputs
    assert isinstance(node, nodes.Match)
    # Deferred: cep costs as much start-up time as all other operators of this module.
    from millstream.sql.operators.rank.match_recognize import MatchOperator

    operator = MatchOperator(node.spec, arrow_types(before), arrow_types(planned), to.session)
    return to.add_after(planned, operator, to.by_key(before, node.partition), single=not node.partition)
