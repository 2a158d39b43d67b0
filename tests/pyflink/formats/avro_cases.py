"""An Avro schema with records, for record_avro.py and the test that reads its files."""

import datetime as dt
import uuid
from decimal import Decimal

SCHEMA = {
    "type": "record",
    "name": "Everything",
    "namespace": "org.example",
    "fields": [
        {"name": "number", "type": "int"},
        {"name": "long", "type": "long"},
        {"name": "float", "type": "float"},
        {"name": "double", "type": "double"},
        {"name": "boolean", "type": "boolean"},
        {"name": "text", "type": ["null", "string"]},
        {"name": "bytes", "type": "bytes"},
        {"name": "fixed", "type": {"type": "fixed", "name": "Three", "size": 3}},
        {"name": "enum", "type": {"type": "enum", "name": "Color", "symbols": ["RED", "BLUE"]}},
        {"name": "array", "type": {"type": "array", "items": "int"}},
        {"name": "map", "type": {"type": "map", "values": {"type": "array", "items": "string"}}},
        {
            "name": "record",
            "type": {
                "type": "record",
                "name": "Inner",
                "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": ["null", "string"]}],
            },
        },
        {"name": "union", "type": ["null", "long", "string", "Inner"]},
        {"name": "date", "type": {"type": "int", "logicalType": "date"}},
        {"name": "time_ms", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "time_us", "type": {"type": "long", "logicalType": "time-micros"}},
        {"name": "ts_ms", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "ts_us", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
        {"name": "decimal", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "uuid", "type": {"type": "string", "logicalType": "uuid"}},
    ],
}


def record(n):
    return {
        "number": n,
        "long": n * 10**10,
        "float": n / 2,
        "double": n / 10,
        "boolean": n % 2 == 0,
        "text": None if n % 3 == 0 else f"text {n} à",
        "bytes": bytes([n, 255]),
        "fixed": b"%3d" % n,
        "enum": ["RED", "BLUE"][n % 2],
        "array": list(range(n % 4)),
        "map": {f"k{i}": ["v"] * i for i in range(n % 3)},
        "record": {"a": n, "b": None if n % 2 else "x"},
        "union": [None, n, f"n{n}", {"a": n, "b": None}][n % 4],
        "date": dt.date(1969, 12, 25) + dt.timedelta(n),
        "time_ms": dt.time(1, 2, 3, n * 1000),
        "time_us": dt.time(1, 2, 3, n * 1001),
        "ts_ms": dt.datetime(1969, 12, 31, 23, 59, 59, n * 1000, dt.UTC) + dt.timedelta(n),
        "ts_us": None if n % 4 == 0 else dt.datetime(2024, 1, 1, 0, 0, 0, n, dt.UTC),
        "decimal": Decimal(n - 20).scaleb(-2),
        "uuid": uuid.UUID(int=n),
    }


RECORDS = [record(n) for n in range(40)]
