"""EXPLAIN: the AST, the optimized physical plan and the execution plan."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from millstream.common.dispatch import Dispatch
from millstream.common.fast_dataclass import fast_dataclass
from millstream.sql.expressions import AggregateCall, Call, Expression
from millstream.sql.optimizer.costs import Costs
from millstream.sql.optimizer.names import changelog_call, frame_text, name_of, record_type
from millstream.sql.optimizer.planner import plan
from millstream.sql.optimizer.state_report import state_text
from millstream.sql.optimizer.text import Style, by_index, constant_text, text, type_text
from millstream.sql.optimizer.upsert_keys import exchanges
from millstream.sql.plan import nodes as n
from millstream.sql.plan.subqueries import Subquery
from millstream.sql.schema import Changes

_MINI_BATCH = "table.exec.mini-batch.enabled"
_LATENCY = "table.exec.mini-batch.allow-latency"
_SIZE = "table.exec.mini-batch.size"
_PHASES = "table.optimizer.agg-phase-strategy"


@fast_dataclass
class Advice:
    """Plan advice: texts and the nodes they refer to."""

    texts: tuple[str, ...]
    about: Mapping[int, int]

    def number_of(self, planned: n.Planned) -> int | None:
        """Return the number of the advice on a node, from 1."""
        return self.about.get(id(planned))

    def text(self) -> str:
        """Return the advice section below the plan."""
        lines = [f"advice[{i}]: [ADVICE] {text}" for i, text in enumerate(self.texts, 1)]
        return "\n".join(lines or ["No available advice..."]) + "\n\n"


def advised(roots: Sequence[n.Planned], settings: Mapping[str, str], batch: bool) -> Advice:
    """Return the advice on plans."""
    missing = [] if batch else _two_phases(settings)
    if not missing:
        return Advice((), {})
    about = {id(p): 1 for root in roots for p in _all(root) if isinstance(p.node, n.Aggregate)}
    text = f"You might want to enable local-global two-phase optimization by configuring ({', '.join(missing)})."
    return Advice((text,), about) if about else Advice((), {})


def _two_phases(settings: Mapping[str, str]) -> list[str]:
    """Return the settings that two-phase aggregates need."""
    result = []
    if settings.get(_MINI_BATCH, "false").lower() != "true":
        result.append(f"'{_MINI_BATCH}' to 'true'")
        result += [f"'{key}' to a positive long value" for key in (_LATENCY, _SIZE) if key not in settings]
    if settings.get(_PHASES, "AUTO").upper() == "ONE_PHASE":
        result.append(f"'{_PHASES}' to 'AUTO'")
    return result


def _all(planned: n.Planned) -> Iterator[n.Planned]:
    yield planned
    for below in planned.inputs:
        yield from _all(below)


_KINDS = (
    (Changes.INSERT, "I"),
    (Changes.UPDATE_BEFORE, "UB"),
    (Changes.UPDATE_AFTER, "UA"),
    (Changes.DELETE, "D"),
)


def explained(
    ends: Sequence[n.Sink | n.Collected | n.ToStream],
    settings: Mapping[str, str],
    batch: bool = False,
    details: Collection[str] = (),
) -> str:
    """Return EXPLAIN's three sections for some plans; a streaming query has a fourth about its state."""
    shown = [e.input if isinstance(e, n.Collected) else e for e in ends]
    abstract = "\n".join(_logical(e) for e in shown)
    planned = plan(ends, settings, batch)
    roots = [p.inputs[0] if isinstance(p.node, n.Collected) else p for p in planned]
    costs = Costs() if "ESTIMATED_COST" in details else None
    changelog = "CHANGELOG_MODE" in details
    advice = advised(roots, settings, batch) if "PLAN_ADVICE" in details else None
    physical = "\n".join(_tree_text(r, lambda p: _physical(p, changelog, advice, costs)) for r in roots)
    execution = "\n".join(_Reusing(roots).tree_text(r) for r in roots)
    state = "" if batch else state_text(planned)
    state = f"\n{state}" if state else ""
    return (
        f"== Abstract Syntax Tree ==\n{abstract}\n"
        f"== Optimized Physical Plan{'' if advice is None else ' With Advice'} ==\n{physical}\n"
        f"{'' if advice is None else advice.text()}"
        f"== Optimized Execution Plan ==\n{execution}{state}"
    )


