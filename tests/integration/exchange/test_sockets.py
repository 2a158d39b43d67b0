"""Driver and slots over real sockets, without Spark: frames, authentication, full buffers, disconnects."""

from __future__ import annotations

import contextlib
import math
import os
import pickle
import re
import socket
import ssl
import stat
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest

from millstream.exchange import acceptor, slot_connections
from millstream.exchange import driver as driver_module
from millstream.exchange.acceptor import MAX_UNAUTHENTICATED
from millstream.exchange.addresses import Address, accept, address_of, connect, listen
from millstream.exchange.connection import Connection
from millstream.exchange.credentials import (
    AuthenticationError,
    CertificateError,
    Credentials,
    Handshake,
    Identity,
    Side,
    make_identity,
)
from millstream.exchange.driver import Exchange, ExchangeFailed
from millstream.exchange.exchange_machine import CancelRequested, Cause, FailureKind
from millstream.exchange.frames import HEAD, Frame, Kind
from millstream.exchange.poller import Poller
from millstream.exchange.slot_connections import CREDIT_BYTES
from millstream.exchange.slot_loop import SlotLoop
from millstream.operators.diagnostics.io_metrics import SlotTraffic, SubtaskTraffic
from millstream.operators.runtime.messages import LevelTask

SECRET = Credentials(b"s" * 32)
OTHER = Credentials(b"t" * 32)
LOOPBACK = "127.0.0.1"
ENCRYPTED = Credentials(b"s" * 32, make_identity())


@dataclass(frozen=True)
class Endpoint:
    """The transport between driver and slots."""

    host: str | None
    credentials: Credentials = SECRET


UNIX = Endpoint(None)
ENDPOINTS = [
    pytest.param(UNIX, id="unix"),
    pytest.param(Endpoint(LOOPBACK), id="tcp"),
    pytest.param(Endpoint(LOOPBACK, ENCRYPTED), id="tls"),
]
RunLevel = Callable[[int, LevelTask, list[bytes]], Iterator[tuple[int, bytes]]]


