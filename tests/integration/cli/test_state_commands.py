"""The commands that read checkpoints and savepoints, and their errors."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from millstream.cli import main as command_line
from millstream.datastream import launch_context
from millstream.state_processor import Savepoint
from millstream.testing import LocalJob, save_checkpoint, save_savepoint
from tests.support.paths import TESTS
from tests.support.state_programs import build

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command; return its exit code, stdout and stderr."""
    monkeypatch.setattr(launch_context, "_command_line", {})
    monkeypatch.setattr(launch_context, "_overrides", {})
    monkeypatch.setattr(sys, "path", list(sys.path))

    def command(*arguments: Any) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["millstream", *map(str, arguments)])
        code = 0
        try:
            command_line.main()
        except SystemExit as e:
            code = int(e.code or 0)
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return command


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with savepoints `one` and `two`, and checkpoint 3 of `job`."""
    directory = tmp_path_factory.mktemp("saved")
    job = LocalJob(build(1)[0], epoch_sizes=lambda: 10)
    job.run_epoch()
    save_savepoint(job, directory / "one")
    save_checkpoint(job, directory / "job", 3)
    job.run_epoch()
    save_savepoint(job, directory / "two")
    return directory


# --- ls


def test_state_ls_lists_operators_states_and_sources(run: Run, saved: Path) -> None:
    code, out, _ = run("state", "ls", saved / "one")
    lines = out.splitlines()
    assert code == 0
    assert lines[0] == f"Savepoint  {saved}/one"
    assert lines[1] == "Job        Flink Streaming Job (local)"
    header = lines[4].split()
    assert header == ["OPERATOR", "UID", "ID", "PARALLELISM", "MAX", "STATE", "KIND", "TYPE", "TTL", "ROWS", "BYTES"]
    keep = next(i for i, line in enumerate(lines) if " keep " in line)
    assert lines[keep].split()[:2] == ["KEYED", "PROCESS"]
    total = next(line for line in lines if " total " in line)
    # Under the header, in its columns.
    assert total[lines[4].index("STATE") :].split()[:4] == ["total", "value", "Integer", "7"]
    assert any(line.split()[-3:] == ['{"0":', "[10,", "60]}"] for line in lines)
    assert run("state", "ls", saved / "one" / "_metadata")[1] == out


def test_state_ls_prints_json(run: Run, saved: Path) -> None:
    results = json.loads(run("state", "ls", "--json", saved / "job" / "chk-3")[1])
    assert results["kind"] == "checkpoint"
    keep = next(o for o in results["operators"] if o["uid"] == "keep")
    assert (keep["parallelism"], keep["max_parallelism"], keep["name"]) == (1, 128, "KEYED PROCESS")
    timers = next(s for s in keep["states"] if s["table"] == "_event_timers")
    assert (timers["name"], timers["rows"], timers["address"]) == ("event-timers", 10, "time")
    assert {s["uid"]: s["position"] for s in results["sources"]}["numbers"] == {"0": [10, 60]}


# --- show


def test_state_show_prints_rows_of_state(run: Run, saved: Path) -> None:
    code, out, _ = run("state", "show", saved / "one", "--operator", "keep", "--state", "total")
    assert code == 0
    assert out.splitlines()[:2] == ["keep / total (value, Integer): 7 rows", "  KEY       VALUE"]
    assert "  {'k': 4}  4" in out.splitlines()
    assert len(out.splitlines()) == 9


def test_state_show_limits_rows(run: Run, saved: Path) -> None:
    out = run("state", "show", saved / "one", "-o", "keep", "-s", "total", "--limit", 2)[1]
    assert len(out.splitlines()) == 5
    assert out.splitlines()[-1] == "  ... and more (--limit 0 shows all)"
    assert len(run("state", "show", saved / "two", "-s", "event-timers", "-n", 0)[1].splitlines()) > 30


@pytest.mark.parametrize("key", ["{'k': 4}", '{"k": 4}'])
def test_state_show_filters_by_key(key: str, run: Run, saved: Path) -> None:
    out = run("state", "show", saved / "one", "--key", key, "--state", "total")[1]
    assert out.splitlines() == ["keep / total (value, Integer): 7 rows", "  KEY       VALUE", "  {'k': 4}  4"]
    assert run("state", "show", saved / "one", "--key", "nobody", "--state", "total")[1] == ""


def test_state_show_prints_json(run: Run, saved: Path) -> None:
    results = json.loads(run("state", "show", "--json", saved / "one", "-s", "window-sessions", "-k", "0")[1])
    assert results[0]["rows"] == [{"key": 0, "namespace": {"start": 0, "end": 16}, "value": 7}]
    assert results[0]["uid"] == "sessions"
    assert results[0]["complete"] is True


# --- diff


def test_state_diff_counts_and_prints_changes(run: Run, saved: Path) -> None:
    code, out, _ = run("state", "diff", saved / "one", saved / "two", "-n", 1)
    assert code == 0
    table = {tuple(line.split()[:2]): line.split()[2:] for line in out.splitlines() if line.startswith("keep  ")}
    # 10 more timers; each of the 7 keys got a record.
    assert table["keep", "event-timers"] == ["10", "0", "0", "10"]
    assert table["keep", "total"] == ["0", "0", "7", "0"]
    assert "  ~ 0: 7 -> 21" in out
    assert "  ... and 6 more" in out


def test_state_diff_reports_equal_states(run: Run, saved: Path) -> None:
    out = run("state", "diff", saved / "one", saved / "job" / "chk-3")[1]
    assert out.splitlines()[-1] == "No differences."
    assert "~" not in out


def test_state_diff_reports_added_changed_and_removed_rows(run: Run, saved: Path, tmp_path: Path) -> None:
    savepoint = Savepoint.load(saved / "one").put("keep", "total", "new", 1).put("keep", "total", 0, 2)
    changed = savepoint.remove("keep", "total", "1").drop_operator("panes").write(tmp_path / "changed")
    results = json.loads(run("state", "diff", "--json", saved / "one", changed)[1])
    by_name = {(d["operator"], d["state"]): d for d in results}
    total = by_name["keep", "total"]
    assert (total["added"], total["removed"], total["changed"], total["same"]) == (1, 1, 1, 5)
    assert {json.dumps(e["key"]): (e["before"], e["after"]) for e in total["examples"]} == {
        '"new"': (None, 1),
        "0": (7, 2),
        '"1"': (9, None),
    }
    assert by_name["panes", "window-panes"]["only_in"] == "first"
    out = run("state", "diff", saved / "one", changed)[1]
    assert "  - '1': 9" in out
    assert "  + 'new': 1" in out
    assert "the first" in out


# --- export


def test_state_export_writes_typed_parquet(run: Run, saved: Path, tmp_path: Path) -> None:
    code, out, _ = run("state", "export", saved / "one", tmp_path / "out")
    assert code == 0
    assert f"{tmp_path}/out/keep.total.parquet: 7 rows" in out
    table = pq.read_table(tmp_path / "out" / "sessions.window-sessions.parquet")
    assert str(table.schema.field("namespace").type) == "struct<start: int64, end: int64>"
    assert str(table.schema.field("value").type) == "int64"
    # Keys of several types are text.
    assert '{"k": 4}' in table["key"].to_pylist()
    by_rest = pq.read_table(tmp_path / "out" / "keep.by-rest.parquet")
    assert str(by_rest.schema.field("value").type).startswith("map<int64, int64")


def test_state_export_writes_json_lines(run: Run, saved: Path, tmp_path: Path) -> None:
    arguments = ["--format", "jsonl", "--operator", "keep", "--state", "seen"]
    assert run("state", "export", saved / "one", tmp_path, *arguments)[0] == 0
    lines = (tmp_path / "keep.seen.jsonl").read_text().splitlines()
    assert {"key": {"k": 4}, "namespace": None, "value": ["4"]} in [json.loads(line) for line in lines]
    code, _, err = run("state", "export", saved / "one", tmp_path, *arguments)
    assert code == 1
    assert "keep.seen.jsonl already exists" in err


# --- errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["state", "ls", "{}/nothing"], "is not a checkpoint or savepoint"),
        (["state", "ls", "{}/job"], "is a job's directory of checkpoints: give one, {}/job/chk-3."),
        (["state", "show", "{}/one", "-o", "nobody"], "There is no operator 'nobody' in {}/one (there are 'numbers', "),
        (["state", "show", "{}/one", "-o", "keep", "-s", "x"], "Operator 'keep' has no state 'x' (it has "),
        (["state", "show", "{}/one", "-s", "x"], "No operator of {}/one has a state 'x'."),
        (["savepoint", "dispose", "{}/job/chk-3"], "is a checkpoint, which belongs to its job"),
        (["savepoint", "dispose", "{}"], "is not a checkpoint or savepoint"),
    ],
)
def test_state_commands_print_one_line_errors(arguments: list[str], message: str, run: Run, saved: Path) -> None:
    code, out, err = run(*(a.replace("{}", str(saved)) for a in arguments))
    assert (code, out) == (1, "")
    assert message.replace("{}", str(saved)) in err
    assert len(err.splitlines()) == 1


def test_cli_exits_with_2_for_wrong_usage(run: Run, saved: Path) -> None:
    assert run("state", "show")[0] == 2
    assert run("state")[0] == 2
    assert run("state", "ls", saved / "one", "-D", "nonsense")[0] == 2
    code, _, err = run("run", "--from-savepoint", "a", "--from-checkpoint", "b", __file__)
    assert code == 2
    assert "--from-savepoint and --from-checkpoint exclude each other" in err


# --- savepoint dispose


def test_savepoint_dispose_deletes_only_savepoint_files(run: Run, saved: Path, tmp_path: Path) -> None:
    written = Path(Savepoint.load(saved / "one").write(tmp_path / "savepoint"))
    (written / f"{'0' * 32}-1-left.parquet").write_text("by an attempt that failed")
    assert run("savepoint", "dispose", written)[:2] == (0, f"{written} was deleted.\n")
    assert list(tmp_path.iterdir()) == []
    written = Path(Savepoint.load(saved / "one").write(tmp_path / "savepoint"))
    (written / "mine.parquet").write_text("dear to me")
    code, out, _ = run("savepoint", "dispose", written)
    assert code == 0
    assert "its directory has other files and remains: mine.parquet" in out
    assert [p.name for p in written.iterdir()] == ["mine.parquet"]


# --- savepoint check

PROGRAM = """
import sys
from millstream.datastream import StreamExecutionEnvironment, KeyedProcessFunction
from millstream.datastream.state import ValueStateDescriptor
from millstream.common import Types
from millstream.testing import CollectSink, LocalJob, save_savepoint
print("hello from the program")
class Hold(KeyedProcessFunction):
    def open(self, context):
        self.held = context.get_state(ValueStateDescriptor("held", {type}))
        assert context.get_job_parameter("my.setting", "") in ("", "yes")
    def process_element(self, value, ctx):
        self.held.update(value)
        return iter(())
