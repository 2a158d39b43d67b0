"""Records as documents in a real Elasticsearch; with MILLSTREAM_TEST_SEARCH=opensearch in OpenSearch."""

from __future__ import annotations

import datetime
import itertools
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from millstream.common import Configuration, Row, RowKind
from millstream.common.errors import InvalidProgramError
from millstream.datastream.connectors.base import DeliveryGuarantee
from millstream.datastream.connectors.elasticsearch import (
    Elasticsearch7SinkBuilder,
    ElasticsearchEmitter,
    FlushBackoffType,
)
from millstream.testing import LocalEnvironment
from millstream.testing.servers.search import ElasticsearchServer, OpenSearchServer
from tests.conftest import Env

Server = ElasticsearchServer | OpenSearchServer
_names = itertools.count()


@pytest.fixture
def index() -> str:
    return f"index-{next(_names)}"


def writing(host: str, emitter: ElasticsearchEmitter) -> Elasticsearch7SinkBuilder:
    builder = Elasticsearch7SinkBuilder().set_hosts(host).set_emitter(emitter)
    return builder.set_delivery_guarantee(DeliveryGuarantee.AT_LEAST_ONCE)


def write(records: list[Any], builder: Elasticsearch7SinkBuilder) -> None:
    env = LocalEnvironment()
    env.from_collection(records).sink_to(builder.build())
    env.execute()


def test_elasticsearch_sink_keeps_last_document_per_id(search_server: Server, index: str) -> None:
    when = datetime.datetime(2024, 5, 1, 12, 30)
    records: list[Any] = [
        {"id": "one", "name": "Ann", "when": when, "price": Decimal("1.5"), "tags": ["a", "b"], "more": {"c": None}},
        {"id": "two / ä", "name": "Bob"},
        Row(id="one", name="Änn"),
    ]
    keyed = ElasticsearchEmitter.static_index(index, "id")
    write(records[:2], writing(search_server.host, keyed))
    first = {**records[0], "when": "2024-05-01T12:30:00", "price": 1.5}
    assert search_server.documents(index) == {"one": first, "two / ä": {"id": "two / ä", "name": "Bob"}}
    # One request per record, two records per request, all in one.
    for max_actions in (1, 2, -1):
        write([*records, *records[2:]], writing(search_server.host, keyed).set_bulk_flush_max_actions(max_actions))
        assert search_server.documents(index)["one"] == {"id": "one", "name": "Änn"}
    unkeyed = ElasticsearchEmitter.static_index(f"{index}-unkeyed")
    write([{"n": 1}, {"n": 1}], writing(search_server.host, unkeyed).set_bulk_flush_max_size_mb(1))
    assert list(search_server.documents(f"{index}-unkeyed").values()) == [{"n": 1}, {"n": 1}]


def test_elasticsearch_sink_reads_index_from_field(search_server: Server, index: str) -> None:
    records = [{"id": i, "shop": f"{index}-{i % 2}"} for i in range(4)]
    write(records, writing(search_server.host, ElasticsearchEmitter.dynamic_index("shop", "id")))
    assert search_server.documents(f"{index}-1") == {"1": records[1], "3": records[3]}


def test_elasticsearch_sink_deletes_documents_on_retraction(search_server: Server, index: str) -> None:
    def row(kind: RowKind, key: int, n: int) -> Row:
        result = Row(id=key, n=n)
        result.set_row_kind(kind)
        return result

    changes = [row(RowKind.INSERT, 1, 1), row(RowKind.INSERT, 2, 2), row(RowKind.INSERT, 3, 3)]
    changes += [row(RowKind.UPDATE_BEFORE, 1, 1), row(RowKind.UPDATE_AFTER, 1, 10)]
    # A document whose key changes.
    changes += [row(RowKind.UPDATE_BEFORE, 2, 2), row(RowKind.UPDATE_AFTER, 4, 2)]
    # A missing document, as when a deletion is replayed after a failure.
    changes += [row(RowKind.DELETE, 3, 3), row(RowKind.DELETE, 5, 5)]
    for max_actions in (1, 1000):
        keyed = ElasticsearchEmitter.static_index(f"{index}-{max_actions}", "id")
        write(changes, writing(search_server.host, keyed).set_bulk_flush_max_actions(max_actions))
        assert search_server.documents(f"{index}-{max_actions}") == {"1": {"id": 1, "n": 10}, "4": {"id": 4, "n": 2}}
    with pytest.raises(Exception, match="deletes a document without an id"):
        write(changes, writing(search_server.host, ElasticsearchEmitter.static_index(index)))


