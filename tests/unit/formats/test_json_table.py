"""The table format `json`: omitted fields, and the map entries of each row."""

from __future__ import annotations

import json

import pyarrow as pa

from millstream.formats.json.table import JsonFormat
from millstream.formats.options import Options
from millstream.sql.columns.batch import Batch
from millstream.sql.schema import Field
from millstream.sql.types import DataTypes

LEAVES_OUT = Options({"encode.ignore-null-fields": "true"})
INNER = DataTypes.ROW([DataTypes.FIELD("x", DataTypes.INT()), DataTypes.FIELD("y", DataTypes.STRING())])
MAP = DataTypes.MAP(DataTypes.STRING(), DataTypes.INT())


def test_json_format_omits_null_fields_of_nested_rows() -> None:
    rows = pa.array(
        [{"x": 1, "y": None}, {"x": None, "y": None}, None], pa.struct([("x", pa.int32()), ("y", pa.string())])
    )
    nested = pa.ListArray.from_arrays(pa.array([0, 2, 2, 3], pa.int32()), rows)
    fields = [Field("a", INNER), Field("b", DataTypes.ARRAY(INNER))]
    encoded = JsonFormat(LEAVES_OUT, "UTC").encoded(Batch([rows, nested], None, 3), fields)
    # Like RowDataToJsonConverters: an element of an array stays, null or not.
    assert encoded == [b'{"a":{"x":1},"b":[{"x":1},{}]}', b'{"a":{},"b":[]}', b'{"b":[null]}']


def test_json_format_writes_maps_after_a_null_with_entries() -> None:
    keys, values = pa.array(["a", "b", "c", "d"]), pa.array([1, 2, 3, 4], pa.int32())
    maps = pa.MapArray.from_arrays(
        pa.array([0, 1, 3, 4], pa.int32()), keys, values, mask=pa.array([False, True, False])
    )
    for column, expected in ((maps, [{"a": 1}, None, {"d": 4}]), (maps[1:], [None, {"d": 4}])):
        batch = Batch([column], None, len(column))
        encoded = JsonFormat(Options({}), "UTC").encoded(batch, [Field("m", MAP)])
        assert [json.loads(text)["m"] for text in encoded] == expected