def wait_until(condition: Callable[[], bool], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


# --- frames and secrets


def linked_pair(first: Credentials = SECRET, second: Credentials = SECRET) -> tuple[Connection, Connection]:
    a, b = socket.socketpair()
    return Connection(a, first, Side.CLIENT), Connection(b, second, Side.SERVER)


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server((LOOPBACK, 0)) as listener:
        return socket.create_connection(listener.getsockname()), listener.accept()[0]


def trickle(source: socket.socket, target: socket.socket) -> None:
    """Forward one byte, if there is one."""
    with contextlib.suppress(BlockingIOError):
        target.send(source.recv(1))


@pytest.mark.parametrize("credentials", [pytest.param(SECRET, id="plain"), pytest.param(ENCRYPTED, id="tls")])
def test_connection_decodes_frames_read_byte_by_byte(credentials: Credentials) -> None:
    frames = [Frame(Kind.EPOCH, 2**40, 3, b"x" * 1000), Frame(Kind.STOP), Frame(Kind.DATA, 1, 65535, bytes(range(256)))]
    (a, outer_a), (b, outer_b) = tcp_pair(), tcp_pair()
    left, right = Connection(a, credentials, Side.CLIENT), Connection(b, credentials, Side.SERVER)
    for end in (outer_a, outer_b):
        end.setblocking(False)
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for frame in frames:
        left.push(frame)
        right.push(frame)
    received: dict[Connection, list[Frame]] = {left: [], right: []}
    for _ in range(20_000):
        for link in (left, right):
            link.flush()
        trickle(outer_a, outer_b)
        trickle(outer_b, outer_a)
        for link in (left, right):
            received[link] += link.receive()
        if all(len(h) == len(frames) for h in received.values()):
            break
    assert received == {left: frames, right: frames}
    assert (left.reason, right.reason) == ("", "")
    for opened in (left.socket, right.socket, outer_a, outer_b):
        opened.close()


# --- TLS


def authenticated_pair(client: Credentials, server: Credentials) -> tuple[Connection, Connection]:
    """Return two connections that have completed their handshake."""
    a, b = tcp_pair()
    links = Connection(a, client, Side.CLIENT), Connection(b, server, Side.SERVER)
    poller = Poller()
    events: list[int] = []
    for link in links:
        link.push(Frame(Kind.STOP, payload=b"of this job only"))
        poller.add(link, lambda frame: events.append(1), lambda: events.append(1))
    poller.until(lambda: len(events) == 2, 5)
    return links


def test_tls_connection_hides_frames_from_observer() -> None:
    (a, outer_a), (b, outer_b) = tcp_pair(), tcp_pair()
    links = Connection(a, ENCRYPTED, Side.CLIENT), Connection(b, ENCRYPTED, Side.SERVER)
    links[0].push(Frame(Kind.EPOCH, 1, 0, b"a salary" * 100))
    poller, received, passed = Poller(), list[Frame](), bytearray()
    for link in links:
        poller.add(link, received.append, lambda: None)

    def spy(source: socket.socket, target: socket.socket) -> None:
        data = source.recv(1 << 16)
        passed.extend(data)
        target.sendall(data)

    poller.watch(outer_a.fileno(), lambda: spy(outer_a, outer_b))
    poller.watch(outer_b.fileno(), lambda: spy(outer_b, outer_a))
    assert poller.until(lambda: bool(received), 5)
    assert received == [Frame(Kind.EPOCH, 1, 0, b"a salary" * 100)]
    assert b"a salary" not in passed
    assert b"MILLSTR1" not in passed
    poller.close()
    outer_a.close()
    outer_b.close()


def test_tls_connection_delivers_decrypted_data_without_socket_event() -> None:
    """The last TLS record holds the end of a large frame and a small one, for which the socket is not readable."""
    a, b = tcp_pair()
    links = Connection(a, ENCRYPTED, Side.CLIENT), Connection(b, ENCRYPTED, Side.SERVER)
    # A record with its header, twice the send size, and a little more.
    size = (1 << 14) - HEAD.size + 2 * (1 << 18) + 100
    frames = [Frame(Kind.DATA, 1, 1, bytes(size)), Frame(Kind.END, 1, 1, b"end")]
    for frame in frames:
        links[0].push(frame)
    poller, received = Poller(), list[Frame]()
    for link in links:
        poller.add(link, received.append, lambda: None)
    assert poller.until(lambda: len(received) == 2, 3)
    assert received == frames
    poller.close()


@pytest.mark.parametrize(
    ("client", "server", "client_reason", "server_reason"),
    [
        pytest.param(
            Credentials(b"s" * 32, make_identity()),
            ENCRYPTED,
            "the peer's certificate is not trusted",
            "does not trust this side's certificate",
            id="wrong certificate",
        ),
        # A peer that is disconnected does not always receive the reason.
        pytest.param(SECRET, ENCRYPTED, "", "the peer does not use TLS", id="plain client"),
        pytest.param(ENCRYPTED, SECRET, "", "the peer uses TLS", id="plain server"),
        pytest.param(
            Credentials(b"t" * 32, ENCRYPTED.identity),
            ENCRYPTED,
            "",
            "does not know the job's secret",
            id="right certificate, wrong secret",
        ),
    ],
)
def test_connection_rejects_peer_of_another_job_with_reason(
    client: Credentials, server: Credentials, client_reason: str, server_reason: str
) -> None:
    links = authenticated_pair(client, server)
    assert all(link.closed and not link.is_authenticated for link in links)
    assert client_reason in links[0].reason
    assert server_reason in links[1].reason
    for link in links:
        link.close()


def test_connection_rejects_caller_without_certificate() -> None:
    assert ENCRYPTED.identity is not None
    a, b = tcp_pair()
    context = ssl.create_default_context(cadata=ENCRYPTED.identity.pem.split("-----BEGIN PRIVATE")[0])
    context.check_hostname = False
    link, poller, lost = Connection(b, ENCRYPTED, Side.SERVER), Poller(), list[int]()
    poller.add(link, lambda frame: None, lambda: lost.append(1))
    serving = threading.Thread(target=lambda: poller.until(lambda: bool(lost), 5))
    serving.start()
    with pytest.raises(OSError), context.wrap_socket(a) as nameless:
        nameless.settimeout(5)
        assert nameless.recv(1) == b""
        raise ConnectionResetError
    serving.join()
    assert "sent no certificate" in link.reason


def test_exchange_failure_explains_rejected_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_module, "START_SECONDS", 0.5)
    with ThreadedExecution([1], ring, Endpoint(LOOPBACK, ENCRYPTED)) as execution:
        execution.credentials = SECRET
        execution.start()
        assert "a connection was refused: the peer does not use TLS" in execution.run_failing().cause.text


def pem_files(directory: Path, name: str) -> Identity:
    """Write a certificate and its key as files, as an administrator would."""
    certificate, key = make_identity().pem.split("-----BEGIN PRIVATE KEY")
    (directory / f"{name}.crt").write_text(certificate)
    (directory / f"{name}.key").write_text("-----BEGIN PRIVATE KEY" + key)
    return Identity(str(directory / f"{name}.crt"), str(directory / f"{name}.key"), str(directory / f"{name}.crt"))


def test_credentials_repr_hides_secrets() -> None:
    printed = repr(ENCRYPTED)
    assert "PRIVATE KEY" not in printed
    assert "ssss" not in printed