class Dies:
    """Kills its process once."""

    def __init__(self, flag: Path) -> None:
        self._flag = flag

    def __call__(self, record: dict[str, int]) -> dict[str, int]:
        if record["id"] == 700 and not self._flag.exists():
            self._flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return record


def test_elasticsearch_sink_writes_all_documents_after_worker_kill(
    config: Configuration, search_server: Server, index: str, tmp_path: Path
) -> None:
    config.set_string("execution.checkpointing.interval", "100 ms")
    config.set_string("restart-strategy.type", "fixed-delay")
    config.set_string("restart-strategy.fixed-delay.delay", "100 ms")
    env = Env.get_execution_environment(config)
    records = env.from_collection([{"id": i, "twice": 2 * i} for i in range(1000)]).map(Dies(tmp_path / "flag"))
    keyed = ElasticsearchEmitter.static_index(index, "id")
    records.sink_to(writing(search_server.host, keyed).set_bulk_flush_max_actions(100).build())
    env.execute()
    assert (tmp_path / "flag").exists()
    assert search_server.documents(index) == {str(i): {"id": i, "twice": 2 * i} for i in range(1000)}


def test_elasticsearch_sink_waits_for_unavailable_server(search_server: Server, index: str, tmp_path: Path) -> None:
    reached, away = tmp_path / "reached", tmp_path / "away"

    def wait(i: int) -> dict[str, int]:
        if i == 1:
            reached.touch()
            until(away.exists)
        return {"id": i}

    env = LocalEnvironment()
    builder = writing(search_server.host, ElasticsearchEmitter.static_index(index, "id")).set_bulk_flush_max_actions(1)
    builder.set_bulk_flush_backoff_strategy(FlushBackoffType.CONSTANT, 600, 100)
    env.from_collection(range(3)).map(wait).sink_to(builder.build())
    job = env.execute_async()
    until(reached.exists)
    search_server.kill()
    away.touch()
    search_server.start()
    job.get_job_execution_result().result(60)
    assert sorted(search_server.documents(index)) == ["0", "1", "2"]


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_elasticsearch_sink_reports_rejected_document_in_one_sentence(search_server: Server, index: str) -> None:
    keyed = ElasticsearchEmitter.static_index(index, "id")

    def refused(record: Any, match: str, emitter: ElasticsearchEmitter = keyed) -> None:
        with pytest.raises(Exception, match=match):
            write([record], writing(search_server.host, emitter))

    write([{"id": 1, "n": 5}], writing(search_server.host, keyed))
    refused({"id": 2, "n": "five"}, rf"index '{index}' rejects .*\"five\".*: failed to parse .*For input")
    refused({"id": 2}, "index 'Capital' rejects .*: .*lowercase", ElasticsearchEmitter.static_index("Capital"))
    refused({"n": 2}, "has no value in field 'id'")
    refused({"id": None}, "has no value in field 'id'")
    refused(5, "takes dicts, or Rows with names, not 5")
    refused(Row(1, 2), "takes dicts, or Rows with names, not ")
    refused({"id": 1, "x": float("nan")}, "cannot be written as JSON: Out of range float")
    refused({"id": 1, "x": {1, 2}}, "cannot be written as JSON: {1, 2} is a set")
    refused({"id": 1, "x": Decimal("0.12345678901234567890")}, "has more digits than a JSON number")
    assert search_server.documents(index) == {"1": {"id": 1, "n": 5}}


def test_elasticsearch_sink_builder_rejects_invalid_arguments() -> None:
    keyed = ElasticsearchEmitter.static_index("i")
    with pytest.raises(InvalidProgramError, match=r"set_hosts\(...\)"):
        Elasticsearch7SinkBuilder().set_emitter(keyed).build()
    with pytest.raises(InvalidProgramError, match=r"set_emitter\(...\)"):
        Elasticsearch7SinkBuilder().set_hosts("a:1").build()
    with pytest.raises(InvalidProgramError, match="are no addresses"):
        Elasticsearch7SinkBuilder().set_hosts("ftp://a:1")
    with pytest.raises(InvalidProgramError, match="EXACTLY_ONCE is not supported"):
        Elasticsearch7SinkBuilder().set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
    with pytest.raises(InvalidProgramError, match=r"set_bulk_flush_max_actions\(0\) must be larger than 0, or -1"):
        Elasticsearch7SinkBuilder().set_bulk_flush_max_actions(0)
    began = time.monotonic()
    with pytest.raises(Exception, match=r"127\.0\.0\.1:9, 127\.0\.0\.1:10 does not answer: .*Check set_hosts"):
        write([{}], Elasticsearch7SinkBuilder().set_hosts(["127.0.0.1:9", "http://127.0.0.1:10"]).set_emitter(keyed))
    assert time.monotonic() - began < 30


