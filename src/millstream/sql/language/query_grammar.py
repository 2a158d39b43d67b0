"""Parses queries, including MATCH_RECOGNIZE."""

from __future__ import annotations

from dataclasses import replace

from millstream.sql.language.expression_grammar import ExpressionGrammar
from millstream.sql.language.lexer import RESERVED, Kind
from millstream.sql.language.syntax import (
    Aliased,
    Call,
    Derived,
    Expression,
    GroupingSets,
    Hint,
    Join,
    Matched,
    Ordered,
    PatternStep,
    Query,
    Relation,
    Select,
    SelectItem,
    SetOperation,
    Star,
    TableArgument,
    TableFunction,
    TableName,
    TableQuery,
    Unnest,
    Values,
    Window,
    With,
)


def read_match(g: QueryGrammar, relation: Relation) -> Matched:
    """Parse MATCH_RECOGNIZE (..) over a relation."""
    position = g.need("MATCH_RECOGNIZE", "(")
    partition = tuple(g.list_of(g.expression)) if g.take("PARTITION", "BY") else ()
    order = g.order_by()
    measures = tuple(g.list_of(lambda: _measure(g))) if g.take("MEASURES") else ()
    rows = _rows(g)
    skip = _skip(g) if g.take("AFTER", "MATCH", "SKIP") else ()
    g.need("PATTERN")
    pattern = g.in_parentheses(lambda: _pattern(g))
    within = g.expression() if g.take("WITHIN") else None
    subsets = tuple(g.list_of(lambda: _subset(g))) if g.take("SUBSET") else ()
    define = tuple(g.list_of(lambda: _definition(g))) if g.take("DEFINE") else ()
    g.need(")")
    return Matched(
        relation, partition, order, measures, rows, skip, pattern, within, subsets, define, position=position
    )


def _measure(g: QueryGrammar) -> tuple[Expression, str]:
    # RUNNING and FINAL both mean FINAL here.
    g.take_one_of("FINAL", "RUNNING")
    value = g.expression()
    g.need("AS")
    return value, g.name("the name of a measure")


def _rows(g: QueryGrammar) -> str:
    if g.take("ALL", "ROWS", "PER", "MATCH"):
        return "ALL"
    if g.take("ONE", "ROW", "PER", "MATCH"):
        return "ONE"
    return ""


def _skip(g: QueryGrammar) -> tuple[str, ...]:
    if g.take("PAST", "LAST", "ROW"):
        return ("PAST LAST ROW",)
    g.need("TO")
    if g.take("NEXT", "ROW"):
        return ("TO NEXT ROW",)
    end = g.take_one_of("FIRST", "LAST") or "LAST"
    return f"TO {end}", g.name("a variable of the pattern")


def _pattern(g: QueryGrammar) -> tuple[PatternStep, ...]:
    steps = [_step(g)]
    while not g.next_is(")"):
        steps.append(_step(g))
    return tuple(steps)


def _step(g: QueryGrammar) -> PatternStep:
    position = g.position
    if g.one_of("(", "|", "PERMUTE", "^", "$", "{"):
        g.refuse_at(position, "Groups, alternations, anchors and exclusions in patterns are not supported")
    variable = g.name("a variable of the pattern")
    min_count, max_count = 1, 1  # type: int, int | None
    if g.take("*"):
        min_count, max_count = 0, None
    elif g.take("+"):
        min_count, max_count = 1, None
    elif g.take("?"):
        min_count, max_count = 0, 1
        return PatternStep(variable, min_count, max_count, g.take("?"), position=position)
    elif g.take("{"):
        min_count, max_count = _counted(g)
    else:
        return PatternStep(variable, position=position)
    return PatternStep(variable, min_count, max_count, g.take("?"), position=position)


def _counted(g: QueryGrammar) -> tuple[int, int | None]:
    if g.take(","):
        max_count = g.whole_number()
        g.need("}")
        return 0, max_count
    min_count = g.whole_number()
    if g.take("}"):
        return min_count, min_count
    g.need(",")
    if g.take("}"):
        return min_count, None
    max_count = g.whole_number()
    g.need("}")
    return min_count, max_count


def _subset(g: QueryGrammar) -> tuple[str, tuple[str, ...]]:
    name = g.name()
    g.need("=")
    return name, g.names_in_parentheses()


def _definition(g: QueryGrammar) -> tuple[str, Expression]:
    name = g.name("a variable of the pattern")
    g.need("AS")
    return name, g.expression()