def test_certificates_are_loaded_from_files(tmp_path: Path) -> None:
    own, other = pem_files(tmp_path, "own"), pem_files(tmp_path, "other")
    with ThreadedExecution([2, 2], ring, Endpoint(LOOPBACK, Credentials(b"s" * 32, own))) as execution:
        execution.start()
        assert execution.run(1) == [b"0<1", b"1<0"]
    links = authenticated_pair(Credentials(b"s" * 32, other), Credentials(b"s" * 32, own))
    assert "certificate is not trusted" in links[0].reason
    for link in links:
        link.close()
    with pytest.raises(CertificateError, match=r"nowhere.key' \(key\) cannot be read on host"):
        replace(own, key=str(tmp_path / "nowhere.key")).context(is_server=True)
    with pytest.raises(CertificateError, match="are not a certificate, its private key"):
        replace(own, key=other.key).context(is_server=True)


# --- secrets


def exchange_greetings(first: Handshake, second: Handshake) -> None:
    to_second, to_first = first.greeting, second.greeting
    while to_second or to_first:
        to_first, to_second = to_first + second.feed(to_second), b""
        to_second, to_first = first.feed(to_first), b""


def test_handshake_authenticates_both_sides() -> None:
    client, server = Handshake(SECRET.secret, Side.CLIENT), Handshake(SECRET.secret, Side.SERVER)
    exchange_greetings(client, server)
    assert client.is_done
    assert server.is_done


@pytest.mark.parametrize("side", Side)
def test_handshake_rejects_wrong_secret_on_either_side(side: Side) -> None:
    other = Side.SERVER if side is Side.CLIENT else Side.CLIENT
    honest, stranger = Handshake(SECRET.secret, side), Handshake(OTHER.secret, other)
    stranger.feed(honest.greeting)
    honest.feed(stranger.greeting)
    with pytest.raises(AuthenticationError):
        honest.feed(os.urandom(32))
    assert not honest.is_done


def test_handshake_rejects_reflected_proof() -> None:
    client = Handshake(SECRET.secret, Side.CLIENT)
    proof = client.feed(client.greeting)
    assert len(proof) == 32
    with pytest.raises(AuthenticationError):
        client.feed(proof)


