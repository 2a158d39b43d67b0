"""Cassandra: only the names so far."""

from typing import TYPE_CHECKING

from millstream.common.unsupported import missing_names

_NAMES = """
    CassandraCommitter CassandraFailureHandler CassandraSink ClusterBuilder ConsistencyLevel MapperOptions
"""

# With __getattr__, type checkers would accept any name.
if not TYPE_CHECKING:
    __getattr__ = missing_names(__name__, "the Cassandra connector is not supported yet", _NAMES)
