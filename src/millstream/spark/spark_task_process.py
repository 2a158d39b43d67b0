"""The process of a slot if epochs are Spark jobs: runs Spark's tasks one after the other and retains their state.

With resident slots, `slot_host.py` forks the slots instead.
"""

from __future__ import annotations

import array
import contextlib
import io
import os
import signal
import socket
import struct
import sys
import threading
import traceback
from typing import TYPE_CHECKING, BinaryIO

import pyspark.worker

from millstream.spark.heartbeat import Heartbeat
from millstream.spark.processes import Collector, exit_on_sigterm, ignore_sigterm, is_termination_requested
from millstream.spark.slot_runtime import close_all

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


class ReplayedStream(io.RawIOBase):
    """A stream that starts with bytes already read from its descriptor."""

    def __init__(self, head: bytes, fd: int) -> None:
        self._head = memoryview(head)
        self._fd = fd

    @classmethod
    def open(cls, head: bytes, fd: int) -> BinaryIO:
        return io.BufferedReader(cls(head, fd), 65536)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        if self._head:
            view = memoryview(buffer)
            count = min(len(view), len(self._head))
            view[:count] = self._head[:count]
            self._head = self._head[count:]
            return count
        return os.readv(self._fd, [buffer])

    def close(self) -> None:
        if not self.closed:
            os.close(self._fd)
        super().close()


def serve(listener: socket.socket, heartbeat: Heartbeat) -> None:
    """Run the tasks that relays pass on, until SIGTERM."""
    exit_on_sigterm()
    heartbeat.start()
    collector = Collector()
    try:
        while True:
            connection, _ = listener.accept()
            if _serve_one(connection):
                collector.after_task()
    except SystemExit:
        pass
    finally:
        ignore_sigterm()
        close_all()


def _serve_one(connection: socket.socket) -> bool:
    received = _receive(connection)
    if received is None:
        connection.close()
        return False
    head, fd = received
    done = threading.Event()
    threading.Thread(target=_watch, args=(connection, done), daemon=True).start()
    clean = _run(head, fd)
    done.set()
    with contextlib.suppress(OSError):
        connection.sendall(b"k" if clean else b"x")
        connection.shutdown(socket.SHUT_WR)
    return True


def _receive(connection: socket.socket) -> tuple[bytes, int] | None:
    size, ancillary, _, _ = connection.recvmsg(4, socket.CMSG_SPACE(4))
    if len(size) < 4 or not ancillary:
        return None
    rights = array.array("i")
    rights.frombytes(ancillary[0][2][:4])
    length = struct.unpack(">I", size)[0]
    head = b""
    while len(head) < length:
        part = connection.recv(length - len(head))
        if not part:
            os.close(rights[0])
            return None
        head += part
    return head, rights[0]


def _watch(connection: socket.socket, done: threading.Event) -> None:
    """Kill this process if the relay disconnects while its task runs: the task was cancelled."""
    with contextlib.suppress(OSError):
        while connection.recv(1):
            pass
    if not done.is_set():
        os.kill(os.getpid(), signal.SIGKILL)
    connection.close()


def _run(head: bytes, fd: int) -> bool:
    """Run one task; return whether its connection can be used again."""
    outfile = os.fdopen(os.dup(fd), "wb", 65536)
    infile = ReplayedStream.open(head, fd)
    try:
        pyspark.worker.main(infile, outfile)
        outfile.flush()
    except SystemExit as e:
        if is_termination_requested():
            raise
        with contextlib.suppress(OSError):
            outfile.flush()
        return not e.code
    except OSError:
        # The JVM has disconnected: it has cancelled the task.
        traceback.print_exc(file=sys.stderr)
        return False
    finally:
        with contextlib.suppress(OSError):
            outfile.close()
        infile.close()
    return True
