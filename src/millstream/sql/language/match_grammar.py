"""Parses MATCH_RECOGNIZE."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.sql.language.syntax import Expression, Matched, PatternStep, Relation

if TYPE_CHECKING:
    from millstream.sql.language.query_grammar import QueryGrammar


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
