"""Record the results of Apache PyFlink for the cases in cases.py.

    PATH=<venv with apache-flink>/bin:$PATH python record.py

The formats are called directly, without a job: expected.json gets, for each case, the resulting records or text, or
{"error": ...} after the records that precede the error.
"""

import json
import os
import tempfile
from decimal import Decimal

from cases import CASES
from py4j.java_collections import JavaArray
from pyflink.common import Types
from pyflink.datastream.connectors.file_system import StreamFormat
from pyflink.datastream.formats.csv import (
    CsvBulkWriters,
    CsvReaderFormat,
    CsvRowDeserializationSchema,
    CsvRowSerializationSchema,
    CsvSchema,
)
from pyflink.datastream.formats.json import JsonRowDeserializationSchema, JsonRowSerializationSchema
from pyflink.java_gateway import get_gateway
from pyflink.table import DataTypes

gateway = get_gateway()
jvm = gateway.jvm

DATA_TYPES = {
    "STRING": DataTypes.STRING,
    "INT": DataTypes.INT,
    "LONG": DataTypes.BIGINT,
    "SHORT": DataTypes.SMALLINT,
    "BYTE": DataTypes.TINYINT,
    "DOUBLE": DataTypes.DOUBLE,
    "FLOAT": DataTypes.FLOAT,
    "BOOLEAN": DataTypes.BOOLEAN,
}
GETTERS = {
    "STRING": "getString",
    "INT": "getInt",
    "LONG": "getLong",
    "SHORT": "getShort",
    "BYTE": "getByte",
    "DOUBLE": "getDouble",
    "FLOAT": "getFloat",
    "BOOLEAN": "getBoolean",
}


def parts(field):
    name, _, kind = field.partition(":")
    return name, kind.removesuffix("[]"), kind.endswith("[]")


def schema_of(case):
    builder = CsvSchema.builder()
    for field in case["fields"]:
        name, kind, is_array = parts(field)
        if is_array:
            builder.add_array_column(name, ";", DATA_TYPES[kind]())
        elif kind == "STRING":
            builder.add_string_column(name)
        elif kind == "BOOLEAN":
            builder.add_boolean_column(name)
        else:
            builder.add_number_column(name, DATA_TYPES[kind]())
    for name, *arguments in case["settings"]:
        getattr(builder, name)(*arguments)
    return builder.build()


def type_of(case):
    names, types = [], []
    for field in case["fields"]:
        name, kind, is_array = parts(field)
        names.append(name)
        plain = getattr(Types, kind)()
        types.append(Types.BASIC_ARRAY(plain) if is_array else plain)
    return Types.ROW_NAMED(names, types)


def plain(value):
    """Return a Java value as a JSON value."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else str(value)
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, JavaArray):
        return [plain(v) for v in value]
    return value.toString()


def fields_of(row, case):
    """Return the fields of a RowData."""
    fields = []
    for i, field in enumerate(case["fields"]):
        _, kind, is_array = parts(field)
        if row.isNullAt(i):
            fields.append(None)
        elif is_array:
            array = row.getArray(i)
            fields.append([None if array.isNullAt(j) else _get(array, j, kind) for j in range(array.size())])
        else:
            fields.append(_get(row, i, kind))
    return fields


def _get(holder, i, kind):
    return plain(getattr(holder, GETTERS[kind])(i))


def stream(text):
    with tempfile.NamedTemporaryFile(delete=False) as file:
        file.write(text.encode())
    return jvm.org.apache.flink.core.fs.local.LocalDataInputStream(jvm.java.io.File(file.name))


def read_all(stream_format, case, show):
    records = []
    try:
        configuration = jvm.org.apache.flink.configuration.Configuration()
        reader = stream_format._j_stream_format.createReader(configuration, stream(case["input"]))
        while (record := reader.read()) is not None:
            records.append(show(record))
    except Exception as error:
        records.append({"error": message(error)})
    return records


def message(error):
    cause = getattr(error, "java_exception", None)
    messages = []
    while cause is not None:
        messages.append(str(cause.getMessage()).split("\n")[0][:150])
        cause = cause.getCause()
    return " / ".join(dict.fromkeys(messages)) or repr(error)


def result_or_error(make):
    try:
        return make()
    except Exception as error:
        return {"error": message(error)}


def builder_of(case, builder):
    for name, *arguments in case["settings"]:
        getattr(builder, name)(*arguments)
    return builder.build()


def java_row(case):
    """Return a Row created by Flink's own JSON reader: py4j would choose other boxed classes."""
    row_type = type_of(case)
    reader = JsonRowDeserializationSchema.builder().type_info(row_type).build()._j_deserialization_schema
    reader.open(None)
    names = [parts(f)[0] for f in case["fields"]]
    return reader.deserialize(json.dumps(dict(zip(names, case["input"], strict=True))).encode())


