"""The control directory of an embedded Spark's Python processes."""

from __future__ import annotations

import shutil

import pytest

from millstream.common.errors import UnrecoverableError
from millstream.spark import control


def test_control_check_reports_a_deleted_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "_directories", [])
    control.check()
    directory = control.make_directory()
    control.check()
    shutil.rmtree(directory)
    with pytest.raises(UnrecoverableError, match=f"The directory {directory} .* was deleted while"):
        control.check()
    # No slot is left to stop.
    control.release("job")
