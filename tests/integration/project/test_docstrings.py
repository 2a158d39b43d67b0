"""Every example in a docstring runs without Spark and prints its documented output; tests/spark runs some on Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.docstring_examples import (
    LOCAL,
    configure,
    examples_of,
    modules_with_examples,
    needs_spark,
    run_example,
)


@pytest.mark.parametrize("module", modules_with_examples())
def test_docstring_examples_print_their_output(module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(monkeypatch, tmp_path, LOCAL)
    reports = [run_example(test) for test in examples_of(module) if not needs_spark(test)]
    assert not any(reports), "".join(reports)


def test_docstring_example_with_other_output_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(monkeypatch, tmp_path, LOCAL)
    test = next(t for t in examples_of("millstream.datastream.stream_operations") if t.name.endswith(".map"))
    test.examples[-1].want = "[2, 4, 7]\n"
    assert "Expected:\n    [2, 4, 7]\nGot:\n    [2, 4, 6]" in run_example(test)


def test_examples_of_a_module_include_each_property() -> None:
    module = "millstream.common.collection_types"
    names = {test.name for test in examples_of(module)}
    assert {f"{module}.MapTypeInfo.key_type", f"{module}.MapTypeInfo.value_type"} <= names
