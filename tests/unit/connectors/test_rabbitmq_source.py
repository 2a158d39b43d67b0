"""RabbitMQ messages: assignment, redelivery and acknowledgement."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from millstream.common.errors import InvalidProgramError
from millstream.connectors.rabbitmq.source import Message, MessageBuffer
from millstream.datastream.connectors.rabbitmq import RMQConnectionConfig


class Queue:
    """A queue with one consumer; unacknowledged messages return to the head of the queue on disconnect."""

    def __init__(self, bodies: list[int]) -> None:
        self._pending: list[tuple[int, bool]] = [(body, False) for body in bodies]
        self._sent: dict[int, int] = {}

    def connect(self) -> None:
        self._pending = [(body, True) for body in self._sent.values()] + self._pending
        self._sent = {}

    def send(self, buffer: MessageBuffer) -> bool:
        """Send one message; return whether there was one."""
        if not self._pending:
            return False
        body, again = self._pending.pop(0)
        tag = max(self._sent, default=self._last) + 1
        self._last, self._sent[tag] = tag, body
        if buffer.add(Message(tag, f"id {body}", b"%d" % body), again):
            del self._sent[tag]
        return True

    _last = 0

    def acknowledge(self, tag: int) -> None:
        self._sent = {t: body for t, body in self._sent.items() if t > tag}

    @property
    def is_empty(self) -> bool:
        return not self._pending and not self._sent


@pytest.mark.parametrize("seed", range(200))
def test_rabbitmq_buffer_is_exactly_once_for_random_failures(seed: int) -> None:
    """The execution ends anywhere, also between a checkpoint's end and its acknowledgement."""
    random = Random(seed)
    messages = list(range(40))
    queue = Queue(messages)
    # A checkpoint holds the position, and the ids processed up to it.
    held: tuple[Any, list[bytes]] = (None, [])
    for execution in range(100):
        queue.connect()
        buffer = MessageBuffer(f"channel {execution}", held[0])
        processed = list(held[1])
        pending: list[Any] = []
        for _ in range(random.randrange(60)):
            action = random.randrange(4)
            if action == 0:
                queue.send(buffer)
            elif action == 1:
                start, bodies = buffer.assign(random.randrange(5))
                assert start == len(processed)
                processed += bodies
            elif action == 2:
                pending.append(buffer.position())
                held = pending[-1], list(processed)
            elif pending:
                tag = buffer.acknowledge(pending.pop(0))
                if tag is not None:
                    queue.acknowledge(tag)
        if queue.is_empty:
            break
    else:
        pytest.fail("messages are left")
    assert Counter(held[1]) == Counter(b"%d" % m for m in messages)


def test_rabbitmq_buffer_deduplicates_redelivery_before_the_ack() -> None:
    buffer = MessageBuffer("a", None)
    for tag, body in (1, 1), (2, 2), (3, 1):
        buffer.add(Message(tag, f"id {body}", b"%d" % body), False)
    assert buffer.assign(2) == (0, [b"1", b"2"])
    assert buffer.acknowledge(buffer.position()) == 3


def test_rabbitmq_buffer_without_ids_is_at_least_once() -> None:
    first = MessageBuffer("a", None)
    for tag in (1, 2, 3):
        assert not first.add(Message(tag, None, b"%d" % tag), False)
    assert first.assign(2) == (0, [b"1", b"2"])
    position = first.position()
    assert first.assign(9) == (2, [b"3"])
    second = MessageBuffer("b", position)
    # Of a closed channel, whose messages were requeued.
    assert second.acknowledge(position) is None
    for tag in (1, 2, 3):
        assert not second.add(Message(tag, None, b"%d" % tag), True)
    assert second.assign(9) == (2, [b"1", b"2", b"3"])
    assert first.acknowledge(position) == 2 and first.acknowledge(position) is None


def test_rabbitmq_buffer_drops_ids_that_cannot_return() -> None:
    first = MessageBuffer("a", None)
    for tag in (1, 2):
        first.add(Message(tag, f"id {tag}", b""), False)
    first.assign(9)
    second = MessageBuffer("b", first.position())
    assert second.position().ids == {"id 1", "id 2"}
    assert second.add(Message(1, "id 1", b""), True)
    assert second.position().ids == {"id 2"}
    # The other message was acknowledged: new messages follow all redelivered ones.
    second.add(Message(2, "id 3", b""), False)
    assert second.position().ids == frozenset()


def test_rabbitmq_buffer_accepts_an_id_again_after_its_ack() -> None:
    buffer = MessageBuffer("a", None)
    buffer.add(Message(1, "id", b"1"), False)
    assert buffer.assign(9) == (0, [b"1"]) and buffer.acknowledge(buffer.position()) == 1
    buffer.add(Message(2, "id", b"2"), False)
    assert buffer.assign(9) == (1, [b"2"])


def test_rabbitmq_config_rejects_missing_fields() -> None:
    builder = RMQConnectionConfig.Builder().set_host("h").set_port(5672).set_user_name("u").set_password("p")
    with pytest.raises(InvalidProgramError, match=r"set_virtual_host\(...\), or set everything at once with set_uri"):
        builder.build()
    with pytest.raises(InvalidProgramError, match="prefetch count is from 1 to 65,535, it is 0"):
        builder.set_prefetch_count(0)
    builder.set_virtual_host("/").set_requested_heartbeat(5).set_requested_frame_max(9000).set_requested_channel_max(7)
    builder.set_connection_timeout(1500).set_automatic_recovery(True).set_network_recovery_interval(10)
    config = builder.set_topology_recovery_enabled(False).build()
    settings = config.get_host(), config.get_port(), config.get_virtual_host(), config.get_user_name()
    assert (*settings, config.get_password(), config.get_uri()) == ("h", 5672, "/", "u", "p", None)
    assert (config.get_requested_heartbeat(), config.get_requested_frame_max()) == (5, 9000)
    assert (config.get_requested_channel_max(), config.get_connection_timeout()) == (7, 1500)
    assert (config.is_automatic_recovery(), config.is_topology_recovery()) == (True, False)
    assert config.get_network_recovery_interval() == 10
    assert config.server().timeout == 1.5 and config.server().address == "h:5672, virtual host '/'"
