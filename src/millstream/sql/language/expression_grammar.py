"""Parses expressions by Flink's operator precedence."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

from millstream.sql.language import json_grammar
from millstream.sql.language.lexer import RESERVED, RESERVED_FUNCTIONS, Kind
from millstream.sql.language.reader import Reader
from millstream.sql.language.syntax import (
    Bound,
    Call,
    Case,
    Cast,
    Exists,
    Expression,
    Field,
    In,
    Interval,
    Literal,
    Name,
    Quantified,
    Query,
    SortKey,
    Star,
    Subquery,
    Symbol,
    Window,
)
from millstream.sql.language.type_grammar import read_type

# Operator precedence, from the lowest.
OR, AND, NOT, IS, COMPARISON, MATCHING, SUM, PRODUCT, SIGN = 22, 24, 26, 28, 30, 32, 40, 60, 80

_BINARY = {
    "OR": OR,
    "AND": AND,
    **dict.fromkeys(["=", "<>", "!=", "<", "<=", ">", ">=", "OVERLAPS"], COMPARISON),
    "+": SUM,
    "-": SUM,
    "*": PRODUCT,
    "/": PRODUCT,
    "%": PRODUCT,
    "||": PRODUCT,
}
_MATCHING = ("BETWEEN", "IN", "LIKE", "ILIKE", "RLIKE", "SIMILAR", "NOT")
_LITERALS = {Kind.INTEGER: "INTEGER", Kind.DECIMAL: "DECIMAL", Kind.DOUBLE: "DOUBLE", Kind.BINARY: "BINARY"}
_TRUTHS = {"TRUE": "BOOLEAN", "FALSE": "BOOLEAN", "UNKNOWN": "NULL", "NULL": "NULL"}
# Functions without parentheses.
_WITHOUT_PARENTHESES = frozenset(["CURRENT_DATE", "CURRENT_TIME", "CURRENT_TIMESTAMP", "LOCALTIME", "LOCALTIMESTAMP"])
# Functions of the standard that Flink does not have: the word is a column name.
_NAMES_TOO = frozenset(
    [
        *("CURRENT_USER", "USER", "SESSION_USER", "SYSTEM_USER"),
        *("CURRENT_CATALOG", "CURRENT_PATH", "CURRENT_ROLE", "CURRENT_SCHEMA"),
    ]
)
_INTERVAL_UNITS = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND")
_PLURALS = {f"{unit}S": unit for unit in _INTERVAL_UNITS}
# Keywords that may follow an aggregate's argument.
_AGAINST_NULLS = {"IGNORE": True, "RESPECT": False}


class ExpressionGrammar(Reader):
    """Parses expressions."""

    @abstractmethod
    def query(self) -> Query:
        """Parse a query."""

    @property
    @abstractmethod
    def stands_query(self) -> bool:
        """Return whether a query follows."""

    @abstractmethod
    def table_argument(self) -> Expression:
        """Parse a table argument."""

    # --- operators

    def expression(self, least: int = OR) -> Expression:
        """Parse an expression of operators with at least this precedence."""
        left = self._prefixed(least)
        while True:
            more = self._infix(left, least)
            if more is None:
                return left
            left = more

    def _prefixed(self, least: int) -> Expression:
        at = self.at
        if self.take("NOT"):
            return Call("NOT", (self.expression(NOT),), at=at)
        sign = self.take_one_of("+", "-")
        if sign is not None:
            return Call("UNARY +" if sign == "+" else "UNARY -", (self.expression(SIGN),), at=at)
        return self._followed(self._primary())

    def _infix(self, left: Expression, least: int) -> Expression | None:
        token = self.token
        binds = _BINARY.get(token.upper, 0)
        if binds:
            return self._binary(left, token.upper, binds) if binds >= least else None
        if token.upper == "IS" and least <= IS:
            return self._is(left)
        if token.upper in _MATCHING and least <= MATCHING:
            return self._matching(left)
        return None

    def _binary(self, left: Expression, operator: str, binds: int) -> Expression:
        self.skip()
        operator = "<>" if operator == "!=" else operator
        if binds == COMPARISON and (quantifier := self.take_one_of("SOME", "ANY", "ALL")) is not None:
            return Quantified(operator, quantifier, left, self._among(), at=left.at)
        return Call(operator, (left, self.expression(binds + 1)), at=left.at)

    def _is(self, left: Expression) -> Expression:
        self.need("IS")
        negated = "NOT " if self.take("NOT") else ""
        if self.take("DISTINCT", "FROM"):
            return Call(f"IS {negated}DISTINCT FROM", (left, self.expression(COMPARISON)), at=left.at)
        word = self.need_one_of("NULL", "TRUE", "FALSE", "UNKNOWN", "JSON")
        if word == "JSON":
            word = f"JSON {self.take_one_of('VALUE', 'OBJECT', 'ARRAY', 'SCALAR') or 'VALUE'}"
        return Call(f"IS {negated}{word}", (left,), at=left.at)

    def _matching(self, left: Expression) -> Expression | None:
        if self.stands("NOT") and self.ahead(1).upper not in _MATCHING[:-1]:
            return None
        negated = self.take("NOT")
        word = self.need_one_of(*_MATCHING[:-1])
        if word == "IN":
            return In(left, self._among(), negated, at=left.at)
        result = self._between(left) if word == "BETWEEN" else self._like(left, word)
        return Call("NOT", (result,), at=left.at) if negated else result

    def _among(self) -> tuple[Expression, ...] | Query:
        self.need("(")
        among = self.query() if self.stands_query else tuple(self.list_of(self.expression))
        self.need(")")
        return among

    def _between(self, left: Expression) -> Expression:
        kind = self.take_one_of("SYMMETRIC", "ASYMMETRIC")
        low = self.expression(SUM)
        self.need("AND")
        name = "BETWEEN SYMMETRIC" if kind == "SYMMETRIC" else "BETWEEN"
        return Call(name, (left, low, self.expression(SUM)), at=left.at)

    def _like(self, left: Expression, word: str) -> Expression:
        if word == "SIMILAR":
            self.need("TO")
            word = "SIMILAR TO"
        arguments = [left, self.expression(SUM)]
        if self.take("ESCAPE"):
            arguments.append(self.expression(SUM))
        return Call(word, tuple(arguments), at=left.at)

    def _followed(self, value: Expression) -> Expression:
        """Parse suffixes of a value: an index or key in brackets, a field after a dot."""
        while True:
            if self.take("["):
                value = Call("ITEM", (value, self.expression()), at=value.at)
                self.need("]")
            elif not isinstance(value, Star) and self.stands(".") and self.ahead(1).upper != "*":
                self.skip()
                value = Field(value, self.name("the name of a field"), at=value.at)
            else:
                return value

    # --- values

    def _primary(self) -> Expression:
        token, at = self.token, self.at
        if token.kind in _LITERALS:
            self.skip()
            return Literal(_LITERALS[token.kind], token.text, at=at)
        if token.kind is Kind.STRING:
            return Literal("STRING", self.string(), at=at)
        if token.upper == "(":
            return self._parenthesized()
        if token.kind not in (Kind.WORD, Kind.QUOTED):
            self.refuse("an expression")
        special = _SPECIAL.get(token.upper)
        if special is not None:
            result = special(self)
            if result is not None:
                return result
        return self._name_or_call()

    def _parenthesized(self) -> Expression:
        at = self.need("(")
        if self.stands_query:
            result: Expression = Subquery(self.query(), at=at)
        else:
            members = self.list_of(self.expression)
            result = members[0] if len(members) == 1 else Call("ROW", tuple(members), at=at)
        self.need(")")
        return result

    def _name_or_call(self) -> Expression:
        at, token = self.at, self.token
        if token.upper in _WITHOUT_PARENTHESES and self.ahead(1).upper != "(":
            self.skip()
            return Call(token.upper, at=at)
        if token.upper in _NAMES_TOO and self.ahead(1).upper not in ("(", "."):
            self.skip()
            return Name((token.text,), at=at)
        if token.upper in RESERVED:
            if token.upper not in RESERVED_FUNCTIONS or self.ahead(1).upper != "(":
                self.name("an expression")
            self.skip()
            return self.call(token.upper, at)
        parts = [self.name("an expression")]
        while self.stands("."):
            if self.ahead(1).upper == "*":
                self.skip()
                self.skip()
                return Star(tuple(parts), at=at)
            self.skip()
            parts.append(self.name())
        if self.stands("("):
            return self.call(".".join(parts), at)
        return Name(tuple(parts), at=at)

    # --- calls

    def call(self, name: str, at: int) -> Call:
        """Parse the arguments of a function and its clauses."""
        self.need("(")
        distinct = False
        arguments: list[Expression] = []
        names: list[str | None] = []
        nulls: bool | None = None
        order: tuple[SortKey, ...] = ()
        if self.take("*"):
            arguments.append(Star(at=at))
        elif not self.stands(")"):
            distinct = self.take_one_of("DISTINCT", "ALL") == "DISTINCT"
            for argument, argument_name in self.list_of(self._argument):
                arguments.append(argument)
                names.append(argument_name)
            order = self.order_by()
            nulls = self._nulls()
        self.need(")")
        given = tuple(n for n in names if n is not None)
        if given and len(given) != len(names):
            self.refuse_at(at, f"Arguments of {name} are given by name or by place, not both")
        nulls = self._nulls() if nulls is None else nulls
        if self.take("WITHIN", "GROUP"):
            order = self.in_parentheses(self.order_by)
        condition = None
        if self.take("FILTER"):
            condition = self.in_parentheses(lambda: (self.need("WHERE"), self.expression())[1])
        over = self._over() if self.take("OVER") else None
        return Call(name, tuple(arguments), distinct, condition, order, over, given, nulls, at=at)

    def _nulls(self) -> bool | None:
        word = self.one_of(*_AGAINST_NULLS)
        if word is None or self.ahead(1).upper != "NULLS":
            return None
        self.need(word, "NULLS")
        return _AGAINST_NULLS[word]

    def _argument(self) -> tuple[Expression, str | None]:
        name = None
        if self.ahead(1).upper == "=>":
            name = self.skip().text
            self.skip()
        if self.stands_table_argument or self._stands_partitioned_table:
            return self.table_argument(), name
        if self.stands_query:
            at = self.at
            return Subquery(self.query(), at=at), name
        if self.take("DEFAULT"):
            return Symbol("DEFAULT", at=self.at), name
        return self.expression(), name

    @property
    def stands_table_argument(self) -> bool:
        """Return whether a table argument follows."""
        return self.stands("TABLE") and (self.ahead(1).upper == "(" or self.ahead(1).kind in (Kind.WORD, Kind.QUOTED))

    @property
    def _stands_partitioned_table(self) -> bool:
        """Return whether a table without TABLE follows: `t PARTITION BY k`."""
        at = 0
        while self.ahead(at).kind in (Kind.WORD, Kind.QUOTED) and self.ahead(at + 1).upper == ".":
            at += 2
        return self.stands_name and [self.ahead(at + i).upper for i in (1, 2)] == ["PARTITION", "BY"]

    # --- order and windows

    def order_by(self) -> tuple[SortKey, ...]:
        """Parse an optional ORDER BY."""
        return tuple(self.list_of(self.sort_key)) if self.take("ORDER", "BY") else ()

    def sort_key(self) -> SortKey:
        """Parse sort keys."""
        value = self.expression()
        descending = self.take_one_of("ASC", "DESC") == "DESC"
        nulls_first = None
        if self.take("NULLS"):
            nulls_first = self.need_one_of("FIRST", "LAST") == "FIRST"
        return SortKey(value, descending, nulls_first, at=value.at)

    def _over(self) -> Window | str:
        return self.window() if self.stands("(") else self.name("the name of a window")

    def window(self) -> Window:
        """Parse the window of an OVER in parentheses."""
        at = self.need("(")
        base = self.name() if self.stands_name and self.token.upper not in ("PARTITION", "ORDER") else None
        partition = tuple(self.list_of(self.expression)) if self.take("PARTITION", "BY") else ()
        order = self.order_by()
        unit = self.take_one_of("ROWS", "RANGE")
        start = end = None
        if unit is not None:
            if self.take("BETWEEN"):
                start = self._bound()
                self.need("AND")
                end = self._bound()
            else:
                start = self._bound()
        self.need(")")
        return Window(partition, order, unit, start, end, base, at=at)

    def _bound(self) -> Bound:
        at = self.at
        if self.take("CURRENT", "ROW"):
            return Bound(0, at=at)
        distance = None if self.take("UNBOUNDED") else self.expression(SUM)
        side = -1 if self.need_one_of("PRECEDING", "FOLLOWING") == "PRECEDING" else 1
        return Bound(side, distance, at=at)

    # --- special forms

    def _truth(self) -> Expression:
        token = self.skip()
        return Literal(_TRUTHS[token.upper], token.upper, at=token.at)

    def _cast(self) -> Expression:
        token = self.skip()
        self.need("(")
        value = self.expression()
        self.need("AS")
        kind = read_type(self, intervals=True)
        self.need(")")
        return Cast(value, kind, token.upper != "CAST", at=token.at)

    def _case(self) -> Expression:
        at = self.need("CASE")
        value = None if self.stands("WHEN") else self.expression()
        branches = []
        while self.take("WHEN"):
            conditions = self.list_of(self.expression) if value is not None else [self.expression()]
            self.need("THEN")
            result = self.expression()
            branches += [(condition, result) for condition in conditions]
        if not branches:
            self.need("WHEN")
        otherwise = self.expression() if self.take("ELSE") else None
        self.need("END")
        return Case(value, tuple(branches), otherwise, at=at)

    def _exists(self) -> Expression:
        at = self.need("EXISTS")
        return Exists(self.in_parentheses(self.query), at=at)

    def _dated(self) -> Expression | None:
        """Parse DATE '..', TIME '..' or TIMESTAMP '..'."""
        if self.ahead(1).kind is not Kind.STRING:
            return None
        word = self.skip()
        return Literal(word.upper, self.string(), at=word.at)

    def _interval(self) -> Expression | None:
        if self.ahead(1).kind is not Kind.STRING and self.ahead(1).upper not in ("-", "+", "("):
            value = self.ahead(1).kind in (Kind.INTEGER, Kind.WORD, Kind.QUOTED)
            if not value:
                return None
        at = self.need("INTERVAL")
        if self.token.kind is not Kind.STRING and not (
            self.token.upper in ("-", "+") and self.ahead(1).kind is Kind.STRING
        ):
            # A number of units: INTERVAL n DAY.
            count = self.expression(SIGN)
            return Call("INTERVAL", (count, Symbol(self._unit()[0], at=self.at)), at=at)
        negative = self.take_one_of("-", "+") == "-"
        text = self.string()
        first, precision = self._unit()
        last, fraction = first, None
        if self.take("TO"):
            last, fraction = self._unit()
        elif first == "SECOND" and precision is not None and self.before.upper == ",":
            fraction = self.whole_number()
            self.need(")")
        return Interval(text, negative, first, last, precision, fraction, at=at)

    def _unit(self) -> tuple[str, int | None]:
        word = self.need_one_of(*_INTERVAL_UNITS, *_PLURALS)
        precision = None
        if self.take("("):
            precision = self.whole_number()
            # The fractional precision of seconds may follow.
            if not (word == "SECOND" and self.take(",")):
                self.need(")")
        return _PLURALS.get(word, word), precision

    def _array(self) -> Expression | None:
        return self._bracketed("ARRAY")

    def _map(self) -> Expression | None:
        return self._bracketed("MAP")

    def _bracketed(self, word: str) -> Expression | None:
        following = self.ahead(1).upper
        if following == "(" and word != "MAP":
            at = self.need(word)
            self.need("(")
            query = self.query()
            self.need(")")
            return Call(word, (Subquery(query, at=at),), at=at)
        if following != "[":
            return None
        at = self.need(word, "[")
        members = () if self.stands("]") else tuple(self.list_of(self.expression))
        self.need("]")
        return Call(word, members, at=at)

    def _row(self) -> Expression | None:
        if self.ahead(1).upper != "(":
            return None
        at = self.need("ROW", "(")
        members = () if self.stands(")") else tuple(self.list_of(self.expression))
        self.need(")")
        return Call("ROW", members, at=at)

    def _extract(self) -> Expression:
        at = self.need("EXTRACT", "(")
        unit = self._symbol()
        self.need("FROM")
        value = self.expression()
        self.need(")")
        return Call("EXTRACT", (unit, value), at=at)

    def _symbol(self) -> Symbol:
        token = self.need_kind(Kind.WORD)
        return Symbol(token.upper, at=token.at)

    def _position(self) -> Expression:
        at = self.need("POSITION", "(")
        needle = self.expression(SUM)
        self.need("IN")
        arguments = [needle, self.expression(SUM)]
        if self.take("FROM"):
            arguments.append(self.expression(SUM))
        self.need(")")
        return Call("POSITION", tuple(arguments), at=at)

    def _trim(self) -> Expression:
        at = self.need("TRIM", "(")
        side = self.take_one_of("BOTH", "LEADING", "TRAILING")
        what: Expression | None = None if self.stands("FROM") else self.expression()
        value = None
        if self.take("FROM"):
            value = self.expression()
        elif self.take(","):
            # The second argument is the characters to trim.
            value, what = what, self.expression()
        else:
            value, what = what, None
        self.need(")")
        assert value is not None
        return Call("TRIM", (Symbol(side or "BOTH", at=at), what or Literal("STRING", " ", at=at), value), at=at)

    def _substring(self) -> Expression:
        at = self.need("SUBSTRING", "(")
        arguments = [self.expression()]
        if self.take("FROM"):
            arguments.append(self.expression())
            if self.take("FOR"):
                arguments.append(self.expression())
        else:
            while self.take(","):
                arguments.append(self.expression())
        self.need(")")
        return Call("SUBSTRING", tuple(arguments), at=at)

    def _overlay(self) -> Expression:
        at = self.need("OVERLAY", "(")
        arguments = [self.expression()]
        for word in ("PLACING", "FROM", "FOR"):
            if not (self.take(word) or self.take(",")):
                break
            arguments.append(self.expression())
        self.need(")")
        return Call("OVERLAY", tuple(arguments), at=at)

    def _rounded(self) -> Expression:
        word = self.skip()
        self.need("(")
        arguments = [self.expression()]
        if self.take("TO"):
            arguments.append(self._symbol())
        elif self.take(","):
            arguments.append(self.expression())
        self.need(")")
        return Call("CEIL" if word.upper == "CEILING" else word.upper, tuple(arguments), at=word.at)

    def _in_units(self) -> Expression | None:
        """Parse TIMESTAMPADD(unit, ..) or TIMESTAMPDIFF(unit, ..)."""
        if self.ahead(1).upper != "(":
            return None
        word = self.skip()
        self.need("(")
        arguments: list[Expression] = [self._symbol()]
        while self.take(","):
            arguments.append(self.expression())
        self.need(")")
        return Call(word.upper, tuple(arguments), at=word.at)

    def _descriptor(self) -> Expression | None:
        if self.ahead(1).upper != "(":
            return None
        at = self.need("DESCRIPTOR", "(")
        columns = [] if self.stands(")") else self.list_of(lambda: Name((self.name("a column"),), at=self.at))
        self.need(")")
        return Call("DESCRIPTOR", tuple(columns), at=at)

    def _json(self) -> Expression | None:
        return json_grammar.read(self) if self.ahead(1).upper == "(" else None


_SPECIAL: dict[str, Callable[[ExpressionGrammar], Expression | None]] = {
    **dict.fromkeys(_TRUTHS, ExpressionGrammar._truth),
    **dict.fromkeys(["CAST", "TRY_CAST", "SAFE_CAST"], ExpressionGrammar._cast),
    "CASE": ExpressionGrammar._case,
    "EXISTS": ExpressionGrammar._exists,
    **dict.fromkeys(["DATE", "TIME", "TIMESTAMP"], ExpressionGrammar._dated),
    "INTERVAL": ExpressionGrammar._interval,
    "ARRAY": ExpressionGrammar._array,
    "MAP": ExpressionGrammar._map,
    "ROW": ExpressionGrammar._row,
    "EXTRACT": ExpressionGrammar._extract,
    "POSITION": ExpressionGrammar._position,
    "TRIM": ExpressionGrammar._trim,
    "SUBSTRING": ExpressionGrammar._substring,
    "OVERLAY": ExpressionGrammar._overlay,
    **dict.fromkeys(["FLOOR", "CEIL", "CEILING"], ExpressionGrammar._rounded),
    **dict.fromkeys(["TIMESTAMPADD", "TIMESTAMPDIFF"], ExpressionGrammar._in_units),
    "DESCRIPTOR": ExpressionGrammar._descriptor,
    **dict.fromkeys(json_grammar.FUNCTIONS, ExpressionGrammar._json),
}
