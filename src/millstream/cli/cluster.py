"""`millstream cluster`: one Spark for many jobs."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import click
from starlette.applications import Starlette

from millstream.checkpoint.storage import open_storage, storage_options
from millstream.cli.job_commands import at_service
from millstream.cli.leader_candidate import Candidate, restart_as_standby
from millstream.cli.output import JSON, print_json
from millstream.cli.settings import DEFINES, as_settings
from millstream.common.configuration import Configuration
from millstream.common.known_keys import check_keys
from millstream.common.setting import DurationSetting, IntegerSetting, TextSetting, at_least
from millstream.datastream.launch_context import end_signals
from millstream.leader.options import HaOptions
from millstream.service.archive import DIRECTORY, Archive, ArchiveStore
from millstream.service.client import ServiceError, cluster_of
from millstream.service.logs import RecentLines
from millstream.service.options import MAX_UPLOAD, PORT, SUBMIT, ServiceOptions
from millstream.service.registry import CAPACITY, EXPIRATION
from millstream.service.run_file import KilledService, running_services
from millstream.service.server import PublicServer
from millstream.service.session.program_store import ProgramStore, Uploads
from millstream.service.session.programs import Programs, SlotPool
from millstream.service.session.session_api import Cluster, cluster_app
from millstream.service.standby import Standby
from millstream.spark.processes import is_alive

if TYPE_CHECKING:
    from millstream.spark.session_attachment import Attachment

SLOTS = IntegerSetting("taskmanager.numberOfTaskSlots", 0, limit=at_least(1))
SLOT_TIMEOUT = DurationSetting("slot.request.timeout", 300_000)
UPLOADS = TextSetting("web.upload.dir", None, ("jobmanager.web.upload.dir",))
# Flink's port, and alternatives if it is in use.
_PORTS = "8081-8090,auto"
# Slots are processes; a local Spark can run more of them than cores.
_SLOTS_PER_CORE = 4
# Prefixes of the settings of the cluster's own service.
_OWN = ("rest.", "web.", "jobmanager.web.", "millstream.rest.", "taskmanager.", "slot.")
# Passes the log's path to a cluster in the background.
_LOG_VARIABLE = "MILLSTREAM_CLUSTER_LOG"
_START_SECONDS, _END_SECONDS = 60.0, 30.0
_POLL_SECONDS = 0.2


@click.group()
def cluster() -> None:
    """Start, inspect and stop a cluster: one Spark for many jobs (`millstream run -t session`)."""


@cluster.command()
@click.option("-m", "--master", help="Spark master; default local[*].")
@click.option("-d", "--detached", is_flag=True, help="Run in the background.")
@DEFINES
def start(master: str | None, detached: bool, defines: tuple[str, ...]) -> None:
    """Start a cluster, until Ctrl-C or `millstream cluster stop`."""
    config = Configuration.from_dict(as_settings(defines, master=master))
    if not PORT.is_set(config):
        PORT.write(config, _PORTS)
    check_keys(config.key_set())
    # Invalid options fail before anything is started, in the user's terminal.
    options = ServiceOptions.read(config)
    assert options is not None
    killed: list[KilledService] = []
    list(running_services(killed))
    for service in killed:
        click.echo(str(service), err=True)
    if detached:
        try:
            _start_detached(master, defines)
        except ServiceError as e:
            click.echo(str(e), err=True)
            sys.exit(1)
        return
    sys.exit(_run(config, options))


def _run(config: Configuration, options: ServiceOptions) -> int:
    """Run the cluster in this process and return its exit code."""
    # Lazy imports: `stop` and `status` need no Spark.
    from millstream.spark.embedded import is_dead
    from millstream.spark.session import start_for_cluster, stop_context

    is_ending, is_stopped = threading.Event(), threading.Event()

    def stop() -> None:
        is_stopped.set()
        is_ending.set()

    for number in end_signals():
        signal.signal(number, lambda *_: is_ending.set())
    submit_token = options.token or secrets.token_hex(16)
    manager = _JobManager.of(config, options, submit_token)
    if manager is not None and manager.candidate.await_lead(is_ending.is_set) is None:
        manager.end()
        return 0
    attachment, application, slots = start_for_cluster(config, _slots(config))
    archives = ArchiveStore(CAPACITY.read(config), EXPIRATION.read(config) / 1000)
    programs = _programs(config, slots, archives, attachment, manager)
    log = RecentLines()
    logging.getLogger("millstream").addHandler(log)
    app = _app(config, options, programs, archives, submit_token, stop, log)
    owned_directories = [programs.home, *([attachment.control] if attachment.control else [])]
    log_path = os.environ.get(_LOG_VARIABLE)
    # Before the server starts: a client that waits for a recovered program would get 404.
    recovered = programs.recover()
    if manager is None:
        server = PublicServer(app, options, "cluster", submit_token, owned_directories, log_path)
        server.start()
    else:
        server = manager.server
        manager.lead(app, owned_directories, log_path)
    location = f"{attachment.master}, {application}"
    click.echo(f"millstream: a cluster with {slots} slots ({location}) is at {server.url}", err=True)
    if recovered:
        click.echo(f"millstream: {recovered} program(s) of the previous leader resume here", err=True)
    while (
        not is_ending.wait(_POLL_SECONDS) and not is_dead() and (manager is None or manager.candidate.deposed is None)
    ):
        pass
    server.stop()
    programs.close(cancel=manager is None or is_stopped.is_set())
    has_died = is_dead()
    if has_died:
        click.echo("millstream: the cluster ended because the Java process of Spark ended.", err=True)
    else:
        stop_context()
    if manager is not None:
        manager.end()
    if log_path is not None and not has_died:
        # The log is only needed after a failure.
        with contextlib.suppress(FileNotFoundError):
            os.remove(log_path)
    return int(has_died)


def _app(
    config: Configuration,
    options: ServiceOptions,
    programs: Programs,
    archives: ArchiveStore,
    submit_token: str,
    end: Callable[[], None],
    log: RecentLines,
) -> Starlette:
    return cluster_app(
        Cluster(
            programs=programs,
            archives=archives,
            uploads=Uploads(UPLOADS.read(config) or os.path.join(programs.home, "uploads")),
            settings=config.to_dict(),
            token=options.token,
            submit_token=submit_token,
            refresh_ms=options.refresh_ms,
            submits=SUBMIT.read(config),
            max_upload=MAX_UPLOAD.read(config),
            cache_seconds=options.cache_seconds,
            end=end,
            log=log,
        )
    )


def _programs(
    config: Configuration, slots: int, archives: ArchiveStore, attachment: Attachment, manager: _JobManager | None
) -> Programs:
    return Programs(
        SlotPool(slots),
        archives,
        _for_programs(config),
        attachment.as_dict(),
        SLOT_TIMEOUT.read(config) / 1000,
        partial(_clean_up_orphan, config),
        None if manager is None else manager.store,
        None if manager is None else manager.candidate.term,
    )


@dataclass(frozen=True)
class _JobManager:
    """The leader election of a highly available cluster."""

    candidate: Candidate
    standby: Standby
    server: PublicServer
    store: ProgramStore

    @staticmethod
    def of(config: Configuration, options: ServiceOptions, submit_token: str) -> _JobManager | None:
        """Join the election; None without high availability."""
        available = HaOptions.read(config)
        if available is None:
            return None
        cells = available.open()
        standby = Standby(cells)
        server = PublicServer(standby, options, "standby", submit_token)
        server.start()
        candidate = Candidate(available, cells, server.url)
        candidate.join_election()
        store = ProgramStore(open_storage(f"{available.home}/programs", storage_options(config)))
        return _JobManager(candidate, standby, server, store)

    def lead(self, app: Starlette, owned_directories: Sequence[str], log: str | None) -> None:
        """Serve the cluster while this process leads."""
        self.standby.lead(app, self.candidate.is_leader)
        self.server.become("cluster", owned_directories, log)

    def end(self) -> None:
        """Resign; if this process was deposed, restart as a standby."""
        if self.candidate.deposed is not None:
            restart_as_standby(self.candidate.deposed)
        self.candidate.resign()


def _slots(config: Configuration) -> int | None:
    """Return the number of slots; None for Spark's number of cores."""
    # Lazy imports: `stop` and `status` need no Spark.
    from millstream.spark.embedded import local_cores
    from millstream.spark.master import check_settings, master_of

    check_settings(config)
    if SLOTS.is_set(config):
        return SLOTS.read(config)
    cores = local_cores(master_of(config))
    return None if cores is None else cores * _SLOTS_PER_CORE