def java_row_data(case):
    row = java_row(case)
    row_data = jvm.org.apache.flink.table.data.GenericRowData(len(case["fields"]))
    for i, field in enumerate(case["fields"]):
        _, kind, is_array = parts(field)
        value = row.getField(i)
        if is_array and value is not None:
            objects = gateway.new_array(jvm.java.lang.Object, len(value))
            for j, v in enumerate(value):
                is_text = kind == "STRING" and v is not None
                objects[j] = jvm.org.apache.flink.table.data.StringData.fromString(v) if is_text else v
            value = jvm.org.apache.flink.table.data.GenericArrayData(objects)
            row_data.setField(i, value)
        elif value is not None and kind == "STRING":
            row_data.setField(i, jvm.org.apache.flink.table.data.StringData.fromString(value))
        else:
            row_data.setField(i, value)
    return row_data


def run(case):
    kind = case["kind"]
    if kind == "text":
        return read_all(StreamFormat.text_line_format(), case, lambda v: v)
    if kind == "csv_read":
        return read_all(CsvReaderFormat.for_schema(schema_of(case)), case, lambda r: fields_of(r, case))
    if kind == "csv_write":
        return result_or_error(lambda: bulk_written(case))
    if kind == "csv_row":
        return result_or_error(
            lambda: deserialized(builder_of(case, CsvRowDeserializationSchema.Builder(type_of(case))), case)
        )
    if kind == "json_row":
        builder = JsonRowDeserializationSchema.builder().type_info(type_of(case))
        return result_or_error(lambda: deserialized(builder_of(case, builder), case))
    if kind == "csv_row_write":
        return result_or_error(
            lambda: serialized(builder_of(case, CsvRowSerializationSchema.Builder(type_of(case))), case)
        )
    return result_or_error(
        lambda: serialized(JsonRowSerializationSchema.builder().with_type_info(type_of(case)).build(), case)
    )


def deserialized(schema, case):
    reader = schema._j_deserialization_schema
    reader.open(None)
    row = reader.deserialize(case["input"].encode())
    return None if row is None else [plain(row.getField(i)) for i in range(row.getArity())]


def serialized(schema, case):
    writer = schema._j_serialization_schema
    writer.open(None)
    return writer.serialize(java_row(case)).decode()


def bulk_written(case):
    factory = CsvBulkWriters.for_schema(schema_of(case)).get_java_object()
    path = tempfile.mktemp()
    out = jvm.org.apache.flink.core.fs.local.LocalFileSystem.getSharedInstance().create(
        jvm.org.apache.flink.core.fs.Path(path), jvm.org.apache.flink.core.fs.FileSystem.WriteMode.OVERWRITE
    )
    writer = factory.create(out)
    writer.addElement(java_row_data(case))
    writer.finish()
    out.close()
    with open(path, newline="") as file:
        return file.read()


def main():
    results = [run(case) for case in CASES]
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "expected.json")
    with open(path, "w") as file:
        file.write("[\n" + ",\n".join(json.dumps(result) for result in results) + "\n]\n")
    print(f"recorded {len(results)} cases")


if __name__ == "__main__":
    main()
