"""The connectors `kafka` and `upsert-kafka`: topics as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from millstream.connectors.base import DeliveryGuarantee, Source
from millstream.connectors.kafka.offsets import KafkaOffsetsInitializer
from millstream.connectors.kafka.sink import KafkaSink
from millstream.connectors.kafka.source import KafkaSource
from millstream.connectors.kafka.table_options import (
    Messages,
    Topics,
    client_properties,
    messages_of,
    start_of,
    stop_of,
    topics_of,
)
from millstream.connectors.kafka.table_records import (
    WRITTEN,
    BufferFlush,
    TableMessages,
    TableWriting,
    metadata_of,
    partitioning_of,
)
from millstream.formats.base import message_format_options, without_other_formats
from millstream.formats.options import Options
from millstream.operators.sink import Sink
from millstream.sql.catalog.tables import ColumnKind
from millstream.sql.columns.batch import Batch
from millstream.sql.connector_contract import Connector, TableContext, TableSink, TableSource
from millstream.sql.errors import ValidationException
from millstream.sql.expressions import Expression
from millstream.sql.schema import INSERTS, UPSERTS, Changes
from millstream.sql.types import DataType

_GUARANTEES = {
    "exactly-once": DeliveryGuarantee.EXACTLY_ONCE,
    "at-least-once": DeliveryGuarantee.AT_LEAST_ONCE,
    "none": DeliveryGuarantee.NONE,
}
_COMMON = frozenset(
    [
        "topic",
        "topic-pattern",
        "format",
        "value.format",
        "key.format",
        "key.fields-prefix",
        "value.fields-include",
        "properties.*",
        "scan.bounded.mode",
        "scan.bounded.specific-offsets",
        "scan.bounded.timestamp-millis",
        "scan.parallelism",
        "scan.topic-partition-discovery.interval",
        "sink.parallelism",
        "sink.delivery-guarantee",
        "sink.transactional-id-prefix",
        "sink.partitioner",
        "sink.transaction-naming-strategy",
    ]
)


_OF_FORMATS = message_format_options() | message_format_options("key.") | message_format_options("value.")


class _OnKafka(Connector):
    def options(self, table_options: Mapping[str, str]) -> frozenset[str]:
        chosen = [(table_options.get(f"{prefix}format"), prefix) for prefix in ("", "key.", "value.")]
        return without_other_formats(super().options(table_options), _OF_FORMATS, chosen)


class _Source(TableSource):
    watermarks_by_split = True

    def __init__(self, context: TableContext, messages: Messages, topics: Topics, upserts: bool) -> None:
        self._options = Options(context.table.options)
        self._messages = messages
        self._topics = topics
        self._upserts = upserts
        self._start = KafkaOffsetsInitializer.earliest() if upserts else start_of(self._options, topics)
        self._stop = stop_of(self._options, topics)
        self.changes = UPSERTS if upserts else messages.value.changes
        _check_names(context, messages)

    def metadata(self) -> Mapping[str, DataType]:
        return metadata_of(self._messages)

    @property
    def is_bounded(self) -> bool:
        return self._stop is not None

    def parallelism(self) -> int | None:
        return self._options.integer_or_none("scan.parallelism")

    def source(
        self, columns: Sequence[str], filters: Sequence[Expression] = (), limit: int | None = None
    ) -> Source[Batch]:
        builder = KafkaSource.builder().set_properties(client_properties(self._options))
        if self._topics.pattern is not None:
            builder = builder.set_topic_pattern(self._topics.pattern)
        else:
            builder = builder.set_topics(*self._topics.names)
        builder = builder.set_starting_offsets(self._start)
        if self._stop is not None:
            builder = builder.set_bounded(self._stop)
        return builder.set_batch_deserializer(TableMessages(self._messages, columns, self._upserts)).build()


class _Sink(TableSink):
    def __init__(self, context: TableContext, messages: Messages, topics: Topics, upserts: bool) -> None:
        self._options = options = Options(context.table.options)
        self._messages = messages
        self._topics = topics
        self._upserts = upserts
        messages.value.check_written()
        if messages.key is not None:
            messages.key.check_written()
        self._guarantee = options.one_of("sink.delivery-guarantee", "at-least-once", _GUARANTEES)
        self._prefix = options.text("sink.transactional-id-prefix", "")
        if self._guarantee is DeliveryGuarantee.EXACTLY_ONCE and not self._prefix:
            raise ValidationException(
                "sink.transactional-id-prefix must be specified when using DeliveryGuarantee.EXACTLY_ONCE."
            )
        self._partitioning = partitioning_of(options.text("sink.partitioner", "default"), bool(messages.key_names))
        self._buffer = _buffer(options) if upserts else None
        self._check_topics(context)
        self.changes = UPSERTS if upserts else messages.value.written
        _check_names(context, messages)

    def _check_topics(self, context: TableContext) -> None:
        written = {c.metadata_key or c.name for c in context.table.columns if c.kind is ColumnKind.METADATA}
        if self._topics.only is None and "topic" not in written:
            raise ValidationException(
                "Metadata column 'topic' must be specified in schema when using a topic list or a topic pattern in a "
                "sink: declare  topic STRING METADATA,  or name one topic."
            )

    def metadata(self) -> Mapping[str, DataType]:
        return WRITTEN

    def parallelism(self) -> int | None:
        return self._options.integer_or_none("sink.parallelism")

    def sink(self, columns: Sequence[str]) -> Sink[Batch]:
        writing = TableWriting(self._messages, columns, self._topics, self._partitioning, self._upserts, self._buffer)
        builder = KafkaSink.builder().set_delivery_guarantee(self._guarantee).set_batch_serializer(writing)
        if self._prefix:
            builder = builder.set_transactional_id_prefix(self._prefix)
        for key, value in self._options.under("properties.").items():
            if key not in ("group.id", "auto.offset.reset", "isolation.level"):
                builder = builder.set_property(key, value)
        return builder.build()


def _buffer(options: Options) -> BufferFlush | None:
    rows = options.integer("sink.buffer-flush.max-rows", 0)
    interval = options.duration("sink.buffer-flush.interval", 0)
    if (rows > 0) != (interval > 0):
        raise ValidationException(
            "'sink.buffer-flush.max-rows' and 'sink.buffer-flush.interval' must be set to be greater than zero "
            "together to enable sink buffer flushing."
        )
    return BufferFlush(rows, interval / 1000) if rows > 0 else None


def _check_names(context: TableContext, messages: Messages) -> None:
    """Refuse metadata with the name of a physical column, which would be ambiguous."""
    names = {f.name for f in messages.physical}
    for column in context.table.columns:
        key = column.metadata_key or column.name
        if column.kind is ColumnKind.METADATA and key in names:
            raise ValidationException(
                f"Column '{key}' is a physical column, and column '{column.name}' is the metadata with the same key: "
                "rename the physical column."
            )


def _zone(context: TableContext) -> str:
    zone = context.settings.get("table.local-time-zone", "default")
    return "UTC" if zone == "default" else zone


class KafkaConnector(_OnKafka):
    """Reads and writes topics; each message is a separate change."""

    identifier = "kafka"
    required = frozenset(["properties.bootstrap.servers"])
    optional = (
        _COMMON
        | _OF_FORMATS
        | {
            "key.fields",
            "scan.startup.mode",
            "scan.startup.specific-offsets",
            "scan.startup.timestamp-millis",
        }
    )

    def _messages(self, context: TableContext, topics: Topics) -> Messages:
        messages = messages_of(context.table, _zone(context), topics)
        if context.table.primary_key and messages.value.changes == INSERTS:
            raise ValidationException(
                f"The Kafka table '{'.'.join(context.name)}' with '{messages.value.identifier}' format doesn't support "
                "defining PRIMARY KEY constraint on the table, because it can't guarantee the semantic of primary key."
            )
        return messages

    def table_source(self, context: TableContext) -> TableSource:
        topics = topics_of(Options(context.table.options))
        return _Source(context, self._messages(context, topics), topics, upserts=False)

    def table_sink(self, context: TableContext) -> TableSink:
        topics = topics_of(Options(context.table.options))
        return _Sink(context, self._messages(context, topics), topics, upserts=False)


class UpsertKafkaConnector(_OnKafka):
    """Reads and writes topics as upserts by key; a message without a value deletes the row."""

    identifier = "upsert-kafka"
    required = frozenset(["properties.bootstrap.servers", "key.format", "value.format"])
    optional = (_COMMON - {"format"}) | _OF_FORMATS | {"sink.buffer-flush.max-rows", "sink.buffer-flush.interval"}

    def _messages(self, context: TableContext, topics: Topics) -> Messages:
        keys = context.table.primary_key
        if not keys:
            raise ValidationException(
                "'upsert-kafka' tables require to define a PRIMARY KEY constraint. The PRIMARY KEY specifies which "
                "columns should be read from or write to the Kafka message key. The PRIMARY KEY also defines records "
                "in the 'upsert-kafka' table should update or delete on which keys."
            )
        messages = messages_of(context.table, _zone(context), topics, keys)
        assert messages.key is not None
        for part, message_format in (("key", messages.key), ("value", messages.value)):
            if message_format.changes != frozenset({Changes.INSERT}):
                identifier = message_format.identifier
                raise ValidationException(
                    f"'upsert-kafka' connector doesn't support '{identifier}' as {part} format, because "
                    f"'{identifier}' is not in insert-only mode."
                )
        return messages

    def table_source(self, context: TableContext) -> TableSource:
        topics = topics_of(Options(context.table.options))
        return _Source(context, self._messages(context, topics), topics, upserts=True)

    def table_sink(self, context: TableContext) -> TableSink:
        topics = topics_of(Options(context.table.options))
        return _Sink(context, self._messages(context, topics), topics, upserts=True)