def _for_programs(config: Configuration) -> dict[str, str]:
    """Return the default settings of programs: the cluster's, without those of its own service."""
    return {k: v for k, v in config.to_dict().items() if not k.startswith(_OWN)}


def _clean_up_orphan(config: Configuration, job_id: str, archive: Archive | None) -> None:
    """End the Spark jobs of a job whose process died, and archive the job."""
    # A lazy import: it imports PySpark.
    from millstream.spark.shuffle_epochs import end_work_of

    end_work_of(job_id)
    directory = DIRECTORY.read(config)
    if directory is not None and archive is not None:
        open_storage(directory, storage_options(config)).publish(archive.job_id, archive.to_bytes())


def _start_detached(master: str | None, defines: tuple[str, ...]) -> None:
    """Start a cluster in the background, and wait until it is serving."""
    command = [sys.executable, "-m", "millstream", "cluster", "start", *(["-m", master] if master else [])]
    command += [word for define in defines for word in ("-D", define)]
    descriptor, path = tempfile.mkstemp(prefix="millstream-cluster-", suffix=".log")
    with open(descriptor, "wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True, cwd="/",
            env={**os.environ, _LOG_VARIABLE: path},
        )  # fmt: skip
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        service = next((s for s in running_services() if s.pid == process.pid), None)
        if service is not None:
            click.echo(f"The cluster is at {service.url}; process {process.pid}, log {path}.")
            return
        if process.poll() is not None:
            with open(path) as output_file:
                raise ServiceError(f"The cluster did not start:\n{output_file.read().strip()}")
        time.sleep(_POLL_SECONDS)
    process.terminate()
    raise ServiceError(f"The cluster did not start within {_START_SECONDS:g} s; see its log {path}.")


@cluster.command()
@JSON
@at_service
def status(as_json: bool, address: str | None, token: str | None) -> None:
    """Print the cluster's address, its free slots and its jobs."""
    client = cluster_of(address, token)
    shown = client.ask("/overview")
    if as_json:
        print_json({"url": client.url, **shown})
        return
    click.echo(f"The cluster is at {client.url}: {shown['slots-available']} of {shown['slots-total']} slots are free.")
    ended = f"{shown['jobs-finished']} finished, {shown['jobs-cancelled']} cancelled, {shown['jobs-failed']} failed"
    click.echo(f"Jobs: {shown['jobs-running']} running, {ended}.")


@cluster.command()
@at_service
def stop(address: str | None, token: str | None) -> None:
    """Stop the cluster; its jobs are cancelled."""
    client = cluster_of(address, token)
    own = next((s for s in running_services() if s.url == client.url), None)
    client.ask("/cluster", "DELETE")
    deadline = time.monotonic() + _END_SECONDS
    while own is not None and is_alive(own.pid) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    click.echo(f"The cluster at {client.url} is stopped.")