class Attack:
    """Creates a file when it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str, int]]:
        return os.open, (self.path, os.O_CREAT)


def test_connection_neither_unpickles_nor_sends_before_authentication(tmp_path: Path) -> None:
    attack_pickle = pickle.dumps(Attack(str(tmp_path / "exploded")))
    honest, stranger = linked_pair(second=OTHER)
    honest.push(Frame(Kind.EPOCH, 1, 0, b"of this job only"))
    # The stranger sends its frames without waiting.
    honest_saw: list[Frame] = []
    stranger._handshake = None
    stranger.push(Frame(Kind.EPOCH, 1, 0, attack_pickle))
    for _ in range(20):
        honest.flush()
        stranger.flush()
        honest_saw += honest.receive()
    assert honest_saw == []
    assert honest.closed
    assert "does not know the job's secret" in honest.reason
    assert not honest.is_authenticated
    stranger.socket.setblocking(False)
    assert b"of this job" not in stranger.socket.recv(4096)
    assert not (tmp_path / "exploded").exists()
    for link in (honest, stranger):
        link.close()


def test_exchange_ignores_unauthenticated_caller(caplog: pytest.LogCaptureFixture) -> None:
    with ThreadedExecution([2, 2], ring) as execution:
        stranger = Connection.to(execution.exchange.address, OTHER)
        stranger.push(Frame(Kind.REGISTER, payload=b'{"slot": 0, "address": "/x"}'))
        stranger.flush()
        silent = Connection.to(execution.exchange.address, SECRET)
        poller = Poller()
        lost: list[int] = []
        poller.add(stranger, lambda frame: None, lambda: lost.append(1))
        threading.Thread(target=lambda: poller.until(lambda: bool(lost), 60), daemon=True).start()
        # Later the acceptor is closed, so nobody rejects the caller.
        assert execution.exchange.serve_until(lambda: "a connection was refused" in caplog.text, 60)
        wait_until(lambda: bool(lost))
        execution.start()
        assert execution.run(1) == [b"0<1", b"1<0"]
        silent.close()


GREETING = b"MILLSTR1" + bytes(32)
ATTACKS = {
    "nothing": b"",
    "half a greeting": GREETING[:20],
    "a greeting and no proof": GREETING,
    "a greeting and a wrong proof": GREETING + bytes(32),
    "garbage": os.urandom(1 << 20),
    "a greeting and garbage": GREETING + os.urandom(1 << 20),
    "a huge length": HEAD.pack(Kind.DATA, 1, 1, 1 << 62) + bytes(1 << 20),
    "a request of the web's": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
}


def attack(address: Address, data: bytes) -> socket.socket:
    """Connect and send without waiting; some of it never leaves the kernel."""
    stranger = connect(address)
    stranger.setblocking(False)
    with contextlib.suppress(BlockingIOError, ConnectionError):
        stranger.sendall(data)
    return stranger


def is_hung_up_on(stranger: socket.socket) -> bool:
    try:
        while stranger.recv(1 << 16):
            pass
    except BlockingIOError:
        return False
    except ConnectionError:
        pass
    return True


@pytest.mark.parametrize("endpoint", ENDPOINTS)
@pytest.mark.parametrize("target", ["driver", "slot"])
def test_exchange_survives_any_bytes_from_stranger(endpoint: Endpoint, target: str) -> None:
    with ThreadedExecution([2, 2], ring, endpoint) as execution:
        execution.start_one(0)
        # Other slots connect to a slot after all have connected to the driver.
        wait_until(lambda: 0 in execution.slots)
        attacked = execution.exchange.address if target == "driver" else execution.slots[0]._peers.address
        strangers = [attack(attacked, data) for data in ATTACKS.values()]
        tracemalloc.start()
        execution.start_one(1)
        assert execution.run(1) == [b"0<1", b"1<0"]
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
        tracemalloc.stop()
        # After the handshake no connection is pending, and the acceptor is closed.
        wait_until(lambda: all(map(is_hung_up_on, strangers)), 5)
        for stranger in strangers:
            stranger.close()
        with pytest.raises(OSError):
            connect(attacked)
        assert execution.run(2) == [b"0<1", b"1<0"]


def test_exchange_accepts_all_slots_calling_at_once() -> None:
    """Many processes on few cores take long to authenticate."""
    slots = 3 * MAX_UNAUTHENTICATED
    exchange = Exchange(slots, slots, SECRET, None)
    links = [Connection.to(exchange.address, SECRET) for _ in range(slots)]
    # All connect before the first one sends anything.
    exchange.serve_until(lambda: False, 0.5)
    poller = Poller()
    lost: list[object] = []
    for number, link in enumerate(links):
        link.push(Frame(Kind.REGISTER, payload=b'{"slot": %d, "address": "x"}' % number))
        poller.add(link, lambda frame: None, partial(lost.append, number))
    for _ in range(600):
        poller.poll(0.01)
        if lost or exchange.serve_until(lambda: exchange.has_all_slots, 0.05):
            break
    assert not lost
    assert exchange.has_all_slots
    poller.close()
    exchange.close()


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_exchange_limits_silent_strangers(endpoint: Endpoint) -> None:
    with ThreadedExecution([2, 2], ring, endpoint) as execution:
        exchange_thread = threading.Thread(target=lambda: execution.run(1))
        exchange_thread.start()
        strangers: list[socket.socket] = []
        for _ in range(3 * MAX_UNAUTHENTICATED):
            strangers.append(attack(execution.exchange.address, b""))
            time.sleep(0.0005)
        # Two connections are reserved for slots, and as many for strangers.
        wait_until(lambda: sum(map(is_hung_up_on, strangers)) == 2 * MAX_UNAUTHENTICATED - 4, 30)
        # Slots of the job are still accepted.
        execution.start()
        exchange_thread.join(10)
        assert not exchange_thread.is_alive()
        assert execution.run(2) == [b"0<1", b"1<0"]
        wait_until(lambda: all(map(is_hung_up_on, strangers)), 5)
        for stranger in strangers:
            stranger.close()


def test_acceptor_drops_stranger_after_proof_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptor, "AUTHENTICATION_SECONDS", 0.1)
    with ThreadedExecution([1], lambda slot, task, messages: iter([(slot, b"done")]), Endpoint(LOOPBACK)) as execution:
        exchange_thread = threading.Thread(target=lambda: execution.run(1))
        exchange_thread.start()
        silent = attack(execution.exchange.address, GREETING)
        time.sleep(0.15)
        # The timeout is checked when another client connects.
        next_one = attack(execution.exchange.address, b"")
        wait_until(lambda: is_hung_up_on(silent), 5)
        assert not is_hung_up_on(next_one)
        execution.start()
        exchange_thread.join(5)
        assert not exchange_thread.is_alive()
        silent.close()
        next_one.close()


def test_exchange_creates_unix_sockets_in_private_directory() -> None:
    exchange = Exchange(1, 1, SECRET, None)
    assert isinstance(exchange.address, str)
    directory = os.path.dirname(exchange.address)
    assert stat.S_IMODE(os.stat(directory).st_mode) == 0o700
    exchange.close()
    assert not os.path.exists(directory)


# --- whole executions


class ScriptedWork:
    """The work of a slot, defined by a test."""

    cannot_open: int | None = None

    def __init__(self, slot: int, run_level: RunLevel) -> None:
        self.slot = slot
        self.run_level = run_level

    def open(self, take_traffic: Callable[[], SlotTraffic | None]) -> None:
        if self.slot == self.cannot_open:
            raise FileNotFoundError("a state file")

    def run(self, task: LevelTask, messages: list[bytes]) -> Iterator[tuple[int, bytes]]:
        return self.run_level(self.slot, task, messages)

    def after_epoch(self) -> None:
        pass

    def describe(self, error: Exception) -> str:
        return f"{type(error).__name__}: {error}"


class ThreadedExecution:
    """A driver in this thread and slots on threads."""

    def __init__(self, widths: list[int], run_level: RunLevel, endpoint: Endpoint = UNIX) -> None:
        self.widths = widths
        self.run_level = run_level
        self.credentials = endpoint.credentials
        self.exchange = Exchange(max(widths), widths[-1], endpoint.credentials, endpoint.host)
        self.slots: dict[int, SlotLoop] = {}
        self.threads: list[threading.Thread] = []
        self.is_open = True

    def __enter__(self) -> ThreadedExecution:
        return self

    def start(self, without: int | None = None) -> None:
        for number in range(max(self.widths)):
            if number != without:
                self.start_one(number)

    def start_one(self, number: int) -> None:
        thread = threading.Thread(target=self._serve, args=(number, self.exchange.address), daemon=True)
        thread.start()
        self.threads.append(thread)

    def _serve(self, number: int, address: Address) -> None:
        try:
            slot = SlotLoop(number, self.widths, address, self.credentials, ScriptedWork(number, self.run_level))
        except (ConnectionRefusedError, FileNotFoundError):
            # Another slot failed, and the exchange closed, before this one connected.
            return
        self.slots[number] = slot
        slot.serve()

    def run(self, epoch: int) -> list[bytes]:
        tasks = [LevelTask(epoch=epoch, level=level) for level in range(len(self.widths))]
        return [bytes(report) for report in self.exchange.run(epoch, pickle.dumps(tasks))]

    def run_failing(self, epoch: int = 1) -> ExchangeFailed:
        with pytest.raises(ExchangeFailed) as caught:
            self.run(epoch)
        return caught.value

    def __exit__(self, *_: object) -> None:
        if self.is_open:
            self.exchange.release()
            for _ in range(50):  # type: ignore[assignment]
                self.exchange.serve_until(lambda: not any(t.is_alive() for t in self.threads), 0.02)
            self.exchange.close()
        for thread in self.threads:
            thread.join(10)
            assert not thread.is_alive()


def ring(slot: int, task: LevelTask, messages: list[bytes]) -> Iterator[tuple[int, bytes]]:
    """Send the slot's number to the other of two slots."""
    if task.level == 0:
        yield 1 - slot, b"%d" % slot
    else:
        yield slot, b"%d<" % slot + b"".join(messages)


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_exchange_runs_many_epochs(endpoint: Endpoint) -> None:
    with ThreadedExecution([2, 2], ring, endpoint) as execution:
        execution.start()
        for epoch in range(1, 200):
            assert execution.run(epoch) == [b"0<1", b"1<0"]


