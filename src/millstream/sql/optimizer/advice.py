"""What could be better about a plan: EXPLAIN PLAN_ADVICE."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from millstream.common.fast_dataclass import record
from millstream.sql.plan import nodes as n

_MINI_BATCH = "table.exec.mini-batch.enabled"
_LATENCY = "table.exec.mini-batch.allow-latency"
_SIZE = "table.exec.mini-batch.size"
_PHASES = "table.optimizer.agg-phase-strategy"


@record(frozen=True)
class Advice:
    """Texts, and which nodes each is about."""

    texts: tuple[str, ...]
    about: Mapping[int, int]

    def number_of(self, planned: n.Planned) -> int | None:
        """Return which text is about a node, counted from 1."""
        return self.about.get(id(planned))

    def text(self) -> str:
        """Return what stands below the plan."""
        lines = [f"advice[{i}]: [ADVICE] {text}" for i, text in enumerate(self.texts, 1)]
        return "\n".join(lines or ["No available advice..."]) + "\n\n"


def advised(roots: Sequence[n.Planned], settings: Mapping[str, str], batch: bool) -> Advice:
    """Return what could be better about plans."""
    missing = [] if batch else _two_phases(settings)
    if not missing:
        return Advice((), {})
    about = {id(p): 1 for root in roots for p in _all(root) if isinstance(p.node, n.Aggregate)}
    text = f"You might want to enable local-global two-phase optimization by configuring ({', '.join(missing)})."
    return Advice((text,), about) if about else Advice((), {})


def _two_phases(settings: Mapping[str, str]) -> list[str]:
    """Return what must be set for aggregates in two phases."""
    found = []
    if settings.get(_MINI_BATCH, "false").lower() != "true":
        found.append(f"'{_MINI_BATCH}' to 'true'")
        found += [f"'{key}' to a positive long value" for key in (_LATENCY, _SIZE) if key not in settings]
    if settings.get(_PHASES, "AUTO").upper() == "ONE_PHASE":
        found.append(f"'{_PHASES}' to 'AUTO'")
    return found


def _all(planned: n.Planned) -> Iterator[n.Planned]:
    yield planned
    for below in planned.inputs:
        yield from _all(below)
