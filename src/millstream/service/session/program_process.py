"""A program's process in a cluster: reports its jobs, requests slots for them, and ends with the cluster."""

from __future__ import annotations

import os
import queue
import signal
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import wait
from typing import TYPE_CHECKING

from millstream.common.aliases import Json
from millstream.common.errors import UnrecoverableError
from millstream.common.job_status import JobStatus
from millstream.operators.runtime.messages import JobPlan
from millstream.service.app import make_app
from millstream.service.archive import Archive, Archiver, write_to_archive_directory
from millstream.service.registry import JOBS, Entry
from millstream.service.responses.cluster import slots_needed
from millstream.service.server import Sampler, Server, disable_own_service, service_of
from millstream.service.session.program_channel import Channel
from millstream.spark.cores import record_allocation
from millstream.spark.session_attachment import Attachment, AttachmentFields, attach

if TYPE_CHECKING:
    from millstream.jobmaster.job import JobMaster

# How often a job waiting for slots checks whether it was cancelled.
_CANCEL_POLL_SECONDS = 0.1
# How long cancelling jobs may take.
_CANCEL_SECONDS = 5.0
# How long this process may take to end after its cluster.
_END_SECONDS = 5.0


class ClusterMember:
    """Connects this process to its cluster."""

    def __init__(self, directory: str, attachment: AttachmentFields, descriptor: int) -> None:
        """Attach this process to the cluster's Spark.

        Args:
            directory: the directory of this process.
            attachment: the connection to the cluster's Spark.
            descriptor: this process's end of the channel.
        """
        self._directory = directory
        self._channel = Channel(socket.socket(fileno=descriptor))
        self._answers: dict[str, queue.SimpleQueue[dict[str, Json]]] = {}
        self._service = service_of(JOBS, {}, None, 3000)
        self._archiver = Archiver(self._service, self._ended)
        self._lock = threading.Lock()
        self._ended_jobs: set[str] = set()
        attach(Attachment(**attachment), self._allocate_slots)

    def start(self) -> None:
        """Serve the jobs of this process to the cluster."""
        disable_own_service()
        self._archiver.start()
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(os.path.join(self._directory, "rest"))
        listener.listen()
        Server(make_app(self._service), listener).start()
        Sampler(JOBS).start()
        threading.Thread(target=self._listen, name="millstream-cluster", daemon=True).start()

    def add(self, job: JobMaster) -> Callable[[], None]:
        """Report a started job to the cluster."""
        entry = JOBS.add(job, job.view.plan.settings.job_parameters)
        # An archive for the case that this process is killed.
        known = self._archiver.now(entry)
        with self._lock:
            if known.job_id not in self._ended_jobs:
                self._write(known)
        self._channel.send(what="started", job=job.view.job_id)
        return lambda: None

    def await_jobs(self) -> None:
        """Wait for the end of all jobs, which outlive the program's main function."""
        for entry in JOBS.entries():
            entry.job.result.exception()
        self._archiver.wait()

    def leave_jobs(self) -> None:
        """End all jobs because the cluster ends: cancel them, or suspend them for another leader."""
        results = [entry.job.result for entry in JOBS.entries()]
        for entry in JOBS.entries():
            entry.job.leave()
        wait(results, _CANCEL_SECONDS)
        self._archiver.wait()

    @property
    def is_suspended(self) -> bool:
        """Whether a job was suspended for another leader."""
        return any(entry.job.view.outcome is JobStatus.SUSPENDED for entry in JOBS.entries())

    def _ended(self, entry: Entry, archive: Callable[[], Archive]) -> None:
        ended = archive()
        with self._lock:
            self._ended_jobs.add(ended.job_id)
            self._write(ended)
        record_allocation(ended.job_id, 0)
        self._channel.send(what="ended", job=ended.job_id)
        write_to_archive_directory(entry, lambda: ended)

    def _write(self, archive: Archive) -> None:
        path = os.path.join(self._directory, f"{archive.job_id}.json")
        with open(f"{path}.new", "wb") as file:
            file.write(archive.to_bytes())
        os.replace(f"{path}.new", path)

    def _allocate_slots(self, plan: JobPlan, is_cancelled: Callable[[], bool]) -> int:
        """Request slots from the cluster, and wait for them."""
        job_id, count = plan.settings.job_id, slots_needed(plan)
        answers = self._answers[job_id] = queue.SimpleQueue()
        self._channel.send(what="slots", job=job_id, name=plan.settings.job_name, count=count)
        while not is_cancelled():
            try:
                answer = answers.get(timeout=_CANCEL_POLL_SECONDS)
            except queue.Empty:
                continue
            if "refused" in answer:
                raise UnrecoverableError(answer["refused"])
            break
        return count

    def _listen(self) -> None:
        for message in self._channel:
            if message.get("cancel"):
                # Sent before SIGTERM, which would suspend them.
                for entry in JOBS.entries():
                    entry.job.cancel()
                continue
            self._answers[message["job"]].put(message)
        # The cluster has ended, and its Spark too.
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_END_SECONDS)
        os._exit(1)
