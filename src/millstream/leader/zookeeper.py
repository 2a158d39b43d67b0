"""Cells in ZooKeeper: one node each, written with its version. The end of a session shows at once that a peer died."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING

from millstream.common.aliases import LibraryObject
from millstream.common.errors import InvalidProgramError, MillstreamError
from millstream.leader.cas_cells import OvertakenError

if TYPE_CHECKING:
    # kazoo has no type annotations.
    from kazoo.client import KazooClient
    from kazoo.protocol.states import KazooState

log = logging.getLogger("millstream")

# Timeout of a request, as a share of the session timeout.
_REQUEST_TIMEOUT_SHARE = 0.5


class ZooKeeperCells:
    """The cells of a cluster."""

    def __init__(self, quorum: str, root: str, session_seconds: float) -> None:
        """Connect in the background, with retries.

        Args:
            quorum: the servers, host:port, separated by commas.
            root: the parent node of the cells.
            session_seconds: the session timeout.
        """
        kazoo = _library()
        self._root = root
        self.request_timeout = session_seconds * _REQUEST_TIMEOUT_SHARE
        self.client: KazooClient = kazoo.client.KazooClient(
            quorum,
            timeout=session_seconds,
            # kazoo logs too much; relevant events are logged here.
            logger=_quiet(),
        )
        self._on_lost: list[Callable[[str], None]] = []
        self.client.add_listener(self._state_changed)
        self._is_live = self.client.start_async()
        # The parent of ephemeral nodes, one for each live session.
        self.sessions_path = f"{root}/alive"

    def _state_changed(self, state: KazooState) -> bool | None:
        if state == "LOST":
            for on_lost in self._on_lost:
                on_lost("the session with ZooKeeper is lost")
        return None

    def cell(self, name: str) -> ZooKeeperCell:
        return ZooKeeperCell(self, f"{self._root}/{name}")

    def watch(self, on_lost: Callable[[str], None]) -> None:
        self._on_lost.append(on_lost)

    def request(self, operation: str, *arguments: object, **options: object) -> LibraryObject:
        """Send a request; a timeout is an error."""
        kazoo = _library()
        if not self.client.connected:
            raise MillstreamError(f"ZooKeeper at {self._quorum()} does not answer.")
        try:
            return getattr(self.client, operation)(*arguments, **options).get(timeout=self.request_timeout)
        except kazoo.handlers.threading.KazooTimeoutError:
            raise MillstreamError(f"ZooKeeper has not answered for {self.request_timeout:g} s.") from None

    def _quorum(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self.client.hosts)

    def await_connection(self, seconds: float) -> None:
        """Wait until connected; a timeout is an error."""
        if not self._is_live.wait(seconds):
            raise MillstreamError(f"ZooKeeper at {self._quorum()} cannot be reached.")

    def close(self) -> None:
        self.client.stop()
        self.client.close()


class ZooKeeperCell:
    """One node. A lease counts as released when the session of its holder has ended."""

    def __init__(self, cells: ZooKeeperCells, path: str) -> None:
        self._cells = cells
        self._path = path

    def read(self) -> tuple[bytes | None, Hashable]:
        kazoo = _library()
        try:
            data, about = self._cells.request("get_async", self._path)
        except kazoo.exceptions.NoNodeError:
            return None, 0
        # ZooKeeper's first version is 0, which here means that there is no node.
        return self._check_session(data), about.version + 1

    def write(self, data: bytes, version: Hashable) -> Hashable:
        kazoo = _library()
        assert isinstance(version, int)
        self._create_session_node(data)
        try:
            if version == 0:
                self._cells.request("create_async", self._path, data, makepath=True)
                return 1
            about = self._cells.request("set_async", self._path, data, version - 1)
            return int(about.version) + 1
        except (kazoo.exceptions.NodeExistsError, kazoo.exceptions.BadVersionError, kazoo.exceptions.NoNodeError):
            raise OvertakenError(f"{self._path} was written by another process.") from None

    # --- the holder of a lease, which is alive as long as its session

    def _create_session_node(self, data: bytes) -> None:
        holder = _holder(data)
        if holder is None:
            return
        kazoo = _library()
        try:
            self._cells.request(
                "create_async", f"{self._cells.sessions_path}/{holder}", b"", ephemeral=True, makepath=True
            )
        except kazoo.exceptions.NodeExistsError:
            return

    def _check_session(self, data: bytes) -> bytes:
        """Return the contents of a cell; mark a lease as released if its holder's session has ended."""
        holder = _holder(data)
        if holder is None or self._cells.request("exists_async", f"{self._cells.sessions_path}/{holder}") is not None:
            return data
        return json.dumps({**json.loads(data), "is_released": True}).encode()


def _holder(data: bytes) -> str | None:
    holder = json.loads(data).get("holder")
    return holder if isinstance(holder, str) else None


def _quiet() -> logging.Logger:
    logger = logging.getLogger("kazoo")
    logger.setLevel(logging.ERROR)
    return logger


def _library() -> LibraryObject:
    try:
        import kazoo.client
        import kazoo.exceptions
        import kazoo.handlers.threading
    except ImportError:
        raise InvalidProgramError(
            "high-availability.type is ZOOKEEPER, which needs kazoo: pip install 'millstream[zookeeper]'."
        ) from None
    return kazoo
