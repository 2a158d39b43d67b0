"""ORC files, and factories of writers for rows."""

from __future__ import annotations

import datetime
import io
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc
import pytest

from millstream.common import Configuration, Row, Types
from millstream.common.errors import InvalidProgramError, TypeMismatchError
from millstream.common.serialization import BulkWriterFactory, RowDataBulkWriterFactory
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.file_system import BucketAssigner, FileSink
from millstream.datastream.formats.csv import CsvBulkWriters, CsvSchema
from millstream.datastream.formats.orc import OrcBulkWriters
from millstream.datastream.formats.parquet import ParquetBulkWriters
from millstream.formats import arrow_rows as arrow_files
from millstream.testing.local_job import LocalJob
from tests.support.format_files import written

PEOPLE = Types.ROW_NAMED(["name", "age"], [Types.STRING(), Types.INT()])
EVERYTHING = Types.ROW_NAMED(
    ["bool", "byte", "long", "float", "double", "text", "bytes", "date", "at", "dec", "big", "list", "map", "row"],
    [
        Types.BOOLEAN(),
        Types.BYTE(),
        Types.LONG(),
        Types.FLOAT(),
        Types.DOUBLE(),
        Types.STRING(),
        Types.PRIMITIVE_ARRAY(Types.BYTE()),
        Types.SQL_DATE(),
        Types.SQL_TIMESTAMP(),
        Types.BIG_DEC(),
        Types.BIG_INT(),
        Types.LIST(PEOPLE),
        Types.MAP(Types.STRING(), Types.OBJECT_ARRAY(Types.LONG())),
        PEOPLE,
    ],
)
VALUES = [
    True,
    -128,
    2**63 - 1,
    1.5,
    0.1,
    "à",
    b"\x00\xff",
    datetime.date(1900, 1, 1),
    datetime.datetime(1950, 7, 1, 3, 4, 5, 123456),
    Decimal("1.5"),
    10**30,
    [Row("Ann", 7), None],
    {"k": [1, None]},
    Row("Bob", None),
]


def orc_bytes(row_type: Any, rows: list[Any], properties: Configuration | None = None) -> bytes:
    return written(OrcBulkWriters.for_row_type(row_type, properties), rows)


def orc_file(data: bytes) -> Any:
    return pyarrow.orc.ORCFile(io.BytesIO(data))


def test_orc_writes_rows_of_all_types() -> None:
    data = orc_bytes(EVERYTHING, [Row(*VALUES), Row(*[None] * len(VALUES))])
    first, second = orc_file(data).read().to_pylist()
    ann = {"name": "Ann", "age": 7}
    expected = [*VALUES[:-3], [ann, None], [("k", [1, None])], {"name": "Bob", "age": None}]
    assert list(first.values()) == expected
    assert set(second.values()) == {None}


def test_orc_writes_many_batches_and_empty_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_files, "BATCH_ROWS", 10)
    rows = [(f"n{i}", i) for i in range(95)]
    assert [tuple(r.values()) for r in orc_file(orc_bytes(PEOPLE, rows)).read().to_pylist()] == rows
    empty = orc_file(orc_bytes(PEOPLE, []))
    assert (empty.nrows, empty.schema.names) == (0, ["name", "age"])


def test_orc_compression_settings() -> None:
    rows = [("Ann", 7)]
    assert orc_file(orc_bytes(PEOPLE, rows)).compression == "ZLIB"
    properties = {
        "orc.compress": "snappy",
        "orc.compress.size": 1 << 17,
        "orc.row.index.stride": 2000,
        "orc.stripe.size": 1 << 20,
        "orc.bloom.filter.columns": "name",
    }
    file = orc_file(orc_bytes(PEOPLE, rows, Configuration.from_dict(properties)))
    assert (file.compression, file.compression_size, file.row_index_stride) == ("SNAPPY", 1 << 17, 2000)
    with pytest.raises(InvalidProgramError, match="orc.compress is 'LZMA'; it must be one of NONE, ZLIB"):
        orc_bytes(PEOPLE, rows, Configuration.from_dict({"orc.compress": "lzma"}))


def test_orc_rejects_unsupported_types_and_values() -> None:
    with pytest.raises(InvalidProgramError, match="ORC does not support TimeTypeInfo"):
        OrcBulkWriters.for_row_type(Types.ROW([Types.LIST(Types.SQL_TIME())]))
    with pytest.raises(InvalidProgramError, match=r"OrcBulkWriters.for_row_type\(\) takes a row type"):
        OrcBulkWriters.for_row_type("ROW<a INT>")  # type: ignore[arg-type]
    with pytest.raises(TypeMismatchError, match="ORC: cannot write None as a row"):
        orc_bytes(PEOPLE, [None])
    with pytest.raises(TypeMismatchError):
        orc_bytes(PEOPLE, [("Ann", "seven")])


@pytest.mark.parametrize("writers", [OrcBulkWriters, ParquetBulkWriters])
def test_bulk_writers_name_a_value_that_arrow_rejects(writers: Any) -> None:
    row_type = Types.ROW_NAMED(["id", "price"], [Types.INT(), Types.BIG_DEC()])
    writer = writers.for_row_type(row_type).open(io.BytesIO())
    for i, price in enumerate(["1", "1e30", "2"]):
        writer.add_element(Row(i, Decimal(price)))
    with pytest.raises(TypeMismatchError, match=r"field 'price' of Row\(id=1, price=Decimal\('1E\+30'\)\) cannot be"):
        writer.finish()


def test_bulk_writer_factories_expose_their_row_type() -> None:
    schema = CsvSchema.builder().add_string_column("name").add_number_column("age", Types.INT()).build()
    factories = [
        OrcBulkWriters.for_row_type(PEOPLE),
        ParquetBulkWriters.for_row_type(PEOPLE),
        CsvBulkWriters.for_schema(schema),
    ]
    for factory in factories:
        assert isinstance(factory, RowDataBulkWriterFactory) and isinstance(factory, BulkWriterFactory)
        assert factory.get_row_type() == PEOPLE


def test_orc_in_a_file_sink(tmp_path: Path) -> None:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
    people = [(f"name {i}", i) for i in range(200)]
    sink = FileSink.for_bulk_format(str(tmp_path / "out"), OrcBulkWriters.for_row_type(PEOPLE))
    sink = sink.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
    env.from_collection(people, PEOPLE).rebalance().sink_to(sink.build())
    LocalJob(env, epoch_sizes=lambda: 30).run()
    tables = [pyarrow.orc.read_table(path) for path in (tmp_path / "out").iterdir()]
    rows = [tuple(row.values()) for row in pa.concat_tables(tables).to_pylist()]
    assert sorted(rows, key=lambda r: r[1]) == people