env = StreamExecutionEnvironment.get_execution_environment()
hold = env.from_collection(list(range(int(sys.argv[1])))).uid("numbers").key_by(lambda x: x % 5).process(Hold())
hold.uid("{uid}").sink_to(CollectSink()).uid("out")
{then}
"""


@pytest.fixture
def program(tmp_path: Path, run: Run) -> Callable[..., Path]:
    """Write a program, and take its savepoint to `held`."""

    def write(uid: str = "hold", kind: str = "Types.INT()", then: str = "env.execute()") -> Path:
        path = tmp_path / "job.py"
        path.write_text(PROGRAM.replace("{uid}", uid).replace("{type}", kind).replace("{then}", then))
        return path

    take = (
        f"job = LocalJob(env, epoch_sizes=lambda: 10); job.run_epoch(); save_savepoint(job, {str(tmp_path / 'held')!r})"
    )
    assert run("run", write(then=take), "20")[0] == 0
    return write


def test_savepoint_check_accepts_matching_program(run: Run, program: Any, tmp_path: Path) -> None:
    code, out, err = run("savepoint", "check", "-p", 3, "-D", "my.setting=yes", program(), tmp_path / "held", 20)
    assert code == 0, err
    assert "hello" not in out
    lines = out.splitlines()
    keep = next(line for line in lines if " hold " in line)
    cores = Savepoint.load(tmp_path / "held").operators()[1].parallelism
    spread = "3" if cores == 3 else f"{cores} -> 3"
    assert " ".join(keep.split()) == f"KEYED PROCESS hold {spread} held (value, 5 rows)"
    assert lines[-1] == f"{tmp_path}/job.py is compatible."


def test_savepoint_check_reports_state_that_would_be_lost(run: Run, program: Any, tmp_path: Path) -> None:
    code, out, _ = run("savepoint", "check", program("other"), tmp_path / "held", 20)
    assert code == 1
    assert "  'KEYED PROCESS': held (value, 5 rows): the program has no operator with uid 'hold'." in out.splitlines()
    assert "is not compatible. To discard the lost state, use --allow-non-restored-state." in out
    code, out, _ = run("savepoint", "check", "-n", program("other"), tmp_path / "held", 20)
    assert code == 0
    assert "Lost, which is allowed" in out


def test_savepoint_check_reports_changed_state_type(run: Run, program: Any, tmp_path: Path) -> None:
    code, out, _ = run("savepoint", "check", "-n", "--json", program(kind="Types.STRING()"), tmp_path / "held", 20)
    assert code == 1
    results = json.loads(out)
    assert results["fits"] is False
    assert results["changed"] == [
        {
            "operator": "KEYED PROCESS",
            "state": "held",
            "text": "was declared as Integer and is declared as String now; stored values are not converted",
        }
    ]


def test_savepoint_check_requires_program_and_savepoint(run: Run, program: Any, tmp_path: Path) -> None:
    assert run("savepoint", "check", tmp_path / "nowhere.py", tmp_path / "held")[0] == 2
    assert run("savepoint", "check", program())[0] == 2
    code, _, err = run("savepoint", "check", program(), tmp_path / "nothing", 20)
    assert code == 1
    assert "is not a checkpoint or savepoint" in err


# --- run


def test_run_start_options_override_state_recovery_of_program(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program sets another path in every possible way."""
    from millstream.spark import spark_launcher

    program = tmp_path / "job.py"
    program.write_text(
        "from millstream.common import Configuration\n"
        "from millstream.datastream import StreamExecutionEnvironment\n"
        "own = Configuration.from_dict({'execution.state-recovery.path': '/own'})\n"
        "env = StreamExecutionEnvironment.get_execution_environment(own)\n"
        "env.configure(own)\n"
        "env.get_configuration().set_string('execution.state-recovery.claim-mode', 'NO_CLAIM')\n"
        "env.from_collection([1]).print()\n"
        "env.execute()\n"
    )
    seen: dict[str, str] = {}

    class Launched(BaseException):
        pass

    def stop(job: Any) -> Any:
        seen.clear()
        seen.update(job.config.to_dict())
        raise Launched

    monkeypatch.setattr(spark_launcher, "launch", stop)
    prefix = "execution.state-recovery."

    def start(*options: str) -> dict[str, str]:
        launch_context._overrides.clear()
        with pytest.raises(Launched):
            run("run", *options, program)
        return {k.removeprefix(prefix): v for k, v in seen.items() if k.startswith(prefix)}

    assert start() == {"path": "/own", "claim-mode": "NO_CLAIM"}
    assert start("-s", "/given", "-n", "--claim-mode", "claim") == {
        "path": "/given",
        "claim-mode": "CLAIM",
        "ignore-unclaimed-state": "true",
    }
    assert start("--from-checkpoint", "latest")["path"] == "latest"
    assert start("--from-checkpoint", "s3://bucket/chk-1")["path"] == "s3://bucket/chk-1"
    # A relative path refers to the working directory of the command.
    monkeypatch.chdir(tmp_path)
    assert start("--from-savepoint", "here")["path"] == str(tmp_path / "here")
    assert start("--from-savepoint", "latest")["path"] == str(tmp_path / "latest")


# --- patterns


def test_state_show_prints_runs_and_buffered_events_of_patterns(run: Run) -> None:
    savepoint = TESTS / "golden" / "v3" / "patterns-savepoint" / "saved"
    code, out, _ = run("state", "show", savepoint, "--operator", "never", "--limit", 0)
    assert code == 0
    assert "(5, 'x')  [(252, (2, 22, 252))]" in out
    assert "<runs: second after first=[(1, 18, 188)], timers at [338]>" in out
