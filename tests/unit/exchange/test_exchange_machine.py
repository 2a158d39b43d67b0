"""The two state machines of the exchange without sockets or clock: every fault is detected or harmless."""

from __future__ import annotations

import random

import pytest

from millstream.exchange import exchange_machine as p
from millstream.exchange.frames import Frame, Kind, ProtocolError, end_of
from millstream.exchange.slot_connections import ReceiveBuffer

# --- the driver's machine


def started(slots: int = 2, reporters: int = 2) -> p.ExchangeMachine:
    machine = p.ExchangeMachine(slots, reporters)
    for slot in range(slots):
        machine.handle(p.SlotRegistered(slot, f"/s{slot}"))
    for slot in range(slots):
        machine.handle(p.SlotConnected(slot))
    assert machine.phase is p.Phase.RUNNING
    return machine


def in_epoch(epoch: int = 7) -> p.ExchangeMachine:
    machine = started()
    assert machine.handle(p.EpochRequested(epoch, b"tasks")) == [p.SendEpoch(epoch, b"tasks")]
    return machine


def check_failure(instructions: list[p.Instruction], kind: p.FailureKind) -> None:
    close, fail = instructions
    assert close == p.CloseConnections()
    assert isinstance(fail, p.FailEpoch)
    assert fail.cause.kind is kind


def test_exchange_machine_registers_connects_then_sends_the_pending_epoch() -> None:
    machine = p.ExchangeMachine(2, 1)
    assert machine.handle(p.EpochRequested(1, b"e")) == []
    assert machine.handle(p.SlotRegistered(1, "/b")) == []
    assert machine.handle(p.SlotRegistered(0, "/a")) == [p.SendRoster({0: "/a", 1: "/b"})]
    assert machine.phase is p.Phase.CONNECTING
    assert machine.handle(p.SlotConnected(0)) == []
    assert machine.handle(p.SlotConnected(1)) == [p.SendEpoch(1, b"e")]
    assert machine.handle(p.SlotReported(0, 1, b"r")) == [p.FinishEpoch([b"r"])]
    assert machine.handle(p.EpochRequested(2, b"e")) == [p.SendEpoch(2, b"e")]


def test_exchange_machine_orders_reports_by_slot() -> None:
    machine = in_epoch()
    assert machine.handle(p.SlotReported(1, 7, b"one")) == []
    assert machine.handle(p.SlotReported(0, 7, b"zero")) == [p.FinishEpoch([b"zero", b"one"])]


def test_exchange_machine_rejects_a_duplicate_report() -> None:
    machine = in_epoch()
    machine.handle(p.SlotReported(1, 7, b"r"))
    check_failure(machine.handle(p.SlotReported(1, 7, b"r")), p.FailureKind.PROTOCOL)


def test_exchange_machine_fails_the_next_epoch_after_a_duplicate_report() -> None:
    machine = in_epoch()
    for slot in (0, 1):
        machine.handle(p.SlotReported(slot, 7, b"r"))
    assert machine.handle(p.SlotReported(1, 7, b"r")) == [p.CloseConnections()]
    (failed,) = machine.handle(p.EpochRequested(8, b""))
    assert isinstance(failed, p.FailEpoch)
    assert "reported epoch 7" in failed.cause.text


def test_exchange_machine_rejects_a_report_of_an_older_epoch() -> None:
    check_failure(in_epoch().handle(p.SlotReported(0, 6, b"r")), p.FailureKind.PROTOCOL)


def test_exchange_machine_rejects_a_report_of_a_non_reporting_slot() -> None:
    machine = started(slots=2, reporters=1)
    machine.handle(p.EpochRequested(1, b""))
    check_failure(machine.handle(p.SlotReported(1, 1, b"r")), p.FailureKind.PROTOCOL)


