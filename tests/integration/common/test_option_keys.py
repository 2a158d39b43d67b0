"""Options are read under Flink's keys, including deprecated ones, and unknown keys are reported."""

from __future__ import annotations

import logging
import os
import pkgutil
import re
from pathlib import Path

import pytest

import millstream
from millstream.common import Configuration
from millstream.common.errors import InvalidProgramError
from millstream.common.known_keys import OWN, check_keys, flink_keys, harmless_patterns, has_effect, is_harmless
from millstream.datastream import StreamExecutionEnvironment
from millstream.jobmaster.machine.options import full_failover
from millstream.table import EnvironmentSettings, TableEnvironment
from millstream.testing import LocalEnvironment
from tests.documentation.configuration import all_settings
from tests.pyflink.option_keys import KEYS, options_of_pyflink, read
from tests.support.apache_flink import flink_folder, flink_python, needs_flink  # noqa: F401
from tests.support.paths import ROOT

# Keys that Flink never had, or had before 1.17.
OLDER_STILL = {"execution.checkpointing.prefer-checkpoint-for-recovery"}


def test_options_have_deprecated_keys_of_flink() -> None:
    flink = read(KEYS.read_text())
    settings = all_settings()
    assert len(settings) > 40
    for key, setting in settings.items():
        # The gateway's keys are in a jar that the package apache-flink lacks.
        if key.startswith(("millstream.", "sql-gateway.")) or key in OLDER_STILL:
            continue
        assert key in flink, f"{key} is no option of Flink's"
        assert set(setting.old) == set(flink[key]), f"{key} is also found under {flink[key]}"


@needs_flink
@pytest.mark.skipif(os.environ.get("MILLSTREAM_PYFLINK") != "1", reason="starts a JVM")
def test_recorded_flink_keys_match_installed_flink() -> None:
    folder = flink_folder()
    assert folder is not None
    recorded, now = read(KEYS.read_text()), options_of_pyflink(folder)
    assert recorded.keys() == now.keys()
    assert {k: others for k, others in now.items() if not set(others) <= set(recorded[k])} == {}


def env_with(**settings: str) -> StreamExecutionEnvironment:
    config = Configuration.from_dict({k.replace("__", ".").replace("_", "-"): v for k, v in settings.items()})
    return StreamExecutionEnvironment.get_execution_environment(config)


def test_options_are_read_under_deprecated_keys() -> None:
    assert not env_with(pipeline__operator_chaining="false").is_chaining_enabled()
    assert env_with(execution__buffer_timeout="7 ms").get_buffer_timeout() == 7
    assert env_with(execution__buffer_timeout__enabled="false").get_buffer_timeout() == -1
    assert env_with(task__cancellation_interval="5 s").get_config().get_task_cancellation_interval() == 5000
    # If both are set, the current key wins.
    both = env_with(pipeline__operator_chaining="false", pipeline__operator_chaining__enabled="true")
    assert both.is_chaining_enabled()
    both.disable_operator_chaining()
    assert not both.is_chaining_enabled()


def test_own_option_keys_are_all_listed() -> None:
    text = "".join(p.read_text() for p in (ROOT / "src").rglob("*.py"))
    modules = {m.name for m in pkgutil.walk_packages(millstream.__path__, "millstream.")}
    used = {k for k in re.findall(r'"(millstream\.[a-z.-]+[a-z])"', text) if k not in modules - set(OWN)}
    internal = {
        "millstream.heartbeat",
        "millstream.job",
        "millstream.loads",
        "millstream.operators.report",
        "millstream.release",
        "millstream.connectors",
    }
    assert used - internal == set(OWN)


def test_check_keys_suggests_key_for_misspelt_one(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "millstream"):
        check_keys(
            ["execution.checkpointing.intervall", "state.unheard-of", "my.own.parameter", "input", "s3.endpoint"]
        )
    assert caplog.messages == [
        "the configuration key execution.checkpointing.intervall is unknown and has no effect. "
        "Did you mean execution.checkpointing.interval?",
        "the configuration key state.unheard-of is unknown and has no effect.",
    ]
    with pytest.raises(InvalidProgramError, match=r"epoch.targt is .* Did you mean millstream.epoch.target\?"):
        check_keys(["millstream.epoch.targt"])
    assert {"pipeline.operator-chaining", "taskmanager.numberOfTaskSlots"} <= flink_keys()


