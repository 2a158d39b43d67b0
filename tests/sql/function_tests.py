"""Test cases of Flink's own function tests: expressions, their input columns, expected values, types and errors.

    python -m tests.sql.function_tests                  run them on Millstream and print the differences
    python -m tests.sql.function_tests record TESTS     record the output of DumpFunctionTests.java

tests/sql/flink/DumpFunctionTests.java reads them from Flink's published test jar (flink-table-planner_2.12, classifier
`tests`). Its classpath also has flink-table-planner_2.12 itself, flink-clients, flink-test-utils and the tests of
flink-table-common, flink-table-api-java, flink-core and flink-runtime. Excluded cases and the reasons are in
function_exclusions.tsv: id TAB reason.
"""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import gzip
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from millstream.common.errors import MillstreamError
from millstream.common.types import Row
from millstream.sql.bind.expressions import ExpressionBinder
from millstream.sql.bind.scope import Scope
from millstream.sql.columns.batch import Batch
from millstream.sql.columns.value_conversion import to_column, to_python
from millstream.sql.functions.evaluate import compiled
from millstream.sql.functions.function import EvaluationContext
from millstream.sql.language import syntax
from millstream.sql.language.reader import Reader
from millstream.sql.language.statement_grammar import read_statement
from millstream.sql.language.statements import QueryStatement
from millstream.sql.language.type_grammar import read_type
from millstream.sql.optimizer.rules.folding import simplified
from millstream.sql.schema import Field, Fields
from millstream.sql.types import (
    CharType,
    DataType,
    DateType,
    DecimalType,
    NullType,
    SmallIntType,
    TimestampType,
    TimeType,
    VarCharType,
)

HERE = Path(__file__).resolve().parent
RECORDED, EXCLUDED = HERE / "function_tests.jsonl.gz", HERE / "function_exclusions.tsv"
# Java types and functions without a SQL value, and sets of a hundred thousand numbers.
_JAVA = re.compile(r'"(RoaringBitmapData|ApiExpression|Type1|NestedType|UserPojo|NonDefaultType)":|"udf":|BITMAP|RAW\(')


def cases() -> list[dict[str, Any]]:
    """Return the recorded cases."""
    return [json.loads(line) for line in gzip.decompress(RECORDED.read_bytes()).decode().splitlines()]


def exclusions() -> dict[str, str]:
    """Return the ids of cases with intended differences, with the reasons."""
    return dict(line.split("\t", 1) for line in EXCLUDED.read_text().splitlines() if line)


def record(tests: Path) -> None:
    """Record the cases that are written in SQL and whose values SQL supports."""
    lines = [line for line in tests.read_text().splitlines() if '"api":true' not in line and not _JAVA.search(line)]
    RECORDED.write_bytes(gzip.compress(("\n".join(lines) + "\n").encode(), mtime=0))
    print(f"{len(lines)} cases")


# --- values


def _point(text: str) -> dt.datetime:
    seconds_text, _, digits = text.partition(".")
    point = dt.datetime.fromisoformat(seconds_text)
    return point.replace(microsecond=int(digits[:6].ljust(6, "0"))) if digits else point


def _instant(text: str) -> dt.datetime:
    return _point(text.rstrip("Z")).replace(tzinfo=dt.UTC)


def _duration(text: str) -> dt.timedelta:
    match = re.fullmatch(r"PT(?:(-?\d+)H)?(?:(-?\d+)M)?(?:(-?[\d.]+)S)?", text)
    assert match is not None, text
    hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return dt.timedelta(hours=hours, minutes=minutes, seconds=seconds)


def _period(text: str) -> int:
    match = re.fullmatch(r"P(?:(-?\d+)Y)?(?:(-?\d+)M)?(?:(-?\d+)D)?", text)
    assert match is not None, text
    return 12 * int(match.group(1) or 0) + int(match.group(2) or 0)


_DECODED: dict[str, Callable[[Any], Any]] = {
    "Double": float,
    "Float": float,
    "BigDecimal": decimal.Decimal,
    "bytes": base64.b64decode,
    "LocalDate": dt.date.fromisoformat,
    "LocalTime": lambda v: _point(f"2000-01-01T{v}").time(),
    "LocalDateTime": _point,
    "Instant": _instant,
    "Duration": _duration,
    "Period": _period,
    "map": lambda v: {_hashable(decoded(k)): decoded(x) for k, x in v},
    "row": lambda v: Row(*map(decoded, v)),
    "named_row": lambda v: Row(**{k: decoded(x) for k, x in v}),
}


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else tuple(value.items()) if isinstance(value, dict) else value


