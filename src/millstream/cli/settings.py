"""Options shared by several commands, and their settings."""

from __future__ import annotations

import os
from pathlib import Path

import click

from millstream.checkpoint.origin import CLAIM_MODE, IGNORE_UNCLAIMED, LATEST, PATH
from millstream.checkpoint.storage import absolute_url
from millstream.common.pipeline_options import ENGINE, EngineChoice

# Arguments after the program are the program's own.
PROGRAM = {"allow_interspersed_args": False}
DEFINES = click.option("-D", "defines", multiple=True, metavar="KEY=VALUE", help="A setting; spark.* goes to Spark.")
CONFIG = click.option(
    "--config",
    "config_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file of settings, `key: value` lines as in Flink's config.yaml; -D overrides them.",
)
PARALLELISM = click.option("-p", "--parallelism", type=click.IntRange(min=1), help="Default parallelism.")

# Settings that are paths. By name, because their modules are imported lazily.
_PATHS = frozenset(
    {
        *("execution.checkpointing.dir", "state.checkpoints.dir", "state.backend.fs.checkpointdir"),
        *("execution.checkpointing.savepoint-dir", "state.savepoints.dir", "savepoints.state.backend.fs.dir"),
        *("execution.state-recovery.path", "execution.savepoint.path"),
        *("jobmanager.archive.fs.dir", "historyserver.archive.fs.dir", "millstream.failures.dir"),
        *("web.upload.dir", "jobmanager.web.upload.dir"),
        *("high-availability.storageDir", "high-availability.zookeeper.storageDir", "recovery.zookeeper.storageDir"),
        *("millstream.rest.token-file", "millstream.rest.tls.certificate", "millstream.rest.tls.key"),
        *("millstream.exchange.tls.certificate", "millstream.exchange.tls.key", "millstream.state.signing-key-file"),
    }
)


def as_settings(
    defines: tuple[str, ...],
    parallelism: int | None = None,
    master: str | None = None,
    config_file: Path | None = None,
) -> dict[str, str]:
    """Return the settings of options, with absolute paths: programs and clusters may run in other directories."""
    settings = {} if config_file is None else file_settings(config_file)
    for define in defines:
        key, separator, value = define.partition("=")
        if not separator or not key:
            raise click.UsageError(f"-D {define} is not of the form key=value.")
        settings[key] = absolute_url(value) if _is_path(key, value) else value
    if parallelism is not None:
        settings["parallelism.default"] = str(parallelism)
    if master is not None:
        settings["spark.master"] = master
    return settings


def file_settings(file: Path) -> dict[str, str]:
    """Return the settings of a file; relative paths in it begin at its directory."""
    settings: dict[str, str] = {}
    for number, line in enumerate(file.read_text().splitlines(), 1):
        text = "" if line.lstrip().startswith("#") else line.partition(" #")[0]
        if not text.strip() or text.strip() == "---":
            continue
        key, separator, value = text.partition(":")
        value = value.strip()
        if not separator or not value or key != key.strip():
            raise click.UsageError(
                f"{file}, line {number}: {line.strip()!r} is not of the form `key: value`: write every key in full on "
                "a line of its own, such as `execution.checkpointing.interval: 10 s`."
            )
        if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
            value = value[1:-1]
        settings[key] = value
        if _is_path(key, value) and "://" not in value:
            settings[key] = os.path.normpath(os.path.join(file.absolute().parent, os.path.expanduser(value)))
    return settings


def _is_path(key: str, value: str) -> bool:
    return key in _PATHS and value not in ("", LATEST)


def choose_engine(settings: dict[str, str], local: bool, master: str | None) -> None:
    """Set the engine of --local, which excludes a Spark master."""
    if local and master is not None:
        raise click.UsageError("--local runs without Spark, and -m is a Spark master: use one of them.")
    if local:
        settings[ENGINE.key] = ENGINE.text(EngineChoice.LOCAL)


def start_settings(
    savepoint: str | None, checkpoint: str | None, allow_non_restored: bool, claim_mode: str | None
) -> dict[str, str]:
    """Return the settings that select the snapshot to start from."""
    if savepoint is not None and checkpoint is not None:
        raise click.UsageError("--from-savepoint and --from-checkpoint exclude each other: use one of them.")
    settings: dict[str, str] = {}
    path = savepoint if savepoint is not None else checkpoint
    if path is not None:
        # The program may change its working directory.
        settings[PATH.key] = path if path == LATEST and savepoint is None else absolute_url(path)
    if allow_non_restored:
        settings[IGNORE_UNCLAIMED.key] = "true"
    if claim_mode is not None:
        settings[CLAIM_MODE.key] = claim_mode
    return settings


def may_use_ha(settings: dict[str, str]) -> bool:
    """Return whether high availability may be configured; only then its modules are imported."""
    return any(key.startswith(("high-availability", "recovery.")) for key in settings)