def test_exchange_reports_slot_that_fails_to_open_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ScriptedWork, "cannot_open", 1)
    with ThreadedExecution([2, 2], ring) as execution:
        execution.start()
        assert execution.run_failing().cause == Cause(FailureKind.RAISED, "FileNotFoundError: a state file")


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_exchange_starts_level_after_barriers_of_all_slots(endpoint: Endpoint) -> None:
    both, first_is_done = threading.Barrier(2), threading.Event()

    def meet(slot: int, task: LevelTask, messages: list[bytes]) -> Iterator[tuple[int, bytes]]:
        if task.level == 1:
            both.wait(5)
            yield slot, b"%d" % len(b"".join(messages))
        elif slot == 0:
            yield 1, b"x"
            first_is_done.set()
        else:
            first_is_done.wait(5)
            time.sleep(0.05)
            # Enough data that the slot polls its connections: the other's barrier has arrived, its own is not sent yet.
            yield 0, bytes(1 << 17)

    with ThreadedExecution([2, 2], meet, endpoint) as execution:
        execution.start()
        assert execution.run(1) == [b"%d" % (1 << 17), b"1"]


def test_exchange_reports_deleted_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    with ThreadedExecution([2, 2], ring) as execution:
        directory = Path(os.path.dirname(str(execution.exchange.address)))

        def clean(work: ScriptedWork, take_traffic: Callable[[], SlotTraffic | None]) -> None:
            for path in directory.glob("d-*"):
                path.unlink(missing_ok=True)

        monkeypatch.setattr(ScriptedWork, "open", clean)
        execution.start()
        cause = execution.run_failing().cause
        assert cause.kind is FailureKind.RAISED
        assert re.search(r"The socket .*/d-. of slot . was deleted while the job was running", cause.text)


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_exchange_runs_levels_of_different_parallelism(endpoint: Endpoint) -> None:
    def count(slot: int, task: LevelTask, messages: list[bytes]) -> Iterator[tuple[int, bytes]]:
        total = sum(map(int, messages)) if task.level else 1
        if task.level == 3:
            yield slot, b"%d" % total
        else:
            for target in range(widths[task.level + 1]):
                yield target, b"%d" % total

    widths = [1, 4, 2, 3]
    with ThreadedExecution(widths, count, endpoint) as execution:
        execution.start()
        assert execution.run(1) == [b"8"] * 3
        assert execution.run(2) == [b"8"] * 3


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_exchange_transfers_large_skewed_blocks_both_ways(endpoint: Endpoint) -> None:
    """Every slot sends 64 MB to every other at the same time, and three times as much to slot 0."""
    size = 64 << 20
    block = bytes(size)

    def flood(slot: int, task: LevelTask, messages: list[bytes]) -> Iterator[tuple[int, bytes]]:
        if task.level == 0:
            for target in (0, 1, 2, 0, 0):
                yield target, block
        else:
            yield slot, b"%d" % sum(map(len, messages))

    with ThreadedExecution([3, 3], flood, endpoint) as execution:
        execution.start()
        assert execution.run(1) == [b"%d" % (9 * size), b"%d" % (3 * size), b"%d" % (3 * size)]


