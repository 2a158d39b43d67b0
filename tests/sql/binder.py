"""Types and values of expressions without tables, printed in the format of tests/sql/flink/Evaluate.java."""

from __future__ import annotations

from millstream.sql.bind.binder import Binder
from millstream.sql.bind.expressions import ExpressionBinder
from millstream.sql.bind.scope import Scope
from millstream.sql.columns.batch import Batch
from millstream.sql.columns.value_text import to_text
from millstream.sql.errors import TableException, ValidationException
from millstream.sql.expressions import Expression
from millstream.sql.functions.evaluate import compiled
from millstream.sql.functions.function import EvaluationContext
from millstream.sql.language import syntax
from millstream.sql.language.errors import SqlParserException
from millstream.sql.language.statement_grammar import read_statement
from millstream.sql.language.statements import QueryStatement
from millstream.sql.types import NullType

CONTEXT = EvaluationContext(batch=True)


def bound(text: str, binder: Binder) -> Expression:
    """Return an expression with its types.

    Raises:
        ValidationException, SqlParserException: the text is no valid expression.
    """
    statement = read_statement(f"SELECT {text}")
    assert isinstance(statement, QueryStatement)
    assert isinstance(statement.query, syntax.Select)
    expression = ExpressionBinder(binder, Scope()).bind(statement.query.items[0].value)
    if isinstance(expression.type, NullType):
        raise ValidationException("Illegal use of 'NULL'")
    return expression


def evaluated(text: str, binder: Binder) -> tuple[str, str]:
    """Return the type and the value of an expression; errors begin with an exclamation mark."""
    try:
        expression = bound(text, binder)
    except (ValidationException, SqlParserException) as e:
        return f"! {e}", ""
    try:
        column = compiled(expression, CONTEXT)(Batch([], rows=1))
        (text_value,) = to_text(column, expression.type).to_pylist()
    except TableException as e:
        return str(expression.type), f"! {e}"
    return str(expression.type), "NULL" if text_value is None else "= " + text_value.replace("\n", "\\n").replace(
        "\t", "\\t"
    )
