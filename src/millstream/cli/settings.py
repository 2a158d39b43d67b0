"""Options shared by several commands, and their settings."""

from __future__ import annotations

import click

from millstream.checkpoint.origin import CLAIM_MODE, IGNORE_UNCLAIMED, LATEST, PATH
from millstream.checkpoint.storage import absolute_url
from millstream.common.pipeline_options import ENGINE, EngineChoice

# Arguments after the program are the program's own.
PROGRAM = {"allow_interspersed_args": False}
DEFINES = click.option("-D", "defines", multiple=True, metavar="KEY=VALUE", help="A setting; spark.* goes to Spark.")
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


def as_settings(defines: tuple[str, ...], parallelism: int | None = None, master: str | None = None) -> dict[str, str]:
    """Return the settings of options, with absolute paths: programs and clusters may run in other directories."""
    settings: dict[str, str] = {}
    for define in defines:
        key, separator, value = define.partition("=")
        if not separator or not key:
            raise click.UsageError(f"-D {define} is not of the form key=value.")
        is_path = key in _PATHS and value not in ("", LATEST)
        settings[key] = absolute_url(value) if is_path else value
    if parallelism is not None:
        settings["parallelism.default"] = str(parallelism)
    if master is not None:
        settings["spark.master"] = master
    return settings


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
