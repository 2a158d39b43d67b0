"""Models of Flink's SQL operators, row by row: an oracle for the vectorized operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Row = tuple[Any, ...]
Change = tuple[Any, ...]

ADDS = ("+I", "+U")


class GroupAggregateModel:
    """GroupAggFunction: every row changes the result of its key."""

    def __init__(self, key: Callable[[Row], Row], aggregates: list[tuple[str, int | None, bool]], pairs: bool = True):
        self.key = key
        self.aggregates = aggregates
        self.pairs = pairs
        self.rows: dict[Row, list[Row]] = {}

    def _value(self, rows: list[Row]) -> Row:
        out: list[Any] = []
        for function, column, distinct in self.aggregates:
            values: list[Any] = rows if column is None else [r[column] for r in rows if r[column] is not None]
            if distinct:
                values = list(dict.fromkeys(values))
            if function == "COUNT":
                out.append(len(values))
            elif not values:
                out.append(None)
            elif function == "SUM":
                out.append(sum(values))
            elif function == "AVG":
                total = sum(values)
                out.append(total / len(values) if isinstance(total, float) else int(total / len(values)))
            elif function in ("MIN", "MAX"):
                out.append((min if function == "MIN" else max)(values))
            elif function == "FIRST_VALUE":
                out.append(values[0])
            elif function == "LAST_VALUE":
                out.append(values[-1])
            elif function == "LISTAGG":
                out.append(",".join(values))
        return tuple(out)

    def take(self, change: Change) -> list[Change]:
        kind, *values = change
        row = tuple(values)
        key = self.key(row)
        rows = self.rows.get(key)
        before: Row | None = None if rows is None else self._value(rows)
        if kind in ADDS:
            rows = self.rows.setdefault(key, [])
            rows.append(row)
        else:
            if rows is None:
                return []
            rows.remove(row)
            if not rows:
                del self.rows[key]
                assert before is not None
                return [("-D", *key, *before)]
        after = self._value(rows)
        if before is None:
            return [("+I", *key, *after)]
        if before == after:
            return []
        return [("-U", *key, *before)] * self.pairs + [("+U", *key, *after)]


class JoinModel:
    """StreamingJoinOperator and StreamingSemiAntiJoinOperator, with rows in arrival order."""

    def __init__(self, kind: str, keys: tuple[int, int], widths: tuple[int, int], condition: Any = None):
        self.kind = kind
        self.keys = keys
        self.widths = widths
        self.condition = condition
        # [row, partners]
        self.rows: tuple[list[list[Any]], list[list[Any]]] = ([], [])
        self.outer = (kind in ("LEFT", "FULL"), kind in ("RIGHT", "FULL"))

    def _out(self, kind: str, side: int, mine: Row | None, other: Row | None) -> Change:
        left, right = (mine, other) if side == 0 else (other, mine)
        return (kind, *(left or (None,) * self.widths[0]), *(right or (None,) * self.widths[1]))

    def _match(self, row: Row, side: int) -> list[list[Any]]:
        key = row[self.keys[side]]
        if key is None:
            return []
        matches = [o for o in self.rows[1 - side] if o[0][self.keys[1 - side]] == key]
        if self.condition is not None:
            matches = [o for o in matches if self.condition(*((row, o[0]) if side == 0 else (o[0], row)))]
        return matches

    def take(self, side: int, change: Change) -> list[Change]:
        kind, *values = change
        row = tuple(values)
        others = self._match(row, side)
        adds = kind in ADDS
        if adds:
            self.rows[side].append([row, len(others)])
        else:
            index = next((i for i, r in enumerate(self.rows[side]) if r[0] == row), None)
            if index is not None:
                del self.rows[side][index]
        if self.kind in ("SEMI", "ANTI"):
            return self._semi(side, kind, row, others, adds)
        out: list[Change] = []
        mine_outer, other_outer = self.outer[side], self.outer[1 - side]
        if not others:
            return [self._out("+I" if adds else "-D", side, row, None)] if mine_outer else []
        if adds:
            if other_outer:
                for other in others:
                    if other[1] == 0:
                        out.append(self._out("-D", 1 - side, other[0], None))
                    other[1] += 1
            out_kind = "+I" if mine_outer or other_outer else kind
            return out + [self._out(out_kind, side, row, o[0]) for o in others]
        out += [self._out("-D" if mine_outer else kind, side, row, o[0]) for o in others]
        if other_outer:
            for other in others:
                if other[1] == 1:
                    out.append(self._out("+I", 1 - side, other[0], None))
                other[1] -= 1
        return out

    def _semi(self, side: int, kind: str, row: Row, others: list[list[Any]], adds: bool) -> list[Change]:
        anti = self.kind == "ANTI"
        if side == 0:
            return [(kind, *row)] if bool(others) != anti else []
        out: list[Any] = []
        for other in others:
            if other[1] == (0 if adds else 1):
                out_kind = kind if not anti else ("-D" if adds else "+I")
                out.append((out_kind, *other[0]))
            other[1] += 1 if adds else -1
        return out


class WindowModel:
    """Event-time windows: the rows of each key and window until the watermark passes its end."""

    def __init__(self, windows: Callable[[int], list[tuple[int, int]]], value: Callable[[list[Row]], Row], time: int):
        self.windows = windows
        self.value = value
        self.time = time
        self.open: dict[tuple[Any, int, int], list[Row]] = {}
        self.watermark = -(1 << 63)

    def take(self, row: Row) -> None:
        for start, end in self.windows(row[self.time]):
            if end - 1 > self.watermark:
                self.open.setdefault((row[0], start, end), []).append(row)

    def advance(self, watermark: int) -> list[Change]:
        self.watermark = watermark
        due = sorted((k for k in self.open if k[2] - 1 <= watermark), key=lambda k: k[2])
        return [("+I", key, *self.value(self.open.pop((key, start, end))), start, end) for key, start, end in due]
