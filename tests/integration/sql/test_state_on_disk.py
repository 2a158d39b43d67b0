"""SQL state larger than memory: with the backend on disk, its columns are mapped files."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from millstream.common import Configuration
from millstream.datastream import StreamExecutionEnvironment
from millstream.state import array_storage
from millstream.table import StreamTableEnvironment

# About 400 MB of rows, with 120 MB of memory: mapped files are not counted.
_PROGRAM = """
import resource, sys
import numpy as np, pyarrow as pa
from millstream.sql.columns.keyed_rows import KeyedRows
from millstream.state.array_storage import IN_MEMORY, InFiles
from millstream.state.changelog import FileHeader, Section, encode
from millstream.state.kinds import COLUMNS

where, directory = sys.argv[1:]
rows = KeyedRows([pa.int64(), pa.string()], [0])
rows.live_in(IN_MEMORY if where == "memory" else InFiles(directory))

def add(start, count):
    columns = [pa.array(range(start, start + count)), pa.array([str(i) * 200 for i in range(start, start + count)])]
    rows.add(rows.find_or_add(columns[:1], count), columns)

add(100_000, 2000)
has = next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmData"))
resource.setrlimit(resource.RLIMIT_DATA, (has + (120 << 20), resource.RLIM_INFINITY))
try:
    for start in range(102_000, 440_000, 2000):
        add(start, 2000)
except (MemoryError, pa.ArrowMemoryError):
    sys.exit("no memory")
slots = rows.find([pa.array(range(100_000, 440_000, 1111))], 307)
assert rows.take(1, slots).to_pylist() == [str(i) * 200 for i in range(100_000, 440_000, 1111)]
changes = Section("rows", COLUMNS, "group", {0: rows.changes()})
print(sum(map(len, encode(FileHeader("op", 0, 1, True, []), [changes]))) >> 20)
"""


@pytest.mark.parametrize(("where", "message", "size"), [("files", "", "402"), ("memory", "no memory", "")])
def test_disk_state_exceeds_memory_limit(where: str, message: str, size: str, tmp_path: Path) -> None:
    program = [sys.executable, "-c", _PROGRAM, where, str(tmp_path)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=120, check=False)
    assert (done.stderr.strip(), done.stdout.strip()) == (message, size)
    assert not list(tmp_path.iterdir()), "files have no names"


_QUERY = """
SELECT a.id, b.id, a.text, c FROM a JOIN b ON a.id = b.id
JOIN (SELECT MOD(id, 7) AS k, COUNT(DISTINCT text) AS c FROM b GROUP BY MOD(id, 7)) ON MOD(a.id, 7) = k
"""


def _left(backend: str, directory: Path) -> Counter[tuple[object, ...]]:
    settings = {
        "state.backend.type": backend,
        "millstream.engine": "local",
        "millstream.quiet": "true",
        "parallelism.default": "2",
        "execution.checkpointing.interval": "100 ms",
        "execution.checkpointing.dir": str(directory),
    }
    config = Configuration.from_dict(settings)
    t_env = StreamTableEnvironment.create(StreamExecutionEnvironment.get_execution_environment(config))
    for name in ("a", "b"):
        t_env.execute_sql(
            f"CREATE TABLE {name} (id INT, text AS IF(MOD(id, 5) = 1, NULL, CAST(id AS STRING))) WITH ('connector' = "
            "'datagen', 'fields.id.kind' = 'sequence', 'fields.id.start' = '0', 'fields.id.end' = '1199')"
        )
    left: Counter[tuple[object, ...]] = Counter()
    with t_env.execute_sql(_QUERY).collect() as changes:
        for row in changes:
            left[tuple(row)] += 1 if row.get_row_kind().name in ("INSERT", "UPDATE_AFTER") else -1
    return +left


def test_disk_state_returns_same_results_as_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    class RecordedInFiles(array_storage.InFiles):
        def make(self, count: int, dtype: object) -> object:  # type: ignore[override]
            sizes.append(count)
            return super().make(count, dtype)  # type: ignore[arg-type]

    monkeypatch.setattr(array_storage, "_LARGE", 1)
    monkeypatch.setattr(array_storage, "InFiles", RecordedInFiles)
    in_memory = _left("hashmap", tmp_path / "memory")
    assert not sizes
    assert _left("rocksdb", tmp_path / "files") == in_memory
    assert len(sizes) > 50
    assert len(in_memory) == 1200