@pytest.mark.parametrize("size", [1, 4 << 20])
@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_slots_start_level_without_waiting_for_work_of_others(endpoint: Endpoint, size: int) -> None:
    """Before slot 0 works, the others have received all they need to work at the same time."""

    def send_before_work(slot: int, task: LevelTask, messages: list[bytes]) -> Iterator[tuple[int, bytes]]:
        if task.level == 0:
            yield from ((target, bytes(size)) for target in range(3))
        else:
            began = time.monotonic()
            time.sleep(0.3)
            yield slot, pickle.dumps((began, time.monotonic()))

    with ThreadedExecution([1, 3], send_before_work, endpoint) as execution:
        execution.start()
        execution.run(1)
        began, ended = zip(*map(pickle.loads, execution.run(2)), strict=True)
        assert max(began) < min(ended)


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_slow_consumer_backpressures_sender(endpoint: Endpoint) -> None:
    """While slot 1 is busy with level 0, slot 0 sends to it: at most 8 MiB wait at the sender."""
    message, produced, is_slow = bytes(1 << 20), [0], threading.Event()

    def uneven(slot: int, task: LevelTask, messages: list[bytes]) -> Iterator[tuple[int, bytes]]:
        if task.level:
            yield slot, b"%d" % len(messages)
        elif slot == 0:
            for _ in range(100):
                produced[0] += 1
                yield 1, message
        else:
            is_slow.wait(10)

    with ThreadedExecution([2, 2], uneven, endpoint) as execution:
        execution.start()
        reports: list[bytes] = []
        epoch = threading.Thread(target=lambda: reports.extend(execution.run(1)))
        epoch.start()
        wait_until(lambda: produced[0] > 8)
        time.sleep(0.3)
        stopped_at = produced[0]
        time.sleep(0.3)
        assert produced[0] == stopped_at
        # Kernel buffers come on top of the credit; TCP sizes its own, up to about 40 MB here.
        assert stopped_at < 50
        assert execution.slots[0]._peers._connections[1].connection.queued <= CREDIT_BYTES
        is_slow.set()
        epoch.join(20)
        assert reports == [b"0", b"100"]
        # The driver may get the report before they have counted it.
        wait_until(lambda: not any(math.isnan(slot._ended_at) for slot in execution.slots.values()))
        sender, receiver = (execution.slots[slot].take_traffic() for slot in (0, 1))
        assert sender is not None
        assert receiver is not None
        (sent,), (received,) = sender.channels, receiver.channels
        assert 0.8 < sent.max_queued / sender.credit <= 1.01
        assert (sent.slot, sent.queued, received.slot, received.waiting) == (1, 0, 0, 0)
        assert sent.blocked > 0
        assert 0.4 < sent.back_pressured < 10
        assert received.max_waiting == 100 << 20
        assert received.received == sent.sent > 100 << 20
        # The maximum is reset, and not reported again at once.
        assert execution.slots[0].take_traffic() is None
        source, sink = SubtaskTraffic.of(sender, 0), SubtaskTraffic.of(receiver, 1)
        # The sender was backpressured until all was received, and then until it was processed.
        assert source.back_pressured >= sent.back_pressured
        assert source.out_usage > 0.8
        assert sink.back_pressured == 0
        assert sink.in_usage == 100 / 8
        assert SubtaskTraffic.of(receiver, 0).busy > 0.4
        for subtask in (source, sink):
            assert min(subtask.busy, subtask.idle) >= 0
        assert source.busy + source.idle + source.back_pressured == pytest.approx(sender.elapsed)