@contextmanager
def answering(*answers: tuple[int, Any]) -> Iterator[tuple[str, list[tuple[str, bytes, str | None]]]]:
    """A server with scripted responses, for failures that a real one cannot produce; records its requests."""
    left, got = iter(answers), list[tuple[str, bytes, str | None]]()

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            got.append((self.path, body, self.headers.get("Authorization")))
            status, content = next(left)
            text = (content if isinstance(content, str) else json.dumps(content)).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = _answer

        def log_message(self, *args: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}", got
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_elasticsearch_sink_retries_only_rejected_documents() -> None:
    busy = {"status": 429, "_index": "i", "error": {"type": "x", "reason": "queue is full"}}
    some = {"errors": True, "items": [{"index": {"status": 201, "_index": "i"}}, {"index": busy}]}
    none = {"errors": True, "items": [{"index": busy}, {"index": busy}]}
    fine = {"errors": False, "items": []}
    keyed = ElasticsearchEmitter.static_index("i", "id")
    with answering((200, {}), (200, some), (503, "starting"), (200, fine)) as (host, got):
        patient = writing(host, keyed).set_connection_username("ann").set_connection_password("x")
        patient.set_connection_path_prefix("/es/").set_bulk_flush_backoff_strategy(FlushBackoffType.EXPONENTIAL, 2, 10)
        write([{"id": 1}, {"id": 2, "n": 0}, {"id": 2}], patient)
        assert [path for path, *_ in got] == ["/es/", "/es/_bulk", "/es/_bulk", "/es/_bulk"]
        # Only the last action per id: a repeated earlier action would arrive after it.
        assert [json.loads(line) for line in got[1][1].splitlines()[1::2]] == [{"id": 1}, {"id": 2}]
        assert got[2][1] == got[3][1] == b'{"index": {"_index": "i", "_id": "2"}}\n{"id": 2}\n'
        assert {user for *_, user in got} == {"Basic YW5uOng="}
    with (
        answering((200, {}), (200, none)) as (host, _),
        pytest.raises(Exception, match="does not accept .* queue is full"),
    ):
        write([{"id": 1}, {"id": 2}], writing(host, keyed))
    # A missing document needs no deletion, also if another action fails.
    removed = Row(id=1)
    removed.set_row_kind(RowKind.DELETE)
    mixed = {"errors": True, "items": [{"delete": {"status": 404, "_index": "i"}}, {"index": busy}]}
    with answering((200, {}), (200, mixed), (200, fine)) as (host, got):
        backoff = writing(host, keyed).set_bulk_flush_backoff_strategy(FlushBackoffType.CONSTANT, 2, 10)
        write([removed, Row(id=2)], backoff)
        assert got[2][1] == b'{"index": {"_index": "i", "_id": "2"}}\n{"id": 2}\n'


def test_elasticsearch_sink_fills_requests_up_to_limit() -> None:
    fine = {"errors": False, "items": []}
    unkeyed = ElasticsearchEmitter.static_index("i")
    for records, sizes, limit in (
        ([{"n": i} for i in range(5)], [2, 2, 1], lambda b: b.set_bulk_flush_max_actions(2)),
        ([{"n": "x" * 600_000}] * 3, [2, 1], lambda b: b.set_bulk_flush_max_size_mb(1)),
        ([{"n": i} for i in range(1001)], [1000, 1], lambda b: b),
        ([{"n": i} for i in range(1001)], [1001], lambda b: b.set_bulk_flush_max_actions(-1)),
    ):
        with answering(*[(200, {})], *[(200, fine)] * 3) as (host, got):
            write(records, limit(writing(host, unkeyed)))  # type: ignore[no-untyped-call]
            assert [len(body.splitlines()) // 2 for _, body, _ in got[1:]] == sizes


def test_elasticsearch_sink_reports_bad_credentials_and_other_servers() -> None:
    keyed = ElasticsearchEmitter.static_index("i", "id")
    with (
        answering((401, {"error": {"reason": "missing authentication"}})) as (host, _),
        pytest.raises(Exception, match=r"rejects this user \(401\): check set_connection_username"),
    ):
        write([{"id": 1}], writing(host, keyed))
    with (
        answering((200, "<html>hello")) as (host, _),
        pytest.raises(Exception, match="is not Elasticsearch, its response begins with '<html>hello'"),
    ):
        write([{"id": 1}], writing(host, keyed))
