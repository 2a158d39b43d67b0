"""The driver's side of an execution, without sockets or a clock: events in, instructions out.

    STARTING   the Spark job is submitted; slots connect
       | all have registered: the roster is sent
    CONNECTING slots connect to each other
       | all are connected
    RUNNING    epochs are sent and reported, one at a time
       | a release request, or a failure
    ENDING     slots are sent STOP, or disconnected

Any failure ends the execution and fails the requested epoch, or the next one. ENDING is final: later messages of slots
have no effect.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from millstream.common.dispatch import MethodDispatch
from millstream.exchange.addresses import Address


class Phase(Enum):
    """Phase of an execution."""

    STARTING = auto()
    CONNECTING = auto()
    RUNNING = auto()
    ENDING = auto()


class FailureKind(Enum):
    """Kind of failure."""

    # User code raised, or a slot could not do its work; it has reported the failure.
    RAISED = auto()
    # A process died, or a connection to it broke.
    DIED = auto()
    # A process sends no heartbeat.
    FROZEN = auto()
    # Spark ended the job that holds the slots.
    SPARK = auto()
    # Not all slots started in time.
    START_TIMEOUT = auto()
    # The slots cannot reach each other.
    UNREACHABLE = auto()
    # A protocol violation: a bug in millstream.
    PROTOCOL = auto()
    CANCELLED = auto()
    RELEASED = auto()


@dataclass(frozen=True)
class Cause:
    """The cause of an execution's end."""

    kind: FailureKind
    text: str = ""


# --- events


@dataclass(frozen=True)
class SlotRegistered:
    slot: int
    address: Address


@dataclass(frozen=True)
class SlotConnected:
    slot: int


@dataclass(frozen=True)
class EpochRequested:
    epoch: int
    payload: bytes


@dataclass(frozen=True)
class SlotReported:
    slot: int
    epoch: int
    payload: bytes


@dataclass(frozen=True)
class SlotFailed:
    # None: it has not registered yet.
    slot: int | None
    report: str


@dataclass(frozen=True)
class ConnectionLost:
    """A connection to a slot or to a host process broke."""

    peer: str


@dataclass(frozen=True)
class SlotFrozen:
    """A slot sent no heartbeat for too long, and is killed."""

    text: str


@dataclass(frozen=True)
class PeerUnreachable:
    """A slot could not connect to another."""

    text: str


@dataclass(frozen=True)
class ProtocolViolated:
    text: str


@dataclass(frozen=True)
class SparkEnded:
    text: str


@dataclass(frozen=True)
class StartTimedOut:
    """The start took too long; `hint` may explain it."""

    hint: str = ""


@dataclass(frozen=True)
class CancelRequested:
    pass


@dataclass(frozen=True)
class ReleaseRequested:
    pass


Event = (
    SlotRegistered
    | SlotConnected
    | EpochRequested
    | SlotReported
    | SlotFailed
    | ConnectionLost
    | SlotFrozen
    | PeerUnreachable
    | ProtocolViolated
    | SparkEnded
    | StartTimedOut
    | CancelRequested
    | ReleaseRequested
)


# --- instructions


@dataclass(frozen=True)
class SendRoster:
    roster: dict[int, Address]


@dataclass(frozen=True)
class SendEpoch:
    epoch: int
    payload: bytes


@dataclass(frozen=True)
class FinishEpoch:
    """Finish the epoch with the reports, by slot."""

    reports: list[bytes]


@dataclass(frozen=True)
class FailEpoch:
    cause: Cause


@dataclass(frozen=True)
class SendStop:
    pass


@dataclass(frozen=True)
class CloseConnections:
    """End all slots at once."""


Instruction = SendRoster | SendEpoch | FinishEpoch | FailEpoch | SendStop | CloseConnections
Instructions = list[Instruction]