def test_slot_reports_busiest_channels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slot_connections, "MAX_REPORTED_CHANNELS", 2)

    def send(slot: int, task: LevelTask, messages: list[bytes]) -> Iterator[tuple[int, bytes]]:
        if task.level == 0 and slot == 0:
            for other, size in ((1, 1), (2, 5), (3, 3)):
                yield other, bytes(size << 20)
        elif task.level == 1:
            yield slot, b"%d" % len(b"".join(messages))

    with ThreadedExecution([4, 4], send) as execution:
        execution.start()
        execution.run(1)
        reported = execution.slots[0].take_traffic()
        assert reported is not None
        assert [(c.slot, c.sent >> 20) for c in reported.channels] == [(2, 5), (3, 3)]


def test_slow_level_backpressures_upstream_but_pause_does_not() -> None:
    """Slot 0 alone has a second level, which takes 0.2 s; then there is no epoch for 0.3 s."""

    def slow_end(slot: int, task: LevelTask, messages: list[bytes]) -> Iterator[tuple[int, bytes]]:
        if task.level == 0:
            yield 0, b"%d" % slot
        else:
            time.sleep(0.2)
            yield slot, b"".join(sorted(messages))

    with ThreadedExecution([2, 1], slow_end) as execution:
        execution.start()
        for epoch in (1, 2):
            assert execution.run(epoch) == [b"01"]
            time.sleep(0.3)
        execution.run(3)
        time.sleep(0.05)
        reported = [execution.slots[slot].take_traffic() for slot in (0, 1)]
        sources = [SubtaskTraffic.of(traffic, 0) for traffic in reported if traffic is not None]
        sink = SubtaskTraffic.of(reported[0], 1) if reported[0] is not None else None
    assert sink is not None
    assert 0.6 <= sink.busy < 1.0
    assert sink.back_pressured == 0
    assert 0.6 <= sources[0].back_pressured < 1.0
    # It learns the end of the last epoch with the next one.
    assert 0.4 <= sources[1].back_pressured < 0.7
    for source in sources:
        assert source.busy < 0.1
        assert source.idle > 0.55


# --- failures


def test_exchange_fails_epoch_when_user_code_raises() -> None:
    def raising(slot: int, task: LevelTask, messages: list[bytes]) -> Iterator[tuple[int, bytes]]:
        if slot == 1:
            raise ValueError("Boom")
        yield from ring(slot, task, messages)

    with ThreadedExecution([2, 2], raising) as execution:
        execution.start()
        cause = execution.run_failing().cause
        assert cause.kind is FailureKind.RAISED
        assert cause.text == "ValueError: Boom"
        # The execution runs no other epoch.
        assert execution.run_failing(2).cause == cause


class ScriptedSlot:
    """The only slot of an execution; it sends the frames of a test and records all received frames."""

    def __init__(self, address: Address) -> None:
        self.link = Connection.to(address, SECRET)
        self.poller = Poller()
        self.received: list[Frame] = []
        self.has_ended = False
        self.poller.add(self.link, self.received.append, self._end)

    def _end(self) -> None:
        self.has_ended = True

    def send(self, *frames: Frame) -> None:
        for frame in frames:
            self.link.push(frame)
        self.poller.until(lambda: not self.link.has_to_send and self.link.is_authenticated, 5)

    def receive(self, kind: Kind) -> None:
        assert self.poller.until(lambda: any(f.kind is kind for f in self.received), 5)


REGISTRATION = Frame(Kind.REGISTER, payload=b'{"slot": 0, "address": "/nowhere"}')


def run_scripted_slot(script: Callable[[ScriptedSlot], None]) -> tuple[Exchange, threading.Thread]:
    exchange = Exchange(1, 1, SECRET, None)

    def play() -> None:
        slot = ScriptedSlot(exchange.address)
        script(slot)
        slot.link.close()

    thread = threading.Thread(target=play, daemon=True)
    thread.start()
    return exchange, thread


def register(slot: ScriptedSlot) -> None:
    slot.send(REGISTRATION)
    slot.receive(Kind.ROSTER)


def start_epoch(slot: ScriptedSlot) -> None:
    register(slot)
    slot.send(Frame(Kind.CONNECTED))
    slot.receive(Kind.EPOCH)


def disconnect_within_report(slot: ScriptedSlot) -> None:
    start_epoch(slot)
    slot.link.socket.setblocking(True)
    slot.link.socket.sendall(b"\x03" + bytes(8) + b"\x00\x00" + (1000).to_bytes(8, "big") + b"half")


