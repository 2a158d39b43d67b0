"""What user code says to `logging` in a worker is said again in the driver, with its level and its operator."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from millstream.operators import logs
from millstream.operators.logs import Logged, levels, pass_on
from millstream.operators.protocol import LogLine
from millstream.testing import CollectSink, LocalEnvironment

log = logging.getLogger("tests.logs")


@pytest.fixture
def logged() -> Iterator[Logged]:
    handler = Logged()
    yield handler
    logging.getLogger().removeHandler(handler)
    log.setLevel(logging.NOTSET)


def said(value: int) -> int:
    log.info("saw %d", value)
    return value


def test_every_line_knows_the_operator_that_said_it(logged: Logged) -> None:
    logged.listen({"tests.logs": logging.INFO})
    env, sink = LocalEnvironment(), CollectSink()
    env.from_collection([1, 2]).map(said).name("looker").map(lambda x: said(x) + 1).sink_to(sink)
    env.execute()
    log.debug("too quiet")
    log.warning("nobody's")
    lines = logged.take()
    operators = ["looker, test_logs.py:34", "Map, test_logs.py:34"] * 2
    assert [line.operator for line in lines] == [*operators, None]
    assert [(line.name, line.level, line.message) for line in lines[::4]] == [
        ("tests.logs", logging.INFO, "saw 1"),
        ("tests.logs", logging.WARNING, "nobody's"),
    ]
    assert logged.take() == []


def test_levels_are_the_drivers() -> None:
    log.setLevel(logging.DEBUG)
    try:
        found = levels()
    finally:
        log.setLevel(logging.NOTSET)
    assert found["tests.logs"] == logging.DEBUG
    assert found[""] == logging.getLogger().level
    assert "tests.logs" not in levels()


def test_what_is_too_much_is_counted(logged: Logged, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "MOST_LINES", 3)
    logged.listen({"tests.logs": logging.INFO})
    for i in range(10):
        log.info("line %d", i)
    assert [line.message for line in logged.take()] == [
        "line 0",
        "line 1",
        "line 2",
        "... and 7 more lines in this epoch",
    ]


def test_passing_on(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "tests.logs"):
        pass_on(LogLine("tests.logs", logging.INFO, "saw 1", 5.25, "Map, job.py:3"))
        pass_on(LogLine("tests.logs", logging.DEBUG, "too quiet", 5.0, None))
    (record,) = caplog.records
    assert (record.levelname, record.getMessage(), record.created) == ("INFO", "[Map, job.py:3] saw 1", 5.25)


def test_a_program_that_has_not_set_up_logging_sees_the_level(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lonely = logging.getLogger("tests.lonely")
    monkeypatch.setattr(lonely, "propagate", False)
    pass_on(LogLine("tests.lonely", logging.ERROR, "oh no", 5.0, "Map, job.py:3"))
    pass_on(LogLine("tests.lonely", logging.INFO, "as you were", 5.0, None))
    assert capsys.readouterr().err == "ERROR [Map, job.py:3] oh no\n"
