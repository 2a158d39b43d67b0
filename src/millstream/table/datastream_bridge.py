"""Converts streams to tables and tables to streams."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from millstream.common.aliases import Value
from millstream.common.call_site import warn_deprecated
from millstream.common.errors import InvalidProgramError
from millstream.common.typeinfo import (
    BasicArrayTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    ObjectArrayTypeInfo,
    PrimitiveArrayTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
    Types,
)
from millstream.common.types import Row, RowKind
from millstream.datastream.data_stream import DataStream
from millstream.datastream.stream_base import ends_of, environment_of
from millstream.sql import types as t
from millstream.sql.bind.insert import mismatch
from millstream.sql.bind.tables import declared
from millstream.sql.catalog.tables import CatalogTable, ColumnKind, TableColumn
from millstream.sql.errors import ValidationException
from millstream.sql.language import syntax
from millstream.sql.plan.nodes import Node, StreamScan, ToStream
from millstream.sql.plan.specs import StreamInput
from millstream.sql.schema import ALL_CHANGES, Changes, Field, Fields, TimeAttribute
from millstream.sql.type_rules import can_store
from millstream.sql.types import DataType, DataTypes, LocalZonedTimestampType, TimestampType
from millstream.table.api_syntax import TimeMark
from millstream.table.changelog_mode import ChangelogMode
from millstream.table.expression import Expression, aliases_of, tree_of
from millstream.table.schema import Schema
from millstream.table.table import Table
from millstream.table.table_base import node_of

if TYPE_CHECKING:
    from millstream.table.statement_planner import StatementPlanner

_ROWTIME = "rowtime"
_SOURCE_WATERMARK = "SOURCE_WATERMARK()"


class Streams:
    """Converts streams to tables and tables to streams."""

    def __init__(self, planner: StatementPlanner) -> None:
        self._planner = planner
        self._bridge = planner.bridge
        self._runner = planner.runner

    # --- from streams

    def table(self, stream: DataStream, fields: Sequence[Schema | Expression | str]) -> Table:
        """Return a table of a stream's records, with columns from a schema, expressions or the stream's type."""
        if fields and isinstance(fields[0], Schema):
            return self._of_schema(stream, fields[0], changelog=False)
        if fields:
            return self._of_fields(stream, fields)
        return self._of_schema(stream, None, changelog=False)

    def changelog_table(self, stream: DataStream, schema: Schema | None, mode: ChangelogMode | None) -> Table:
        """Return a table of a stream of changes."""
        changes = (mode or ChangelogMode.all()).changes
        if Changes.UPDATE_BEFORE in changes or Changes.UPDATE_AFTER not in changes:
            return self._of_schema(stream, schema, changelog=True, changes=changes)
        if schema is None or not schema.primary_key:
            raise ValidationException("An upsert changelog needs a primary key in its Schema.")
        return self._of_schema(stream, schema, changelog=True, changes=changes, key=schema.primary_key)

    def _named(self, stream: DataStream, names: tuple[str, ...] | None) -> StreamInput:
        if environment_of(stream) is not self._bridge.environment:
            raise InvalidProgramError("The stream belongs to another environment than this StreamTableEnvironment.")
        return StreamInput(tuple(ends_of(stream)), names)

    def _physical(self, stream: DataStream) -> tuple[list[tuple[str, DataType]], bool]:
        """Return the columns of a stream's type, and whether its records have fields."""
        kind = stream.get_type()
        fields = row_fields(kind)
        if fields is None:
            return [("f0", data_type_of(kind))], False
        return [(n, data_type_of(t)) for n, t in fields], True

    def _of_schema(
        self,
        stream: DataStream,
        schema: Schema | None,
        changelog: bool,
        changes: frozenset[Changes] = ALL_CHANGES,
        key: Sequence[str] = (),
    ) -> Table:
        own, is_row = self._physical(stream)
        schema = schema or Schema.new_builder().build()
        columns = list(schema.columns)
        if not any(c.kind is ColumnKind.PHYSICAL for c in columns):
            columns = [*(TableColumn(n, t) for n, t in own), *columns]
        physical = [c for c in columns if c.kind is ColumnKind.PHYSICAL]
        if not is_row and len(physical) != 1:
            raise ValidationException(
                f"The stream's records have no fields, and the schema {len(physical)} columns: give the stream a type "
                "with Types.ROW_NAMED(...), or the schema one column."
            )
        if is_row:
            known = [n for n, _ in own]
            for column in physical:
                if column.name not in known:
                    raise ValidationException(
                        f"Unable to find a field named '{column.name}' in the physical data type {known}."
                    )
        stamps = [c for c in columns if c.kind is ColumnKind.METADATA]
        for column in stamps:
            if (column.metadata_key or column.name) != _ROWTIME:
                raise ValidationException(
                    f"Invalid metadata key '{column.metadata_key or column.name}': a stream has only '{_ROWTIME}'."
                )
        # Computed columns may use undeclared fields.
        declared_types = {c.name: c.type for c in physical}
        read = [TableColumn(n, declared_types.get(n, k)) for n, k in own] if is_row else physical
        scan = self._scan(stream, read, stamps[:1], is_row, changelog, schema)
        scan = replace(scan, changes=changes, key=tuple(scan.fields.names.index(name) for name in key))
        return self._declared(scan, columns, schema)

    def _scan(
        self,
        stream: DataStream,
        physical: Sequence[TableColumn],
        stamps: Sequence[TableColumn],
        is_row: bool,
        changelog: bool,
        schema: Schema,
    ) -> StreamScan:
        named = self._named(stream, tuple(c.name for c in physical) if is_row else None)
        follows = schema.watermark is not None and _is_source_watermark(schema.watermark[1])
        fields = [Field(c.name, c.type) for c in physical]
        event_time = None
        if stamps:
            event_time = len(fields)
            fields.append(Field(stamps[0].name, _checked_time(stamps[0])))
        if follows:
            assert schema.watermark is not None
            name = schema.watermark[0]
            fields = [Field(f.name, f.type, TimeAttribute.ROWTIME) if f.name == name else f for f in fields]
        return StreamScan(Fields(tuple(fields)), named, changelog, event_time, follows)

    def _declared(self, scan: StreamScan, columns: Sequence[TableColumn], schema: Schema) -> Table:
        watermark = None if scan.follows_watermarks else schema.watermark
        table = CatalogTable(tuple(columns), watermark, schema.primary_key)
        node = declared(self._planner.sql_binder(), scan, table)
        return Table(node, self._planner, replace(table, watermark=schema.watermark))

    def _of_fields(self, stream: DataStream, fields: Sequence[Schema | Expression | str]) -> Table:
        """Return a table of fields that are named: by their names, or by position under other names."""
        own, is_row = self._physical(stream)
        known = [n for n, _ in own]
        trees = [tree_of(f) if isinstance(f, Expression) else syntax.Name((str(f),)) for f in fields]
        plain = [t for t in trees if not isinstance(t, TimeMark)]
        named = [_field_name(t) for t in plain]
        by_name = is_row and all(n in known for n in named)
        if not by_name and len(named) > len(own):
            raise ValidationException(f"{len(named)} fields are named, and the stream has {len(own)}: {known}.")
        chosen = [known.index(n) for n in named] if by_name else list(range(len(named)))
        columns = [TableColumn(own[i][0], own[i][1]) for i in chosen]
        marks = [t for t in trees if isinstance(t, TimeMark) and t.kind == "ROWTIME"]
        stamps = [TableColumn(_field_name(m.value), DataTypes.TIMESTAMP(3), ColumnKind.METADATA) for m in marks]
        scan = self._scan(stream, columns, stamps[:1], is_row, False, _following(stamps))
        items = []
        remaining = iter(columns)
        for tree, field in zip(trees, fields, strict=True):
            if isinstance(tree, TimeMark):
                name = _field_name(tree.value)
                value: syntax.Expression = syntax.Name((name,)) if tree.kind == "ROWTIME" else syntax.Call("PROCTIME")
            else:
                value, name = syntax.Name((next(remaining).name,)), _field_name(tree)
            aliases = aliases_of(field)
            items.append(syntax.SelectItem(value, aliases[0] if aliases else name))
        return Table(self._planner.binder().select(scan, items), self._planner)

    # --- to streams

    def stream(self, table: Table) -> DataStream:
        """Return the rows of an append-only table."""
        return self._as_stream(table, changelog=False)

    def changelog_stream(self, table: Table, schema: Schema | None, mode: ChangelogMode | None) -> DataStream:
        """Return a table's changes."""
        upsert = mode is not None and mode.changes == ChangelogMode.upsert().changes
        changelog = mode is None or mode.changes != ChangelogMode.insert_only().changes
        written = [] if schema is None else [c for c in schema.columns if c.kind is not ColumnKind.COMPUTED]
        stream = self._as_stream(self._aligned(table, written), changelog, upsert and changelog)
        physical = [i for i, c in enumerate(written) if c.kind is ColumnKind.PHYSICAL]
        return stream if len(physical) == len(written) else _projected(stream, physical)

    def _aligned(self, table: Table, written: Sequence[TableColumn]) -> Table:
        """Return a table with the columns of a schema, matched by position, as in INSERT INTO."""
        if not written:
            return table
        fields = node_of(table).fields
        name = ["to_changelog_stream()"]
        if len(written) != len(fields):
            raise mismatch("Different number of columns.", fields, written, name)
        for index, (column, field) in enumerate(zip(written, fields.fields, strict=True)):
            if not can_store(field.type, column.type.nullable()):
                cause = f"Incompatible types for sink column '{column.name}' at position {index + 1}."
                raise mismatch(cause, fields, written, name)
        items = [
            syntax.SelectItem(
                syntax.Cast(syntax.Name((n,)), c.type) if c.kind is ColumnKind.PHYSICAL else syntax.Name((n,)), c.name
            )
            for c, n in zip(written, fields.names, strict=True)
        ]
        return Table(self._planner.binder().select(node_of(table), items), self._planner)

    def _as_stream(self, table: Table, changelog: bool, upsert: bool = False) -> DataStream:
        node = node_of(table)
        end = ToStream(node.fields, node, changelog, upsert, _event_time(node))
        last = self._runner.stream(end)
        return self._bridge.stream(last, type_info_of(node.fields))

    def append_stream(self, table: Table, type_info: TypeInformation) -> DataStream:
        """Old: return a table's rows."""
        warn_deprecated("to_append_stream()", "use to_data_stream()")
        check_type_info(node_of(table).fields, type_info, "to_append_stream()")
        return self._as_stream(table, changelog=False).map(record_maker(type_info), type_info)

    def retract_stream(self, table: Table, type_info: TypeInformation) -> DataStream:
        """Old: return pairs of whether a row is added, and the row."""
        warn_deprecated("to_retract_stream()", "use to_changelog_stream()")
        check_type_info(node_of(table).fields, type_info, "to_retract_stream()")
        kind = Types.TUPLE([Types.BOOLEAN(), type_info])
        make = record_maker(type_info)

        def pair(row: Row) -> tuple[bool, Value]:
            return row.get_row_kind() in (RowKind.INSERT, RowKind.UPDATE_AFTER), make(row)

        return self._as_stream(table, changelog=True).map(pair, kind)


