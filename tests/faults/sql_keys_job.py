"""Fault injection for SQL tables with a primary key: changes of a key come from several subtasks, and stay in order.

    python -m tests.faults.sql_keys_job <directory> [--fault SETTING] [--latest]

This command runs the job once, as a separate driver; `directory` holds its tables and its checkpoints.
"""

from __future__ import annotations

from itertools import accumulate

from tests.faults.job import NAME as NAME
from tests.faults.job import main
from tests.faults.sql_statements import LATEST_UPSERTS, SqlJob, Statement

# Groups of 20, 40, 60 .. numbers in no order: all counts are equal for a while, and different at the end.
_SIZES = list(accumulate(range(20, 181, 20)))
_GROUP = f"CASE {' '.join(f'WHEN n * 7919 % 1200 < {s} THEN {i}' for i, s in enumerate(_SIZES))} ELSE {len(_SIZES)} END"
_KEYED_BY_COUNT = f"SELECT c, h FROM (SELECT h, COUNT(*) AS c FROM (SELECT {_GROUP} AS h FROM ns) AS t GROUP BY h)"

# Each change moves rows of a key into another group, or gives them other partners.
_VERSIONS = "SELECT k, MAX(w) AS w FROM versions GROUP BY k"
_RANKED = """SELECT k, w FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY w % 7 ORDER BY w DESC) AS rn FROM {}) AS t
    WHERE rn <= 3"""
_ANTI_JOIN = "SELECT k, w FROM {} AS u WHERE NOT EXISTS (SELECT 1 FROM {} AS v WHERE v.w % 17 = u.w % 17)"
_PARTNERS = "SELECT u.k, u.w, v.w AS x FROM {} AS u LEFT JOIN {} AS v ON v.k = u.w % 13"
# The last input is a single row of one subtask.
_UNION = """SELECT k, w FROM {} AS u UNION ALL SELECT k + 1000 AS k, w FROM {} AS v UNION ALL
    SELECT 5000 AS k, COUNT(*) AS w FROM ns"""

JOB = SqlJob(
    {
        # A row of the table comes from different groups in turn.
        "changed_by_key": Statement(_KEYED_BY_COUNT, "upsertMaterialize=[true]", key=1),
        "ranked_by_key": Statement(
            _RANKED.format("upserts"), "upsertMaterialize=[true]", _RANKED.format(f"({LATEST_UPSERTS})"), key=1
        ),
        "anti_join_by_key": Statement(
            _ANTI_JOIN.format("upserts", "versions"),
            "upsertMaterialize=[true]",
            _ANTI_JOIN.format(f"({LATEST_UPSERTS})", f"({_VERSIONS})"),
            key=1,
        ),
        "partners_by_key": Statement(
            _PARTNERS.format("upserts", "versions"),
            "upsertMaterialize=[true]",
            _PARTNERS.format(f"({LATEST_UPSERTS})", f"({_VERSIONS})"),
            key=1,
        ),
        "union_by_key": Statement(
            _UNION.format("upserts", "versions"),
            "Union(all=[true]",
            _UNION.format(f"({LATEST_UPSERTS})", f"({_VERSIONS})"),
            key=1,
        ),
        # Into files, where every change counts.
        "ranked": Statement(_RANKED.format("upserts"), "Rank(", _RANKED.format(f"({LATEST_UPSERTS})")),
        "counted_by_key": Statement("SELECT g, COUNT(*), SUM(v) FROM ns GROUP BY g", "GroupAggregate", key=1),
    }
)
build, expected, results = JOB.build, JOB.expected, JOB.results

if __name__ == "__main__":
    main(build, __doc__)
