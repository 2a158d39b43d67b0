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
_BOOLEANS = {"TRUE": "BOOLEAN", "FALSE": "BOOLEAN", "UNKNOWN": "NULL", "NULL": "NULL"}
# Functions without parentheses.
_WITHOUT_PARENTHESES = frozenset(["CURRENT_DATE", "CURRENT_TIME", "CURRENT_TIMESTAMP", "LOCALTIME", "LOCALTIMESTAMP"])
# Functions of the standard that Flink does not have: the word is a column name.
_ALSO_NAMES = frozenset(
    [
        *("CURRENT_USER", "USER", "SESSION_USER", "SYSTEM_USER"),
        *("CURRENT_CATALOG", "CURRENT_PATH", "CURRENT_ROLE", "CURRENT_SCHEMA"),
    ]
)
_INTERVAL_UNITS = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND")
_PLURALS = {f"{unit}S": unit for unit in _INTERVAL_UNITS}
# Keywords that may follow an aggregate's argument.
_NULL_TREATMENTS = {"IGNORE": True, "RESPECT": False}


class ExpressionGrammar(Reader):
    """Parses expressions."""

    @abstractmethod
    def query(self) -> Query:
        """Parse a query."""

    @property
    @abstractmethod
    def next_is_query(self) -> bool:
        """Return whether a query follows."""

    @abstractmethod
    def table_argument(self) -> Expression:
        """Parse a table argument."""

    # --- operators

    def expression(self, min_precedence: int = OR) -> Expression:
        """Parse an expression of operators with at least this precedence."""
        left = self._prefixed(min_precedence)
        while True:
            more = self._infix(left, min_precedence)
            if more is None:
                return left
            left = more

    def _prefixed(self, min_precedence: int) -> Expression:
        position = self.position
        if self.take("NOT"):
            return Call("NOT", (self.expression(NOT),), position=position)
        sign = self.take_one_of("+", "-")
        if sign is not None:
            return Call("UNARY +" if sign == "+" else "UNARY -", (self.expression(SIGN),), position=position)
        return self._suffixed(self._primary())

    def _infix(self, left: Expression, min_precedence: int) -> Expression | None:
        token = self.token
        precedence = _BINARY.get(token.upper, 0)
        if precedence:
            return self._binary(left, token.upper, precedence) if precedence >= min_precedence else None
        if token.upper == "IS" and min_precedence <= IS:
            return self._is(left)
        if token.upper in _MATCHING and min_precedence <= MATCHING:
            return self._matching(left)
        return None

    def _binary(self, left: Expression, operator: str, precedence: int) -> Expression:
        self.skip()
        operator = "<>" if operator == "!=" else operator
        if precedence == COMPARISON and (quantifier := self.take_one_of("SOME", "ANY", "ALL")) is not None:
            return Quantified(operator, quantifier, left, self._in_operands(), position=left.position)
        return Call(operator, (left, self.expression(precedence + 1)), position=left.position)

    def _is(self, left: Expression) -> Expression:
        self.need("IS")
        negated = "NOT " if self.take("NOT") else ""
        if self.take("DISTINCT", "FROM"):
            return Call(f"IS {negated}DISTINCT FROM", (left, self.expression(COMPARISON)), position=left.position)
        word = self.need_one_of("NULL", "TRUE", "FALSE", "UNKNOWN", "JSON")
        if word == "JSON":
            word = f"JSON {self.take_one_of('VALUE', 'OBJECT', 'ARRAY', 'SCALAR') or 'VALUE'}"
        return Call(f"IS {negated}{word}", (left,), position=left.position)

    def _matching(self, left: Expression) -> Expression | None:
        if self.next_is("NOT") and self.ahead(1).upper not in _MATCHING[:-1]:
            return None
        negated = self.take("NOT")
        word = self.need_one_of(*_MATCHING[:-1])
        if word == "IN":
            return In(left, self._in_operands(), negated, position=left.position)
        result = self._between(left) if word == "BETWEEN" else self._like(left, word)
        return Call("NOT", (result,), position=left.position) if negated else result

    def _in_operands(self) -> tuple[Expression, ...] | Query:
        self.need("(")
        operands = self.query() if self.next_is_query else tuple(self.list_of(self.expression))
        self.need(")")
        return operands

    def _between(self, left: Expression) -> Expression:
        kind = self.take_one_of("SYMMETRIC", "ASYMMETRIC")
        low = self.expression(SUM)
        self.need("AND")
        name = "BETWEEN SYMMETRIC" if kind == "SYMMETRIC" else "BETWEEN"
        return Call(name, (left, low, self.expression(SUM)), position=left.position)

    def _like(self, left: Expression, word: str) -> Expression:
        if word == "SIMILAR":
            self.need("TO")
            word = "SIMILAR TO"
        arguments = [left, self.expression(SUM)]
        if self.take("ESCAPE"):
            arguments.append(self.expression(SUM))
        return Call(word, tuple(arguments), position=left.position)

    def _suffixed(self, value: Expression) -> Expression:
        """Parse suffixes of a value: an index or key in brackets, a field after a dot."""
        while True:
            if self.take("["):
                value = Call("ITEM", (value, self.expression()), position=value.position)
                self.need("]")
            elif not isinstance(value, Star) and self.next_is(".") and self.ahead(1).upper != "*":
                self.skip()
                value = Field(value, self.name("the name of a field"), position=value.position)
            else:
                return value

    # --- values

    def _primary(self) -> Expression:
        token, position = self.token, self.position
        if token.kind in _LITERALS:
            self.skip()
            return Literal(_LITERALS[token.kind], token.text, position=position)
        if token.kind is Kind.STRING:
            return Literal("STRING", self.string(), position=position)
        if token.upper == "(":
            return self._parenthesized()
        if token.kind not in (Kind.WORD, Kind.QUOTED):
            self.refuse("an expression")
        special = _SPECIAL_FORMS.get(token.upper)
        if special is not None:
            result = special(self)
            if result is not None:
                return result
        return self._name_or_call()

    def _parenthesized(self) -> Expression:
        position = self.need("(")
        if self.next_is_query:
            result: Expression = Subquery(self.query(), position=position)
        else:
            members = self.list_of(self.expression)
            result = members[0] if len(members) == 1 else Call("ROW", tuple(members), position=position)
        self.need(")")
        return result

    def _name_or_call(self) -> Expression:
        position, token = self.position, self.token
        if token.upper in _WITHOUT_PARENTHESES and self.ahead(1).upper != "(":
            self.skip()
            return Call(token.upper, position=position)
        if token.upper in _ALSO_NAMES and self.ahead(1).upper not in ("(", "."):
            self.skip()
            return Name((token.text,), position=position)
        if token.upper in RESERVED:
            if token.upper not in RESERVED_FUNCTIONS or self.ahead(1).upper != "(":
                self.name("an expression")
            self.skip()
            return self.call(token.upper, position)
        parts = [self.name("an expression")]
        while self.next_is("."):
            if self.ahead(1).upper == "*":
                self.skip()
                self.skip()
                return Star(tuple(parts), position=position)
            self.skip()
            parts.append(self.name())
        if self.next_is("("):
            return self.call(".".join(parts), position)
        return Name(tuple(parts), position=position)

    # --- calls

    def call(self, name: str, position: int) -> Call:
        """Parse the arguments of a function and its clauses."""
        self.need("(")
        distinct = False
        arguments: list[Expression] = []
        names: list[str | None] = []
        nulls: bool | None = None
        order: tuple[SortKey, ...] = ()
        if self.take("*"):
            arguments.append(Star(position=position))
        elif not self.next_is(")"):
            distinct = self.take_one_of("DISTINCT", "ALL") == "DISTINCT"
            for argument, argument_name in self.list_of(self._argument):
                arguments.append(argument)
                names.append(argument_name)
            order = self.order_by()
            nulls = self._nulls()
        self.need(")")
        argument_names = tuple(n for n in names if n is not None)
        if argument_names and len(argument_names) != len(names):
            self.refuse_at(position, f"Arguments of {name} must be either all named or all positional")
        nulls = self._nulls() if nulls is None else nulls
        if self.take("WITHIN", "GROUP"):
            order = self.in_parentheses(self.order_by)
        condition = None
        if self.take("FILTER"):
            condition = self.in_parentheses(lambda: (self.need("WHERE"), self.expression())[1])
        over = self._over() if self.take("OVER") else None
        return Call(name, tuple(arguments), distinct, condition, order, over, argument_names, nulls, position=position)

    def _nulls(self) -> bool | None:
        word = self.one_of(*_NULL_TREATMENTS)
        if word is None or self.ahead(1).upper != "NULLS":
            return None
        self.need(word, "NULLS")
        return _NULL_TREATMENTS[word]

    def _argument(self) -> tuple[Expression, str | None]:
        name = None
        if self.ahead(1).upper == "=>":
            name = self.skip().text
            self.skip()
        if self.next_is_table_argument or self._next_is_partitioned_table:
            return self.table_argument(), name
        if self.next_is_query:
            position = self.position
            return Subquery(self.query(), position=position), name
        if self.take("DEFAULT"):
            return Symbol("DEFAULT", position=self.position), name
        return self.expression(), name

    @property
    def next_is_table_argument(self) -> bool:
        """Return whether a table argument follows."""
        return self.next_is("TABLE") and (self.ahead(1).upper == "(" or self.ahead(1).kind in (Kind.WORD, Kind.QUOTED))

    @property
    def _next_is_partitioned_table(self) -> bool:
        """Return whether a table without the keyword TABLE follows: `t PARTITION BY k`."""
        count = 0
        while self.ahead(count).kind in (Kind.WORD, Kind.QUOTED) and self.ahead(count + 1).upper == ".":
            count += 2
        return self.next_is_name and [self.ahead(count + i).upper for i in (1, 2)] == ["PARTITION", "BY"]

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
        return SortKey(value, descending, nulls_first, position=value.position)

    def _over(self) -> Window | str:
        return self.window() if self.next_is("(") else self.name("the name of a window")

    def window(self) -> Window:
        """Parse the window of an OVER in parentheses."""
        position = self.need("(")
        base = self.name() if self.next_is_name and self.token.upper not in ("PARTITION", "ORDER") else None
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
        return Window(partition, order, unit, start, end, base, position=position)

    def _bound(self) -> Bound:
        position = self.position
        if self.take("CURRENT", "ROW"):
            return Bound(0, position=position)
        distance = None if self.take("UNBOUNDED") else self.expression(SUM)
        side = -1 if self.need_one_of("PRECEDING", "FOLLOWING") == "PRECEDING" else 1
        return Bound(side, distance, position=position)

    # --- special forms

    def _boolean_literal(self) -> Expression:
        token = self.skip()
        return Literal(_BOOLEANS[token.upper], token.upper, position=token.position)

    def _cast(self) -> Expression:
        token = self.skip()
        self.need("(")
        value = self.expression()
        self.need("AS")
        kind = read_type(self, intervals=True)
        self.need(")")
        return Cast(value, kind, token.upper != "CAST", position=token.position)

    def _case(self) -> Expression:
        position = self.need("CASE")
        value = None if self.next_is("WHEN") else self.expression()
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
        return Case(value, tuple(branches), otherwise, position=position)

    def _exists(self) -> Expression:
        position = self.need("EXISTS")
        return Exists(self.in_parentheses(self.query), position=position)

    def _datetime_literal(self) -> Expression | None:
        """Parse DATE '..', TIME '..' or TIMESTAMP '..'."""
        if self.ahead(1).kind is not Kind.STRING:
            return None
        word = self.skip()
        return Literal(word.upper, self.string(), position=word.position)

    def _interval(self) -> Expression | None:
        if self.ahead(1).kind is not Kind.STRING and self.ahead(1).upper not in ("-", "+", "("):
            value = self.ahead(1).kind in (Kind.INTEGER, Kind.WORD, Kind.QUOTED)
            if not value:
                return None
        position = self.need("INTERVAL")
        if self.token.kind is not Kind.STRING and not (
            self.token.upper in ("-", "+") and self.ahead(1).kind is Kind.STRING
        ):
            # A number of units: INTERVAL n DAY.
            count = self.expression(SIGN)
            return Call("INTERVAL", (count, Symbol(self._unit()[0], position=self.position)), position=position)
        negative = self.take_one_of("-", "+") == "-"
        text = self.string()
        first, precision = self._unit()
        last, fraction = first, None
        if self.take("TO"):
            last, fraction = self._unit()
        elif first == "SECOND" and precision is not None and self.before.upper == ",":
            fraction = self.whole_number()
            self.need(")")
        return Interval(text, negative, first, last, precision, fraction, position=position)

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
            position = self.need(word)
            self.need("(")
            query = self.query()
            self.need(")")
            return Call(word, (Subquery(query, position=position),), position=position)
        if following != "[":
            return None
        position = self.need(word, "[")
        members = () if self.next_is("]") else tuple(self.list_of(self.expression))
        self.need("]")
        return Call(word, members, position=position)

    def _row(self) -> Expression | None:
        if self.ahead(1).upper != "(":
            return None
        position = self.need("ROW", "(")
        members = () if self.next_is(")") else tuple(self.list_of(self.expression))
        self.need(")")
        return Call("ROW", members, position=position)

    def _extract(self) -> Expression:
        position = self.need("EXTRACT", "(")
        unit = self._symbol()
        self.need("FROM")
        value = self.expression()
        self.need(")")
        return Call("EXTRACT", (unit, value), position=position)

    def _symbol(self) -> Symbol:
        token = self.need_kind(Kind.WORD)
        return Symbol(token.upper, position=token.position)

    def _position(self) -> Expression:
        position = self.need("POSITION", "(")
        needle = self.expression(SUM)
        self.need("IN")
        arguments = [needle, self.expression(SUM)]
        if self.take("FROM"):
            arguments.append(self.expression(SUM))
        self.need(")")
        return Call("POSITION", tuple(arguments), position=position)

    def _trim(self) -> Expression:
        position = self.need("TRIM", "(")
        side = self.take_one_of("BOTH", "LEADING", "TRAILING")
        characters: Expression | None = None if self.next_is("FROM") else self.expression()
        value = None
        if self.take("FROM"):
            value = self.expression()
        elif self.take(","):
            # TRIM(value, characters).
            value, characters = characters, self.expression()
        else:
            value, characters = characters, None
        self.need(")")
        assert value is not None
        return Call(
            "TRIM",
            (Symbol(side or "BOTH", position=position), characters or Literal("STRING", " ", position=position), value),
            position=position,
        )

    def _substring(self) -> Expression:
        position = self.need("SUBSTRING", "(")
        arguments = [self.expression()]
        if self.take("FROM"):
            arguments.append(self.expression())
            if self.take("FOR"):
                arguments.append(self.expression())
        else:
            while self.take(","):
                arguments.append(self.expression())
        self.need(")")
        return Call("SUBSTRING", tuple(arguments), position=position)

    def _overlay(self) -> Expression:
        position = self.need("OVERLAY", "(")
        arguments = [self.expression()]
        for word in ("PLACING", "FROM", "FOR"):
            if not (self.take(word) or self.take(",")):
                break
            arguments.append(self.expression())
        self.need(")")
        return Call("OVERLAY", tuple(arguments), position=position)

    def _floor_or_ceil(self) -> Expression:
        word = self.skip()
        self.need("(")
        arguments = [self.expression()]
        if self.take("TO"):
            arguments.append(self._symbol())
        elif self.take(","):
            arguments.append(self.expression())
        self.need(")")
        return Call("CEIL" if word.upper == "CEILING" else word.upper, tuple(arguments), position=word.position)

    def _timestamp_arithmetic(self) -> Expression | None:
        """Parse TIMESTAMPADD(unit, ..) or TIMESTAMPDIFF(unit, ..)."""
        if self.ahead(1).upper != "(":
            return None
        word = self.skip()
        self.need("(")
        arguments: list[Expression] = [self._symbol()]
        while self.take(","):
            arguments.append(self.expression())
        self.need(")")
        return Call(word.upper, tuple(arguments), position=word.position)

    def _descriptor(self) -> Expression | None:
        if self.ahead(1).upper != "(":
            return None
        position = self.need("DESCRIPTOR", "(")
        columns = (
            [] if self.next_is(")") else self.list_of(lambda: Name((self.name("a column"),), position=self.position))
        )
        self.need(")")
        return Call("DESCRIPTOR", tuple(columns), position=position)

    def _json(self) -> Expression | None:
        return json_grammar.read(self) if self.ahead(1).upper == "(" else None


