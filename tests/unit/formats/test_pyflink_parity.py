"""File and message formats give PyFlink's results, as recorded by tests/pyflink/formats/record.py."""

from __future__ import annotations

import datetime
import importlib.util
import io
import json
from pathlib import Path
from typing import Any

import pytest

from millstream.common import Types
from millstream.common.errors import MillstreamError
from millstream.datastream.formats.csv import (
    CsvBulkWriters,
    CsvReaderFormat,
    CsvRowDeserializationSchema,
    CsvRowSerializationSchema,
    CsvSchema,
)
from millstream.datastream.formats.json import JsonRowDeserializationSchema, JsonRowSerializationSchema
from millstream.formats.file_access import FileAccess
from millstream.formats.file_format import FileFormat, FileSplitRange, StreamFormat
from tests.support.paths import TESTS

FORMATS = TESTS / "pyflink" / "formats"


def _cases() -> list[tuple[dict[str, Any], Any]]:
    spec = importlib.util.spec_from_file_location("format_cases", FORMATS / "cases.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return list(zip(module.CASES, json.loads((FORMATS / "expected.json").read_text()), strict=True))


CASES = _cases()

# Intended differences, with the results here.
OURS = {
    # Characters beyond 16 bits are written as they are, not as two escapes; both are the same JSON.
    ("json_row_write", "['\U0001f600', 1]"): '{"s":"\U0001f600","n":1}',
    # A decimal retains its scale.
    ("json_row", repr('{"dec":1.230}')): [None, None, None, "1.230", None],
    # An empty file has no header to check.
    ("csv_read", "''"): [],
}


def parts(field: str) -> tuple[str, str, bool]:
    name, _, kind = field.partition(":")
    return name, kind.removesuffix("[]"), kind.endswith("[]")


def schema_of(case: dict[str, Any]) -> CsvSchema:
    builder = CsvSchema.builder()
    for field in case["fields"]:
        name, kind, is_array = parts(field)
        if is_array:
            builder.add_array_column(name, ";", getattr(Types, kind)())
        elif kind == "STRING":
            builder.add_string_column(name)
        elif kind == "BOOLEAN":
            builder.add_boolean_column(name)
        else:
            builder.add_number_column(name, getattr(Types, kind)())
    return built(case, builder)  # type: ignore[no-any-return]


def type_of(case: dict[str, Any]) -> Any:
    fields = [parts(f) for f in case["fields"]]
    types = [Types.BASIC_ARRAY(getattr(Types, k)()) if is_array else getattr(Types, k)() for _, k, is_array in fields]
    return Types.ROW_NAMED([f[0] for f in fields], types)


def built(case: dict[str, Any], builder: Any) -> Any:
    for name, *arguments in case["settings"]:
        getattr(builder, name)(*arguments)
    return builder.build()


def plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, float) and (value != value or abs(value) == float("inf")):
        return str(value)
    if isinstance(value, datetime.datetime):
        # Java's format.
        return f"{value:%Y-%m-%d %H:%M:%S}.{f'{value.microsecond:06}'.rstrip('0') or '0'}"
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 1 << 63:
        return str(value)
    if isinstance(value, float):
        return float(f"{value:.7g}")
    return value if value is None or isinstance(value, (str, bool, int)) else str(value)


def read_all(file_format: FileFormat, case: dict[str, Any], path: Path) -> list[Any]:
    data = case["input"].encode()
    path.write_bytes(data)
    split_range = FileSplitRange(0, str(path), 0, len(data), len(data), True)
    results: list[Any] = []
    try:
        for batch in file_format.read(FileAccess({}), split_range) if data else ():
            results += batch
    except MillstreamError as e:
        results.append({"error": str(e)})
    return [plain(list(r)) if isinstance(r, object) and not isinstance(r, (str, dict)) else r for r in results]  # type: ignore[call-overload]


def one(make: Any) -> Any:
    try:
        return make()
    except MillstreamError as e:
        return {"error": str(e)}


def written(case: dict[str, Any]) -> str:
    file = io.BytesIO()
    writer = CsvBulkWriters.for_schema(schema_of(case)).open(file)
    writer.add_element(tuple(case["input"]))
    writer.finish()
    return file.getvalue().decode()


def deserialized(schema: Any, case: dict[str, Any]) -> Any:
    row = schema.deserialize(case["input"].encode())
    if row is None:
        return None
    # Integers of any size were recorded as text.
    big = [field.endswith(":BIG_INT") and value is not None for field, value in zip(case["fields"], row, strict=True)]
    return [str(v) if is_big else plain(v) for v, is_big in zip(row, big, strict=True)]


def run(case: dict[str, Any], path: Path) -> Any:
    kind = case["kind"]
    if kind == "text":
        return read_all(StreamFormat.text_line_format(), case, path)
    if kind == "csv_read":
        return read_all(CsvReaderFormat.for_schema(schema_of(case)), case, path)
    if kind == "csv_write":
        return one(lambda: written(case))
    if kind == "csv_row":
        schema = built(case, CsvRowDeserializationSchema.Builder(type_of(case)))
        return one(lambda: deserialized(schema, case))
    if kind == "json_row":
        schema = built(case, JsonRowDeserializationSchema.builder().type_info(type_of(case)))
        return one(lambda: deserialized(schema, case))
    if kind == "csv_row_write":
        schema = built(case, CsvRowSerializationSchema.Builder(type_of(case)))
    else:
        schema = JsonRowSerializationSchema.builder().with_type_info(type_of(case)).build()
    return one(lambda: schema.serialize(tuple(case["input"])).decode())


def without_errors(result: Any) -> Any:
    """Compare only whether there is an error."""
    if isinstance(result, list):
        return [without_errors(r) for r in result]
    if isinstance(result, float):
        # 32-bit floats have no more digits.
        return float(f"{result:.7g}")
    return "an error" if isinstance(result, dict) and "error" in result else result


def same(ours: Any, theirs: Any) -> bool:
    """A file is read in batches, so that an error hides good records of its batch."""
    ours, theirs = without_errors(ours), without_errors(theirs)
    if isinstance(theirs, list) and theirs and theirs[-1] == "an error" and isinstance(ours, list):
        return bool(ours) and ours[-1] == "an error"
    return bool(ours == theirs)


@pytest.mark.parametrize("index", range(len(CASES)))
def test_formats_match_recorded_pyflink(index: int, tmp_path: Path) -> None:
    case, theirs = CASES[index]
    ours = run(case, tmp_path / "file")
    expected = OURS.get((case["kind"], repr(case["input"])), theirs)
    assert same(ours, expected), f"{case}\nours:   {ours}\ntheirs: {expected}"
