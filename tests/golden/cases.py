"""The golden cases, how their files are generated, and how a job restores them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from millstream.checkpoint.manifest import NAME, SHARED, Manifest
from millstream.checkpoint.store import open_checkpoint
from millstream.common.checkpointing_mode import CheckpointingMode
from millstream.common.tags import NAMESPACE
from millstream.jobmaster.machine.requests import CheckpointRequest, Request, RescaleRequest, SavepointRequest
from millstream.operators.runtime.runtime_snapshot import RuntimeSnapshot, decode
from millstream.testing import ManualClock, start_from

from .driver import RECORDS, Driver, program
from .programs import CLOCK, LATER, Answers, files_in
from .workdir import WORKDIR, locked_workdir

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Case:
    """One checkpoint or savepoint.

    Attributes:
        name: its directory.
        program: the program of the job.
        requests: requests to the job, by the number of epochs before each.
        checkpoint: the number of the checkpoint to record; 0 for a savepoint.
        parallelism: of the job when it starts.
        settings: additional settings of the driver.
        rescales: whether the output is the same at any parallelism, except for watermarks.
        loses: whether output is lost with the checkpoint: at most once.
        recovers: whether output is recovered. In at-most-once mode earlier versions deleted open files on recovery, so
            later versions leave none open.
    """

    name: str
    program: str
    requests: dict[int, Callable[[], Request]]
    checkpoint: int
    parallelism: int = 2
    settings: dict[str, Any] = field(default_factory=dict)
    rescales: bool = True
    loses: bool = False
    recovers: bool = True

    def driver(self, home: Path, **arguments: Any) -> Driver:
        return Driver(self.program, home, self.parallelism, CLOCK, **self.settings, **arguments)


def _rescale(parallelism: int) -> Callable[[], Request]:
    return lambda: RescaleRequest(parallelism)


def _savepoint() -> Request:
    return SavepointRequest(str(WORKDIR / "savepoints"), stop=True)


_AT_MOST_ONCE = {"mode": CheckpointingMode.AT_MOST_ONCE}
_LMDB = {"backend": "lmdb", "compression": True}

CASES = [
    Case("kinds", "kinds", {4: CheckpointRequest}, 1),
    Case("kinds-savepoint", "kinds", {4: _savepoint}, 0, parallelism=1),
    Case("kinds-lmdb", "kinds", {4: CheckpointRequest}, 1, settings=_LMDB),
    Case("kinds-complete", "kinds", {4: CheckpointRequest}, 1, settings={"incremental": False}),
    Case("windows", "windows", {3: CheckpointRequest}, 1),
    Case("windows-savepoint", "windows", {3: _savepoint}, 0, parallelism=1),
    Case("subtasks", "subtasks", {3: CheckpointRequest}, 1, rescales=False),
    Case("subtasks-savepoint", "subtasks", {3: _savepoint}, 0, rescales=False),
    Case("time", "time", {4: CheckpointRequest}, 1),
    # Two epochs without input, in which the source is idle.
    Case("time-idle", "time", {4: CheckpointRequest, 5: CheckpointRequest}, 2),
    # Right after a rescale, without state: the manifest has the snapshots restored by all subtasks.
    Case("time-rescaled", "stateless", {4: _rescale(1)}, 6, parallelism=3, settings=_AT_MOST_ONCE, loses=True),
    Case("connected", "connected", {3: CheckpointRequest}, 1),
    # A finished input is not polled again, so its restored state stays.
    Case("connected-rescaled", "connected", {3: _rescale(3), 6: CheckpointRequest}, 2),
    Case("connected-savepoint", "connected", {3: _rescale(1), 6: _savepoint}, 0),
    Case("requests", "requests", {3: CheckpointRequest}, 1),
    Case("requests-savepoint", "requests", {3: _savepoint}, 0),
    Case("patterns", "patterns", {4: CheckpointRequest}, 1),
    Case("patterns-savepoint", "patterns", {4: _savepoint}, 0, parallelism=1),
    Case("tables", "tables", {4: CheckpointRequest}, 1),
    Case("tables-savepoint", "tables", {4: _savepoint}, 0, parallelism=1),
    Case("files", "files", {2: CheckpointRequest, 5: CheckpointRequest}, 2),
    # Open files: subtasks store the valid length of each.
    Case("files-open", "files", {}, 4, settings=_AT_MOST_ONCE, rescales=False, loses=True, recovers=False),
]


# --- generating


def make(case: Case, target: Path) -> None:
    """Generate the files of a case with the current version."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    with locked_workdir() as directory:
        uninterrupted = _uninterrupted(case, directory / "whole")
    with locked_workdir() as directory:
        before = _save(case, directory / case.name, target)
    with locked_workdir(target / "place"):
        after = resume(case, target / "saved")
    if not case.loses:
        _check(case, uninterrupted, before, after)
    expected = {**after, "carried": runtime_snapshots(target / "saved")}
    lines = [f"{json.dumps(name)}: {json.dumps(content)}" for name, content in expected.items()]
    (target / "expected.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


def _uninterrupted(case: Case, home: Path) -> dict[str, list[str]]:
    _write_input()
    return output(case.driver(home).run())


def _write_input() -> None:
    (WORKDIR / "in").mkdir()
    for name, text in files_in().items():
        (WORKDIR / "in" / name).write_text(text)


def _save(case: Case, home: Path, target: Path) -> dict[str, list[str]]:
    """Run the job until its snapshot is stored; return the output committed before."""
    _write_input()
    before: dict[str, list[str]] = {}

    def copy_workdir() -> None:
        before.update(output(driver.sink.results()))
        names = ["in", *(name for name in ("plain", "compacted") if (WORKDIR / name).exists())]
        if case.program == "files":
            for name in names:
                shutil.copytree(WORKDIR / name, target / "place" / name)

    def on_written(manifest: Manifest) -> None:
        if manifest.id == case.checkpoint:
            _copy_checkpoint(home, manifest, target / "saved")
            copy_workdir()
            driver.master.cancel()

    driver = case.driver(home, requests={n: make() for n, make in case.requests.items()}, on_written=on_written)
    Answers.is_held = True
    try:
        driver.run()
    finally:
        Answers.is_held = False
    if not case.checkpoint:
        (savepoint,) = (WORKDIR / "savepoints").iterdir()
        shutil.copytree(savepoint, target / "saved")
        copy_workdir()
    return before


def _copy_checkpoint(home: Path, manifest: Manifest, target: Path) -> None:
    shutil.copytree(home / f"chk-{manifest.id}", target / f"chk-{manifest.id}")
    (target / SHARED).mkdir()
    for name in manifest.snapshot.files():
        shutil.copy(home / SHARED / name, target / SHARED / name)


def _check(
    case: Case, uninterrupted: dict[str, list[str]], before: dict[str, list[str]], after: dict[str, list[str]]
) -> None:
    """Check that the output before and after the restore equals the uninterrupted output."""
    if case.program in ("kinds", "subtasks"):
        # Their values depend on the time of the restore; the number of results does not.
        assert len(uninterrupted["results"]) <= len(before["results"]) + len(after["results"]), case.name
        return
    both = {**after, "results": sorted(before["results"] + after["results"])}
    assert timeless(both) == timeless(uninterrupted), case.name


def timeless(output: Any) -> Any:
    """Return the part of the output that is independent of epoch boundaries and parallelism."""
    return {**output, "results": [r for r in output["results"] if not r.startswith("('at', ")]}


# --- restoring


def runtime_snapshots(saved: Path) -> list[Any]:
    """Return the runtime snapshots of all subtasks, as plain data."""
    snapshot = open_checkpoint(location(saved)).manifest.snapshot
    snapshots = [
        [v.operators[0].uid, i, _snapshot_data(decode(subtask.runtime_snapshot))]
        for v in snapshot.vertices.values()
        for i, subtask in enumerate(v.subtasks)
    ]
    return json.loads(json.dumps(snapshots))  # type: ignore[no-any-return]


def _snapshot_data(snapshot: RuntimeSnapshot) -> dict[str, Any]:
    return {
        "watermark": snapshot.watermark,
        "idle": snapshot.idle,
        "ended": snapshot.ended,
        "channels": sorted([*address, c.watermark, c.idle, c.ended] for address, c in snapshot.channels.items()),
        "operators": {i: _plain(snapshot.operators[i]) for i in sorted(snapshot.operators)},
        "watermarks": snapshot.watermarks,
        "ended_edges": None if snapshot.ended_edges is None else sorted(snapshot.ended_edges),
        **({"requests": True} if snapshot.requests else {}),
    }


def _plain(value: Any) -> Any:
    """Return an object as plain data."""
    if isinstance(value, dict):
        return [[_plain(k), _plain(v)] for k, v in value.items()]
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    reduced: tuple[Any, ...] = value.__reduce_ex__(5) if hasattr(value, "__dict__") else (None, None)
    reader, values, *_ = reduced
    if getattr(reader, "__module__", None) == NAMESPACE:
        return [reader.__name__, _plain(values)]
    if hasattr(value, "__dict__"):
        return [type(value).__name__, _plain(vars(value))]
    return value


def location(saved: Path) -> str:
    """Return the path of the checkpoint or savepoint."""
    return str(next(saved.rglob(NAME)).parent)


def resume(case: Case, saved: Path, parallelism: int | None = None, settings: dict[str, str] | None = None) -> Any:
    """Restore a checkpoint or savepoint, run the job to its end in this process, and return its output.

    Args:
        case: the case.
        saved: the directory with the checkpoint, or the savepoint.
        parallelism: None for that of the saved job.
        settings: of the restored job.
    """
    snapshot = open_checkpoint(location(saved)).manifest.snapshot
    if parallelism is None:
        parallelism = max(v.parallelism for v in snapshot.vertices.values())
    env, sink = program(case.program, parallelism, **(settings or {}))
    job = start_from(env, location(saved), clock=ManualClock(LATER), epoch_sizes=lambda: RECORDS)
    if case.recovers:
        job.output.recover(snapshot.committables, snapshot.job_id)
    job.run()
    return output(sink.results())


def resume_as_job(case: Case, saved: Path, home: Path) -> Any:
    """Like `resume`, under the job master."""
    checkpoint = open_checkpoint(location(saved))
    parallelism = max(v.parallelism for v in checkpoint.manifest.snapshot.vertices.values())
    driver = Driver(case.program, home, parallelism, LATER, **case.settings, origin=checkpoint)
    return output(driver.run())


def output(results: list[Any]) -> dict[str, list[str]]:
    return {"results": sorted(map(repr, results)), "files": sorted(_lines())}


def _lines() -> Iterator[str]:
    for name in ("plain", "compacted"):
        for path in sorted((WORKDIR / name).rglob("*")):
            if path.is_file() and not path.name.startswith("."):
                yield from (f"{name}: {line}" for line in path.read_text().splitlines())
