"""RabbitMQ sources and sinks, under PyFlink's names."""

from millstream.connectors.rabbitmq.connection import RMQConnectionConfig
from millstream.connectors.rabbitmq.sink import RMQSink
from millstream.connectors.rabbitmq.source import RMQSource

__all__ = ["RMQConnectionConfig", "RMQSink", "RMQSource"]
