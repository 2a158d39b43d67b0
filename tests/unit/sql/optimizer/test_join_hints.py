"""Hints and settings that select a join strategy in BATCH: names and errors of Flink 2.3."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from millstream.sql.errors import TableException, ValidationException
from millstream.table import DataTypes, EnvironmentSettings, StreamTableEnvironment
from millstream.testing import LocalEnvironment
from tests.support.sql_planning import Session

_DISABLED = "table.exec.disabled-operators"
_TABLES = ("A", "B", "C")


@pytest.fixture(scope="module")
def session() -> Session:
    new_session = Session(batch=True)
    for table in _TABLES:
        k = table.lower()
        new_session.run(f"CREATE TABLE {table} ({k}k BIGINT, {k}v STRING) WITH ('connector' = 'none')")
    new_session.run("CREATE VIEW V AS SELECT * FROM B")
    return new_session


def _joins(session: Session, query: str) -> list[str]:
    """Return the names of the joins of a plan, from the top."""
    lines = [line.strip() for line in session.plan(query)]
    return [line.split("(")[0] for line in lines if "Join" in line.split("(")[0]]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("SELECT * FROM A JOIN B ON ak = bk", "HashJoin"),
        ("SELECT * FROM A FULL JOIN B ON ak = bk", "HashJoin"),
        ("SELECT * FROM A WHERE ak IN (SELECT bk FROM B)", "HashJoin"),
        ("SELECT * FROM A JOIN B ON ak > bk", "NestedLoopJoin"),
        ("SELECT * FROM A, B", "NestedLoopJoin"),
        ("SELECT /*+ SHUFFLE_HASH(A) */ * FROM A LEFT JOIN B ON ak = bk", "HashJoin"),
        ("SELECT /*+ BROADCAST(B) */ * FROM A LEFT JOIN B ON ak = bk", "HashJoin"),
        ("SELECT /*+ BROADCAST('B') */ * FROM A LEFT JOIN B ON ak = bk", "HashJoin"),
        ("SELECT /*+ SHUFFLE_MERGE(A) */ * FROM A JOIN B ON ak = bk AND av <> bv", "SortMergeJoin"),
        ("SELECT /*+ SHUFFLE_MERGE(A, B) */ * FROM A FULL JOIN B ON ak = bk", "SortMergeJoin"),
        ("SELECT /*+ shuffle_merge(A) */ * FROM A JOIN B ON ak IS NOT DISTINCT FROM bk", "SortMergeJoin"),
        ("SELECT /*+ SHUFFLE_MERGE(A) */ * FROM A JOIN B ON ak > bk", "NestedLoopJoin"),
        ("SELECT /*+ NEST_LOOP(B) */ * FROM A JOIN B ON ak = bk", "NestedLoopJoin"),
        # The first hint counts.
        ("SELECT /*+ SHUFFLE_MERGE(A), BROADCAST(B) */ * FROM A JOIN B ON ak = bk", "SortMergeJoin"),
        ("SELECT /*+ BROADCAST(A), SHUFFLE_MERGE(A) */ * FROM A JOIN B ON ak = bk", "HashJoin"),
        # By alias, view and query; of several joins, the one with the table as a side.
        ("SELECT /*+ SHUFFLE_MERGE(x) */ * FROM A x JOIN B ON ak = bk", "SortMergeJoin"),
        ("SELECT /*+ SHUFFLE_MERGE(V) */ * FROM A JOIN V ON ak = bk", "SortMergeJoin"),
        ("SELECT /*+ SHUFFLE_MERGE(t) */ * FROM A JOIN (SELECT DISTINCT bk FROM B) t ON ak = bk", "SortMergeJoin"),
        ("SELECT /*+ SHUFFLE_MERGE(C) */ * FROM A JOIN B ON ak = bk JOIN C ON bk = ck", "SortMergeJoin HashJoin"),
        ("SELECT /*+ SHUFFLE_MERGE(A) */ * FROM A JOIN B ON ak = bk JOIN C ON bk = ck", "HashJoin SortMergeJoin"),
        (
            "SELECT /*+ SHUFFLE_MERGE(B), NEST_LOOP(C) */ * FROM A JOIN B ON ak = bk JOIN C ON bv = cv",
            "NestedLoopJoin SortMergeJoin",
        ),
        # Also where tables are joined in another order than written.
        ("SELECT /*+ SHUFFLE_MERGE(B) */ * FROM A, B, C WHERE ak = ck AND bv = cv", "SortMergeJoin HashJoin"),
        # A hint applies to the tables of its own FROM.
        ("SELECT /*+ SHUFFLE_MERGE(A) */ * FROM A WHERE ak IN (SELECT bk FROM B)", "HashJoin"),
        ("SELECT /*+ SHUFFLE_MERGE(A) */ * FROM A", ""),
    ],
)
def test_join_hint_selects_the_join(session: Session, query: str, names: str) -> None:
    assert " ".join(_joins(session, query)) == names


@pytest.mark.parametrize(
    ("disabled", "name"),
    [
        ("HashJoin", "SortMergeJoin"),
        ("ShuffleHashJoin, BroadcastHashJoin", "SortMergeJoin"),
        ("SortMergeJoin", "HashJoin"),
        ("HashJoin,SortMergeJoin", "NestedLoopJoin"),
    ],
)
def test_disabled_operators_select_another_join(disabled: str, name: str) -> None:
    plan = _explained("SELECT /*+ SHUFFLE_HASH(A) */ * FROM A JOIN B ON ak = bk", disabled)
    assert f"\n{name}(joinType=[InnerJoin], where=[" in plan


def _explained(query: str, disabled: str) -> str:
    t_env = _environment()
    t_env.get_config().set(_DISABLED, disabled)
    for table in _TABLES:
        k = table.lower()
        t_env.execute_sql(
            f"CREATE TABLE {table} ({k}k BIGINT, {k}v STRING) WITH ('connector' = 'datagen', 'number-of-rows' = '5')"
        )
    return t_env.explain_sql(query)


def test_disabled_operators_reject_disabling_all_joins() -> None:
    with pytest.raises(TableException, match="leaves no operator for a join: remove HashJoin from it"):
        _explained("SELECT * FROM A JOIN B ON ak = bk", "HashJoin,SortMergeJoin,NestedLoopJoin")
    with pytest.raises(TableException, match="for a join without an equality: remove NestedLoopJoin from"):
        _explained("SELECT * FROM A JOIN B ON ak > bk", "NestedLoopJoin")
    with pytest.raises(ValidationException, match="names 'Nonsense', which is none of NestedLoopJoin, "):
        _explained("SELECT * FROM A JOIN B ON ak = bk", "Nonsense")


@pytest.mark.parametrize(
    ("hint", "message"),
    [
        ("FOO(A)", "Hint FOO is unknown; supported are BROADCAST, "),
        ("BROADCAST(Z)", "cannot match the name of input tables or views: \n`Z` in `BROADCAST`"),
        ("SHUFFLE_MERGE(A)", "`A` in `SHUFFLE_MERGE`"),
        ("BROADCAST", "Invalid hint: BROADCAST, expecting at least one table or view specified in hint BROADCAST."),
        ("NEST_LOOP()", "Invalid hint: NEST_LOOP, expecting"),
        ("BROADCAST('a' = 'b')", "Invalid hint: BROADCAST, expecting"),
    ],
)
def test_join_hint_errors_match_flink(session: Session, hint: str, message: str) -> None:
    for one in (session, Session()):
        if one is not session:
            one.run("CREATE TABLE A (ak BIGINT) WITH ('connector' = 'none')")
            one.run("CREATE TABLE B (bk BIGINT) WITH ('connector' = 'none')")
        with pytest.raises(ValidationException) as failure:
            one.plan(f"SELECT /*+ {hint} */ * FROM A x JOIN B ON ak = bk")
        assert message in str(failure.value)


def test_join_hints_are_ignored_in_streaming_mode() -> None:
    """As in Flink, hints apply only to BATCH, and do not change operator ids."""
    session = Session()
    session.run("CREATE TABLE A (ak BIGINT) WITH ('connector' = 'none')")
    session.run("CREATE TABLE B (bk BIGINT) WITH ('connector' = 'none')")
    plain, hinted = (
        session.planned(f"SELECT {hint} * FROM A JOIN B ON ak = bk")[0].inputs[0]
        for hint in ("", "/*+ SHUFFLE_MERGE(A) */")
    )
    assert plain.name == hinted.name and plain.uid == hinted.uid and plain.name.startswith("Join(")


# --- equal results


def _environment() -> StreamTableEnvironment:
    t_env = StreamTableEnvironment.create(LocalEnvironment(), EnvironmentSettings.in_batch_mode())
    t_env.get_config().set("parallelism.default", "2")
    return t_env


_JOINS = [
    "FROM l JOIN r ON l.k = r.k",
    "FROM l LEFT JOIN r ON l.k = r.k AND l.v < r.v",
    "FROM l RIGHT JOIN r ON l.k = r.k",
    "FROM l FULL JOIN r ON l.k = r.k AND l.v <> r.v",
    "FROM l FULL JOIN r ON l.k IS NOT DISTINCT FROM r.k",
]


@pytest.mark.parametrize("memory", ["300", "100000000"])
@pytest.mark.parametrize("join", _JOINS)
def test_join_strategies_give_the_same_rows(join: str, memory: str) -> None:
    t_env = _environment()
    t_env.get_config().set("millstream.batch.memory", memory)
    # One key has most rows, one is null.
    left = [(None if n % 7 == 0 else (1 if n % 3 else n), n) for n in range(60)]
    right = [(None if n % 11 == 0 else (1 if n % 2 else n), n) for n in range(50)]
    for name, rows in (("l", left), ("r", right)):
        columns = [DataTypes.FIELD("k", DataTypes.BIGINT()), DataTypes.FIELD("v", DataTypes.BIGINT())]
        t_env.create_temporary_view(name, t_env.from_elements(rows, DataTypes.ROW(columns)))

    def counted_rows(hint: str) -> Counter[Any]:
        return Counter(tuple(row) for row in t_env.execute_sql(f"SELECT {hint} l.k, l.v, r.k, r.v {join}").collect())

    expected = counted_rows("")
    assert sum(expected.values()) > 60
    for hint in ("SHUFFLE_MERGE(l)", "NEST_LOOP(r)", "BROADCAST(r)", "SHUFFLE_HASH(l)"):
        assert counted_rows(f"/*+ {hint} */") == expected, hint
