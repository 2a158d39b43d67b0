"""Log records of user code in a worker are logged again in the driver, with their level and operator."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator

import pytest

from millstream.common.configuration import Configuration
from millstream.common.log_format import JsonLines, write_log
from millstream.datastream import StreamExecutionEnvironment
from millstream.operators.diagnostics import logs
from millstream.operators.diagnostics.logs import Logged, levels, pass_on
from millstream.operators.runtime.messages import LogLine
from millstream.testing import CollectSink, LocalEnvironment

log = logging.getLogger("tests.logs")


@pytest.fixture
def logged() -> Iterator[Logged]:
    handler = Logged()
    yield handler
    logging.getLogger().removeHandler(handler)
    log.setLevel(logging.NOTSET)


def logged_value(value: int) -> int:
    log.info("saw %d", value, extra={"job": "the program's own", "operator": 5})
    return value


def test_log_lines_name_their_operator(logged: Logged) -> None:
    logged.listen({"tests.logs": logging.INFO})
    env, sink = LocalEnvironment(), CollectSink()
    env.from_collection([1, 2]).map(logged_value).name("looker").map(lambda x: logged_value(x) + 1).sink_to(sink)
    env.execute()
    log.debug("too quiet")
    log.warning("outside")
    lines = logged.take()
    operators = ["looker, test_logs.py:39", "Map, test_logs.py:39"] * 2
    assert [line.operator for line in lines] == [*operators, None]
    assert [(line.name, line.level, line.message) for line in lines[::4]] == [
        ("tests.logs", logging.INFO, "saw 1"),
        ("tests.logs", logging.WARNING, "outside"),
    ]
    assert logged.take() == []


def test_log_levels_are_those_of_the_driver() -> None:
    log.setLevel(logging.DEBUG)
    try:
        actual = levels()
    finally:
        log.setLevel(logging.NOTSET)
    assert actual["tests.logs"] == logging.DEBUG
    assert actual[""] == logging.getLogger().level
    assert "tests.logs" not in levels()


def test_log_lines_above_the_limit_are_counted(logged: Logged, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "MAX_LINES", 3)
    logged.listen({"tests.logs": logging.INFO})
    for i in range(10):
        log.info("line %d", i)
    assert [line.message for line in logged.take()] == [
        "line 0",
        "line 1",
        "line 2",
        "... and 7 more lines in this epoch",
    ]


def test_log_lines_are_passed_on_in_the_driver(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "tests.logs"):
        pass_on(LogLine("tests.logs", logging.INFO, "saw 1", 5.25, "Map, job.py:3"))
        pass_on(LogLine("tests.logs", logging.DEBUG, "too quiet", 5.0, None))
    (record,) = caplog.records
    assert (record.levelname, record.getMessage(), record.created) == ("INFO", "[Map, job.py:3] saw 1", 5.25)


def test_log_lines_show_their_level_without_logging_setup(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lonely = logging.getLogger("tests.lonely")
    monkeypatch.setattr(lonely, "propagate", False)
    pass_on(LogLine("tests.lonely", logging.ERROR, "oh no", 5.0, "Map, job.py:3"))
    pass_on(LogLine("tests.lonely", logging.INFO, "as you were", 5.0, None))
    assert capsys.readouterr().err == "ERROR [Map, job.py:3] oh no\n"


def test_log_is_json_when_configured(capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    before = list(root.handlers)
    write_log(Configuration.from_dict({}))
    assert root.handlers == before
    for _ in range(2):
        write_log(Configuration.from_dict({"millstream.log.format": "json"}))
    (added,) = [h for h in root.handlers if h not in before]
    try:
        pass_on(
            LogLine(
                "shop", logging.WARNING, "no price for 'plums'", 1_700_000_000.25, "prices, shop.py:31", "1/2", "orders"
            )
        )
        try:
            raise ValueError("torn")
        except ValueError:
            logging.getLogger("millstream").exception("broken %d", 3)
    finally:
        root.removeHandler(added)
    first, second = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert first == {
        "time": "2023-11-14T22:13:20.250+00:00",
        "level": "WARNING",
        "logger": "shop",
        "message": "no price for 'plums'",
        "job": "orders",
        "operator": "prices, shop.py:31",
        "subtask": "1/2",
    }
    assert second["message"] == "broken 3" and "ValueError: torn" in second["exception"] and "operator" not in second


def test_log_of_a_local_job_equals_that_of_workers(caplog: pytest.LogCaptureFixture) -> None:
    settings = {"millstream.engine": "local", "millstream.quiet": "true", "parallelism.default": "1"}
    before = logging.getLogRecordFactory()
    try:
        env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
        env.from_collection([100]).map(logged_value).name("looker").print()
        with caplog.at_level(logging.INFO, "tests.logs"):
            env.execute("looking")
            log.info("outside %d", 1)
    finally:
        logging.setLogRecordFactory(before)
    (first, second) = [r for r in caplog.records if r.name == "tests.logs"]
    assert re.fullmatch(r"\[looking, looker, test_logs.py:\d+, subtask 1/1\] saw 100", first.getMessage())
    assert json.loads(JsonLines().format(first))["message"] == "saw 100"
    assert second.getMessage() == "outside 1"
