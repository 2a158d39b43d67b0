"""The runtime snapshot of a subtask between epochs, and its codec."""

from __future__ import annotations

import pickletools
from dataclasses import fields, replace

import pytest

from millstream.common.errors import DamagedStateError
from millstream.operators.runtime import runtime_snapshot
from millstream.operators.runtime.runtime_snapshot import (
    ChannelSnapshot,
    RuntimeSnapshot,
    decode,
    encode,
    has_pending_input,
    has_requests,
    pending_inputs,
)

CHANNELS = {
    (3, 0): ChannelSnapshot(watermark=5, idle=True, ended=False),
    (3, 1): ChannelSnapshot(watermark=9, idle=False, ended=True),
}
RECORD = RuntimeSnapshot(
    watermark=5,
    idle=True,
    ended=False,
    channels=CHANNELS,
    operators={"sink": (None,), "marks": {"sent": 5}},
    watermarks={"sink": 4, "marks": 5},
)
RESTORED = RuntimeSnapshot(
    watermark=7,
    idle=False,
    ended=True,
    channels={},
    operators={"marks": {"sent": 7}},
    watermarks={"marks": 7},
    ended_edges=frozenset({2, 4}),
)
PENDING_BLOCKS = replace(
    RECORD,
    pending_ranges=((None, "share", 1),),
    pending_blocks=(((3, 1), 0, (True, False, [b"block", b"another"])), ((7, 0), 1, (False, True, [b"third"]))),
    recovered_blocks=(("sink", 1, (False, False, [b"older"])),),
)
PENDING_RANGES = replace(RECORD, pending_ranges=((2, (2, 10, 20, True), 5), (None, "share", 0)))


REQUESTS = replace(RECORD, operators={"wait": {"fences": [(1, 7, False), (3, None, True)]}}, requests=True)
REQUESTS_AND_RANGES = replace(PENDING_RANGES, requests=True)


def encoded(record: RuntimeSnapshot) -> bytes:
    return encode(**{f.name: getattr(record, f.name) for f in fields(record)})


@pytest.mark.parametrize(
    "record",
    [RECORD, RESTORED, PENDING_RANGES, PENDING_BLOCKS, REQUESTS, REQUESTS_AND_RANGES],
    ids=["running", "restored", "pending ranges", "pending blocks", "requests", "requests and ranges"],
)
def test_runtime_snapshot_round_trips(record: RuntimeSnapshot) -> None:
    assert decode(encoded(record)) == record
    assert decode(encoded(decode(encoded(record)))) == record


def test_runtime_snapshot_has_a_version_and_names_no_class() -> None:
    for record in (RECORD, RESTORED):
        data = encoded(record)
        assert data[0] == runtime_snapshot.VERSION
        named = [argument for opcode, argument, _ in pickletools.genops(data[4:]) if "GLOBAL" in opcode.name]
        assert all(name is None for name in named)
        assert b"millstream" not in data


def test_runtime_snapshot_header_shows_pending_input() -> None:
    assert has_pending_input(encoded(PENDING_RANGES))
    assert not any(has_pending_input(data) for data in (b"", encoded(RECORD), encoded(RESTORED)))


def test_runtime_snapshot_header_shows_async_requests() -> None:
    for data, has_pending in ((REQUESTS, False), (REQUESTS_AND_RANGES, True)):
        assert has_requests(encoded(data))
        assert has_pending_input(encoded(data)) is has_pending
    assert not any(has_requests(data) for data in (b"", encoded(RECORD), encoded(RESTORED), encoded(PENDING_RANGES)))


def test_runtime_snapshot_header_lists_pending_inputs() -> None:
    assert has_pending_input(encoded(PENDING_BLOCKS))
    assert pending_inputs(encoded(PENDING_BLOCKS)) == {3, 7, runtime_snapshot.SPLIT_RANGES, runtime_snapshot.RECOVERED}
    assert pending_inputs(encoded(PENDING_RANGES)) == {runtime_snapshot.SPLIT_RANGES}
    assert not any(pending_inputs(data) for data in (b"", encoded(RECORD), encoded(RESTORED)))


def test_runtime_snapshot_rejects_an_unknown_version() -> None:
    with pytest.raises(DamagedStateError, match=r"has format 4; this version of millstream reads format 3\."):
        decode(bytes([4]) + encoded(RECORD)[1:])
