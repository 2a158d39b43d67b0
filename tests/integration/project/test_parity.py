"""docs/reference/parity.yaml and the recorded signatures against an installed apache-flink."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pyflink import parity
from tests.support.apache_flink import SKIP_REASON, flink_python


@pytest.fixture
def python() -> Path:
    """Return the interpreter of an installed apache-flink; without one the test is skipped."""
    interpreter = flink_python()
    if interpreter is None:
        pytest.skip(SKIP_REASON)
    return interpreter


def test_parity_lists_every_name_of_apache_flink(python: Path) -> None:
    assert parity.missing(parity.read(), python) == set()


def test_recorded_signatures_equal_apache_flink(python: Path) -> None:
    assert parity.recorded_signatures() == parity.flink_signatures(python)
