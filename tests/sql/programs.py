"""Small programs as users of PyFlink write them, and the output of PyFlink.

    python programs.py [NAME ...]    on a Python with apache-flink 2.3: runs the programs that are not in programs.json,
                                     or the given ones

A program is a function of an environment factory; its output lines are compared in any order.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RECORDED = HERE / "programs.json"
PROGRAMS: dict[str, Callable[[Any], None]] = {}
_ORDERS = [("Beijing", 1, 10.5), ("Berlin", 2, 3.25), ("Beijing", 3, 1.0), ("Paris", None, 7.0), ("Berlin", 5, None)]
_TIMED = [("a", 1, "00:00:01"), ("b", 2, "00:00:04"), ("a", 3, "00:00:12")]


def _program(function: Callable[[Any], None]) -> Callable[[Any], None]:
    PROGRAMS[function.__name__] = function
    return function


def _orders(t_env: Any) -> Any:
    from pyflink.table import DataTypes

    fields = [("city", DataTypes.STRING()), ("n", DataTypes.BIGINT()), ("p", DataTypes.DOUBLE())]
    return t_env.from_elements(_ORDERS, DataTypes.ROW([DataTypes.FIELD(name, kind) for name, kind in fields]))


def _timed(t_env: Any) -> Any:
    folder = tempfile.mkdtemp()
    rows = [{"u": u, "v": v, "ts": f"2024-01-01 {time}"} for u, v, time in _TIMED]
    Path(folder, "rows.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    t_env.execute_sql(
        "CREATE TABLE timed (u STRING, v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH "
        f"('connector' = 'filesystem', 'path' = '{folder}', 'format' = 'json')"
    )
    return t_env.from_path("timed")


def _show(table: Any) -> None:
    with table.execute().collect() as rows:
        for row in rows:
            print(row.get_row_kind(), row)


@_program
def nested_rows(make: Any) -> None:
    from pyflink.common import Row
    from pyflink.table import DataTypes as D
    from pyflink.table.expressions import col

    row, rows = D.ROW([D.FIELD("x", D.STRING()), D.FIELD("y", D.INT())]), D.ROW([D.FIELD("z", D.INT())])
    kind = D.ROW([D.FIELD("r", row), D.FIELD("l", D.ARRAY(rows)), D.FIELD("m", D.MAP(D.STRING(), D.ARRAY(D.INT())))])
    table = make("streaming").from_elements([(Row("a", 2), [Row(1)], {"k": [1]})], kind)
    _show(table.select(col("r").get("x"), col("r").get(1), col("l").at(1), col("m").at("k"), col("r")))


@_program
def group_windows(make: Any) -> None:
    from pyflink.table.expressions import col, lit
    from pyflink.table.window import Session, Slide, Tumble

    windows = [
        Tumble.over(lit(5).seconds).on(col("ts")).alias("w"),
        Slide.over(lit(10).seconds).every(lit(5).seconds).on(col("ts")).alias("w"),
        Session.with_gap(lit(3).seconds).on(col("ts")).alias("w"),
    ]
    for window in windows:
        grouped = _timed(make("streaming")).window(window).group_by(col("w"), col("u"))
        _show(grouped.select(col("u"), col("w").start, col("w").end, col("w").rowtime, col("v").sum))


@_program
def frames_over_time(make: Any) -> None:
    from pyflink.table.expressions import UNBOUNDED_RANGE, col
    from pyflink.table.window import Over

    over = Over.partition_by(col("u")).order_by(col("ts")).preceding(UNBOUNDED_RANGE).alias("w")
    table = _timed(make("streaming")).over_window(over)
    _show(table.select(col("u"), col("v").sum.over(col("w")), col("v").max.over(col("w"))))


@_program
def table_functions(make: Any) -> None:
    from pyflink.table import DataTypes
    from pyflink.table.expressions import col
    from pyflink.table.udf import udtf

    def words(text: str) -> Any:
        for word in text.split(" "):
            yield word, len(word)

    t_env = make("streaming")
    split = udtf(words, result_types=[DataTypes.STRING(), DataTypes.INT()])
    table = t_env.from_elements([("hello world",), ("",), ("a",)], ["s"])
    _show(table.join_lateral(split(col("s")).alias("w", "l")).select(col("s"), col("w"), col("l")))
    _show(table.left_outer_join_lateral(split(col("s")).alias("w", "l")))


@_program
def pandas_frames(make: Any) -> None:
    import pandas as pd

    t_env = make("batch")
    frame = _orders(t_env).to_pandas()
    print(frame.to_string(), frame.dtypes.to_string(), sep="\n")
    orders = pd.DataFrame({"a": [1, 2, 3], "b": ["x", None, "z"], "c": [1.5, float("nan"), 2.0]})
    _show(t_env.from_pandas(orders))
    _show(t_env.from_pandas(orders, ["q", "r", "s"]))


@_program
def joins(make: Any) -> None:
    from pyflink.table.expressions import col

    t_env = make("batch")
    left = t_env.from_elements([(1, "a"), (2, "b"), (3, "c")], ["i", "x"])
    right = t_env.from_elements([(2, "B"), (3, "C"), (4, "D")], ["j", "y"])
    same = col("i") == col("j")
    for table in (
        left.join(right, same),
        left.left_outer_join(right, same),
        left.right_outer_join(right, same),
        left.full_outer_join(right, same),
        left.join(right).where(col("i") < col("j")),
    ):
        print(sorted(str(row) for row in table.execute().collect()))


@_program
def set_operations(make: Any) -> None:
    t_env = make("batch")
    a, b = t_env.from_elements([(1,), (1,), (2,)], ["a"]), t_env.from_elements([(1,), (3,)], ["a"])
    for name in ("union", "union_all", "intersect", "intersect_all", "minus", "minus_all"):
        print(name, sorted(str(row) for row in getattr(a, name)(b).execute().collect()))


@_program
def columns(make: Any) -> None:
    from pyflink.table.expressions import col, concat

    table = _orders(make("streaming"))
    changed = table.add_columns(concat(col("city"), "!").alias("z")).add_or_replace_columns((col("n") + 1).alias("n"))
    _show(changed.rename_columns(col("p").alias("price")).drop_columns(col("city")))
    _show(table.alias("a", "b", "c").select(col("*")))


@_program
def rows_by_functions(make: Any) -> None:
    from pyflink.common import Row
    from pyflink.table import DataTypes as D
    from pyflink.table.udf import udf, udtf

    def letters(row: Any) -> Any:
        yield from row[0][:2]

    table = _orders(make("streaming"))
    kind = D.ROW([D.FIELD("a", D.STRING()), D.FIELD("b", D.BIGINT())])
    _show(table.map(udf(lambda r: Row(r[0].lower(), (r[1] or 0) * 10), result_type=kind)))
    _show(table.flat_map(udtf(letters, result_types=[D.STRING()])).alias("c"))


@_program
def changes_as_rows(make: Any) -> None:
    t_env = make("streaming")
    t_env.create_temporary_view("orders", _orders(t_env))
    counts = t_env.sql_query("SELECT city, COUNT(*) AS n FROM orders GROUP BY city")
    _show(counts.to_changelog())
    t_env.create_temporary_view("counts", counts)
    words = "op => DESCRIPTOR(word), op_mapping => MAP['INSERT, UPDATE_AFTER', 'there', 'DELETE', 'gone']"
    _show(t_env.sql_query(f"SELECT * FROM TO_CHANGELOG(input => TABLE counts, {words})"))
    changes = [
        ("INSERT", 1, "a"),
        ("INSERT", 2, "b"),
        ("UPDATE_BEFORE", 1, "a"),
        ("UPDATE_AFTER", 1, "c"),
        ("DELETE", 2, "b"),
    ]
    rows = t_env.from_elements(changes, ["op", "id", "v"])
    _show(rows.from_changelog())
    t_env.create_temporary_view("changes", rows)
    words = "MAP['INSERT, UPDATE_AFTER', 'INSERT', 'UPDATE_BEFORE, DELETE', 'DELETE']"
    _show(t_env.sql_query(f"SELECT v FROM FROM_CHANGELOG(input => TABLE changes, op_mapping => {words})"))


def printed(name: str, make: Any) -> list[str]:
    """Return the output of a program."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        PROGRAMS[name](make)
    return sorted(line.rstrip() for line in out.getvalue().splitlines() if line.strip())


def environment(mode: str, **settings: str) -> Any:
    """Return an environment for consecutive jobs."""
    from pyflink.table import EnvironmentSettings, TableEnvironment

    batch = mode == "batch"
    t_env = TableEnvironment.create(
        EnvironmentSettings.in_batch_mode() if batch else EnvironmentSettings.in_streaming_mode()
    )
    config = t_env.get_config().set("parallelism.default", "1").set("table.local-time-zone", "UTC")
    for key, value in settings.items():
        config.set(key.replace("__", ".").replace("_", "-"), value)
    return t_env


def record(names: list[str]) -> None:
    """Run the programs on PyFlink and record their output."""
    os.environ["PYTHONPATH"] = str(HERE)
    python = {"python__executable": sys.executable, "python__client__executable": sys.executable}
    results: dict[str, list[str]] = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    for name in names or [n for n in PROGRAMS if n not in results]:
        results[name] = printed(name, lambda mode: environment(mode, **python))
        RECORDED.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
        print(name, len(results[name]), flush=True)


if __name__ == "__main__":
    record(sys.argv[1:])