def execution_text(plans: Sequence[n.Planned]) -> str:
    """Return the execution plan section."""
    execution = "\n".join(_Reusing(plans).tree_text(p) for p in plans)
    return f"== Optimized Execution Plan ==\n{execution}"


# --- trees


class _Exchange:
    """An exchange between operators with different distributions."""

    def __init__(self, below: n.Planned, keys: Sequence[int]) -> None:
        self.below = below
        names = ", ".join(below.node.fields[k].name for k in keys)
        self.text = f"Exchange(distribution=[hash[{names}]])" if keys else "Exchange(distribution=[single])"

    def __str__(self) -> str:
        return self.text


_Shown = n.Planned | _Exchange


def _tree_text(root: n.Planned, name: Callable[[_Shown], str]) -> str:
    lines: list[str] = []
    _draw(root, name, lines, "", "")
    return "\n".join(lines) + "\n"


def _draw(one: _Shown, name: Callable[[_Shown], str], lines: list[str], first: str, rest: str) -> None:
    lines.append(first + name(one))
    below = _inputs_of(one)
    for i, inner in enumerate(below):
        last = i == len(below) - 1
        _draw(inner, name, lines, rest + ("+- " if last else ":- "), rest + ("   " if last else ":  "))


class _Reusing:
    """Renders plans; a shared subplan is rendered at its first occurrence."""

    def __init__(self, roots: Sequence[n.Planned]) -> None:
        seen: set[int] = set()
        self._shared: set[int] = set()
        # Keyed by the rendered text, in order.
        self._numbers: dict[int, int] = {}
        for root in roots:
            self._count(root, seen)

    def _count(self, one: n.Planned, seen: set[int]) -> None:
        if id(one) in seen:
            self._shared.add(id(one))
            return
        seen.add(id(one))
        for below in one.inputs:
            self._count(below, seen)

    def tree_text(self, root: n.Planned) -> str:
        """Return a plan as text."""
        lines: list[str] = []
        self._draw(root, lines, "", "")
        return "\n".join(lines) + "\n"

    def _draw(self, one: _Shown, lines: list[str], first: str, rest: str) -> None:
        if id(one) in self._numbers:
            lines.append(f"{first}Reused(reference_id=[{self._numbers[id(one)]}])")
            return
        mark = ""
        if id(one) in self._shared:
            self._numbers[id(one)] = len(self._numbers) + 1
            mark = f"(reuse_id=[{self._numbers[id(one)]}])"
        lines.append(f"{first}{one.name if isinstance(one, n.Planned) else one.text}{mark}")
        below = _inputs_of(one)
        for i, inner in enumerate(below):
            last = i == len(below) - 1
            self._draw(inner, lines, rest + ("+- " if last else ":- "), rest + ("   " if last else ":  "))


def _inputs_of(one: _Shown) -> list[_Shown]:
    if isinstance(one, _Exchange):
        return [one.below]
    keys = exchanges(one)
    return [inner if k is None else _Exchange(inner, k) for inner, k in zip(one.inputs, keys, strict=True)]


def _physical(one: _Shown, changelog: bool, advice: Advice | None, costs: Costs | None) -> str:
    if isinstance(one, _Exchange):
        shown, kinds = one.text, one.below.traits.changes
    else:
        shown, kinds = name_of(one.node, [i.traits for i in one.inputs], Style.PREFIX), one.traits.changes
        number = None if advice is None else advice.number_of(one)
        if number is not None:
            shown = shown.replace("(", f"(advice=[{number}], ", 1)
    cost = ""
    if costs is not None:
        exchanged = isinstance(one, _Exchange)
        cost = f": {costs.text(one.below if isinstance(one, _Exchange) else one, exchanged)}"
    if not changelog:
        return shown + cost
    end = isinstance(one, n.Planned) and isinstance(one.node, (n.Sink, n.Collected, n.ToStream))
    kinds_text = "NONE" if end else ",".join(word for kind, word in _KINDS if kind in kinds)
    return f"{shown[:-1]}, changelogMode=[{kinds_text}]){cost}"


# --- abstract syntax tree


def _logical(root: n.Node) -> str:
    lines: list[str] = []
    _draw_logical(root, lines, "", "")
    return "\n".join(lines) + "\n"


def _draw_logical(node: n.Node, lines: list[str], first: str, rest: str) -> None:
    lines.append(first + _logical_name(node))
    below = node.inputs
    while len(below) == 1 and isinstance(below[0], n.Over):
        # An OVER is rendered where its value is used.
        below = below[0].inputs
    for i, inner in enumerate(below):
        last = i == len(below) - 1
        _draw_logical(inner, lines, rest + ("+- " if last else ":- "), rest + ("   " if last else ":  "))


