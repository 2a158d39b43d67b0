"""JDBC: only the names so far."""

from typing import TYPE_CHECKING

from millstream.common.missing import missing_names

_NAMES = """
    JdbcConnectionOptions JdbcExecutionOptions JdbcSink
"""

# Type checkers would take any name for one of the module's.
if not TYPE_CHECKING:
    __getattr__ = missing_names(
        __name__,
        "it is not built yet; connectors.sql.SqlSink writes to databases",
        _NAMES,
    )
