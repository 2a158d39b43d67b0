"""Reads expressions and types that the Table API takes as text."""

from __future__ import annotations

from millstream.sql.language.errors import SqlParserException
from millstream.sql.language.lexer import Kind, tokens_of
from millstream.sql.language.statement_grammar import StatementGrammar
from millstream.sql.language.syntax import Expression
from millstream.sql.language.type_grammar import read_type
from millstream.sql.types import DataType


def read_expression(text: str) -> Expression:
    """Return the expression that a text is."""
    grammar = StatementGrammar(text)
    found = grammar.expression()
    if not grammar.is_at_end:
        grammar.refuse()
    return found


def read_data_type(text: str) -> DataType:
    """Return the type that a text names.

    Example:
        >>> str(read_data_type("map<string, int>"))
        'MAP<STRING, INT>'
    """
    grammar = StatementGrammar(text)
    found = read_type(grammar, intervals=True)
    if not grammar.is_at_end:
        grammar.refuse()
    return found


def read_path(text: str) -> tuple[str, ...]:
    """Return the parts of a name such as `db.t`, with or without backquotes; words of the language are names, too."""
    *tokens, _ = tokens_of(text)
    names, dots = tokens[::2], tokens[1::2]
    words = all(t.kind in (Kind.WORD, Kind.QUOTED) for t in names)
    if not names or not words or len(names) != len(dots) + 1 or any(t.text != "." for t in dots):
        raise SqlParserException(f"Invalid SQL identifier {text}.")
    return tuple(t.text for t in names)


def as_data_type(given: DataType | str) -> DataType:
    """Return a type that is given as one or as text."""
    return read_data_type(given) if isinstance(given, str) else given