def _projected(stream: DataStream, indexes: Sequence[int]) -> DataStream:
    """Return a stream of rows with some of their columns; the event time, a column of metadata, is the record's."""
    kind = stream.get_type()
    assert isinstance(kind, RowTypeInfo)
    names = tuple(kind.get_field_names()[i] for i in indexes)

    def choose(row: Row) -> Row:
        chosen = Row.of(names, [row[i] for i in indexes])
        chosen.set_row_kind(row.get_row_kind())
        return chosen

    return stream.map(choose, Types.ROW_NAMED(list(names), [kind.get_field_types()[i] for i in indexes]))


def _is_source_watermark(expression: str) -> bool:
    return expression.replace(" ", "").strip("`").upper() == _SOURCE_WATERMARK


def _following(stamps: Sequence[TableColumn]) -> Schema:
    builder = Schema.new_builder()
    return builder.watermark(stamps[0].name, _SOURCE_WATERMARK).build() if stamps else builder.build()


def _checked_time(column: TableColumn) -> DataType:
    if not isinstance(column.type, (TimestampType, LocalZonedTimestampType)) or column.type.precision > 3:
        raise ValidationException(
            f"The column '{column.name}' of event time must be TIMESTAMP_LTZ(3) or TIMESTAMP(3), not {column.type}."
        )
    return column.type


