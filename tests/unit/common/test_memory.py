"""The memory model equals Flink's, whose recorded results are in tests/memory."""

from __future__ import annotations

import gzip
from dataclasses import astuple

import pytest
from click.testing import CliRunner

from millstream.cli.main import cli
from millstream.common import Configuration
from millstream.common.errors import InvalidProgramError
from millstream.common.memory import job_manager_memory, parse_size, task_manager_memory
from millstream.common.memory_on_spark import executor_memory, spark_settings
from tests.support.paths import TESTS

RECORDED = TESTS / "memory" / "recorded.tsv.gz"


def flat(parts: tuple[object, ...]) -> list[str]:
    return [str(p) for part in parts for p in (part if isinstance(part, tuple) else (part,))]


def ours(options: str) -> str:
    pairs = dict(pair.split("=", 1) for pair in options.split("\t"))
    divide = job_manager_memory if "jobmanager" in options else task_manager_memory
    try:
        return " ".join(flat(astuple(divide(Configuration.from_dict(pairs)))))
    except InvalidProgramError as e:
        return f"error: {e}"


def test_memory_model_matches_flink() -> None:
    different = []
    lines = gzip.decompress(RECORDED.read_bytes()).decode().splitlines()
    for line in lines:
        flinks, _, options = line.partition("\t|\t")
        answer = ours(options)
        # Flink rejects the same settings, with other messages.
        same = answer.startswith("error") if flinks.startswith("error") else answer == flinks
        if not same:
            different.append((options, flinks, answer))
    assert len(lines) == 1500
    assert different == []


@pytest.mark.parametrize("text", ["", "-1", "1.5g", "12 parsecs", "9999999999999g"])
def test_parse_size_rejects_invalid_text(text: str) -> None:
    with pytest.raises(InvalidProgramError, match=r"key is .*: it must be a size such as 512 mb or 2g\."):
        parse_size(text, "key")


def test_memory_model_rejects_contradictory_sizes() -> None:
    both = {"taskmanager.memory.flink.size": "512m", "taskmanager.memory.managed.size": "600m"}
    with pytest.raises(InvalidProgramError, match=r"Managed Memory \(600.000mb .*exceed configured Total Flink Memory"):
        task_manager_memory(Configuration.from_dict(both))


def test_info_memory_prints_the_model() -> None:
    run = CliRunner().invoke(
        cli,
        ["info", "--memory", "-D", "taskmanager.memory.process.size=4g", "-D", "taskmanager.numberOfTaskSlots=2"],
    )
    assert run.exit_code == 0, run.output
    lines = [line.split() for line in run.output.splitlines()]
    assert ["Total", "Process", "Memory", "4.0", "GiB"] in lines
    assert ["Managed", "1.3", "GiB"] in lines
    assert ["spark.executor.cores", "2"] in lines
    settings = dict(line for line in lines if len(line) == 2 and line[0].startswith("spark."))
    # Spark requests the same memory from the cluster as Flink.
    total = sum(int(settings[f"spark.executor.{name}"].removesuffix("m")) for name in ("memory", "memoryOverhead"))
    assert total in (4095, 4096)


def test_executor_memory_rejects_slots_that_are_too_small() -> None:
    small = {"taskmanager.memory.process.size": "1g", "taskmanager.numberOfTaskSlots": "4"}
    with pytest.raises(InvalidProgramError, match=r"for each of 4 slots; a slot needs 96.000mb .*Raise taskmanager"):
        executor_memory(Configuration.from_dict(small))


def test_executor_memory_is_unset_without_options() -> None:
    assert executor_memory(Configuration()) is None
    assert spark_settings(Configuration()) == {}