def decoded(value: Any) -> Any:
    """Return a value as a Python object."""
    if isinstance(value, dict):
        ((kind, inner),) = value.items()
        return _DECODED[kind](inner)
    return list(map(decoded, value)) if isinstance(value, list) else value


def _typed(value: Any, kind: DataType) -> Any:
    """Return a value as Flink's `fromValues` casts it to the type of its column."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if isinstance(kind, (CharType, VarCharType)):
            return str(value)
        if isinstance(kind, DecimalType):
            return decimal.Decimal(str(value))
        if isinstance(kind, SmallIntType):
            return (value + 2**15) % 2**16 - 2**15
    if isinstance(value, str):
        if isinstance(kind, DateType):
            return dt.date.fromisoformat(value)
        if isinstance(kind, TimeType):
            return dt.time.fromisoformat(value)
        if isinstance(kind, TimestampType):
            return _point(value)
        if isinstance(kind, CharType):
            return value.ljust(kind.length)
    return value


# --- one case


def difference(case: dict[str, Any], binder: Any) -> str | None:
    """Return the difference between the result of a case and the result that Flink's test expects, if any."""
    settings = case.get("settings", {})
    context = EvaluationContext(time_zone=settings.get("table.local-time-zone", "UTC"), batch=True, options=settings)
    if settings:
        binder.settings.update(settings)
    kinds = [read_type(Reader(k), intervals=True) for k in case.get("types", [])]
    columns = [
        to_column([_typed(decoded(v), k)], k, context.time_zone)
        for v, k in zip(case.get("data", []), kinds, strict=True)
    ]
    fields = Fields(tuple(Field(f"f{i}", k) for i, k in enumerate(kinds)))
    try:
        bound = _bound(case["sql"], binder, fields)
    except MillstreamError as e:
        return None if case.get("validation") else f"refused: {_line(e)}"
    try:
        values = [compiled(simplified(e), context)(Batch(columns, rows=1)) for e in bound]
    except MillstreamError as e:
        return None if "error" in case else f"failed: {_line(e)}"
    if "error" in case:
        return f"{'not refused' if case['validation'] else 'did not fail'}: {case['error']}"
    types = [str(e.type) for e in bound]
    if types != case["result_types"]:
        return f"type: {', '.join(types)} in place of {', '.join(case['result_types'])}"
    for value, expression, expected in zip(values, bound, case["results"], strict=bool(case["results"])):
        kind, zone = expression.type, context.time_zone
        (actual,) = to_python(value, kind, zone)
        (expected_value,) = to_python(to_column([_typed(decoded(expected), kind)], kind, zone), kind, zone)
        if not _same(actual, expected_value):
            return f"value: {actual!r} in place of {expected_value!r}"
    return None


def _bound(text: str, binder: Any, fields: Fields) -> list[Any]:
    statement = read_statement(f"SELECT {text} FROM t")
    assert isinstance(statement, QueryStatement) and isinstance(statement.query, syntax.Select)
    scope = Scope.of(fields, ("t",))
    expressions = [ExpressionBinder(binder, scope).bind(item.value) for item in statement.query.items]
    if any(isinstance(e.type, NullType) for e in expressions):
        raise MillstreamError("Illegal use of 'NULL'")
    return expressions


def _same(actual: Any, expected: Any) -> bool:
    return actual == expected or repr(actual) == repr(expected)


def _line(e: Exception) -> str:
    return str(e).splitlines()[0]


def differences(binder: Callable[[], Any]) -> dict[str, str]:
    """Return the differences by case id."""
    results = {}
    for case in cases():
        try:
            message = difference(case, binder())
        except Exception as e:
            message = f"crash: {type(e).__name__}: {e}"
        if message is not None:
            results[case["id"]] = message
    return results


if __name__ == "__main__":
    if sys.argv[1:2] == ["record"]:
        record(Path(sys.argv[2]))
    else:
        from tests.support.sql_planning import Session

        session = Session(batch=True)
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
        by_id = {c["id"]: c for c in cases()}
        differing = differences(lambda: session.binder)
        for name, message in differing.items():
            print(f"{name}\t{by_id[name]['sql']}\t{message}".replace("\n", "\\n")[:400])
        print(f"{len(by_id) - len(differing)} of {len(by_id)} as expected")