def _event_time(node: Node) -> int | None:
    rowtimes = [i for i, f in enumerate(node.fields.fields) if f.time is TimeAttribute.ROWTIME]
    if len(rowtimes) > 1:
        names = ", ".join(node.fields[i].name for i in rowtimes)
        raise ValidationException(
            f"The query contains more than one rowtime attribute column [{names}]. Please select the rowtime attribute "
            "column that should be used as event-time timestamp by casting all other columns to a regular TIMESTAMP."
        )
    return rowtimes[0] if rowtimes else None


def _field_name(tree: syntax.Expression) -> str:
    if not isinstance(tree, syntax.Name):
        raise ValidationException("A stream's fields are named with col('a'), col('a').rowtime or col('a').proctime.")
    return tree.parts[-1]


_BASIC: list[tuple[TypeInformation, t.DataType]] = [
    (Types.STRING(), t.DataTypes.STRING()),
    (Types.BOOLEAN(), t.DataTypes.BOOLEAN()),
    (Types.BYTE(), t.DataTypes.TINYINT()),
    (Types.SHORT(), t.DataTypes.SMALLINT()),
    (Types.INT(), t.DataTypes.INT()),
    (Types.LONG(), t.DataTypes.BIGINT()),
    (Types.FLOAT(), t.DataTypes.FLOAT()),
    (Types.DOUBLE(), t.DataTypes.DOUBLE()),
    (Types.CHAR(), t.DataTypes.CHAR(1)),
    (Types.BIG_INT(), t.DataTypes.DECIMAL(38, 0)),
    (Types.BIG_DEC(), t.DataTypes.DECIMAL(38, 18)),
    (Types.SQL_DATE(), t.DataTypes.DATE()),
    (Types.SQL_TIME(), t.DataTypes.TIME()),
    (Types.SQL_TIMESTAMP(), t.DataTypes.TIMESTAMP(9)),
    (Types.INSTANT(), t.DataTypes.TIMESTAMP_LTZ(9)),
]


