"""Reading an untrusted checkpoint or savepoint executes none of its code."""

from __future__ import annotations

import datetime
import os
import pickle
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from millstream.cli.main import cli
from millstream.common import Row, Types
from millstream.common.errors import DamagedStateError
from millstream.common.pickles import dump
from millstream.common.restricted_pickles import load_restricted
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.functions import KeyedProcessFunction, RuntimeContext
from millstream.datastream.state import ValueStateDescriptor
from millstream.operators.windows.windows import GlobalWindow, TimeWindow
from millstream.testing import CollectSink, LocalJob, save_checkpoint, save_savepoint


class Attack:
    """Creates a directory when it is unpickled, if `is_armed` was set when it was pickled."""

    is_armed = False

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (os.mkdir if self.is_armed else Attack), (self.path,)


@pytest.mark.parametrize("save", [save_savepoint, save_checkpoint])
@pytest.mark.parametrize(
    "words",
    [
        ["state", "ls"],
        ["state", "ls", "--json"],
        ["state", "show"],
        ["state", "show", "--json"],
        ["savepoint", "check"],
    ],
    ids=" ".join,
)
def test_state_commands_execute_no_code_of_untrusted_state(
    tmp_path: Path, save: Any, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "attacked"
    monkeypatch.setattr(Attack, "is_armed", False)
    location = save(_job(mark), tmp_path / "saved")
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM)
    reported = CliRunner().invoke(cli, [*words, *([str(program)] if "check" in words else []), location])
    assert not mark.exists()
    assert reported.exit_code == 0 or "check" in words, reported.output
    if "show" in words:
        assert "mkdir(" in reported.output
        CliRunner().invoke(cli, [*words, "--trust", location])
        assert mark.exists()


_PROGRAM = """
from millstream.datastream import StreamExecutionEnvironment
env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection([("a", 1)]).key_by(lambda t: t[0]).reduce(lambda a, b: b).uid("last").print()
env.execute()
"""


def _job(mark: Path) -> LocalJob:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    words = env.from_collection(["a", "b"]).map(lambda w: (w, 1))
    attacked = words.key_by(lambda t: t[0]).reduce(lambda a, b: b).uid("last").map(lambda t: t)
    attacked.key_by(lambda t: t[0]).process(_Keeping(str(mark))).uid("kept").sink_to(CollectSink())
    job = LocalJob(env, epoch_sizes=lambda: 2)
    job.run_epoch()
    return job


class _Keeping(KeyedProcessFunction):
    def __init__(self, path: str) -> None:
        self._path = path

    def open(self, runtime_context: RuntimeContext) -> None:
        self._state = runtime_context.get_state(ValueStateDescriptor("kept", Types.PICKLED_BYTE_ARRAY()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        self._state.update(Attack(self._path))
        # State copies its values; only the written copy may be dangerous.
        Attack.is_armed = value[0] == "b"
        yield value


@pytest.mark.parametrize(
    "value",
    [
        Row(a=1, b="x"),
        Row(1, None),
        TimeWindow(1, 2),
        GlobalWindow(),
        {"a": {1, 2}, "b": [frozenset({1}), bytearray(b"x"), 1 + 2j]},
        datetime.datetime(2024, 1, 2, tzinfo=datetime.UTC),
        Decimal("1.50"),
        np.arange(6).reshape(2, 3),
        np.array([1, "x", None], dtype=object),
        np.float32(1.5),
        np.datetime64(5, "s"),
    ],
    ids=lambda v: type(v).__name__,
)
def test_restricted_pickle_reads_plain_values_unchanged(value: Any) -> None:
    for data in (dump(value), pickle.dumps(value, 5)):
        read = load_restricted(data)
        assert type(read) is type(value) and repr(read) == repr(value)


def test_restricted_pickle_imports_nothing_and_follows_no_attributes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "evil_module.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "evil_module" in repr(load_restricted(b"cevil_module\nThing\n(tR."))
    assert "evil_module" not in sys.modules
    # Through a Millstream module to the modules that it imports.
    mark = tmp_path / "attacked"
    for names in (
        ("millstream.common.private_files", "os.mkdir"),
        ("millstream.common.private_files", "write_private"),
    ):
        words = [pickle.SHORT_BINUNICODE + bytes([len(n)]) + n.encode() for n in (*names, str(mark))]
        load_restricted(b"\x80\x04" + words[0] + words[1] + pickle.STACK_GLOBAL + words[2] + b"\x85R.")
    assert not mark.exists()


def test_restricted_pickle_suggests_trust_for_unreadable_data() -> None:
    with pytest.raises(DamagedStateError, match="--trust"):
        load_restricted(b"I1\n(tR.")
