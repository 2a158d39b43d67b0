"""The sink of PyFlink's DataStream tests, which is a Java class there; values are formatted as in Java."""

from __future__ import annotations

import itertools
from collections import defaultdict
from decimal import Decimal
from typing import Any

from pyflink.common import Row
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream.functions import SinkFunction

from millstream.common.java_text import java_number

_collected: dict[int, list[Any]] = defaultdict(list)
_numbers = itertools.count()


def _text(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return java_number(value, False)
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, Row):
        return f"{value.get_row_kind()}[{', '.join(map(_text, value))}]"
    if isinstance(value, tuple):
        return f"({','.join(map(_text, value))})"
    if isinstance(value, list):
        return f"[{', '.join(map(_text, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_text(k)}={_text(v)}" for k, v in value.items()) + "}"
    return str(value)


class DataStreamTestSinkFunction(SinkFunction):
    def __init__(self) -> None:
        self._number = next(_numbers)

    def invoke(self, value: Any, context: Any) -> None:
        _collected[self._number].append(value)

    def get_results(self, is_python_object: bool = False, stringify: bool = True) -> list[Any]:
        results = _collected.pop(self._number, [])
        if is_python_object:
            return [str(v) if stringify else v for v in results]
        return [_text(v) for v in results]

    def clear(self) -> None:
        _collected.pop(self._number, None)


class SecondColumnTimestampAssigner(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1])
