"""Compare-and-swap cells shared by job managers, and the fence that rejects publications of a deposed leader."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from millstream.checkpoint.storage import open_storage, storage_options
from millstream.common.configuration import Configuration
from millstream.common.errors import DeposedError, InvalidProgramError
from millstream.leader.cas_cells import Cell, Cells, FileCells, OvertakenError
from millstream.leader.fence import Fence
from millstream.leader.kubernetes import Access, KubernetesCells
from tests.support.kubernetes_api import lease_server
from tests.support.object_store import BUCKET, object_store

JOB = "0123456789abcdef0123456789abcdef"


@contextmanager
def cells_of(kind: str, tmp_path: Path) -> Iterator[Cells]:
    if kind == "directory":
        yield FileCells(open_storage(str(tmp_path / "ha")))
        return
    if kind == "zookeeper":
        pytest.importorskip("kazoo")
        from millstream.leader.zookeeper import ZooKeeperCells
        from millstream.testing.servers.zookeeper import ZooKeeperServer

        with ZooKeeperServer() as zookeeper:
            cells = ZooKeeperCells(zookeeper.quorum, "/millstream/test", 10.0)
            cells.await_connection(10.0)
            yield cells
            cells.close()
        return
    if kind == "kubernetes":
        (tmp_path / "token").write_text("secret")
        with lease_server("secret") as api:
            access = Access.find(api.url, "streams", str(tmp_path / "token"), None)
            yield KubernetesCells(access, "shop_1", 5.0)
        return
    with object_store() as settings:
        yield FileCells(open_storage(f"s3://{BUCKET}/ha", storage_options(Configuration.from_dict(settings))))


@pytest.fixture(scope="module", params=["directory", "s3", "zookeeper", "kubernetes"])
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cells]:
    """One service for all tests."""
    with cells_of(request.param, tmp_path_factory.mktemp("ha")) as cells:
        yield cells


@dataclass
class _Fresh:
    """Cells whose names no other test has."""

    inner: Cells
    prefix: str

    def cell(self, name: str) -> Cell:
        return self.inner.cell(f"{self.prefix}-{name}")

    def watch(self, on_lost: Callable[[str], None]) -> None:
        self.inner.watch(on_lost)

    def close(self) -> None:
        self.inner.close()


@pytest.fixture
def cells(shared: Cells) -> Cells:
    return _Fresh(shared, uuid.uuid4().hex[:8])


def test_cell_write_succeeds_with_current_version_only(cells: Cells) -> None:
    one, other = cells.cell("a"), cells.cell("a")
    assert one.read() == (None, 0)
    first = last = one.write(b"{}", 0)
    assert other.read() == (b"{}", first)
    with pytest.raises(OvertakenError):
        other.write(b"{}", 0)
    for n in range(12):
        last = other.write(b'{"n": %d}' % n, last)
    assert one.read() == (b'{"n": 11}', last)
    # A version so old that its file is deleted cannot be written again either.
    with pytest.raises(OvertakenError):
        one.write(b"{}", first)
    with pytest.raises(OvertakenError):
        one.write(b"{}", 0)
    assert one.read() == (b'{"n": 11}', last)


def test_file_cells_accept_one_of_concurrent_writes(tmp_path: Path) -> None:
    cells = FileCells(open_storage(str(tmp_path)))
    won: list[Hashable] = []

    def write(n: int) -> None:
        cell = cells.cell("a")
        while (version := cell.read()[1]) != 30:
            with suppress(OvertakenError):
                won.append(cell.write(b"%d" % n, version))

    threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    # A writer overtaken between its write and its check assumes it lost: never the other way round.
    assert 0 < len(won) == len(set(won)) <= 30 + len(threads)


def fence(cells: Cells, term: int) -> Fence:
    return Fence(cells.cell("job"), JOB, "shop", term)


def test_fence_rejects_publish_of_deposed_leader(cells: Cells) -> None:
    old, new = fence(cells, 1), fence(cells, 2)
    assert old.claim().checkpoints == ()
    old.publish("/c/1/chk-1")
    old.publish("/c/1/chk-2")
    assert new.claim().checkpoints == ("/c/1/chk-1", "/c/1/chk-2")
    for late in (
        lambda: old.publish("/c/1/chk-3"),
        lambda: old.keep_only("/c/1", []),
        lambda: old.withdraw("/c/1/chk-2"),
        lambda: old.end("FINISHED", ""),
    ):
        with pytest.raises(DeposedError, match=r"term 1.*the leader of term 2 owns it"):
            late()  # type: ignore[no-untyped-call]
    new.publish("/c/2/chk-3")
    assert fence(cells, 3).claim().checkpoints == ("/c/1/chk-1", "/c/1/chk-2", "/c/2/chk-3")


def test_fence_rejects_claim_of_earlier_or_same_term(cells: Cells) -> None:
    fence(cells, 5).claim()
    with pytest.raises(DeposedError, match="term 5"):
        fence(cells, 4).claim()
    with pytest.raises(InvalidProgramError, match="started twice under one leader"):
        fence(cells, 5).claim()
    assert fence(cells, 6).run_id != fence(cells, 5).run_id


def test_fence_claim_returns_outcome_of_ended_job(cells: Cells) -> None:
    first = fence(cells, 1)
    first.claim()
    first.end("FAILED", "no luck")
    outcome = fence(cells, 2).claim()
    assert (outcome.outcome, outcome.message) == ("FAILED", "no luck")


def test_fence_orders_checkpoints_by_number_and_ignores_late_ones(tmp_path: Path) -> None:
    cells = FileCells(open_storage(str(tmp_path)))
    own = fence(cells, 2)
    before = fence(cells, 1)
    before.claim()
    before.publish("/c/1/chk-1")
    own.claim()
    own.publish("/c/2/chk-3")
    own.publish("/c/2/chk-2")
    # A late checkpoint is not the newest.
    own.withdraw("/c/2/chk-1")
    own.keep_only("/c/2", ["/c/2/chk-3"])
    assert fence(cells, 3).claim().checkpoints == ("/c/1/chk-1", "/c/2/chk-3")


def test_fence_drops_unreadable_checkpoint_after_fallback(tmp_path: Path) -> None:
    cells = FileCells(open_storage(str(tmp_path)))
    old, new = fence(cells, 1), fence(cells, 2)
    old.claim()
    old.publish("/c/1/chk-1")
    old.publish("/c/1/chk-2")
    new.claim()
    new.withdraw_after("/c/1/chk-1")
    new.publish("/c/2/chk-2")
    assert fence(cells, 3).claim().checkpoints == ("/c/1/chk-1", "/c/2/chk-2")


class LossyCell:
    """A cell that executes each request, but sometimes loses the response."""

    def __init__(self, inner: Cell) -> None:
        self.inner = inner
        self.loses = False

    def read(self) -> tuple[bytes | None, Hashable]:
        return self.inner.read()

    def write(self, data: bytes, version: Hashable) -> Hashable:
        written = self.inner.write(data, version)
        if self.loses:
            self.loses = False
            raise TimeoutError("no answer")
        return written


def test_fence_detects_own_write_after_lost_response(tmp_path: Path) -> None:
    cells = FileCells(open_storage(str(tmp_path)))
    cell = LossyCell(cells.cell("job"))
    own = Fence(cell, JOB, "shop", 1)
    cell.loses = True
    with pytest.raises(TimeoutError):
        own.claim()
    own.claim()
    cell.loses = True
    with pytest.raises(TimeoutError):
        own.publish("/c/1/chk-1")
    # The job does not rely on this checkpoint, and prevents others from relying on it.
    own.keep_only("/c/1", [])
    own.publish("/c/1/chk-2")
    assert fence(cells, 2).claim().checkpoints == ("/c/1/chk-2",)


def test_fence_end_fails_when_outcome_cannot_be_written(tmp_path: Path) -> None:
    cell = LossyCell(FileCells(open_storage(str(tmp_path))).cell("job"))
    own = Fence(cell, JOB, "shop", 1)
    own.claim()
    cell.loses = True
    with pytest.raises(DeposedError, match=r"could not be recorded \(no answer\)"):
        own.end("FINISHED", "")


def test_storage_without_atomic_create_is_rejected() -> None:
    with pytest.raises(InvalidProgramError, match="only if it does not exist"):
        open_storage("http://somewhere/ha").create("x", b"")
