"""Types and values of expressions without tables, for the test against Flink's."""

from __future__ import annotations

import pyarrow as pa

from millstream.sql.columns.batch import Batch
from millstream.sql.columns.text import to_text
from millstream.sql.errors import TableException, ValidationException
from millstream.sql.expressions import Call, Constant, Expression
from millstream.sql.functions.context import EvaluationContext
from millstream.sql.functions.evaluate import compiled
from millstream.sql.functions.resolve import call, cast
from millstream.sql.language import syntax
from millstream.sql.language.errors import SqlParserException
from millstream.sql.language.statement_grammar import read_statement
from millstream.sql.language.statements import QueryStatement
from millstream.sql import type_rules
from millstream.sql.types import DataTypes
import datetime, decimal, re

CTX = EvaluationContext(batch=True)


def evaluated(text: str) -> tuple[str, str]:
    """Return the type and the value of an expression as Ask.java writes them."""
    try:
        statement = read_statement(f"SELECT {text}")
        assert isinstance(statement, QueryStatement)
        assert isinstance(statement.query, syntax.Select)
        bound = bind(statement.query.items[0].value)
        if str(bound.type) == "NULL":
            return "! NULL", ""
    except (ValidationException, SqlParserException) as e:
        return f"! {e}", ""
    try:
        column = compiled(bound, CTX)(Batch([], rows=1))
        assert len(column) == 1
        shown = to_text(column, bound.type, "UTC")[0].as_py()
    except TableException as e:
        return str(bound.type), f"! {e}"
    except Exception as e:
        return str(bound.type), f"!! {type(e).__name__} {e}"
    return str(bound.type), "NULL" if shown is None else "= " + shown.replace("\n", "\\n").replace("\t", "\\t")


MS = {"WEEK": 604800000, "DAY": 86400000, "HOUR": 3600000, "MINUTE": 60000, "SECOND": 1000}


def literal(e):
    k, s = e.kind, e.text
    if k == "INTEGER":
        v = int(s)
        if v < 2**31:
            return Constant(DataTypes.INT(False), v)
        if v < 2**63:
            return Constant(DataTypes.BIGINT(False), v)
        raise ValidationException("out of range")
    if k == "DECIMAL":
        if s.endswith("."):
            return literal(syntax.Literal("INTEGER", s[:-1]))
        scale = len(s.partition(".")[2])
        digits = len(s.replace(".", ""))
        return Constant(DataTypes.DECIMAL(max(digits, scale, 1), scale, False), decimal.Decimal(s))
    if k == "DOUBLE":
        v = float(s)
        if v == float("inf"):
            raise ValidationException("out of range")
        return Constant(DataTypes.DOUBLE(False), v)
    if k == "STRING":
        t = DataTypes.CHAR(max(len(s), 1), False)
        t.length = len(s)
        return Constant(t, s)
    if k == "BINARY":
        return Constant(DataTypes.BINARY(len(s) // 2, False), bytes.fromhex(s))
    if k == "BOOLEAN":
        return Constant(DataTypes.BOOLEAN(False), s.upper() == "TRUE")
    if k == "NULL":
        return Constant(DataTypes.NULL(), None)
    epoch = datetime.datetime(1970, 1, 1)
    if k == "DATE":
        return Constant(DataTypes.DATE(False), (datetime.date.fromisoformat(s) - epoch.date()).days)
    day, frac = s.partition(".")[::2]
    p = len(frac)
    if k == "TIME":
        h, m, sec = map(int, day.split(":"))
        return Constant(DataTypes.TIME(p, False), ((h * 60 + m) * 60 + sec) * 1000 + int(frac[:3].ljust(3, "0") or 0))
    base = int((datetime.datetime.fromisoformat(day) - epoch).total_seconds())
    unit = 3 if p <= 3 else 6 if p <= 6 else 9
    return Constant(DataTypes.TIMESTAMP(p, False), base * 10**unit + int(frac.ljust(unit, "0")))


def interval(e):
    t = e.text.strip()
    sign = -1 if t.startswith("-") else 1
    if e.negative:
        sign = -sign
    t = t.lstrip("+-")
    units = ["DAY", "HOUR", "MINUTE", "SECOND"]
    M = {"YEAR": 12, "QUARTER": 3, "MONTH": 1}
    if e.first in M:
        parts = t.split("-")
        v = int(parts[0]) * M[e.first] + (int(parts[1]) if len(parts) > 1 else 0)
        return Constant(type_rules.MONTHS.not_null(), sign * v)
    if e.first == e.last:
        return Constant(type_rules.MILLISECONDS.not_null(), sign * int(decimal.Decimal(t) * MS[e.first]))
    us = units[units.index(e.first) : units.index(e.last) + 1]
    v = sum(int(decimal.Decimal(x) * MS[u]) for x, u in zip(re.split(r"[ :]", t), us, strict=True))
    return Constant(type_rules.MILLISECONDS.not_null(), sign * v)


def bind(e: syntax.Expression) -> Expression:
    if isinstance(e, syntax.Literal):
        return literal(e)
    if isinstance(e, syntax.Interval):
        return interval(e)
    if isinstance(e, syntax.Cast):
        return cast(bind(e.value), e.type, e.lenient)
    if isinstance(e, syntax.Case):
        args = []
        for when, then in e.branches:
            c = bind(when)
            if e.value is not None:
                c = call("=", [bind(e.value), c])
            args += [c, bind(then)]
        args.append(bind(e.otherwise) if e.otherwise is not None else Constant(DataTypes.NULL(), None))
        return call("CASE", args)
    if isinstance(e, syntax.Field):
        return call("FIELD", [bind(e.value)], (e.name,))
    if isinstance(e, syntax.Name):
        if e.parts == ("PI",):
            return call("PI", [])
        raise ValidationException(f"Column {e.parts} not found")
    if isinstance(e, syntax.In):
        found = call("IN", [bind(e.value), *map(bind, e.among)])
        return call("NOT", [found]) if e.negated else found
    if isinstance(e, syntax.Json):
        default = lambda x: bind(x) if isinstance(x, syntax.Expression) else x
        return call(
            e.name, [bind(a) for a in e.arguments], (e.returning, default(e.empty), default(e.error), e.wrapper, e.null)
        )
    if isinstance(e, syntax.Call):
        if (
            e.name == "UNARY -"
            and isinstance(e.arguments[0], syntax.Literal)
            and e.arguments[0].kind in ("INTEGER", "DECIMAL", "DOUBLE")
        ):
            if e.arguments[0].text in ("2147483648", "9223372036854775808"):
                v = -int(e.arguments[0].text)
                return Constant(DataTypes.INT(False) if v == -(2**31) else DataTypes.BIGINT(False), v)
            c = literal(e.arguments[0])
            return Constant(c.type, -c.value)
        options = tuple(a.word for a in e.arguments if isinstance(a, syntax.Symbol))
        return call(e.name, [bind(a) for a in e.arguments if not isinstance(a, syntax.Symbol)], options)
    raise ValidationException(f"cannot bind {e}")
