"""Cassandra: only the names so far."""

from typing import TYPE_CHECKING

from millstream.common.unsupported import missing_names

_NAMES = """
    CassandraCommitter CassandraFailureHandler CassandraSink ClusterBuilder ConsistencyLevel MapperOptions
"""

# Type checkers would take any name for one of the module's.
if not TYPE_CHECKING:
    __getattr__ = missing_names(__name__, "the Cassandra connector is not built yet", _NAMES)
