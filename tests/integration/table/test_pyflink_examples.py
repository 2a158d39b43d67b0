"""The table examples shipped with apache-flink, unmodified, print what apache-flink printed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.apache_flink import SKIP_REASON, flink_folder
from tests.support.paths import TESTS

PYFLINK = TESTS / "pyflink"
RECORDED = {p.stem: p for p in sorted((PYFLINK / "table_examples").glob("*.txt"))}
# Random parts of the output: the product, its price, the numbers of a window frame.
RANDOM = {
    "async_scalar_function": re.compile(r"Product \w: \$\d+|\w+_for_\w+|\b[0-9a-f]\b"),
    "conversion_from_dataframe": re.compile(r"\d\.\d+"),
    "mixing_use_of_datastream_and_table": re.compile(r"-?\d+"),
}


# Plans, which contain names of Java classes, and the error of an example that also fails with apache-flink.
_PLANS = re.compile(r"== Abstract Syntax Tree ==\n.*?(?=^\+---)|^Traceback .*", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def printed() -> Iterator[dict[str, str]]:
    folder = flink_folder()
    if folder is None:
        pytest.skip(SKIP_REASON)
    examples = folder / "examples" / "table"
    names = {p.stem: str(p.relative_to(examples).with_suffix("")) for p in examples.rglob("*.py")}
    command = [sys.executable, str(PYFLINK / "run_table_examples.py"), str(examples), *(names[n] for n in RECORDED)]
    path = os.pathsep.join(p for p in sys.path if p)
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, env={**os.environ, "PYTHONPATH": path})
    assert done.returncode == 0, done.stderr
    yield {Path(n).name: text for n, text in json.loads(done.stdout.splitlines()[-1]).items()}


def comparable(name: str, text: str) -> list[str]:
    """Return the lines, sorted, without subtask numbers and random parts."""
    lines = [re.sub(r"^\d+> ", "", line) for line in _PLANS.sub("", text).splitlines()]
    if name in RANDOM:
        lines = [re.sub(r"\s+", " ", RANDOM[name].sub("?", line)) for line in lines]
    return sorted(lines)


@pytest.mark.parametrize("name", RECORDED)
def test_pyflink_table_examples_print_the_recorded_output(name: str, printed: dict[str, str]) -> None:
    expected = RECORDED[name].read_text().split("\n", 1)[1]
    assert comparable(name, printed[name]) == comparable(name, expected)