def send_unknown_frame(slot: ScriptedSlot) -> None:
    start_epoch(slot)
    slot.link.socket.setblocking(True)
    slot.link.socket.sendall(b"\xff" + bytes(18))
    slot.poller.until(lambda: slot.has_ended, 5)


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        pytest.param(lambda slot: slot.send(REGISTRATION), FailureKind.DIED, id="registered"),
        pytest.param(register, FailureKind.DIED, id="connecting to slots"),
        pytest.param(start_epoch, FailureKind.DIED, id="running"),
        pytest.param(disconnect_within_report, FailureKind.DIED, id="within a frame"),
        pytest.param(send_unknown_frame, FailureKind.PROTOCOL, id="unknown frame"),
    ],
)
def test_exchange_detects_lost_slot_at_once(script: Callable[[ScriptedSlot], None], kind: FailureKind) -> None:
    exchange, thread = run_scripted_slot(script)
    started = time.monotonic()
    with pytest.raises(ExchangeFailed) as caught:
        exchange.run(1, b"tasks")
    assert time.monotonic() - started < 1
    assert caught.value.cause.kind is kind
    exchange.close()
    thread.join(10)


def test_exchange_rejects_duplicate_report() -> None:
    def report_twice(slot: ScriptedSlot) -> None:
        start_epoch(slot)
        slot.send(Frame(Kind.REPORT, 1, 0, b"r"))
        slot.send(Frame(Kind.REPORT, 1, 0, b"r"))
        slot.poller.until(lambda: slot.has_ended, 5)

    exchange, thread = run_scripted_slot(report_twice)
    assert [bytes(r) for r in exchange.run(1, b"tasks")] == [b"r"]
    with pytest.raises(ExchangeFailed) as caught:
        exchange.run(2, b"tasks")
    assert caught.value.cause.kind is FailureKind.PROTOCOL
    exchange.close()
    thread.join(10)


def test_exchange_ignores_exit_of_stopped_slot() -> None:
    def report_and_stop(slot: ScriptedSlot) -> None:
        start_epoch(slot)
        slot.send(Frame(Kind.REPORT, 1, 0, b"r"))
        slot.receive(Kind.STOP)

    exchange, thread = run_scripted_slot(report_and_stop)
    exchange.run(1, b"tasks")
    exchange.release()
    assert exchange.serve_until(lambda: not thread.is_alive(), 5)
    exchange.close()


def test_exchange_fails_epoch_when_slots_do_not_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_module, "START_SECONDS", 0.2)
    with ThreadedExecution([2, 2], ring) as execution:
        execution.start(without=1)
        cause = execution.run_failing().cause
        assert cause.kind is FailureKind.START_TIMEOUT
        assert "1 of 2 slots are missing, the first is 1" in cause.text


@pytest.mark.parametrize("when", ["while connecting", "while running"])
def test_slot_reports_broken_connection_to_another_slot(when: str) -> None:
    """Slot 1 is scripted, and its connection to the driver stays open, so only slot 0 can detect the failure."""
    exchange = Exchange(2, 2, SECRET, None)

    def play() -> None:
        assert isinstance(exchange.address, str)
        listener = listen(f"{exchange.address}-1")
        slot = ScriptedSlot(exchange.address)
        slot.send(Frame(Kind.REGISTER, payload=b'{"slot": 1, "address": "%s"}' % str(address_of(listener)).encode()))
        slot.receive(Kind.ROSTER)
        connection = None
        while connection is None:
            connection = accept(listener)
        if when == "while running":
            link = Connection(connection, SECRET, Side.SERVER)
            slot.poller.add(link, lambda frame: None, lambda: None)
            slot.send(Frame(Kind.CONNECTED))
            slot.receive(Kind.EPOCH)
            slot.poller.unregister(connection.fileno())
        connection.close()
        slot.poller.until(lambda: slot.has_ended, 5)
        listener.close()
        slot.link.close()

    execution = ThreadedExecution([2, 2], ring)
    execution.exchange.close()
    execution.exchange = exchange
    thread = threading.Thread(target=play, daemon=True)
    with execution:
        thread.start()
        execution.start(without=1)
        cause = execution.run_failing().cause
        assert cause.kind is FailureKind.DIED
        assert cause.text.startswith("slot 0: slot 1 disconnected")
    thread.join(10)


@pytest.mark.parametrize("when", ["before connecting", "between epochs", "in an epoch"])
def test_slots_exit_when_driver_disconnects(when: str) -> None:
    entered, leave = threading.Event(), threading.Event()

    def block_in_epoch(slot: int, task: LevelTask, messages: list[bytes]) -> Iterator[tuple[int, bytes]]:
        if when == "in an epoch" and slot == 1 and task.level == 0:
            entered.set()
            leave.wait(5)
        yield from ring(slot, task, messages)

    with ThreadedExecution([2, 2], block_in_epoch) as execution:
        execution.start()
        wait_until(lambda: len(execution.slots) == 2)
        if when == "between epochs":
            execution.run(1)
        elif when == "in an epoch":
            epoch_thread = threading.Thread(target=execution.run_failing)
            epoch_thread.start()
            entered.wait(5)
            execution.exchange.notify(CancelRequested())
            epoch_thread.join(5)
            leave.set()
        execution.is_open = False
        execution.exchange.close()
        for thread in execution.threads:
            thread.join(10)
            assert not thread.is_alive()
