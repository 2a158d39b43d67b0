"""RabbitMQ sources and sinks, under PyFlink's names."""

from millstream.connectors.rabbitmq.connection import (
    RMQConnectionConfig,
    RMQSink,
    RMQSource,
)

__all__ = ["RMQConnectionConfig", "RMQSink", "RMQSource"]