def test_exchange_machine_ignores_slots_after_the_end() -> None:
    machine = in_epoch()
    check_failure(machine.handle(p.SlotFailed(0, "Boom")), p.FailureKind.RAISED)
    for late in (
        p.SlotReported(1, 7, b"r"),
        p.SlotFailed(1, "x"),
        p.ConnectionLost("slot 1"),
        p.SlotConnected(1),
        p.SparkEnded(""),
    ):
        assert machine.handle(late) == []
    assert machine.cause == p.Cause(p.FailureKind.RAISED, "Boom")
    assert machine.handle(p.ReleaseRequested()) == [p.CloseConnections()]


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        (p.SlotFailed(1, "Boom"), p.FailureKind.RAISED),
        (p.ConnectionLost("slot 1 disconnected"), p.FailureKind.DIED),
        (p.SparkEnded(""), p.FailureKind.SPARK),
        (p.ProtocolViolated("?"), p.FailureKind.PROTOCOL),
        (p.CancelRequested(), p.FailureKind.CANCELLED),
    ],
)
def test_exchange_machine_fails_the_epoch_on_errors_in_every_phase(event: p.Event, kind: p.FailureKind) -> None:
    starting = p.ExchangeMachine(2, 2)
    meeting = p.ExchangeMachine(2, 2)
    for slot in (0, 1):
        meeting.handle(p.SlotRegistered(slot, "/s"))
    for machine in (starting, meeting):
        machine.handle(p.EpochRequested(7, b""))
    for machine in (starting, meeting, in_epoch()):
        check_failure(machine.handle(event), kind)
        assert machine.phase is p.Phase.ENDING
    idle = started()
    assert idle.handle(event) == [p.CloseConnections()]
    (failed,) = idle.handle(p.EpochRequested(7, b""))
    assert isinstance(failed, p.FailEpoch)
    assert failed.cause.kind is kind


def test_exchange_machine_names_missing_slots_on_start_timeout() -> None:
    machine = p.ExchangeMachine(3, 3)
    machine.handle(p.EpochRequested(1, b""))
    machine.handle(p.SlotRegistered(0, "/s"))
    check_failure(machine.handle(p.StartTimedOut()), p.FailureKind.START_TIMEOUT)
    assert machine.cause is not None
    assert machine.cause.text == "2 of 3 slots are missing, the first is 1"
    assert in_epoch().handle(p.StartTimedOut()) == []


def test_exchange_machine_rejects_duplicate_and_unknown_registrations() -> None:
    for slot in (0, 5):
        machine = p.ExchangeMachine(2, 2)
        machine.handle(p.EpochRequested(1, b""))
        machine.handle(p.SlotRegistered(0, "/s"))
        check_failure(machine.handle(p.SlotRegistered(slot, "/s")), p.FailureKind.PROTOCOL)


def test_exchange_machine_release_stops_idle_slots_and_disconnects_busy_ones() -> None:
    assert started().handle(p.ReleaseRequested()) == [p.SendStop()]
    assert in_epoch().handle(p.ReleaseRequested()) == [p.CloseConnections()]
    assert p.ExchangeMachine(1, 1).handle(p.ReleaseRequested()) == [p.CloseConnections()]
    machine = started()
    machine.handle(p.ReleaseRequested())
    # It did not stop.
    assert machine.handle(p.ReleaseRequested()) == [p.CloseConnections()]


def test_exchange_machine_rejects_a_second_epoch() -> None:
    check_failure(in_epoch().handle(p.EpochRequested(8, b"")), p.FailureKind.PROTOCOL)


def test_exchange_machine_answers_every_epoch_in_any_event_order() -> None:
    """For any order of events, a requested epoch fails exactly once after an error."""
    for seed in range(500):
        rng = random.Random(seed)
        machine, pending = p.ExchangeMachine(2, 2), False
        events: list[p.Event] = [p.SlotRegistered(s, "/") for s in (0, 1)] + [p.SlotConnected(s) for s in (0, 1)]  # type: ignore[assignment]
        events += [p.SlotReported(s, 1, b"") for s in (0, 1)] + [p.EpochRequested(1, b""), p.ConnectionLost("x")]
        if seed % 2:
            rng.shuffle(events)
        for event in events:
            pending = pending or isinstance(event, p.EpochRequested)
            ends = [i for i in machine.handle(event) if isinstance(i, (p.FinishEpoch, p.FailEpoch))]
            assert len(ends) <= pending
            pending = pending and not ends
        assert not pending
        assert machine.phase is p.Phase.ENDING


