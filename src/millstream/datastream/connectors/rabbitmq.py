"""RabbitMQ: only the names so far."""

from typing import TYPE_CHECKING

from millstream.common.missing import missing_names

_NAMES = """
    RMQConnectionConfig RMQSink RMQSource
"""

# Type checkers would take any name for one of the module's.
if not TYPE_CHECKING:
    __getattr__ = missing_names(__name__, "the RabbitMQ connector is not built yet", _NAMES)
