"""Messages at the start of a job, and errors before anything is started for it."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

from millstream.common import Configuration, Duration
from millstream.common.errors import InvalidProgramError, JobExecutionError
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.datagen import DataGeneratorSource
from millstream.datastream.connectors.file_system import FileSource, StreamFormat
from millstream.testing import CollectSink, LocalEnvironment


def counting(env: LocalEnvironment, uid: str = "counts") -> CollectSink:
    sink = CollectSink()
    numbers = env.from_source(DataGeneratorSource(lambda i: i, rate_per_second=1000)).uid("numbers")
    numbers.key_by(lambda i: i % 3).reduce(lambda a, b: a + b).uid(uid).sink_to(sink)
    return sink


def saved(tmp_path: Path) -> str:
    env = LocalEnvironment()
    sink = counting(env)
    client = env.execute_async("counts")
    while len(sink.results()) < 10:
        pass
    return client.stop_with_savepoint(False, str(tmp_path)).result()


def test_restore_message_names_savepoint_and_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    savepoint = saved(tmp_path)
    env = LocalEnvironment(Configuration.from_dict({"execution.state-recovery.path": savepoint}))
    counting(env)
    env.execute_async("counts again").cancel().result()
    output = capsys.readouterr().err
    assert re.fullmatch(
        rf"millstream: job 'counts again' starts from savepoint {savepoint}, taken 20\d\d-.* UTC after epoch \d+: "
        r"1 operator\(s\) with state, [\d.]+ (bytes|KiB); 1 source\(s\)\n",
        output,
    )
    quiet = {"execution.state-recovery.path": savepoint, "millstream.quiet": "true"}
    env = LocalEnvironment(Configuration.from_dict(quiet))
    counting(env)
    env.execute_async().cancel().result()
    assert capsys.readouterr().err == ""


def test_restore_failure_is_raised_at_submission(tmp_path: Path) -> None:
    env = LocalEnvironment(Configuration.from_dict({"execution.state-recovery.path": saved(tmp_path)}))
    counting(env, uid="other")
    with pytest.raises(InvalidProgramError, match=r"'Reduce' \(uid 'counts'\) matches no operator of the program"):
        env.execute_async()


def test_async_job_failure_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    env = LocalEnvironment()
    env.from_collection([0]).map(lambda x: 1 // x).print()
    client = env.execute_async("division")
    with pytest.raises(JobExecutionError):
        client.get_job_execution_result().result()
    (record,) = [r for r in caplog.records if r.levelno == logging.ERROR]
    assert record.getMessage().startswith("job 'division' has failed:\nTraceback (most recent call last):\n")
    assert "ZeroDivisionError" in record.getMessage()


@pytest.mark.parametrize("continuously", [False, True])
def test_missing_input_is_reported_before_spark_starts(tmp_path: Path, continuously: bool) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    builder = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(tmp_path / "missing.txt"))
    if continuously:
        builder = builder.monitor_continuously(Duration.of_seconds(1))
    env.from_source(builder.build(), source_name="lines").print()
    missing = (
        r"Source 'Source: lines' \(made at test_start_messages.py:\d+\): FileSource: there is no file or directory"
    )
    from pyspark import SparkContext

    # Other tests may have created one.
    before = SparkContext._active_spark_context
    with pytest.raises(InvalidProgramError, match=missing):
        env.execute()
    assert SparkContext._active_spark_context is before
