"""A full disk: the error names the directory and the options, without internal lines."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from millstream.checkpoint.storage import DirectoryStorage
from millstream.common.errors import MillstreamError
from millstream.operators.diagnostics.failures import user_traceback
from millstream.testing import CollectSink, LocalEnvironment

FULL_DISK_MESSAGE = (
    "State cannot be written to {}: No space left on device. Free space there, set 'execution.checkpointing.dir'"
)


def full_file(path: Path) -> str:
    """Create a file whose writes fail with ENOSPC."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to("/dev/full")
    return path.name


def test_storage_names_directory_and_options_when_the_disk_is_full(tmp_path: Path) -> None:
    storage = DirectoryStorage(str(tmp_path))
    with pytest.raises(MillstreamError) as raised:
        storage.write(full_file(tmp_path / "state"), [b"x" * 100_000])
    assert str(raised.value).startswith(FULL_DISK_MESSAGE.format(tmp_path))
    assert user_traceback(raised.value) == str(raised.value)


def test_job_names_directory_and_options_when_the_checkpoint_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def on_full_disk(descriptor: int, *arguments: str) -> object:
        os.close(descriptor)
        return open("/dev/full", "wb")

    env = LocalEnvironment()
    env.enable_checkpointing(10)
    env.get_configuration().set_string("execution.checkpointing.dir", str(tmp_path))
    env.from_collection([1]).sink_to(CollectSink())
    # Only manifests are written through a file descriptor.
    monkeypatch.setattr(os, "fdopen", on_full_disk)
    with pytest.raises(MillstreamError, match="State cannot be written to .*: No space left on device"):
        env.execute()
