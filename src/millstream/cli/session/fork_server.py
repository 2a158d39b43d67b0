"""Forks the processes of a cluster's programs: modules are loaded here once, and their memory is shared by all.

    cluster ---requests, with a program's descriptors---> this process ---forks---> program, program, ...
            <---pid and pidfd; later the exit code---

It has one thread, runs no user code, and ends when the cluster hangs up or is gone. Programs notice that themselves.
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
from typing import Any

from millstream.cli.session import run_program as session_program
from millstream.common.private_files import SCRATCH_VARIABLE
from millstream.spark.processes import children_told, drain, name_process
from millstream.spark.session import preload_converters

# Modules that the process of every program loads sooner or later.
_LOADED_LATER = (
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
    """Forks on request, and reports which of the processes have ended."""

    control: socket.socket
    pids: set[int] = field(default_factory=set)

    def serve(self) -> tuple[str, int] | None:
        """Serve until the cluster hangs up: None. In a forked process, return the arguments of its main."""
        with children_told() as told:
            poller = select.poll()
            for end in (self.control, told):
                poller.register(end.fileno(), select.POLLIN)
            while True:
                ready = {descriptor for descriptor, _ in poller.poll()}
                if told.fileno() in ready:
                    drain(told)
                    self._report_ended()
                if self.control.fileno() in ready:
                    text, descriptors, _, _ = socket.recv_fds(
                        self.control, _LARGEST_REQUEST, _DESCRIPTORS, socket.MSG_CMSG_CLOEXEC
                    )
                    if not text:
                        return None
                    request = json.loads(text)
                    if self._fork(descriptors) == 0:
                        return request["path"], self._become(request, descriptors)

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
            # Nobody has reaped it: the descriptor is of this very process.
            pidfd = os.pidfd_open(pid)
            self._send({"pid": pid}, pidfd)
            os.close(pidfd)
        return pid

    def _become(self, request: dict[str, Any], descriptors: list[int]) -> int:
        """Be the process of a program; return its end of the line to the cluster."""
        self.control.close()
        line, out, err = descriptors
        for number, descriptor in ((1, out), (2, err)):
            os.dup2(descriptor, number)
            os.close(descriptor)
        os.setsid()
        name_process("millstream-main")
        os.environ[SCRATCH_VARIABLE] = request["scratch"]
        os.chdir(request["directory"])
        if not sys.flags.safe_path:
            # As `python -m` has it.
            sys.path[0] = os.getcwd()
        importlib.invalidate_caches()
        # Python's own generator does so by itself.
        if (generator := sys.modules.get("numpy.random")) is not None:
            generator.seed()
        return line

    def _report_ended(self) -> None:
        for pid in list(self.pids):
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                self.pids.discard(pid)
                self._send({"ended": pid, "code": os.waitstatus_to_exitcode(status)})

    def _send(self, message: dict[str, Any], *descriptors: int) -> None:
        # When the cluster is gone, the next look at the socket says so.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            socket.send_fds(self.control, [json.dumps(message).encode()], list(descriptors))


def main(descriptor: int) -> int:
    """Serve a cluster; in a forked process, run the program. Returns the exit code."""
    for name in _LOADED_LATER:
        importlib.import_module(name)
    preload_converters()
    gc.collect()
    # No collection writes to what is shared.
    gc.freeze()
    program = ForkServer(socket.socket(fileno=descriptor)).serve()
    return 0 if program is None else session_program.main(*program)


if __name__ == "__main__":
    name_process("millstream-fork")
    sys.exit(main(int(sys.argv[1])))