def _indented(node: n.Node, depth: int = 0) -> str:
    below = node.inputs
    return "\n".join(["  " * depth + _logical_name(node), *(_indented(i, depth + 1) for i in below)])


def _expression_text(e: Expression, over: n.Node | None = None) -> str:
    if isinstance(e, Subquery):
        inside = "".join(f"{_expression_text(v)}, " for v in e.values)
        word = {"SCALAR": "$SCALAR_QUERY"}.get(e.kind.value, e.kind.value)
        return f"{word}({inside}{{\n{_indented(e.node)}\n}})"
    names = by_index if not isinstance(over, n.Over) else _over_names(over)
    return _with_subqueries(e, names)


def _with_subqueries(e: Expression, names: Callable[[int], str]) -> str:
    if isinstance(e, Call) and any(isinstance(a, (Subquery, Call)) for a in e.arguments) and _has_subquery(e):
        inside = ", ".join(
            _expression_text(a) if isinstance(a, Subquery) else _with_subqueries(a, names) for a in e.arguments
        )
        return f"{e.function}({inside})"
    return text(e, names, Style.PREFIX)


def _has_subquery(e: Expression) -> bool:
    return isinstance(e, Subquery) or any(_has_subquery(p) for p in e.parts)


def _over_names(over: n.Over) -> Callable[[int], str]:
    below = over.input
    inner = _over_names(below) if isinstance(below, n.Over) else by_index
    width = len(below.fields)

    def name(index: int) -> str:
        if index < width:
            return inner(index)
        call = over.over.calls[index - width]
        partition = f"PARTITION BY {', '.join(map(inner, over.over.partition))}" if over.over.partition else ""
        keys = ", ".join(
            f"{inner(p)}{' DESC' if d else ''} NULLS {'FIRST' if f else 'LAST'}" for p, d, f in over.over.order
        )
        order = f"ORDER BY {keys}" if keys else ""
        frame = "" if call.function in ("ROW_NUMBER", "RANK", "DENSE_RANK") else frame_text(over.over).strip()
        inside = " ".join(part for part in (partition, order, frame) if part)
        return f"{_aggregate(call)} OVER ({inside})"

    return name


def _aggregate(call: AggregateCall) -> str:
    inside = ", ".join(f"${a}" for a in call.arguments)
    words = "".join(f", {o}" for o in call.options if isinstance(o, str))
    filtered = "" if call.condition is None else f" FILTER ${call.condition}"
    return f"{call.function}({'DISTINCT ' if call.distinct else ''}{inside}{words}){filtered}"


def _logical_name(node: n.Node) -> str:
    return _LOGICAL[node](node)


def _project(node: n.Project) -> str:
    shown = [
        f"{f.name}=[{_expression_text(e, node.input)}]"
        for f, e in zip(node.fields.fields, node.expressions, strict=True)
    ]
    return f"LogicalProject({', '.join(shown)})"


def _scan(node: n.Scan) -> str:
    hints = ""
    if node.options:
        hints = f", hints=[[[OPTIONS options:{{{', '.join(f'{k}={v}' for k, v in node.options)}}}]]]"
    return f"LogicalTableScan(table=[[{', '.join(node.name)}]]{hints})"


def _values(node: n.Values) -> str:
    rows = ", ".join(f"{{ {', '.join(constant_text(c, Style.PREFIX) for c in row)} }}" for row in node.rows)
    return f"LogicalValues(tuples=[[{rows}]])"


def _grouped(node: n.Aggregate | n.WindowAggregate) -> str:
    keys = ", ".join(map(str, node.keys))
    first = len(node.keys)
    calls = "".join(f", {node.fields[first + i].name}=[{_aggregate(c)}]" for i, c in enumerate(node.calls))
    return f"LogicalAggregate(group=[{{{keys}}}]{calls})"


def _table_grouped(node: n.TableAggregate) -> str:
    keys = ", ".join(map(str, node.keys))
    return f"LogicalTableAggregate(group=[{{{keys}}}], tableAggregate=[[{_aggregate(node.call)}]])"


def _window_grouped(node: n.WindowAggregate) -> str:
    window = node.window
    size = f"${window.kind.value}(${window.time}, {window.size}:INTERVAL SECOND)"
    return f"{_grouped(node)[:-1]}, window=[{size}], properties=[{', '.join(node.properties)}])"


