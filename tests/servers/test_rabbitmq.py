"""RabbitMQ, with a real server."""

from __future__ import annotations

import gc
import itertools
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from millstream.common import Configuration, Row, SimpleStringSchema, Types
from millstream.connectors.rabbitmq.connection import RabbitFailure
from millstream.datastream.connectors.base import BadRecords
from millstream.datastream.connectors.rabbitmq import RMQConnectionConfig, RMQSink, RMQSource
from millstream.datastream.formats.json import JsonRowDeserializationSchema
from millstream.testing import CollectSink, LocalEnvironment
from millstream.testing.servers.rabbitmq import RabbitMqServer
from tests.conftest import Env
from tests.support.helpers import BreaksOnce, wait_until

_names = itertools.count()
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture(autouse=True)
def _what_pika_leaves() -> Iterator[None]:
    """Collect the sockets that pika leaves to the garbage collector when no server answers."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture
def queue() -> str:
    return f"queue {next(_names)}"


def where(server: RabbitMqServer, **parts: Any) -> RMQConnectionConfig:
    builder = RMQConnectionConfig.Builder().set_host("127.0.0.1").set_port(parts.get("port", server.port))
    builder.set_virtual_host(parts.get("virtual_host", "/")).set_user_name("guest")
    return builder.set_password(parts.get("password", "guest")).set_connection_timeout(3000).build()


def reading(server: RabbitMqServer, queue: str, ids: bool = True) -> RMQSource:
    return RMQSource(where(server), queue, ids, SimpleStringSchema())


def publish(server: RabbitMqServer, queue: str, bodies: Iterable[str], ids: bool = True) -> None:
    import pika

    connection = server.connect()
    channel = connection.channel()
    channel.queue_declare(queue, durable=True)
    for body in bodies:
        channel.basic_publish(
            "", queue, body.encode(), pika.BasicProperties(correlation_id=body if ids else None, delivery_mode=2)
        )
    connection.close()


def held(server: RabbitMqServer, queue: str) -> list[bytes]:
    """Consume all messages of a queue."""
    connection = server.connect()
    channel = connection.channel()
    channel.queue_declare(queue, durable=True)
    messages = []
    while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
        messages.append(got[2])
    connection.close()
    return messages


@pytest.mark.parametrize("failure", ["raise", "kill"])
def test_rabbitmq_messages_count_once_after_worker_failures(
    env: Env, rabbitmq: RabbitMqServer, queue: str, tmp_path: Path, failure: str
) -> None:
    out = f"{queue} out"
    publish(rabbitmq, queue, [str(i) for i in range(2000)])
    env.enable_checkpointing(100)
    config: Any = env._config
    config.set_string("restart-strategy.type", "fixed-delay")
    config.set_string("restart-strategy.fixed-delay.attempts", "5")
    config.set_string("restart-strategy.fixed-delay.delay", "100 ms")
    broken = env.add_source(reading(rabbitmq, queue)).map(BreaksOnce(tmp_path / "flag", "1500", failure))
    counts = broken.map(lambda v: (v, 1)).key_by(lambda p: p[0]).reduce(lambda a, b: (a[0], a[1] + b[1]))
    counts.map(lambda p: f"{p[0]} {p[1]}").add_sink(RMQSink(where(rabbitmq), out, SimpleStringSchema()))
    job = env.execute_async()
    messages: list[bytes] = []

    def all_came() -> bool:
        messages.extend(held(rabbitmq, out))
        return {f"{i} 1".encode() for i in range(2000)} <= set(messages)

    try:
        wait_until(all_came)
        assert (tmp_path / "flag").exists()
        # A message processed twice would show a higher count; some outputs are written twice.
        assert {f.split()[1] for f in messages} == {b"1"}
    finally:
        job.cancel().result()


def polled(enumerator: Any, count: int) -> list[bytes]:
    """Return the next assigned messages, and check that no other message arrives."""
    received: list[bytes] = []

    def deal() -> bool:
        for split_ranges in enumerator.poll(100, 0.0).split_ranges.values():
            received.extend(message for _, messages in split_ranges for message in messages)
        return len(received) >= count

    wait_until(deal)
    time.sleep(0.3)
    deal()
    return received


def undelivered(server: RabbitMqServer, queue: str) -> int:
    """Return the number of undelivered messages of a queue."""
    connection = server.connect()
    count = connection.channel().queue_declare(queue, passive=True).method.message_count
    connection.close()
    return int(count)


@pytest.mark.parametrize("ids", [True, False])
def test_rabbitmq_source_acknowledges_on_checkpoint_only(rabbitmq: RabbitMqServer, queue: str, ids: bool) -> None:
    publish(rabbitmq, queue, [str(i) for i in range(4)], ids)
    source = reading(rabbitmq, queue, ids)
    first = source.create_enumerator(1)
    assert polled(first, 4) == [b"0", b"1", b"2", b"3"]
    complete = first.snapshot()
    publish(rabbitmq, queue, ["4", "5"], ids)
    assert polled(first, 2) == [b"4", b"5"]
    # The driver dies when the checkpoint is complete, before it notifies the source.
    first.close()
    assert undelivered(rabbitmq, queue) == 6
    second = source.create_enumerator(1, complete)
    assert polled(second, 2 if ids else 6) == ([] if ids else [b"0", b"1", b"2", b"3"]) + [b"4", b"5"]
    second.committed(second.snapshot())
    second.close()
    assert undelivered(rabbitmq, queue) == 0


@pytest.mark.timeout(240)
def test_rabbitmq_source_waits_for_killed_server(rabbitmq: RabbitMqServer, queue: str) -> None:
    publish(rabbitmq, queue, [str(i) for i in range(100)])
    settings = {
        "execution.checkpointing.interval": "100 ms",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "1000",
        "restart-strategy.fixed-delay.delay": "200 ms",
    }
    env, sink = LocalEnvironment(Configuration.from_dict(settings)), CollectSink()
    pairs = env.add_source(reading(rabbitmq, queue)).map(lambda v: (v, 1)).key_by(lambda p: p[0])
    pairs.reduce(lambda a, b: (a[0], a[1] + b[1])).sink_to(sink)
    job = env.execute_async()
    try:
        wait_until(lambda: len(sink.results()) == 100)
        rabbitmq.kill()
        rabbitmq.start()
        publish(rabbitmq, queue, ["and on"])
        wait_until(lambda: ("and on", 1) in sink.results())
    finally:
        job.cancel().result()
    assert Counter(count for _, count in sink.results()) == {1: 101}


def test_rabbitmq_source_reports_or_skips_bad_messages(rabbitmq: RabbitMqServer, queue: str) -> None:
    row = Types.ROW_NAMED(["n"], [Types.INT()])
    schema = JsonRowDeserializationSchema.builder().type_info(row).build()
    source = RMQSource(where(rabbitmq), queue, False, schema)
    publish(rabbitmq, queue, ['{"n": 1}', "not json"], ids=False)
    env = LocalEnvironment()
    env.add_source(source).print()
    with pytest.raises(Exception, match=f"record 1 of queue '{queue}'.*not json"):
        env.execute()
    env, sink = LocalEnvironment(), CollectSink()
    env.add_source(source.on_bad_records(BadRecords.skip())).sink_to(sink)
    job = env.execute_async()
    wait_until(lambda: sink.results() == [Row(n=1)])
    job.cancel().result()
    publish(rabbitmq, queue, ["x"], ids=False)
    env = LocalEnvironment()
    env.add_source(reading(rabbitmq, queue)).print()
    with pytest.raises(Exception, match=f"queue '{queue}' .*has no correlation id.*use_correlation_id=False"):
        env.execute()
    # The message is available to the next consumer.
    wait_until(lambda: held(rabbitmq, queue) == [b"x"])


def test_rabbitmq_source_reports_errors_in_bounded_time(rabbitmq: RabbitMqServer, queue: str) -> None:
    wrong = {
        "rejects this user .*check user name": where(rabbitmq, password="wrong"),
        "to the virtual host .*check its name": where(rabbitmq, virtual_host="nowhere"),
        "127.0.0.1:9, virtual host '/' does not answer .*check host and port": where(rabbitmq, port=9),
    }
    for message, config in wrong.items():
        began = time.monotonic()
        env = LocalEnvironment()
        env.add_source(RMQSource(config, queue, False, SimpleStringSchema())).print()
        with pytest.raises(RabbitFailure, match=message):
            env.execute()
        env = LocalEnvironment()
        env.from_collection(["a"]).add_sink(RMQSink(config, queue, SimpleStringSchema()))
        with pytest.raises(RabbitFailure, match=message):
            env.execute()
        assert time.monotonic() - began < 60


def test_rabbitmq_source_reports_deleted_queue(rabbitmq: RabbitMqServer, queue: str) -> None:
    env, sink = LocalEnvironment(), CollectSink()
    env.add_source(reading(rabbitmq, queue)).sink_to(sink)
    job = env.execute_async()
    publish(rabbitmq, queue, ["a"])
    wait_until(lambda: sink.results() == ["a"])
    connection = rabbitmq.connect()
    connection.channel().queue_delete(queue)
    connection.close()
    with pytest.raises(Exception, match=f"RMQSource: queue '{queue}' .*deleted"):
        job.get_job_execution_result().result()