class ExchangeMachine:
    """Decides what the driver does in one execution."""

    def __init__(self, slots: int, reporters: int) -> None:
        """Create the machine of an execution.

        Args:
            slots: the number of slots.
            reporters: the number of slots, from 0, that report the end of an epoch: those of the last level.
        """
        self.phase = Phase.STARTING
        self.cause: Cause | None = None
        self._slots = slots
        self._reporters = reporters
        self._roster: dict[int, Address] = {}
        self._connected: set[int] = set()
        self._requested: EpochRequested | None = None
        self._reports: dict[int, bytes] = {}

    def handle(self, event: Event) -> Instructions:
        """Handle an event; return the instructions."""
        if self.phase is Phase.ENDING:
            return self._handle_late(event)
        return self._HANDLERS[event](self, event)

    def _handle_late(self, event: Event) -> Instructions:
        if isinstance(event, EpochRequested):
            return [FailEpoch(self.cause or Cause(FailureKind.RELEASED))]
        return [CloseConnections()] if isinstance(event, ReleaseRequested) else []

    # --- the start

    def _slot_registered(self, event: SlotRegistered) -> Instructions:
        if self.phase is not Phase.STARTING or event.slot in self._roster or not 0 <= event.slot < self._slots:
            return self._violation(f"slot {event.slot} registered in phase {self.phase.name}")
        self._roster[event.slot] = event.address
        if len(self._roster) < self._slots:
            return []
        self.phase = Phase.CONNECTING
        return [SendRoster(dict(self._roster))]

    def _slot_connected(self, event: SlotConnected) -> Instructions:
        if self.phase is not Phase.CONNECTING or event.slot in self._connected:
            return self._violation(f"slot {event.slot} connected to the others in phase {self.phase.name}")
        self._connected.add(event.slot)
        if len(self._connected) < self._slots:
            return []
        self.phase = Phase.RUNNING
        return self._send_epoch()

    def _timed_out(self, event: StartTimedOut) -> Instructions:
        if self.phase is Phase.RUNNING:
            return []
        missing = sorted(
            set(range(self._slots)) - (self._connected if self.phase is Phase.CONNECTING else set(self._roster))
        )
        text = f"{len(missing)} of {self._slots} slots are missing, the first is {missing[0]}"
        return self._fail(FailureKind.START_TIMEOUT, f"{text}; {event.hint}" if event.hint else text)

    # --- epochs

    def _epoch_requested(self, event: EpochRequested) -> Instructions:
        if self._requested is not None:
            return self._violation(f"epoch {event.epoch} was requested within epoch {self._requested.epoch}")
        self._requested = event
        return self._send_epoch() if self.phase is Phase.RUNNING else []

    def _send_epoch(self) -> Instructions:
        return [] if self._requested is None else [SendEpoch(self._requested.epoch, self._requested.payload)]

    def _slot_reported(self, event: SlotReported) -> Instructions:
        request = self._requested
        if self.phase is not Phase.RUNNING or request is None or event.epoch != request.epoch:
            return self._violation(f"slot {event.slot} reported epoch {event.epoch} when it was not running")
        if event.slot in self._reports or not 0 <= event.slot < self._reporters:
            return self._violation(f"slot {event.slot} reported epoch {event.epoch} more than once")
        self._reports[event.slot] = event.payload
        if len(self._reports) < self._reporters:
            return []
        reports = [self._reports[slot] for slot in sorted(self._reports)]
        self._requested, self._reports = None, {}
        return [FinishEpoch(reports)]

    # --- the end

    def _slot_failed(self, event: SlotFailed) -> Instructions:
        return self._fail(FailureKind.RAISED, event.report)

    def _connection_lost(self, event: ConnectionLost) -> Instructions:
        return self._fail(FailureKind.DIED, event.peer)

    def _slot_frozen(self, event: SlotFrozen) -> Instructions:
        return self._fail(FailureKind.FROZEN, event.text)

    def _peer_unreachable(self, event: PeerUnreachable) -> Instructions:
        return self._fail(FailureKind.UNREACHABLE, event.text)

    def _protocol_violated(self, event: ProtocolViolated) -> Instructions:
        return self._violation(event.text)

    def _spark_ended(self, event: SparkEnded) -> Instructions:
        return self._fail(FailureKind.SPARK, event.text)

    def _cancelled(self, _: CancelRequested) -> Instructions:
        return self._fail(FailureKind.CANCELLED, "")

    def _release(self, _: ReleaseRequested) -> Instructions:
        idle = self.phase is Phase.RUNNING and self._requested is None
        self.phase, self.cause = Phase.ENDING, Cause(FailureKind.RELEASED)
        # Only an idle slot can receive STOP; others must be disconnected.
        return [SendStop() if idle else CloseConnections()]

    def _violation(self, text: str) -> Instructions:
        return self._fail(FailureKind.PROTOCOL, text)

    def _fail(self, kind: FailureKind, text: str) -> Instructions:
        self.phase, self.cause = Phase.ENDING, Cause(kind, text)
        instructions: Instructions = [CloseConnections()]
        if self._requested is not None:
            instructions.append(FailEpoch(self.cause))
        return instructions

    _HANDLERS = (
        MethodDispatch["ExchangeMachine", [], Instructions]()
        .on(SlotRegistered, _slot_registered)
        .on(SlotConnected, _slot_connected)
        .on(EpochRequested, _epoch_requested)
        .on(SlotReported, _slot_reported)
        .on(SlotFailed, _slot_failed)
        .on(ConnectionLost, _connection_lost)
        .on(SlotFrozen, _slot_frozen)
        .on(PeerUnreachable, _peer_unreachable)
        .on(ProtocolViolated, _protocol_violated)
        .on(SparkEnded, _spark_ended)
        .on(StartTimedOut, _timed_out)
        .on(CancelRequested, _cancelled)
        .on(ReleaseRequested, _release)
    )
