"""What subtasks carry from epoch to epoch: the record and its codec, in every version there was."""

from __future__ import annotations

import pickle
import pickletools
import sys
from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any

import pytest

from millstream.common.errors import DamagedStateError
from millstream.common.pickles import dump
from millstream.operators import carried
from millstream.operators.carried import (
    Carried,
    CarriedChannel,
    decode,
    encode,
    has_requests,
    has_unread,
    mark_version_1,
    unread_inputs,
)

CHANNELS = {
    (3, 0): CarriedChannel(watermark=5, idle=True, ended=False),
    (3, 1): CarriedChannel(watermark=9, idle=False, ended=True),
}
RECORD = Carried(
    watermark=5,
    idle=True,
    ended=False,
    channels=CHANNELS,
    operators={"sink": (None,), "marks": {"sent": 5}},
    watermarks={"sink": 4, "marks": 5},
)
TAKEN_OVER = Carried(
    watermark=7,
    idle=False,
    ended=True,
    channels={},
    operators={"marks": {"sent": 7}},
    watermarks={"marks": 7},
    ended_edges=frozenset({2, 4}),
)
WAITING = replace(
    RECORD,
    unread=((None, "share", 1),),
    waiting=(((3, 1), 0, (True, False, [b"block", b"another"])), ((7, 0), 1, (False, True, [b"third"]))),
    earlier=(("sink", 1, (False, False, [b"older"])),),
)
UNREAD = replace(RECORD, unread=((2, (2, 10, 20, True), 5), (None, "share", 0)))


REQUESTS = replace(RECORD, operators={"ask": {"fences": [(1, 7, False), (3, None, True)]}}, requests=True)
BOTH = replace(UNREAD, requests=True)
FIRST_WITH_REQUESTS = (
    "040100008005955500000000000000284b0588895d28284b034b004b05888974284b034b014b09898874657d"
    "8c0361736b7d8c0666656e6365735d284b014b0789874b034e88876573737d288c0473696e6b4b048c056d61"
    "726b734b05754e5d5d5d742e"
)


def encoded(record: Carried) -> bytes:
    return encode(**{f.name: getattr(record, f.name) for f in fields(record)})


@pytest.mark.parametrize(
    "record",
    [RECORD, TAKEN_OVER, UNREAD, WAITING, REQUESTS, BOTH],
    ids=["going on", "taken over", "unread", "waiting", "requests", "both"],
)
def test_a_record_is_read_as_it_was_written(record: Carried) -> None:
    assert decode(encoded(record)) == record
    assert decode(encoded(decode(encoded(record)))) == record


def test_a_record_says_its_version_and_has_no_class_of_ours_in_it() -> None:
    for record in (RECORD, TAKEN_OVER):
        data = encoded(record)
        assert data[0] == carried.VERSION
        named = [argument for opcode, argument, _ in pickletools.genops(data[1:]) if "GLOBAL" in opcode.name]
        assert all(name is None for name in named)
        assert b"millstream" not in data


def test_a_record_of_version_1() -> None:
    channels = {address: (c.watermark, c.idle, c.ended) for address, c in CHANNELS.items()}
    data = dump((5, True, False, channels, RECORD.operators, RECORD.watermarks))
    assert decode(mark_version_1(data)) == RECORD


def test_a_record_of_version_1_that_was_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    class TakenOver:
        pass

    TakenOver.__module__, TakenOver.__qualname__ = "millstream.operators.report", "TakenOver"
    left: Any = TakenOver()
    names = ("watermark", "ended", "ended_edges", "operators", "watermarks")
    vars(left).update({name: getattr(TAKEN_OVER, name) for name in names})
    with monkeypatch.context() as then:
        then.setitem(sys.modules, "millstream.operators.report", SimpleNamespace(TakenOver=TakenOver))
        data = pickle.dumps(left)
    assert decode(mark_version_1(data)) == TAKEN_OVER


def test_nothing_is_nothing_in_any_version() -> None:
    assert mark_version_1(b"") == b""


def test_a_record_with_unread_input_is_told_from_others_without_being_read() -> None:
    assert encoded(UNREAD)[0] == carried.WITH_UNREAD and has_unread(encoded(UNREAD))
    assert not any(has_unread(data) for data in (b"", encoded(RECORD), encoded(TAKEN_OVER)))


def test_a_record_with_requests_in_flight_is_told_from_others_without_being_read() -> None:
    for data, version, unread in ((REQUESTS, carried.WITH_MORE, False), (BOTH, carried.WITH_MORE, True)):
        assert encoded(data)[0] == version and has_requests(encoded(data))
        assert has_unread(encoded(data)) is unread
    assert not any(has_requests(data) for data in (b"", encoded(RECORD), encoded(TAKEN_OVER), encoded(UNREAD)))


def test_a_record_with_requests_in_flight_as_it_was_first_written() -> None:
    data = bytes.fromhex(FIRST_WITH_REQUESTS)
    assert decode(data) == REQUESTS


def test_a_record_says_of_which_inputs_some_waits_without_being_read() -> None:
    assert encoded(WAITING)[0] == carried.WITH_MORE and has_unread(encoded(WAITING))
    assert unread_inputs(encoded(WAITING)) == {3, 7, carried.SHARES, carried.EARLIER}
    assert unread_inputs(encoded(UNREAD)) == {carried.SHARES}
    assert not any(unread_inputs(data) for data in (b"", encoded(RECORD), encoded(TAKEN_OVER)))


def test_a_record_with_waiting_input_as_it_was_first_written() -> None:
    data = bytes.fromhex(
        "04000004fffffffeffffffff0000000300000007800595a800000000000000284b0588895d28284b034b004b05"
        "888974284b034b014b09898874657d288c0473696e6b4e858c056d61726b737d8c0473656e744b0573757d28"
        "8c0473696e6b4b048c056d61726b734b05754e5d4e8c0573686172654b0187615d284b034b01864b0088895d"
        "284305626c6f636b4307616e6f746865726587874b074b00864b0189885d43057468697264618787655d8c04"
        "73696e6b4b0189895d43056f6c64657261878761742e"
    )
    assert decode(data) == WAITING


def test_a_record_with_unread_input_as_it_was_first_written() -> None:
    data = bytes.fromhex(
        "038005956b00000000000000284b0588895d28284b034b004b05888974284b034b014b09898874657d288c04"
        "73696e6b4e858c056d61726b737d8c0473656e744b0573757d288c0473696e6b4b048c056d61726b734b0575"
        "4e5d284b02284b024b0a4b1488744b05874e8c0573686172654b008765742e"
    )
    assert decode(data) == UNREAD


def test_a_record_of_a_version_that_is_not_known_is_refused() -> None:
    with pytest.raises(DamagedStateError, match=r"is of format 5; this millstream knows 1 to 4\."):
        decode(bytes([5]) + encoded(RECORD)[1:])
