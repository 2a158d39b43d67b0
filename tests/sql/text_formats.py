"""Valid and nearly valid lines of JSON and CSV, and how apache-flink parses them: into rows, or with an error.

    python text_formats.py [NAME ...]    on a Python with apache-flink 2.3: runs the cases that are not recorded, or
                                         the given ones

Both systems run the same text: with `pyflink` there, with `millstream` here.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).resolve().parent / "text_formats.json"
REFUSED = ["refused"]
_PLAIN = "a INT, b STRING, c DOUBLE, d BOOLEAN"
_ISO = {"timestamp-format.standard": "ISO-8601"}
_IGNORED = {"ignore-parse-errors": "true"}

# Format, options, columns, select list, lines.
Case = tuple[str, dict[str, str], str, str, str]
_TIMES = {
    "plain": "2024-01-02 03:04:05.123",
    "with Z": "2024-01-02 03:04:05Z",
    "with an offset": "2024-01-02 03:04:05+01:00",
    "without seconds": "2024-01-02 03:04",
    "without a time": "2024-01-02",
    "in blanks": " 2024-01-02 03:04:05 ",
    "of short numbers": "2024-1-2 3:4:5",
    "with a comma": "2024-01-02 03:04:05,5",
    "without lines": "20240102 030405",
    "with a point": "2024-01-02 03:04:05.",
}
_VALUES = {
    "TIME(3)": ["10:11:12", "10:11", "10:11:12.5", "1:2:3", "10:11:12Z", "101112"],
    "DATE": ["2024-01-02", "2024-1-2", "20240102", "2024-W01-1", "2024-01-02 00:00:00"],
    "INT": ["1_000", "+5", "1e3", " 7 ", "0x1F", "1.0", "2147483647", "2147483648", "-2147483648", "-2147483649"],
    "DOUBLE": ["1_000", "1e3", " 7 ", "Infinity", "inf", "nan", "NaN", "1d", "2.5f", "\u0661"],
    "DECIMAL(10, 2)": ["1_000", "1e3", " 7 ", "NaN", "1.239", "\u0661"],
    "BOOLEAN": ["1", "0", "yes", " TRUE ", "t", "false"],
}


def _cases() -> dict[str, Case]:
    cases: dict[str, Case] = {}
    texts = [(f"TIMESTAMP{z}(3)", n, v) for n, v in _TIMES.items() for z in ("", "_LTZ")]
    texts += [(kind, v, v) for kind, values in _VALUES.items() for v in values]
    for kind, name, text in texts:
        columns, select_list = f"t {kind}, x INT", "CAST(t AS STRING)"
        cases[f"json {kind} {name}"] = ("json", {}, columns, select_list, json.dumps({"t": text}))
        cases[f"csv {kind} {name}"] = ("csv", {"field-delimiter": "|"}, columns, select_list, f"{text}|1")
        if kind.startswith("TIMESTAMP"):
            iso = json.dumps({"t": text.strip().replace(" ", "T")})
            cases[f"iso {kind} {name}"] = ("json", _ISO, columns, select_list, iso)
    for name, options, columns, select_list, lines in _MORE:
        cases[name] = ("json", options, columns, select_list, lines)
    return cases


_MORE: list[tuple[str, dict[str, str], str, str, str]] = [
    ("an array of rows", {}, _PLAIN, "*", '[{"a": 1}, {"a": 2}]\n{"a": 3}'),
    ("an array of other things", _IGNORED, _PLAIN, "*", '[{"a": 1}, 5, [6]]\n7'),
    ("wrong fields", _IGNORED, _PLAIN, "*", '{"a": "x", "b": "keep", "c": "y", "d": "maybe"}\n{oops\n{"a": "12"}'),
    ("numbers as booleans", {}, _PLAIN, "*", '{"d": 1}\n{"d": 0}\n{"d": true}'),
    ("numbers with a point or an exponent as whole ones", {}, _PLAIN, "*", '{"a": 1e3}\n{"a": 1.9}\n{"a": -1.9}'),
    ("too large a number", {}, _PLAIN, "*", '{"a": 1e99}'),
    ("NaN without quotes", {}, _PLAIN, "*", '{"c": NaN}'),
    ("a tab in a text", {}, _PLAIN, "*", '{"b": "x\ty"}'),
    ("a wrong part of a map", _IGNORED, "m MAP<STRING, INT>", "m['a'], m['b']", '{"m": {"a": "x", "b": 2}}'),
    ("a wrong part of an array", _IGNORED, "r ARRAY<INT>", "r[1], r[2], r[3]", '{"r": [1, "x", 3]}'),
    ("a wrong part of a row", _IGNORED, "r ROW<x INT, y INT>", "r.x, r.y", '{"r": {"x": "q", "y": 2}}'),
    ("a wrong part without leave", {}, "r ROW<x INT, y INT>", "r.x, r.y", '{"r": {"x": "q", "y": 2}}'),
    ("a text for a row", {}, "r ROW<x INT>", "r.x", '{"r": "x"}'),
    ("a number for an array", {}, "r ARRAY<INT>", "r[1]", '{"r": 1}'),
]
CASES = _cases()


def rows(name: str, t_env: Any, folder: Path) -> list[str]:
    """Return the rows of a case, or REFUSED."""
    form, options, columns, select_list, lines = CASES[name]
    directory = Path(tempfile.mkdtemp(dir=folder))
    (directory / "lines").write_text(lines + "\n")
    table_options = {"connector": "filesystem", "path": f"file://{directory}", "format": form}
    table_options |= {f"{form}.{key}": value for key, value in options.items()}
    options_text = ", ".join(f"'{k}' = '{v}'" for k, v in table_options.items())
    t_env.execute_sql("DROP TABLE IF EXISTS t")
    t_env.execute_sql(f"CREATE TABLE t ({columns}) WITH ({options_text})")
    try:
        with t_env.execute_sql(f"SELECT {select_list} FROM t").collect() as results:
            return [", ".join(map(str, row)) for row in results]
    except Exception:
        return REFUSED


def record(names: Sequence[str]) -> None:
    """Run the cases on Flink and record the results."""
    from pyflink.table import EnvironmentSettings, TableEnvironment

    t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    t_env.get_config().set("parallelism.default", "1").set("table.local-time-zone", "UTC")
    t_env.get_config().set("restart-strategy.type", "none")
    results = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        for name in names or [n for n in CASES if n not in results]:
            results[name] = rows(name, t_env, Path(folder))
            RECORDED.write_text(json.dumps({n: results[n] for n in CASES if n in results}, indent=1) + "\n")


if __name__ == "__main__":
    record(sys.argv[1:])
