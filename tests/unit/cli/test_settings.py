"""Settings of the command line and of files."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from millstream.cli.settings import as_settings

FILE = """\
# Flink's keys.
---
parallelism.default: 2
pipeline.name: "orders: all"   # a colon inside
my.url: jdbc:postgresql://host/db#part
execution.checkpointing.dir: state/checkpoints
execution.checkpointing.savepoint-dir: s3://bucket/savepoints
state.checkpoints.dir: /var/state

  # The end.
"""


def test_config_file_has_settings_with_paths_relative_to_itself(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(FILE)
    assert as_settings((), config_file=tmp_path / "config.yaml") == {
        "parallelism.default": "2",
        "pipeline.name": "orders: all",
        "my.url": "jdbc:postgresql://host/db#part",
        "execution.checkpointing.dir": f"{tmp_path}/state/checkpoints",
        "execution.checkpointing.savepoint-dir": "s3://bucket/savepoints",
        "state.checkpoints.dir": "/var/state",
    }


def test_config_file_is_overridden_by_options(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("parallelism.default: 2\na: 1\nb: 2\n")
    settings = as_settings(("b=3",), parallelism=4, config_file=tmp_path / "config.yaml")
    assert settings == {"parallelism.default": "4", "a": "1", "b": "3"}


@pytest.mark.parametrize("line", ["execution:", "  interval: 10 s", "interval = 10 s", "interval"])
def test_config_file_with_nested_or_other_line_is_rejected(tmp_path: Path, line: str) -> None:
    (tmp_path / "config.yaml").write_text(f"a: 1\n{line}\n")
    with pytest.raises(click.UsageError, match=r"config.yaml, line 2: .* is not of the form `key: value`: write every"):
        as_settings((), config_file=tmp_path / "config.yaml")