_QUERY_WORDS = ("SELECT", "VALUES", "WITH", "TABLE")
_JOIN_WORDS = ("JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "NATURAL")


class QueryGrammar(ExpressionGrammar):
    """Parses queries and expressions."""

    @property
    def next_is_query(self) -> bool:
        """Return whether a query follows, in parentheses or not."""
        depth = 0
        while self.ahead(depth).upper == "(":
            depth += 1
        word = self.ahead(depth).upper
        if word in ("SELECT", "WITH") or (word == "VALUES" and self.ahead(depth + 1).upper in ("(", "ROW")):
            return depth == 0 or self._closes_as_query(depth)
        if word == "VALUES" and depth == 0:
            return True
        is_table = word == "TABLE" and self.ahead(depth + 1).kind in (Kind.WORD, Kind.QUOTED)
        return is_table and depth == 0 and not self.next_is_table_argument

    def _closes_as_query(self, depth: int) -> bool:
        """Return whether parentheses around a SELECT hold a query, not an expression that begins with one."""
        if depth == 1 and self.ahead(1).upper in ("SELECT", "WITH", "VALUES"):
            level, count = 0, 0
            while True:
                token = self.ahead(count)
                level += (token.upper == "(") - (token.upper == ")")
                count += 1
                if token.kind is Kind.END or level == 0:
                    break
            return self.ahead(count).upper in ("UNION", "INTERSECT", "EXCEPT", "MINUS", ")", "ORDER", "LIMIT", ";", "")
        return True

    # --- queries

    def query(self) -> Query:
        """Parse a query with all its clauses."""
        position = self.position
        tables = self._with() if self.take("WITH") else ()
        result = self._ordered(self._set_operation())
        return With(tables, result, position=position) if tables else result

    def _with(self) -> tuple[tuple[str, tuple[str, ...], Query], ...]:
        if self.next_is("RECURSIVE"):
            self.refuse_at(self.position, "Recursive queries are not supported: Encountered 'RECURSIVE'")

        def table() -> tuple[str, tuple[str, ...], Query]:
            name = self.name()
            columns = self.names_in_parentheses() if self.next_is("(") else ()
            self.need("AS")
            return name, columns, self.in_parentheses(self.query)

        return tuple(self.list_of(table))

    def _set_operation(self) -> Query:
        left = self._intersection()
        while (operator := self.take_one_of("UNION", "EXCEPT", "MINUS")) is not None:
            operator = "EXCEPT" if operator == "MINUS" else operator
            left = SetOperation(operator, self._all(), left, self._intersection(), position=left.position)
        return left

    def _intersection(self) -> Query:
        left = self._simple()
        while self.take("INTERSECT"):
            left = SetOperation("INTERSECT", self._all(), left, self._simple(), position=left.position)
        return left

    def _all(self) -> bool:
        return self.take_one_of("ALL", "DISTINCT") == "ALL"

    def _simple(self) -> Query:
        position = self.position
        if self.take("("):
            result = self.query()
            self.need(")")
            return result
        if self.next_is("SELECT"):
            return self._select()
        if self.take("VALUES"):
            return Values(tuple(self.list_of(self._row_of_values)), position=position)
        if not self.take("TABLE"):
            self.one_of(*_QUERY_WORDS)
            self.refuse()
        return TableQuery(TableName(self.path(), position=position), position=position)

    def _row_of_values(self) -> tuple[Expression, ...]:
        self.take("ROW")
        if not self.next_is("("):
            return (self.expression(),)
        mark = self.mark()
        self.need("(")
        members = tuple(self.list_of(self.expression))
        self.need(")")
        if self.one_of(",", ")", ";") or self.is_at_end or self.token.upper in RESERVED:
            return members
        # An expression that begins with a parenthesis: VALUES (1 + 2) * 3.
        self.go_back(mark)
        return (self.expression(),)

    def _ordered(self, query: Query) -> Query:
        order = self.order_by()
        limit = offset = None
        while True:
            if limit is None and self.take("LIMIT"):
                if not self.take("ALL"):
                    limit = self.expression()
                    if offset is None and self.take(","):
                        offset, limit = limit, self.expression()
            elif offset is None and self.take("OFFSET"):
                offset = self.expression()
                self.take_one_of("ROW", "ROWS")
            elif limit is None and self.take("FETCH"):
                self.need_one_of("FIRST", "NEXT")
                limit = self.expression()
                self.need_one_of("ROW", "ROWS")
                self.need("ONLY")
            else:
                break
        if not order and limit is None and offset is None:
            return query
        return Ordered(query, order, limit, offset, position=query.position)

    # --- SELECT

    def _select(self) -> Query:
        position = self.need("SELECT")
        hints = self.hints()
        distinct = self.take_one_of("ALL", "DISTINCT", "STREAM") == "DISTINCT"
        items = tuple(self.list_of(self._item))
        relation = where = having = qualify = None
        group: tuple[Expression, ...] | None = None
        windows: tuple[tuple[str, Window], ...] = ()
        if self.take("FROM"):
            relation = self._relations()
            where = self.expression() if self.take("WHERE") else None
            group = self._group_by() if self.take("GROUP", "BY") else None
            having = self.expression() if self.take("HAVING") else None
            windows = tuple(self.list_of(self._named_window)) if self.take("WINDOW") else ()
            qualify = self.expression() if self.take("QUALIFY") else None
        return Select(items, relation, where, group, having, windows, distinct, hints, qualify, position=position)

    def _item(self) -> SelectItem:
        position = self.position
        value = Star(position=position) if self.take("*") else self.expression()
        alias = self.name("an alias") if self.take("AS") or self.next_is_name else None
        return SelectItem(value, alias, position=position)

    def _group_by(self) -> tuple[Expression, ...]:
        self.take_one_of("ALL", "DISTINCT")
        return tuple(self.list_of(self._grouping_element))

    def _grouping_element(self) -> Expression:
        position = self.position
        if self.take("GROUPING", "SETS"):
            return GroupingSets(
                "SETS", tuple(self.in_parentheses(lambda: self.list_of(self._grouping_set))), position=position
            )
        kind = self.one_of("CUBE", "ROLLUP")
        if kind is not None:
            self.skip()
            return GroupingSets(
                kind, tuple(self.in_parentheses(lambda: self.list_of(self._grouping_set))), position=position
            )
        if self.next_is("(", ")"):
            self.need("(", ")")
            return GroupingSets("SETS", ((),), position=position)
        return self.expression()

    def _grouping_set(self) -> tuple[Expression, ...] | GroupingSets:
        if self.one_of("GROUPING", "CUBE", "ROLLUP") and self.ahead(1).upper in ("SETS", "("):
            result = self._grouping_element()
            return result if isinstance(result, GroupingSets) else (result,)
        if self.take("(", ")"):
            return ()
        value = self.expression()
        return value.arguments if isinstance(value, Call) and value.name == "ROW" else (value,)

    def _named_window(self) -> tuple[str, Window]:
        name = self.name("the name of a window")
        self.need("AS")
        return name, self.window()

    # --- hints

    def hints(self) -> tuple[Hint, ...]:
        """Parse optional hints."""
        if self.token.kind is not Kind.HINT or self.token.text != "/*+":
            return ()
        self.skip()
        hints = [self._hint()]
        while self.take(",") or self.token.text != "*/":
            hints.append(self._hint())
        self.need("*/")
        return tuple(hints)

    def _hint(self) -> Hint:
        position, name = self.position, self.name("the name of a hint").upper()
        options: list[tuple[str, str]] = []
        words: list[str] = []
        if self.take("("):
            if not self.next_is(")"):
                self.list_of(lambda: self._hint_option(options, words))
            self.need(")")
        if options and words:
            self.refuse_at(position, f"The hint {name} must have either key-value options or words")
        return Hint(name, tuple(options), tuple(words), position=position)

    def _hint_option(self, options: list[tuple[str, str]], words: list[str]) -> None:
        is_string = self.token.kind is Kind.STRING
        key = self.string() if is_string else ".".join(self.path("an option"))
        if self.take("="):
            options.append((key, self.string()))
        else:
            words.append(key)

    # --- FROM

    def _relations(self) -> Relation:
        left = self._joined()
        while self.take(","):
            left = Join("CROSS", left, self._joined(), position=left.position)
        return left

    def _joined(self) -> Relation:
        left = self._relation()
        while (word := self.one_of(*_JOIN_WORDS)) is not None:
            if word in ("LEFT", "RIGHT", "FULL", "NATURAL") and not self._next_is_join():
                break
            left = self._join(left)
        return left

    def _next_is_join(self) -> bool:
        return any(self.ahead(i).upper == "JOIN" for i in range(1, 4))

    def _join(self, left: Relation) -> Relation:
        natural = self.take("NATURAL")
        kind = self.take_one_of("INNER", "LEFT", "RIGHT", "FULL", "CROSS") or "INNER"
        if kind in ("LEFT", "RIGHT", "FULL"):
            self.take("OUTER")
        self.need("JOIN")
        right = self._relation()
        condition: Expression | None = None
        using: tuple[str, ...] = ()
        if self.take("ON"):
            condition = self.expression()
        elif self.take("USING"):
            using = self.names_in_parentheses()
        return Join(kind, left, right, condition, using, natural, position=left.position)

    def _relation(self) -> Relation:
        result = self._base_relation()
        if self.next_is("MATCH_RECOGNIZE"):
            result = read_match(self, result)
        elif self.take("FOR", "SYSTEM_TIME"):
            result = self._as_of(result)
        self._refuse_samples()
        result = self._aliased(result)
        self._refuse_samples()
        return result

    def _refuse_samples(self) -> None:
        if self.next_is("TABLESAMPLE"):
            self.refuse_at(
                self.position,
                "TABLESAMPLE is not supported, as in Flink; WHERE RAND() < 0.1 samples a tenth of the rows",
            )

    def _as_of(self, relation: Relation) -> Relation:
        self.need("AS", "OF")
        time = self.expression()
        if not isinstance(relation, TableName):
            self.refuse_at(relation.position, "FOR SYSTEM_TIME AS OF must follow the name of a table")
        return replace(relation, as_of=time)

    def _base_relation(self) -> Relation:
        position = self.position
        if self.take("LATERAL"):
            if self.take("TABLE"):
                return TableFunction(self.in_parentheses(self._function), True, position=position)
            if self.next_is("UNNEST"):
                return self._unnest()
            if self.next_is("("):
                return Derived(self.in_parentheses(self.query), True, position=position)
            return TableFunction(self._function(), True, position=position)
        if self.next_is("UNNEST"):
            return self._unnest()
        if self.take("TABLE", "("):
            call = self._function()
            self.need(")")
            return TableFunction(call, position=position)
        if self.next_is("("):
            return self._in_parentheses()
        if self.take("VALUES"):
            return Derived(Values(tuple(self.list_of(self._row_of_values)), position=position), position=position)
        if self.take("TABLE"):
            return TableName(self.path("the name of a table"), self.hints(), position=position)
        parts = self.path("a table")
        if self.next_is("("):
            return TableFunction(self.call(".".join(parts), position), position=position)
        return TableName(parts, self.hints(), position=position)

    def _function(self) -> Call:
        position = self.position
        return self.call(".".join(self.path("the name of a function")), position)

    def _unnest(self) -> Relation:
        position = self.need("UNNEST")
        values = tuple(self.in_parentheses(lambda: self.list_of(self.expression)))
        return Unnest(values, self.take("WITH", "ORDINALITY"), position=position)

    def _in_parentheses(self) -> Relation:
        position = self.position
        if self.next_is_query or self._closes_around_query():
            return Derived(self.in_parentheses(self.query), position=position)
        result = self.in_parentheses(self._relations)
        if isinstance(result, (TableFunction, Unnest)):
            self.refuse_at(position, "Expected a query or a join in parentheses")
        return result

    def _closes_around_query(self) -> bool:
        depth = 0
        while self.ahead(depth).upper == "(":
            depth += 1
        return depth > 0 and self.ahead(depth).upper in _QUERY_WORDS

    def _aliased(self, relation: Relation) -> Relation:
        if not (self.take("AS") or self.next_is_name):
            return relation
        name = self.name("an alias")
        columns = self.names_in_parentheses() if self.next_is("(") else ()
        return Aliased(relation, name, columns, position=relation.position)

    def table_argument(self) -> Expression:
        """Parse `TABLE t PARTITION BY .. ORDER BY ..`, an argument of a function."""
        position = self.position
        self.take("TABLE")
        if self.next_is("("):
            table: Relation = Derived(self.in_parentheses(self.query), position=position)
        else:
            table = TableName(self.path("the name of a table"), self.hints(), position=position)
        partition: tuple[Expression, ...] = ()
        if self.take("PARTITION", "BY"):
            many = self.next_is("(")
            partition = tuple(
                self.in_parentheses(lambda: self.list_of(self.expression)) if many else [self.expression()]
            )
            while not many and self.next_is(",") and self.ahead(1).upper != "DESCRIPTOR" and self.ahead(2).upper == ",":
                self.skip()
                partition += (self.expression(),)
        return TableArgument(table, partition, self.order_by(), position=position)