def row_fields(kind: TypeInformation) -> list[tuple[str, TypeInformation]] | None:
    """Return the fields of a row or tuple type; None for a type without fields."""
    if isinstance(kind, RowTypeInfo):
        return list(zip(kind.get_field_names(), kind.get_field_types(), strict=True))
    if isinstance(kind, TupleTypeInfo):
        return [(f"f{i}", k) for i, k in enumerate(kind.get_field_types())]
    return None


def data_type_of(kind: TypeInformation) -> t.DataType:
    """Return the type of a column for that of a stream's values."""
    fields = row_fields(kind)
    if fields is not None:
        return t.RowType([t.RowField(n, data_type_of(k)) for n, k in fields])
    for stream_type, table_type in _BASIC:
        if kind == stream_type:
            return table_type
    if isinstance(kind, PrimitiveArrayTypeInfo) and kind.get_element_type() == Types.BYTE():
        return t.DataTypes.BYTES()
    if isinstance(kind, (BasicArrayTypeInfo, ListTypeInfo, ObjectArrayTypeInfo, PrimitiveArrayTypeInfo)):
        return t.DataTypes.ARRAY(data_type_of(kind.get_element_type()))
    if isinstance(kind, MapTypeInfo):
        return t.DataTypes.MAP(data_type_of(kind.key_type), data_type_of(kind.value_type))
    return t.RawType()


def type_info_of(fields: Fields) -> TypeInformation:
    """Return the type of a stream of rows with these columns."""
    return Types.ROW_NAMED(fields.names, [_streamed(k) for k in fields.types])


def _streamed(kind: t.DataType) -> TypeInformation:
    try:
        return kind.type_information()
    except Exception:
        return Types.PICKLED_BYTE_ARRAY()


# Types whose values do not depend on length or precision.
_SAME_VALUES: tuple[tuple[type[t.DataType], ...], ...] = (
    (t.CharType, t.VarCharType),
    (t.BinaryType, t.VarBinaryType),
)


def check_type_info(fields: Fields, kind: object, method: str) -> None:
    """Raise an error, as Flink does, if a stream's type does not match the table's columns.

    Raises:
        ValidationException: the number of fields or the type of a field differs.
    """
    if not isinstance(kind, TypeInformation):
        raise TypeError(f"{method} takes the type of its records, such as Types.ROW([Types.LONG()]), not {kind!r}.")
    requested = row_fields(kind) or [("f0", kind)]
    types = [data_type_of(k) for _, k in requested]
    if len(types) != len(fields.types):
        cause = "Different number of columns."
    else:
        wrong = [i for i, pair in enumerate(zip(fields.types, types, strict=True)) if not _is_compatible(*pair)]
        if not wrong:
            return
        cause = f"Incompatible types for sink column '{requested[wrong[0]][0]}' at position {wrong[0] + 1}."
    target = [TableColumn(n, k) for (n, _), k in zip(requested, types, strict=True)]
    raise mismatch(cause, fields, target, [method])


def _is_compatible(column: t.DataType, requested: t.DataType) -> bool:
    if isinstance(requested, t.RawType):
        return not isinstance(column, t.AtomicType) or isinstance(column, t.RawType)
    return type(column) is type(requested) or any(
        isinstance(column, a) and isinstance(requested, a) for a in _SAME_VALUES
    )


def record_maker(kind: TypeInformation) -> Callable[[Row], Value]:
    """Return a function that converts a table's row to a type: a Row with its names, a tuple, or one value."""
    if isinstance(kind, TupleTypeInfo):
        return tuple
    if isinstance(kind, RowTypeInfo):
        names = tuple(kind.get_field_names())
        return lambda row: Row.of(names, list(row))
    return lambda row: row[0]
