"""Forks the processes of a cluster's programs: modules are loaded here once, and all programs share their memory.

    cluster ---requests, with a program's descriptors---> this process ---forks---> program, program, ...
            <---pid and pidfd; later the exit code---

It has one thread, runs no user code, and ends when the cluster disconnects. Programs detect that themselves.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import socket
import sys
from dataclasses import dataclass, field

from millstream.cli.session import run_program as session_program
from millstream.common.aliases import Json
from millstream.common.private_files import SCRATCH_VARIABLE
from millstream.operating_system import receive_descriptors, system
from millstream.spark.processes import child_exit_notifications, drain
from millstream.spark.session import preload_converters

# Modules that every program loads.
_PRELOADED = (
    "millstream.datastream",
    "millstream.jobmaster.job",
    "millstream.jobmaster.job_launcher",
    "millstream.spark.resident_epochs",
    "millstream.spark.spark_launcher",
)
_LARGEST_REQUEST = 1 << 16
_DESCRIPTORS = 3


@dataclass
class ForkServer:
    """Forks on request, and reports the ended processes."""

    control: socket.socket
    pids: set[int] = field(default_factory=set)

    def serve(self) -> tuple[str, int] | None:
        """Serve until the cluster disconnects; in a forked process, return the arguments of its main."""
        with child_exit_notifications() as child_exits:
            poller = select.poll()
            for end in (self.control, child_exits):
                poller.register(end.fileno(), select.POLLIN)
            while True:
                ready = {descriptor for descriptor, _ in poller.poll()}
                if child_exits.fileno() in ready:
                    drain(child_exits)
                    self._report_ended()
                if self.control.fileno() in ready:
                    text, descriptors = receive_descriptors(self.control, _LARGEST_REQUEST, _DESCRIPTORS)
                    if not text:
                        return None
                    request = json.loads(text)
                    if self._fork(descriptors) == 0:
                        return request["path"], self._set_up_child(request, descriptors)

    def _fork(self, descriptors: list[int]) -> int:
        try:
            pid = os.fork()
        except OSError as e:
            self._send({"failed": str(e)})
            pid = -1
        if pid == 0:
            return 0
        for descriptor in descriptors:
            os.close(descriptor)
        if pid > 0:
            self.pids.add(pid)
            # The process was not reaped yet, so its id was not reused.
            pidfd = system.open_process(pid)
            self._send({"pid": pid}, pidfd)
            os.close(pidfd)
        return pid

    def _set_up_child(self, request: dict[str, Json], descriptors: list[int]) -> int:
        """Set up the process of a program; return its channel to the cluster."""
        self.control.close()
        channel, out, err = descriptors
        for number, descriptor in ((1, out), (2, err)):
            os.dup2(descriptor, number)
            os.close(descriptor)
        os.setsid()
        system.name_process("millstream-main")
        os.environ[SCRATCH_VARIABLE] = request["scratch"]
        os.chdir(request["directory"])
        if not sys.flags.safe_path:
            # As in `python -m`.
            sys.path[0] = os.getcwd()
        importlib.invalidate_caches()
        # Python's own generator is reseeded on fork; numpy's is not.
        if (generator := sys.modules.get("numpy.random")) is not None:
            generator.seed()
        return channel

    def _report_ended(self) -> None:
        for pid in list(self.pids):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                self.pids.discard(pid)
                self._send({"ended": pid, "code": os.waitstatus_to_exitcode(status)})

    def _send(self, message: dict[str, Json], *descriptors: int) -> None:
        # If the cluster has ended, the next poll of the socket reports it.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            socket.send_fds(self.control, [json.dumps(message).encode()], list(descriptors))


def main(descriptor: int) -> int:
    """Serve a cluster; in a forked process, run the program. Returns the exit code."""
    for name in _PRELOADED:
        importlib.import_module(name)
    preload_converters()
    gc.collect()
    # No collection writes to shared memory.
    gc.freeze()
    program = ForkServer(socket.socket(fileno=descriptor)).serve()
    return 0 if program is None else session_program.main(*program)


if __name__ == "__main__":
    system.name_process("millstream-fork")
    sys.exit(main(int(sys.argv[1])))
