"""Sources that receive records at the driver: sockets and HTTP."""

from __future__ import annotations

import json
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from millstream.common import Types
from millstream.common.configuration import Configuration
from millstream.common.errors import InvalidProgramError, JobExecutionError
from millstream.connectors.push_source import PushBuffer
from millstream.datastream.connectors.base import BadRecords
from millstream.datastream.connectors.http_source import HttpSource
from millstream.datastream.connectors.socket_source import SocketTextSource
from millstream.datastream.formats.json import JsonRowDeserializationSchema
from millstream.testing import CollectSink, LocalEnvironment
from tests.support.helpers import wait_until


def test_push_buffer_retains_records_until_discarded() -> None:
    buffer = PushBuffer(3)
    assert buffer.put(["a", "b"], wait=False) == 2
    assert buffer.put(["c", "d"], wait=False) is None
    assert buffer.read(0, 10) == ["a", "b"] and buffer.read(1, 10) == ["b"] and buffer.count(1) == 1
    buffer.discard(1)
    assert buffer.put(["c", "d"], wait=False) == 4
    assert buffer.read(1, 2) == ["b", "c"]
    with pytest.raises(JobExecutionError, match="are lost"):
        buffer.read(0, 1)
    # More than the capacity.
    buffer.discard(4)
    assert buffer.put(list("efgh"), wait=False) == 8


@contextmanager
def serving(*messages: bytes) -> Iterator[int]:
    """Run a server that sends fixed data to each client and disconnects."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        for message in messages:
            connection, _ = server.accept()
            with connection:
                connection.sendall(message)
        server.close()

    thread = threading.Thread(target=serve)
    thread.start()
    yield server.getsockname()[1]
    thread.join(10)


def read_socket(port: int, **options: Any) -> list[str]:
    env, sink = LocalEnvironment(), CollectSink()
    env.from_source(SocketTextSource("127.0.0.1", port, **options)).sink_to(sink)
    env.execute()
    return list(sink.results())


def test_socket_source_reads_lines_until_close() -> None:
    with serving("one\r\ntwo\nzwölf".encode()) as port:
        assert read_socket(port) == ["one", "two", "zwölf"]
    with serving(b"a;b;", b"c") as port:
        assert read_socket(port, delimiter=";", max_retries=1) == ["a", "b", "c"]


def test_socket_source_reports_unreachable_server() -> None:
    with pytest.raises(JobExecutionError, match="127.0.0.1:9 cannot be read"):
        read_socket(9)
    with pytest.raises(InvalidProgramError, match="is no port"):
        SocketTextSource("localhost", 0)


def post(address: str, body: bytes, **headers: str) -> tuple[int, Any]:
    request = urllib.request.Request(address, body, {k.replace("_", "-"): v for k, v in headers.items()})
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as e:
        return e.code, json.load(e)


def test_http_source_emits_posted_records() -> None:
    row = JsonRowDeserializationSchema.builder().type_info(Types.ROW_NAMED(["n"], [Types.INT()])).build()
    source = HttpSource(0, "/in", row, token="secret", max_body_bytes=100).on_bad_records(BadRecords.skip())
    env, sink = LocalEnvironment(), CollectSink()
    env.from_source(source).map(lambda r: r["n"]).sink_to(sink)
    job = env.execute_async()
    wait_until(lambda: bool(source.address))
    known = {"Authorization": "Bearer secret"}
    assert post(source.address, b'{"n": 1}', **known) == (200, {"accepted": 1})
    assert post(source.address, b'{"n": 2}\n{"n": 3}\nbad\n', Content_Type="application/x-ndjson", **known)[0] == 200
    assert post(source.address, b'{"n": 9}')[0] == 401
    assert post(source.address, b" " * 101, **known)[0] == 413
    wait_until(lambda: len(sink.results()) == 3)
    job.cancel().result()
    assert sink.results() == [1, 2, 3]


def test_http_source_replays_posted_records_after_failure(tmp_path: Path) -> None:
    failed = tmp_path / "failed"

    def fails_once(text: str) -> str:
        if text == "b" and not failed.exists():
            failed.touch()
            raise ValueError("once")
        return text

    settings = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.delay": "50 ms"}
    env, sink = LocalEnvironment(Configuration.from_dict(settings)), CollectSink()
    env.enable_checkpointing(50)
    source = HttpSource(0, acknowledge_processed=True)
    env.from_source(source).map(fails_once).sink_to(sink)
    job = env.execute_async()
    wait_until(lambda: bool(source.address))
    for text in ("a", "b", "c"):
        assert post(source.address, text.encode())[0] == 200
        # Answered only after its checkpoint, which is complete by now.
        assert sink.results()[-1] == text
    job.cancel().result()
    assert failed.exists() and sink.results() == ["a", "b", "c"]


def test_http_source_returns_503_when_buffer_is_full() -> None:
    source = HttpSource(0, capacity=1)
    env = LocalEnvironment()
    env.enable_checkpointing(3_600_000)
    env.from_source(source).print()
    job = env.execute_async()
    wait_until(lambda: bool(source.address))
    assert post(source.address, b"1")[0] == 200
    assert post(source.address, b"2") == (503, {"error": "the buffer is full: retry later"})
    job.cancel().result()
