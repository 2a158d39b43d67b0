"""Error messages that users see."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from millstream.cli.replay import replay
from millstream.common import Configuration, Row, Types
from millstream.common.errors import InvalidProgramError, JobExecutionError, TypeMismatchError
from millstream.datastream import (
    FlatMapFunction,
    KeyedProcessFunction,
    MapFunction,
    ProcessFunction,
    RuntimeContext,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)
from millstream.datastream.connectors.datagen import DataGeneratorSource
from millstream.datastream.connectors.number_seq import NumberSequenceSource
from millstream.datastream.state import ValueStateDescriptor
from millstream.testing import CollectSink

Env = StreamExecutionEnvironment
pytestmark = pytest.mark.spark


def divide(x: int) -> float:
    return 10 / x


def failure_of(env: Env) -> str:
    with pytest.raises(JobExecutionError) as caught:
        env.execute()
    return str(caught.value)


def test_error_shows_user_traceback_then_operator_and_record(env1: Env, resident_slots: bool) -> None:
    stream = env1.from_collection([5, 2, 0]).map(lambda x: x).name("before")
    stream.map(divide).name("division").uid("div-1").map(lambda x: x).name("after").add_sink(lambda v: None)
    with pytest.raises(JobExecutionError) as caught:
        env1.execute()
    text = str(caught.value)
    assert text.startswith("Traceback (most recent call last):")
    lines = text.splitlines()
    assert "test_errors.py" in lines[1]
    assert "return 10 / x" in text
    assert "ZeroDivisionError: division by zero" in text
    assert re.search(r"in operator 'division' \(uid div-1\), made at test_errors.py:\d+, subtask 1/1, epoch 1", text)
    assert lines[-1] == "record: 0"
    assert "millstream/" not in text.replace("tests/", "")
    assert "Py4J" not in text
    assert ("SubtaskFailed" if resident_slots else "org.apache.spark") in caught.value.engine_trace


class Boom(ValueError):
    pass


class FailsInGenerator(FlatMapFunction[int, int]):
    def flat_map(self, value: int) -> Iterator[int]:
        yield value
        raise Boom(f"cannot take {value}")


def test_generator_error_names_record(env: Env) -> None:
    env.from_source(NumberSequenceSource(7, 7)).key_by(lambda x: x).flat_map(FailsInGenerator()).add_sink(
        lambda v: None
    )
    text = failure_of(env)
    assert "Boom: cannot take 7" in text
    assert "in operator 'FlatMap'" in text
    assert text.endswith("record: 7")


class FailsInOpen(MapFunction[int, int]):
    def open(self, runtime_context: RuntimeContext) -> None:
        raise Boom("no connection")

    def map(self, value: int) -> int:
        return value


def test_open_error_names_operator(env: Env) -> None:
    env.from_collection([1]).map(FailsInOpen()).name("opener").add_sink(lambda v: None)
    text = failure_of(env)
    assert "Boom: no connection" in text
    assert "in operator 'opener'" in text


def test_key_selector_reducer_and_sink_errors_name_operator(env1: Env) -> None:
    env1.from_collection([(1,)]).map(lambda t: t).name("source map").key_by(lambda t: t[5]).sum(0).add_sink(print)  # type: ignore[misc]
    text = failure_of(env1)
    assert "IndexError" in text
    assert "in operator 'source map'" in text
    assert "record: (1,)" in text

    env1.from_collection([("a", 1), ("a", "x")]).key_by(0).sum(1).name("summing").add_sink(lambda v: None)
    text = failure_of(env1)
    assert "in operator 'summing'" in text
    assert "record: ('a', 'x')" in text

    def write(value: Any) -> None:
        raise Boom("disk full")

    env1.from_collection([1]).add_sink(write).name("writer")
    text = failure_of(env1)
    assert "Boom: disk full" in text
    assert "in operator 'writer'" in text


def test_missing_field_error_names_field(env1: Env) -> None:
    env1.from_collection([Row(a=1), Row(a=2)]).key_by(lambda r: 0).sum("b").add_sink(lambda v: None)
    text = failure_of(env1)
    assert "sum('b'): the record Row(a=1) has no field 'b'" in text


def test_error_truncates_long_record(env1: Env) -> None:
    env1.from_collection(["x" * 100_000]).map(lambda s: s.nonsense()).add_sink(lambda v: None)  # type: ignore[attr-defined]
    text = failure_of(env1)
    assert len(text) < 2000
    assert "100002 characters" in text


def test_type_mismatch_error_names_record_and_operator(env1: Env) -> None:
    env1.from_collection([1, "two"]).map(lambda x: x, output_type=Types.INT()).name("to int").add_sink(lambda v: None)
    text = failure_of(env1)
    assert "the value 'two' (str) does not fit the type Integer" in text
    assert "in operator 'to int'" in text
    assert "record: 'two'" in text
    with pytest.raises(TypeMismatchError, match=r"from_collection\(\): element 1: the value 'x' \(str\) does not fit"):
        env1.from_collection([1, "x"], Types.INT())


def test_flat_map_rejects_non_iterable_result(env1: Env) -> None:
    env1.from_collection([3]).flat_map(lambda x: x).name("flat").add_sink(lambda v: None)  # type: ignore[arg-type, return-value]
    text = failure_of(env1)
    assert text.startswith("The function returned a value of type int where any number of results is expected")
    assert "in operator 'flat'" in text


def test_pickle_error_names_object(env: Env) -> None:
    lock = threading.Lock()
    holder = {"inside": [1, lock]}

    class UsesLock(MapFunction[int, int]):
        def __init__(self) -> None:
            self.guard = lock

        def map(self, value: int) -> int:
            return value

    env.from_collection([1]).map(lambda x: (x, holder)).name("locking").print()
    with pytest.raises(InvalidProgramError) as caught:
        env.execute()
    text = str(caught.value)
    assert re.match(r"Operator 'locking' \(made at test_errors.py:\d+\) cannot be sent", text)
    assert "the element 1 of the entry 'inside' of the variable 'holder' of" in text
    assert "_thread.lock" in text

    other = Env(env.get_configuration())
    other.from_collection([1]).map(UsesLock()).print()
    with pytest.raises(InvalidProgramError, match="the attribute 'guard' of .*UsesLock"):
        other.execute()


class AsksForState(ProcessFunction[int, int]):
    def open(self, runtime_context: RuntimeContext) -> None:
        runtime_context.get_state(ValueStateDescriptor("s"))

    def process_element(self, value: int, ctx: Any) -> None:
        return None


def test_state_access_without_key_is_rejected(env: Env) -> None:
    env.from_collection([1]).process(AsksForState()).name("stateful").add_sink(lambda v: None)
    text = failure_of(env)
    assert "'stateful' uses keyed state 's' but its input is not keyed: call key_by(...) before it." in text


def test_batch_mode_rejects_unbounded_source(env: Env) -> None:
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    env.from_source(DataGeneratorSource(lambda i: i)).print()
    with pytest.raises(InvalidProgramError, match="BATCH needs bounded sources, and 'Data Generator Source' .* is not"):
        env.execute()


def test_job_runs_after_failed_job(env1: Env) -> None:
    env1.from_collection([0]).map(divide).add_sink(lambda v: None)
    failure_of(env1)
    sink = CollectSink()
    env1.from_collection([5]).map(divide).sink_to(sink)
    env1.execute()
    assert sink.results() == [2.0]


def test_error_reaches_collect_iterator(env1: Env) -> None:
    results = env1.from_collection([1, 0]).map(divide).execute_and_collect()
    with pytest.raises(JobExecutionError, match="ZeroDivisionError"):
        list(results)


def test_printed_output_before_failure_is_shown(env1: Env, capsys: pytest.CaptureFixture[str]) -> None:
    def print_and_divide(x: int) -> float:
        print("about to divide by", x)
        return 10 / x

    env1.from_collection([0]).map(print_and_divide).add_sink(lambda v: None)
    failure_of(env1)
    assert "about to divide by 0" in capsys.readouterr().out


# --- logging


class LoggingMap(MapFunction[int, float]):
    def open(self, runtime_context: RuntimeContext) -> None:
        logging.getLogger("chatty").warning("opened")

    def map(self, value: int) -> float:
        logging.getLogger("chatty").info("dividing by %d", value)
        return 10 / value


@pytest.mark.parametrize("exchange", ["resident", "spark"])
def test_log_records_of_user_code_reach_driver(env1: Env, exchange: str, caplog: pytest.LogCaptureFixture) -> None:
    env1.get_configuration().set_string("millstream.exchange", exchange)
    env1.from_collection([5, 2, 0]).map(LoggingMap()).name("division").add_sink(lambda v: None)
    with caplog.at_level(logging.INFO, "chatty"):
        failure_of(env1)
    lines = [(r.levelname, r.getMessage()) for r in caplog.records if r.name == "chatty"]
    assert [level for level, _ in lines] == ["WARNING", "INFO", "INFO", "INFO"]
    messages = ["opened", "dividing by 5", "dividing by 2", "dividing by 0"]
    for (_, message), text in zip(lines, messages, strict=True):
        assert re.fullmatch(rf"\[[^,]+, division, test_errors.py:\d+, subtask \d/\d\] {text}", message)


# --- inspecting the failed record


class StatefulFunction(KeyedProcessFunction[int, int, int]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.sum = runtime_context.get_state(ValueStateDescriptor("sum", Types.INT()))

    def process_element(self, value: int, ctx: Any) -> Iterator[float]:  # type: ignore[override]
        before = self.sum.value() or 0
        self.sum.update(before + value)
        yield divide(value - 7)


@pytest.mark.parametrize("exchange", ["resident", "spark"])
def test_replay_reproduces_failure_of_worker(env1: Env, exchange: str, tmp_path: Path) -> None:
    env1.get_configuration().set_string("millstream.exchange", exchange)
    env1.get_configuration().set_string("millstream.failures.dir", str(tmp_path))
    env1.from_collection(list(range(10)), Types.INT()).key_by(lambda x: x % 2).process(StatefulFunction()).print()
    failure_of(env1)
    (report,) = tmp_path.iterdir()
    done = CliRunner().invoke(replay, [str(report)])
    assert done.exit_code == 1 and report.stat().st_mode & 0o777 == 0o600
    assert done.stdout.startswith("Traceback") and "return 10 / x" in done.stdout
    assert "record: 7\nkey: 1\nstate: sum = 9\n" in done.stderr, done.stderr


# --- printing


def test_print_formats_values_like_flink(env1: Env, env: Env, capsys: pytest.CaptureFixture[str]) -> None:
    env1.from_collection([("a", 0)], Types.ROW([Types.STRING(), Types.INT()])).print()
    env1.from_collection([("a", True)], Types.TUPLE([Types.STRING(), Types.BOOLEAN()])).print("named")
    env1.from_collection([Row("a", 2), ("x", None), "plain"]).print()
    env1.execute()
    assert sorted(capsys.readouterr().out.splitlines()) == sorted(
        ["+I[a,0]", "named> (a,true)", "<Row('a', 2)>", "('x', None)", "plain"]
    )
    env.from_source(NumberSequenceSource(1, 2)).print()
    env.from_source(NumberSequenceSource(1, 2)).print("n")
    env.execute()
    assert sorted(capsys.readouterr().out.splitlines()) == ["1> 1", "2> 2", "n:1> 1", "n:2> 2"]


def test_print_in_functions_reaches_console(env1: Env, capsys: pytest.CaptureFixture[str]) -> None:
    env1.from_collection([1]).map(lambda x: print("hello from a worker")).add_sink(lambda v: None)
    env1.execute()
    assert capsys.readouterr().out == "hello from a worker\n"


def test_slot_memory_error_names_state(config: Configuration) -> None:
    # Of 900 MB Java has 480, and each of two slots 210.
    config.set_string("taskmanager.memory.flink.size", "900m").set_string("taskmanager.numberOfTaskSlots", "2")
    env = Env.get_execution_environment(config)
    texts = env.from_source(DataGeneratorSource(lambda i: "x" * 1000 + str(i), 600_000)).uid("texts")
    texts.key_by(lambda text: text).reduce(lambda a, b: a).uid("kept").name("Keeper").add_sink(lambda text: None)
    with pytest.raises(JobExecutionError) as failed:
        env.execute()
    message = str(failed.value)
    assert "of memory, and its share is 210.0 MiB. Most of it is the state '_reduce': " in message
    assert "in operator 'Keeper' (uid kept)" in message
    assert "Raise taskmanager.memory.process.size" in message
