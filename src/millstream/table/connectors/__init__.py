"""Table connectors: what `WITH ('connector' = '...')` names.

A connector is a class with an identifier that creates sources and sinks of batches, see
`millstream.sql.connector_contract`.
Those of a user's own are found by the entry point group `millstream.connectors`, or registered by the program.
"""

from millstream.connectors.registry import register_connector

__all__ = ["register_connector"]
