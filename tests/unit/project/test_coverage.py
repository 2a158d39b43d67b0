"""The table of coverage by package."""

from __future__ import annotations

from tests.coverage import by_package, table


def file(lines: int, covered: int, branches: int, covered_branches: int) -> dict[str, dict[str, int]]:
    names = ("num_statements", "covered_lines", "num_branches", "covered_branches")
    return {"summary": dict(zip(names, (lines, covered, branches, covered_branches), strict=True))}


def test_table_adds_up_packages_and_has_all_of_them_last() -> None:
    files = {
        "src/millstream/state/heap.py": file(10, 10, 4, 3),
        "src/millstream/state/lmdb/table.py": file(30, 20, 4, 3),
        "src/millstream/cep/stream.py": file(1000, 500, 0, 0),
        "src/millstream/event_loop.py": file(4, 1, 2, 0),
    }
    assert table(by_package(files)).splitlines()[2:] == [
        "| (modules) | 4 | 25.0% | 2 | 0.0% |",
        "| cep | 1,000 | 50.0% | 0 | - |",
        "| state | 40 | 75.0% | 8 | 75.0% |",
        "| all | 1,044 | 50.9% | 10 | 60.0% |",
    ]