_SPECIAL_FORMS: dict[str, Callable[[ExpressionGrammar], Expression | None]] = {
    **dict.fromkeys(_BOOLEANS, ExpressionGrammar._boolean_literal),
    **dict.fromkeys(["CAST", "TRY_CAST", "SAFE_CAST"], ExpressionGrammar._cast),
    "CASE": ExpressionGrammar._case,
    "EXISTS": ExpressionGrammar._exists,
    **dict.fromkeys(["DATE", "TIME", "TIMESTAMP"], ExpressionGrammar._datetime_literal),
    "INTERVAL": ExpressionGrammar._interval,
    "ARRAY": ExpressionGrammar._array,
    "MAP": ExpressionGrammar._map,
    "ROW": ExpressionGrammar._row,
    "EXTRACT": ExpressionGrammar._extract,
    "POSITION": ExpressionGrammar._position,
    "TRIM": ExpressionGrammar._trim,
    "SUBSTRING": ExpressionGrammar._substring,
    "OVERLAY": ExpressionGrammar._overlay,
    **dict.fromkeys(["FLOOR", "CEIL", "CEILING"], ExpressionGrammar._floor_or_ceil),
    **dict.fromkeys(["TIMESTAMPADD", "TIMESTAMPDIFF"], ExpressionGrammar._timestamp_arithmetic),
    "DESCRIPTOR": ExpressionGrammar._descriptor,
    **dict.fromkeys(json_grammar.FUNCTIONS, ExpressionGrammar._json),
}
