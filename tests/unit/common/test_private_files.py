"""Temporary directories of a process."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from millstream.common.private_files import SCRATCH_VARIABLE, socket_directory


@pytest.mark.parametrize("variable", ["TMPDIR", SCRATCH_VARIABLE])
def test_temp_dir_puts_sockets_elsewhere_when_the_path_is_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    monkeypatch.delenv(SCRATCH_VARIABLE, raising=False)
    monkeypatch.setenv(variable, str(deep))
    monkeypatch.setattr(tempfile, "tempdir", None)
    directory = socket_directory("millstream-test-")
    try:
        assert os.path.dirname(directory) == "/tmp"
        assert os.stat(directory).st_mode & 0o077 == 0
        assert list(deep.iterdir()) == []
    finally:
        shutil.rmtree(directory)