def test_check_keys_runs_when_job_starts(caplog: pytest.LogCaptureFixture) -> None:
    env = LocalEnvironment(Configuration.from_dict({"paralelism.default": "3"}))
    env.get_config().set_global_job_parameters({"state.mine": "x"})
    list(env.from_collection([1]).execute_and_collect())
    assert ["Did you mean parallelism.default?" in m for m in caplog.messages] == [True]
    assert env.get_config().get_global_job_parameters() == {"state.mine": "x"}


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("execution.buffer-timeout.interval", "abc", "execution.buffer-timeout.interval: 'abc' is not a duration"),
        ("execution.buffer-timeout", "abc", "execution.buffer-timeout: 'abc' is not a duration"),
        ("millstream.epoch.target", "-1", "millstream.epoch.target is -1 ms: it must be at least 1 ms"),
        ("millstream.epoch.max-records", "0", "millstream.epoch.max-records is 0: it must be at least 1"),
        ("millstream.epoch.max-bytes", "x", "millstream.epoch.max-bytes='x' must be a number"),
        ("parallelism.default", "0", r"the environment \(parallelism.default\) must be an int from 1 to 32768"),
        ("pipeline.max-parallelism", "many", "pipeline.max-parallelism='many' must be a number"),
        ("execution.runtime-mode", "FAST", "execution.runtime-mode is 'FAST': it must be one of STREAMING, BATCH"),
        ("execution.state-recovery.claim-mode", "MINE", "claim-mode is 'MINE': it must be one of CLAIM, NO_CLAIM"),
        ("io.tmp.dirs", "/nowhere/at/all", "io.tmp.dirs is /nowhere/at/all: the job's directory cannot be created"),
        ("taskmanager.tmp.dirs", "/proc", "io.tmp.dirs is /proc: the job's directory cannot be created"),
        ("millstream.inlining", "perhaps", "millstream.inlining='perhaps' must be true or false"),
        ("millstream.engine", "flink", "millstream.engine is 'flink': it must be one of SPARK, LOCAL"),
    ],
)
def test_option_error_names_key_of_invalid_value(key: str, value: str, message: str, tmp_path: Path) -> None:
    config = Configuration.from_dict({"millstream.engine": "local", key: value, "millstream.quiet": "true"})
    if "claim" in key:
        config.set_string("execution.savepoint.path", str(tmp_path))
    env = StreamExecutionEnvironment.get_execution_environment(config)
    with pytest.raises(InvalidProgramError, match=message):
        env.from_collection([1]).execute_and_collect(limit=1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"spark.master": "lokal[2]"}, r"spark.master is 'lokal\[2\]': it must be local, local\[4\]"),
        ({"spark.master": "local[0]"}, r"spark.master is 'local\[0\]': it must be local"),
        (
            {"spark.master": "spark://127.0.0.1:9"},
            r"127.0.0.1:9, which cannot be reached \(Conn",
        ),
        ({"millstream.spark.log-level": "loud"}, "log-level is 'loud': it must be one of OFF, FATAL, ERROR, WARN"),
    ],
)
def test_spark_settings_are_rejected_before_spark_starts(settings: dict[str, str], message: str) -> None:
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
    with pytest.raises(InvalidProgramError, match=message):
        env.from_collection([1]).set_parallelism(1).execute_and_collect(limit=1)


# Read under a key that is built from a prefix and a suffix.
_OF_MEMORY = re.compile(r"(task|job)manager\.memory\.(process|flink|heap|off-heap|framework|task|managed|network|jvm)")

_BY_PREFIX = ("security.ssl.", "table.exec.async-scalar.")


def test_flink_keys_are_each_honoured_harmless_or_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    source = "\n".join(file.read_text() for file in (ROOT / "src" / "millstream").rglob("*.py"))
    by_setting = {key for setting in all_settings().values() for key in (setting.key, *setting.old)}
    documented = (ROOT / "docs" / "reference" / "configuration.md").read_text()
    for key in sorted(read(KEYS.read_text())):
        caplog.clear()
        check_keys([key])
        warned = "have no effect here" in caplog.text
        assert warned == (not has_effect(key) and not is_harmless(key)), key
        spellings = (key, *read(KEYS.read_text())[key])
        if has_effect(key):
            # Some code reads it.
            is_read = any(s in by_setting or f'"{s}"' in source for s in spellings)
            assert is_read or _OF_MEMORY.match(key) or key.startswith(_BY_PREFIX), key
        elif not warned:
            assert any(f"`{pattern}`" in documented for pattern in harmless_patterns(key)), key


def test_options_with_flink_keys_have_effect_or_are_harmless() -> None:
    flink = read(KEYS.read_text())
    assert [key for key in all_settings() if key in flink and not has_effect(key) and not is_harmless(key)] == []


def test_failover_strategy_in_batch_logs_warning(caplog: pytest.LogCaptureFixture) -> None:
    config = Configuration.from_dict({"jobmanager.execution.failover-strategy": "region"})
    assert not full_failover(config, batch=False)
    assert caplog.text == ""
    assert full_failover(config, batch=True)
    assert "failover-strategy=region has no effect in BATCH" in caplog.text
    assert full_failover(Configuration.from_dict({"jobmanager.execution.failover-strategy": "full"}), batch=False)
    with pytest.raises(InvalidProgramError, match="failover-strategy is 'half'"):
        full_failover(Configuration.from_dict({"jobmanager.execution.failover-strategy": "half"}), batch=False)


def test_table_option_without_effect_logs_warning(caplog: pytest.LogCaptureFixture) -> None:
    tables = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
    tables.get_config().set("millstream.engine", "local")
    tables.get_config().set("table.exec.sort.default-limit", "1")
    tables.get_config().set("table.exec.sort.defaul-limit", "1")
    tables.get_config().set("table.exec.rank.topn-cache-size", "1")
    with tables.execute_sql("SELECT * FROM (VALUES (1), (2)) AS t (a)").collect() as rows:
        assert len(list(rows)) == 2
    assert [m.partition(".")[0] for m in caplog.messages if "effect" in m] == [
        "these options have no effect here: table",
        "the configuration key table",
    ]
    assert "Did you mean table.exec.sort.default-limit?" in caplog.text
