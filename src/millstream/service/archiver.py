"""Writes an archive of each job that ends, for who wants to look at it when its process is gone."""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from millstream.checkpoint.storage import open_storage, storage_options
from millstream.common.configuration import Configuration
from millstream.common.setting import TextSetting
from millstream.jobmaster.failure_reports import directory_of, files_of
from millstream.service.app import Service, make_app
from millstream.service.archive import Archive, archived
from millstream.service.registry import Entry

log = logging.getLogger("millstream")

DIRECTORY = TextSetting("jobmanager.archive.fs.dir", None)
# How long a program that ends waits for archives that are being written.
_PATIENCE = 10.0


class Archiver:
    """Has the archive of each job that ends put somewhere."""

    def __init__(self, service: Service, put: Callable[[Entry, Callable[[], Archive]], None]) -> None:
        """Take what is known of jobs.

        Args:
            service: what is known.
            put: given a job that has ended and what makes its archive, puts that somewhere; called on the job's thread.
        """
        self._registry = service.registry
        self._operations = service.operations
        self._app = make_app(service)
        self._put = put
        self._done: set[str] = set()
        self._changed = threading.Condition()

    def start(self) -> None:
        self._registry.when_ended(self._archive)
        atexit.register(self.wait)

    def now(self, entry: Entry) -> Archive:
        """Return the archive of a job as it is now."""
        asked = archived(self._app, entry.view, self._operations.paths(entry.view.job_id))
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            # Also while the program ends, when no thread can be started any more.
            return asyncio.run(asked)
        # In a notebook the thread that asks has an event loop, which runs.
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(asyncio.run, asked).result()

    def _archive(self, entry: Entry) -> None:
        try:
            self._put(entry, partial(self.now, entry))
        except Exception as e:
            # What becomes of a job does not hang on what is kept of it.
            log.warning("The archive of job '%s' could not be written: %s", entry.view.job_name, e)
        with self._changed:
            self._done.add(entry.view.job_id)
            self._changed.notify_all()

    def wait(self) -> None:
        """Wait until the archives of all jobs that have ended are written."""
        with self._changed:
            self._changed.wait_for(self._is_idle, _PATIENCE)

    def _is_idle(self) -> bool:
        return all(e.view.job_id in self._done for e in self._registry.entries() if e.job.result.done())


def put_where_settings_say(entry: Entry, archive: Callable[[], Archive]) -> None:
    """Write a job's archive to the directory that its settings name, if they do."""
    config = Configuration.from_dict(dict(entry.configuration))
    directory = DIRECTORY.read(config)
    if directory is not None:
        made = archive()
        storage = open_storage(directory, storage_options(config))
        storage.publish(made.job_id, made.to_bytes())
        for path in files_of(directory_of(config), f"{made.job_id}."):
            with open(path, "rb") as file:
                storage.publish(os.path.basename(path), file.read(), private=True)
