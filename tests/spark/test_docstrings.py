"""One docstring example of each family, and those that use Spark itself, print the same on Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.common import Configuration
from tests.support.docstring_examples import (
    IN_ORDER,
    configure,
    examples_of,
    modules_with_examples,
    needs_spark,
    run_example,
)

pytestmark = pytest.mark.spark

FAMILIES = [
    ("millstream.cep.stream", "CEP"),
    ("millstream.connectors.files.source", "FileSource"),
    ("millstream.datastream.async_data_stream", "AsyncDataStream"),
    ("millstream.datastream.data_stream", "DataStream.key_by"),
    ("millstream.datastream.stream_execution_environment", "StreamExecutionEnvironment"),
    ("millstream.datastream.windowed_stream", "WindowedStream"),
    ("millstream.table.compiled_plan", "CompiledPlan"),
    ("millstream.table.table", "Table"),
]


@pytest.fixture(autouse=True)
def _on_spark(config: Configuration, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(monkeypatch, tmp_path, {k: str(v) for k, v in config.to_dict().items()} | IN_ORDER)


@pytest.mark.parametrize(("module", "name"), FAMILIES)
def test_docstring_example_prints_its_output_on_spark(module: str, name: str) -> None:
    [test] = [test for test in examples_of(module) if test.name == f"{module}.{name}"]
    assert not run_example(test)


def test_docstring_examples_that_use_spark_print_their_output() -> None:
    tests = [test for module in modules_with_examples("spark") for test in examples_of(module) if needs_spark(test)]
    assert not "".join(map(run_example, tests))