# --- a slot's input


def data(epoch: int, level: int, payload: bytes = b"x") -> Frame:
    return Frame(Kind.DATA, epoch, level, payload)


def test_receive_buffer_level_completes_with_the_last_end() -> None:
    arrivals = ReceiveBuffer(0, [2, 2])
    arrivals.take(0, data(1, 1, b"a"))
    arrivals.take(1, data(1, 1, b"b"))
    arrivals.take(1, end_of(1, 1, 1))
    assert not arrivals.is_complete(1, 1)
    arrivals.take(0, data(1, 1, b"c"))
    arrivals.take(0, end_of(1, 1, 2))
    assert arrivals.is_complete(1, 1)
    assert arrivals.take_pending(0) == (2, 2)
    assert arrivals.collect(1, 1) == [b"a", b"b", b"c"]
    assert arrivals.take_pending(0) == (0, 2)
    assert arrivals.take_pending(0) == (0, 0)


def test_receive_buffer_accepts_a_sender_one_epoch_ahead() -> None:
    arrivals = ReceiveBuffer(0, [2, 2, 2])
    for epoch in (3, 4):
        for level in (1, 2):
            arrivals.take(1, end_of(epoch, level, 0))
    assert not arrivals.is_complete(3, 1)
    arrivals.take(0, end_of(3, 1, 0))
    assert arrivals.is_complete(3, 1)
    assert not arrivals.is_complete(4, 1)


def test_receive_buffer_detects_a_lost_end_with_the_next_frame() -> None:
    for following in (data(1, 2), end_of(1, 2, 0), data(2, 1), end_of(2, 1, 0)):
        arrivals = ReceiveBuffer(0, [2, 2, 2])
        arrivals.take(1, data(1, 1))
        with pytest.raises(ProtocolError, match="before the end of level 1 of epoch 1"):
            arrivals.take(1, following)


def test_receive_buffer_detects_a_lost_last_end_in_the_next_epoch() -> None:
    arrivals = ReceiveBuffer(0, [2, 2, 2])
    arrivals.take(1, end_of(1, 1, 0))
    with pytest.raises(ProtocolError, match="before the end of level 2 of epoch 1"):
        arrivals.take(1, end_of(2, 1, 0))


def test_receive_buffer_detects_lost_and_duplicate_blocks() -> None:
    for sent, n_arrived in ((2, 1), (1, 2)):
        arrivals = ReceiveBuffer(0, [2, 2])
        for _ in range(n_arrived):
            arrivals.take(1, data(1, 1))
        with pytest.raises(ProtocolError, match=f"sent {sent} messages .* of which {n_arrived} arrived"):
            arrivals.take(1, end_of(1, 1, sent))


def test_receive_buffer_rejects_frames_of_a_finished_epoch() -> None:
    for old in (data(1, 1), end_of(1, 1, 0), data(2, 1), end_of(2, 1, 0)):
        arrivals = ReceiveBuffer(0, [2, 2])
        arrivals.take(1, end_of(1, 1, 0))
        arrivals.take(1, end_of(2, 1, 0))
        with pytest.raises(ProtocolError, match="after the end of epoch 2"):
            arrivals.take(1, old)


def test_receive_buffer_rejects_frames_of_a_non_sender() -> None:
    # Level 0 has one slot only, so slot 1 sends nothing to level 1.
    with pytest.raises(ProtocolError):
        ReceiveBuffer(0, [1, 2]).take(1, data(1, 1))
    with pytest.raises(ProtocolError, match="sent EPOCH"):
        ReceiveBuffer(0, [2, 2]).take(1, Frame(Kind.EPOCH, 1))


def test_receive_buffer_handles_levels_of_different_widths() -> None:
    arrivals = ReceiveBuffer(0, [1, 3, 1])
    arrivals.take(0, end_of(1, 1, 0))
    assert arrivals.is_complete(1, 1)
    for sender in range(3):
        arrivals.take(sender, end_of(1, 2, 0))
    assert arrivals.is_complete(1, 2)
