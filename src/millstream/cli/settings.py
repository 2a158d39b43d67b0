"""The options that several commands have, and the settings they stand for."""

from __future__ import annotations

import click

from millstream.checkpoint.restore_location import CLAIM_MODE, IGNORE_UNCLAIMED, LATEST, PATH
from millstream.checkpoint.storage import absolute_url

# What comes behind the program is its own.
PROGRAM = {"allow_interspersed_args": False}
DEFINES = click.option("-D", "defines", multiple=True, metavar="KEY=VALUE", help="A setting; spark.* goes to Spark.")
PARALLELISM = click.option("-p", "--parallelism", type=click.IntRange(min=1), help="Default parallelism.")

# Settings that are paths. By name: what they are settings of is imported only where it is needed.
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


def as_settings(defines: tuple[str, ...], parallelism: int | None = None, master: str | None = None) -> dict[str, str]:
    """Return the settings that options stand for; paths are absolute, as programs and clusters run elsewhere."""
    settings: dict[str, str] = {}
    for define in defines:
        key, found, value = define.partition("=")
        if not found or not key:
            raise click.UsageError(f"-D {define}: write it as key=value.")
        is_path = key in _PATHS and value not in ("", LATEST)
        settings[key] = absolute_url(value) if is_path else value
    if parallelism is not None:
        settings["parallelism.default"] = str(parallelism)
    if master is not None:
        settings["spark.master"] = master
    return settings


def start_settings(
    savepoint: str | None, checkpoint: str | None, allow_non_restored: bool, claim_mode: str | None
) -> dict[str, str]:
    """Return the settings of what a job starts from."""
    if savepoint is not None and checkpoint is not None:
        raise click.UsageError("A job starts from one place: give --from-savepoint or --from-checkpoint, not both.")
    settings: dict[str, str] = {}
    path = savepoint if savepoint is not None else checkpoint
    if path is not None:
        # The program may go to another directory.
        settings[PATH.key] = path if path == LATEST and savepoint is None else absolute_url(path)
    if allow_non_restored:
        settings[IGNORE_UNCLAIMED.key] = "true"
    if claim_mode is not None:
        settings[CLAIM_MODE.key] = claim_mode
    return settings


def asks_for_leaders(settings: dict[str, str]) -> bool:
    """Return whether several job managers are, or may be, asked for: what that takes is imported only then."""
    return any(key.startswith(("high-availability", "recovery.")) for key in settings)
