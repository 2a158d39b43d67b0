"""DataTypes of PyFlink's table module, where formats take them."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.common import Types
from millstream.common.errors import InvalidProgramError
from millstream.datastream.connectors.file_system import FileSource
from millstream.datastream.formats.csv import CsvReaderFormat, CsvSchema
from millstream.table import DataTypes
from millstream.testing import LocalEnvironment


def test_they_stand_for_the_types_of_types() -> None:
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


def test_a_csv_schema_takes_them(tmp_path: Path) -> None:
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