def _joined(node: n.Join | n.Apply) -> str:
    condition = "true" if node.condition is None else _expression_text(node.condition)
    kind = {"SEMI": "semi", "ANTI": "anti"}.get(node.kind.name, node.kind.name.lower())
    return f"LogicalJoin(condition=[{condition}], joinType=[{kind}])"


def _window_table(node: n.WindowTable) -> str:
    window = node.window
    column = node.input.fields[window.time].name
    lengths = [window.step, window.size] if window.step else [window.size]
    shown = ", ".join(f"{x}:INTERVAL SECOND" for x in lengths)
    kinds = ", ".join(
        f"{type_text(f.type)}{f' *{f.time.value}*' if f.time else ''} {f.name}" for f in node.fields.fields
    )
    return (
        f"LogicalTableFunctionScan(invocation=[{window.kind.value}(TABLE(#0), DESCRIPTOR(_UTF-16LE'{column}'), "
        f"{shown})], rowType=[RecordType({kinds})])"
    )


def _nulls(descending: bool, first: bool) -> str:
    """Return the null order as text; Calcite omits its own default, which the Table API uses and SQL does not."""
    return "" if first is descending else "-nulls-first" if first else "-nulls-last"


def _sort(node: n.Sort) -> str:
    keys = [f"sort{i}=[${p}]" for i, (p, _, _) in enumerate(node.order)]
    keys += [f"dir{i}=[{'DESC' if d else 'ASC'}{_nulls(d, f)}]" for i, (_, d, f) in enumerate(node.order)]
    keys += [f"offset=[{node.offset}]"] if node.offset else []
    keys += [f"fetch=[{node.limit}]"] if node.limit is not None else []
    return f"LogicalSort({', '.join(keys)})"


def _set_operation(node: n.SetOperation) -> str:
    name = {"INTERSECT": "LogicalIntersect", "EXCEPT": "LogicalMinus"}[node.operator]
    return f"{name}(all=[{str(node.all).lower()}])"


def _correlated(node: n.Correlate) -> str:
    kind = node.kind.name.lower()
    arguments = ", ".join(_expression_text(a) for a in node.arguments)
    called = node.function if isinstance(node.function, str) else getattr(node.function, "name", "f")
    return f"LogicalCorrelate(function=[{called}({arguments})], joinType=[{kind}])"


def _watermark(node: n.Watermark) -> str:
    name = node.input.fields[node.column].name
    return f"LogicalWatermarkAssigner(rowtime=[{name}], watermark=[{_expression_text(node.strategy)}])"


def _changelog(node: n.ToChangelog | n.FromChangelog) -> str:
    return f"LogicalTableFunctionScan(invocation=[{changelog_call(node)}], rowType=[{record_type(node)}])"


def _sink(node: n.Node) -> str:
    return name_of(node, ()).replace("Sink(", "LogicalSink(", 1)


_LOGICAL = (
    Dispatch[[], str]()
    .on(n.Project, _project)
    .on(n.Filter, lambda node: f"LogicalFilter(condition=[{_expression_text(node.condition, node.input)}])")
    .on(n.Scan, _scan)
    .on(n.StreamScan, lambda node: "LogicalTableScan(table=[[*anonymous_datastream_source*]])")
    .on(n.Values, _values)
    .on(n.Watermark, _watermark)
    .on(n.Aggregate, _grouped)
    .on(n.TableAggregate, _table_grouped)
    .on(n.WindowAggregate, _window_grouped)
    .on(n.WindowTable, _window_table)
    .on(n.Expand, lambda node: name_of(node, (), Style.PREFIX).replace("Expand(", "LogicalExpand(", 1))
    .on(n.Over, lambda node: name_of(node, (), Style.PREFIX).replace("OverAggregate(", "LogicalOver(", 1))
    .on(n.Join, _joined)
    .on(n.Apply, _joined)
    .on(n.TemporalJoin, _joined)
    .on(n.Union, lambda node: "LogicalUnion(all=[true])")
    .on(n.SetOperation, _set_operation)
    .on(n.Match, lambda node: name_of(node, (), Style.PREFIX).replace("Match(", "LogicalMatch(", 1))
    .on(n.Sort, _sort)
    .on(n.Correlate, _correlated)
    .on(n.ToChangelog, _changelog)
    .on(n.FromChangelog, _changelog)
    .on(n.Sink, _sink)
    .on(n.ToStream, _sink)
)
