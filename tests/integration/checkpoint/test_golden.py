"""Restores the recorded checkpoints and savepoints of every format version, in every supported way."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from golden import ids, programs
from golden.cases import CASES, HERE, Case, location, make, resume, resume_as_job, runtime_snapshots, timeless
from golden.workdir import locked_workdir

from millstream.checkpoint.manifest import NAME, VERSION
from millstream.checkpoint.store import open_checkpoint
from millstream.common.errors import MissingClassError
from millstream.operators.base import Operator
from millstream.state_processor import Savepoint

VERSIONS = sorted(int(p.name[1:]) for p in HERE.glob("v*"))
# Files next to the cases: pickles of tags, compiled plans, ids of operators.
OTHER_FILES = ("tags.json", "plans.json.gz", "ids.json")


class Golden:
    """The files of a case, copied to a directory where the test may change them."""

    def __init__(self, case: Case, source: Path, directory: Path) -> None:
        self.case = case
        self.source = source
        self.saved = directory / "saved"
        shutil.copytree(source / "saved", self.saved)
        self.expected = json.loads((source / "expected.json").read_text())
        self.runtime_snapshots = self.expected.pop("carried")

    def resume(self, **arguments: Any) -> Any:
        with locked_workdir(self.source / "place"):
            return resume(self.case, self.saved, **arguments)


def _named(param: tuple[int, Case]) -> str:
    return f"v{param[0]}-{param[1].name}"


ALL = [(version, case) for version in VERSIONS for case in CASES]
# Cases whose output is independent of the parallelism, and cases whose output can be recovered.
RESCALING = [p for p in ALL if p[1].rescales]
RECOVERING = [p for p in ALL if p[1].recovers]


@pytest.fixture(params=ALL, ids=_named)
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> Golden:
    version, case = request.param
    return Golden(case, HERE / f"v{version}" / case.name, tmp_path / "copy")


def test_golden_checkpoint_restores_same_parallelism(golden: Golden) -> None:
    assert golden.resume() == golden.expected


def test_golden_runtime_snapshot_is_unchanged(golden: Golden) -> None:
    assert runtime_snapshots(golden.saved) == golden.runtime_snapshots


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("golden", RESCALING, ids=_named, indirect=True)
def test_golden_checkpoint_restores_other_parallelism(golden: Golden, parallelism: int) -> None:
    assert timeless(golden.resume(parallelism=parallelism)) == timeless(golden.expected)


def test_golden_checkpoint_restores_lmdb_backend(golden: Golden) -> None:
    assert golden.resume(settings={"state.backend.type": "lmdb"}) == golden.expected


@pytest.mark.parametrize("golden", RECOVERING, ids=_named, indirect=True)
def test_golden_checkpoint_restores_under_job_master(golden: Golden, tmp_path: Path) -> None:
    with locked_workdir(golden.source / "place"):
        assert resume_as_job(golden.case, golden.saved, tmp_path / "job") == golden.expected


def test_golden_savepoint_restores_after_state_processor_rewrite(golden: Golden, tmp_path: Path) -> None:
    Savepoint.load(location(golden.saved)).write(tmp_path / "rewritten")
    golden.saved = tmp_path / "rewritten"
    assert runtime_snapshots(golden.saved) == golden.runtime_snapshots
    assert golden.resume() == golden.expected


def test_golden_savepoint_restores_after_renaming_uids_and_back(golden: Golden, tmp_path: Path) -> None:
    """Runtime snapshots, source positions and staged output follow the renamed operators."""
    renamed = Savepoint.load(location(golden.saved))
    uids = [o.uid for o in renamed.operators() if o.uid is not None]
    assert uids
    for uid in uids:
        renamed.rename(uid, f"{uid} 2")
    back = Savepoint.load(renamed.write(tmp_path / "renamed"))
    for uid in uids:
        back.rename(f"{uid} 2", uid)
    golden.saved = Path(back.write(tmp_path / "back"))
    assert runtime_snapshots(golden.saved) == golden.runtime_snapshots
    assert golden.resume() == golden.expected


def test_golden_files_have_version_of_their_directory() -> None:
    for version in VERSIONS:
        directory = HERE / f"v{version}"
        assert {p.name for p in directory.iterdir()} == {*(c.name for c in CASES), *OTHER_FILES}
        for manifest in directory.rglob(NAME):
            assert json.loads(manifest.read_bytes().partition(b"\n")[0])["version"] == version
    assert VERSIONS[-1] == VERSION, "python -m tests.golden.make makes the files of a new version"


@pytest.mark.parametrize("case", [c for c in CASES if c.recovers], ids=lambda c: c.name)
def test_golden_files_match_files_written_today(case: Case, tmp_path: Path) -> None:
    make(case, tmp_path / case.name)
    recorded = HERE / f"v{VERSION}" / case.name
    written = tmp_path / case.name
    assert {p.name for p in written.iterdir()} == {p.name for p in recorded.iterdir()}
    then, now = (json.loads((d / "expected.json").read_text()) for d in (recorded, written))
    # The runtime snapshot also records the number of clock reads.
    assert now["files"] == then["files"]
    assert now["results"] == then["results"]
    then, now = (open_checkpoint(location(d / "saved")).manifest for d in (recorded, written))
    assert (now.kind, now.snapshot.vertices.keys()) == (then.kind, then.snapshot.vertices.keys())


def test_runtime_snapshot_is_copied_without_classes_of_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (case,) = [c for c in CASES if c.name == "time"]
    for version in VERSIONS:
        golden = Golden(case, HERE / f"v{version}" / case.name, tmp_path / f"v{version}")
        with monkeypatch.context() as without:
            without.delattr(programs, "Hesitating")
            savepoint = Savepoint.load(location(golden.saved))
            golden.saved = Path(savepoint.write(tmp_path / f"written-{version}"))
            with pytest.raises(MissingClassError, match="The runtime snapshot of a subtask cannot be read"):
                savepoint.rename("uneven", "even").write(tmp_path / f"renamed-{version}")
        assert golden.resume() == golden.expected


def test_generated_operator_ids_match_recorded_ids() -> None:
    assert ids.ids() == json.loads(ids.FILE.read_text())


def test_recorded_operator_ids_cover_every_operator_kind() -> None:
    kinds = {cls.identity for cls in _subclasses(Operator) if hasattr(cls, "identity")}
    assert kinds - {"sql", "sql-stream-scan", "sql-to-rows"} == {kind for kind, _ in ids.ids()}


def _subclasses(cls: type[Operator]) -> Iterator[type[Operator]]:
    for sub in cls.__subclasses__():
        yield sub
        yield from _subclasses(sub)
