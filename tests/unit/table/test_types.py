"""DataTypes of PyFlink's table module in formats."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millstream.common import Types
from millstream.common.errors import InvalidProgramError
from millstream.datastream.connectors.file_system import FileSource
from millstream.datastream.formats.csv import CsvReaderFormat, CsvSchema
from millstream.table import DataTypes, TableSchema
from millstream.table.data_view import MapView
from millstream.testing import LocalEnvironment


def test_data_types_convert_to_type_information() -> None:
    row = DataTypes.ROW(
        [
            DataTypes.FIELD("id", DataTypes.BIGINT(False)),
            DataTypes.FIELD("tags", DataTypes.ARRAY(DataTypes.STRING())),
            DataTypes.FIELD("price", DataTypes.DECIMAL(10, 2), "in euros"),
        ]
    )
    types = [Types.LONG(), Types.LIST(Types.STRING()), Types.BIG_DEC()]
    assert row.type_information() == Types.ROW_NAMED(["id", "tags", "price"], types)
    assert DataTypes.MAP(DataTypes.STRING(), DataTypes.DOUBLE()).type_information() == Types.MAP(
        Types.STRING(), Types.DOUBLE()
    )
    with pytest.raises(InvalidProgramError, match="There is no type of Types for MULTISET<INT>"):
        DataTypes.MULTISET(DataTypes.INT()).type_information()


def test_data_types_in_a_csv_schema(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1|x,y\n300|z\n")
    schema = (
        CsvSchema.builder()
        .add_number_column("id", number_type=DataTypes.INT())
        .add_array_column("tags", ",", element_type=DataTypes.STRING())
        .set_column_separator("|")
        .build()
    )
    source = FileSource.for_record_stream_format(CsvReaderFormat.for_schema(schema), str(tmp_path)).build()
    rows = list(LocalEnvironment().from_source(source).execute_and_collect())
    assert [(row.id, list(row.tags)) for row in rows] == [(1, ["x", "y"]), (300, ["z"])]
    with pytest.raises(InvalidProgramError, match="takes a basic type"):
        CsvSchema.builder().add_number_column("id", number_type=DataTypes.ARRAY(DataTypes.INT()))


def test_table_schema_row_type_is_not_null() -> None:
    row = TableSchema(["a"], [DataTypes.INT()]).to_row_data_type()
    assert row == DataTypes.ROW([DataTypes.FIELD("a", DataTypes.INT())], nullable=False)


def test_map_view_iterators_remove_entries() -> None:
    view: MapView[str, int] = MapView()
    view.put_all({"a": 1, "b": 2, "c": 3})
    for entries, removed in ((view.keys(), "a"), (view.values(), 2), (view.items(), ("c", 3))):
        iterator: Any = iter(entries)
        with pytest.raises(RuntimeError, match=r"call next\(\) first"):
            iterator.remove()
        assert next(iterator) == removed
        iterator.remove()
        assert removed not in entries
    assert view.is_empty()
    view.put("a", 1)
    keys = iter(view.keys())
    view.put("b", 2)
    with pytest.raises(RuntimeError, match=r"use remove\(\) of the iterator"):
        next(keys)
