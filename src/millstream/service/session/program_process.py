"""The process of a program of a cluster: how it tells of its jobs, gets slots for them, and ends with the cluster."""

from __future__ import annotations

import os
import queue
import signal
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import wait
from typing import TYPE_CHECKING, Any

from millstream.common.errors import IncurableError
from millstream.common.job_status import JobStatus
from millstream.operators.runtime.messages import JobPlan
from millstream.service.app import make_app
from millstream.service.archive import Archive, Archiver, put_where_settings_say
from millstream.service.registry import JOBS, Entry
from millstream.service.responses.cluster import slots_needed
from millstream.service.server import Sampler, Server, leave_to_cluster, service_of
from millstream.service.session.program_channel import Line
from millstream.spark.cores import allot
from millstream.spark.session_attachment import Attachment, belong_to

if TYPE_CHECKING:
    from millstream.jobmaster.job import JobMaster

# How often a job that waits for slots looks whether it was cancelled, in seconds.
_LOOK = 0.1
# How long jobs may take to be cancelled.
_CANCEL_SECONDS = 5.0
# How long this process may go on without the cluster it belonged to.
_ALONE_SECONDS = 5.0


class Member:
    """What makes this process one of a cluster's."""

    def __init__(self, home: str, attachment: dict[str, Any], descriptor: int) -> None:
        """Take what the cluster has given this process.

        Args:
            home: its directory.
            attachment: how the cluster's Spark is reached.
            descriptor: its end of the line to the cluster.
        """
        self._home = home
        self._line = Line(socket.socket(fileno=descriptor))
        self._answers: dict[str, queue.SimpleQueue[dict[str, Any]]] = {}
        self._service = service_of(JOBS, {}, None, 3000)
        self._archiver = Archiver(self._service, self._ended)
        self._lock = threading.Lock()
        # The jobs that have ended.
        self._over: set[str] = set()
        belong_to(Attachment(**attachment), self._allot)

    def start(self) -> None:
        """Serve the jobs of this process to the cluster alone."""
        leave_to_cluster()
        self._archiver.start()
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(os.path.join(self._home, "rest"))
        listener.listen()
        Server(make_app(self._service), listener).start()
        Sampler(JOBS).start()
        threading.Thread(target=self._listen, name="millstream-cluster", daemon=True).start()

    def add(self, job: JobMaster) -> Callable[[], None]:
        """Tell the cluster of a job that was started."""
        entry = JOBS.add(job, job.view.plan.settings.job_parameters)
        # What is known now, for when this process does not get to its end.
        known = self._archiver.now(entry)
        with self._lock:
            if known.job_id not in self._over:
                self._write(known)
        self._line.send(what="started", job=job.view.job_id)
        return lambda: None

    def await_jobs(self) -> None:
        """Wait for the end of all jobs: they are the cluster's, and outlive the program that started them."""
        for entry in JOBS.entries():
            entry.job.result.exception()
        self._archiver.wait()

    def leave_jobs(self) -> None:
        """End all jobs: the cluster ends. They are cancelled, or left to another leader where there may be one."""
        results = [entry.job.result for entry in JOBS.entries()]
        for entry in JOBS.entries():
            entry.job.leave()
        wait(results, _CANCEL_SECONDS)
        self._archiver.wait()

    @property
    def is_suspended(self) -> bool:
        """Whether a job was left to another leader."""
        return any(entry.job.view.outcome is JobStatus.SUSPENDED for entry in JOBS.entries())

    def _ended(self, entry: Entry, archive: Callable[[], Archive]) -> None:
        made = archive()
        with self._lock:
            self._over.add(made.job_id)
            self._write(made)
        allot(made.job_id, 0)
        self._line.send(what="ended", job=made.job_id)
        put_where_settings_say(entry, lambda: made)

    def _write(self, archive: Archive) -> None:
        path = os.path.join(self._home, f"{archive.job_id}.json")
        with open(f"{path}.new", "wb") as file:
            file.write(archive.to_bytes())
        os.replace(f"{path}.new", path)

    def _allot(self, plan: JobPlan, is_off: Callable[[], bool]) -> int:
        """Ask the cluster for slots, and wait for them."""
        job_id, count = plan.settings.job_id, slots_needed(plan)
        answers = self._answers[job_id] = queue.SimpleQueue()
        self._line.send(what="slots", job=job_id, name=plan.settings.job_name, count=count)
        while not is_off():
            try:
                answer = answers.get(timeout=_LOOK)
            except queue.Empty:
                continue
            if "refused" in answer:
                raise IncurableError(answer["refused"])
            break
        return count

    def _listen(self) -> None:
        for message in self._line:
            if message.get("cancel"):
                # Before the process is told to end, which would leave them to others.
                for entry in JOBS.entries():
                    entry.job.cancel()
                continue
            self._answers[message["job"]].put(message)
        # The cluster is gone, and its Spark with it.
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_ALONE_SECONDS)
        os._exit(1)
