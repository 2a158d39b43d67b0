"""The transport: the state machines of driver and slots, with a simulated network between them.

A seed determines the slots, their levels, the blocks they exchange, all latencies, the slots that die, the connections
that break, and the effects of bugs on frames: lost, duplicated or replayed frames. `ExchangeMachine` and
`ReceiveBuffer` are real. Invariants: a completed epoch has every block once and completes once, and every damaged frame
is detected.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from random import Random

from millstream.exchange import exchange_machine as p
from millstream.exchange.frames import Frame, Kind, ProtocolError, end_of
from millstream.exchange.slot_connections import ReceiveBuffer

from .outcome import Outcome
from .world import Violated, World

# The probability of each fault, per frame or level; a schedule scales it.
_RATES = {
    "slot dies": 0.01,
    "connection breaks": 0.01,
    "user code raises": 0.01,
    "cancelled": 0.01,
    "Spark ends": 0.005,
    "slot never registers": 0.05,
    "frame lost": 0.02,
    "frame duplicated": 0.02,
    "old block": 0.02,
    "report duplicated": 0.05,
}
_START_SECONDS = 60.0
# A period without a result that proves a deadlock.
_STALL_SECONDS = 600.0

# A block is identified by its epoch, its level, its sender, its target and its number.
Block = tuple[int, int, int, int, int]
# The blocks a slot received at a level: (level, slot), blocks.
Received = list[tuple[tuple[int, int], list[Block]]]


def run_transport(seed: int, verbose: bool = False) -> Outcome:
    """Run the schedule of a seed."""
    world = World(seed, verbose)
    job = _Job(world)
    with suppress(Violated):
        job.run()
    return Outcome(seed, world.violation, job.faults.happened, world.log)


class _Faults:
    """Draws faults, with an upper bound on each so that a job ends."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._left = random.choice((0, 1, 2, 3, 5))
        self._rates = {kind: rate * random.choice((0.0, 1.0, 1.0, 5.0)) for kind, rate in _RATES.items()}
        self.happened: Counter[str] = Counter()

    def strikes(self, kind: str) -> bool:
        if not self._left or self._random.random() >= self._rates[kind]:
            return False
        self._left -= 1
        self.happened[kind] += 1
        return True


class _Job:
    """Runs all epochs, in a new execution after each failure."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.faults = _Faults(world.random)
        self.widths = [world.random.randint(1, 3) for _ in range(world.random.randint(1, 3))]
        self._epochs = world.random.randint(1, 6)
        self._plan_seed = world.random.random()
        # The maximum delay of the network.
        self.delay = world.random.choice((0.001, 0.01, 1.0))
        self.completed: set[int] = set()

    def run(self) -> None:
        epoch = 1
        while epoch <= self._epochs:
            execution = _Execution(self)
            while epoch <= self._epochs and execution.run(epoch):
                epoch += 1
            execution.release()

    def blocks(self, epoch: int, level: int, sender: int) -> list[Block]:
        """Return the blocks that a slot sends to a level; they are the same in every execution."""
        random = Random(f"{self._plan_seed} {epoch} {level} {sender}")
        targets = [random.randrange(self.widths[level]) for _ in range(random.choice((0, 1, 3)))]
        return [(epoch, level, sender, target, number) for number, target in enumerate(targets)]

    def complete(self, epoch: int, reports: list[bytes]) -> None:
        """Complete an epoch; check that it completes once, with all blocks and reports."""
        if epoch in self.completed:
            self.world.violate(f"epoch {epoch} completes twice")
        self.completed.add(epoch)
        received = Counter(
            (receiver, block) for report in reports for receiver, blocks in pickle.loads(report) for block in blocks
        )
        levels = range(1, len(self.widths))
        sent = [b for level in levels for s in range(self.widths[level - 1]) for b in self.blocks(epoch, level, s)]
        expected = Counter(((block[1], block[3]), block) for block in sent)
        if received != expected:
            self.world.violate(
                f"epoch {epoch}: lost {sorted(expected - received)}, duplicated {sorted(received - expected)}"
            )
        if len(reports) != self.widths[-1]:
            self.world.violate(f"epoch {epoch} completes with {len(reports)} of {self.widths[-1]} reports")


class _Execution:
    """One execution: the driver's machine, its slots, and the network between them."""

    def __init__(self, job: _Job) -> None:
        self.job, self.world, self.faults = job, job.world, job.faults
        self.machine = p.ExchangeMachine(max(job.widths), job.widths[-1])
        self.slots = [_Slot(self, number) for number in range(max(job.widths))]
        # Frame faults that are not detected yet, by link.
        self.tampered: dict[tuple[int, int], str] = {}
        self.was_tampered_with = self.has_detected = False
        self._epoch = 0
        self._outcome: p.FinishEpoch | p.FailEpoch | None = None
        self._last_arrival: dict[tuple[int, int], float] = {}
        self._disconnected: set[tuple[int, int]] = set()
        for slot in self.slots:
            if not self.faults.strikes("slot never registers"):
                self.later(slot.step)
        self.world.after(_START_SECONDS, partial(self.handle, p.StartTimedOut()))

    def run(self, epoch: int) -> bool:
        """Run an epoch; return whether it succeeded."""
        self._epoch, self._outcome = epoch, None
        self.world.note(f"epoch {epoch}")
        self.handle(p.EpochRequested(epoch, pickle.dumps(epoch)))
        if self.faults.strikes("cancelled"):
            self.later(partial(self.handle, p.CancelRequested()))
        if self.faults.strikes("Spark ends"):
            self.later(partial(self.handle, p.SparkEnded("")))
        self.world.wait(_STALL_SECONDS, lambda: self._outcome is not None)
        if self._outcome is None:
            self._check_stall()
        self._check_cause()
        return isinstance(self._outcome, p.FinishEpoch)

    def _check_stall(self) -> None:
        """Check that the epoch stalls only because a link's last frame was lost; its user would kill that job."""
        if "frame lost" not in self.tampered.values():
            self.world.violate(f"epoch {self._epoch} stalls")
        self.handle(p.ConnectionLost("killed by its user"))

    def _check_cause(self) -> None:
        cause = self.machine.cause
        is_protocol_error = cause is not None and (
            cause.kind is p.FailureKind.PROTOCOL or "ProtocolError" in cause.text
        )
        if is_protocol_error and not self.was_tampered_with:
            self.world.violate(f"a protocol error was reported without a cause: {cause}")

    def release(self) -> None:
        """End all slots; their last frames arrive meanwhile."""
        self.handle(p.ReleaseRequested())
        self.world.wait(5.0, lambda: not any(slot.is_alive for slot in self.slots))
        for slot in self.slots:
            slot.die()

    # --- the driver

    def handle(self, event: p.Event) -> None:
        for instruction in self.machine.handle(event):
            self.world.note(f"{type(event).__name__}: {type(instruction).__name__}")
            if isinstance(instruction, p.SendRoster):
                self._send_all(Frame(Kind.ROSTER))
            elif isinstance(instruction, p.SendEpoch):
                self._send_all(Frame(Kind.EPOCH, instruction.epoch, payload=instruction.payload))
            elif isinstance(instruction, p.SendStop):
                self._send_all(Frame(Kind.STOP))
            elif isinstance(instruction, p.CloseConnections):
                for slot in self.slots:
                    # Slots may run a little longer.
                    self.world.after(self.world.random.choice((0.0, 0.1, 2.0)), slot.die)
            else:
                self._end_epoch(instruction)

    def _end_epoch(self, outcome: p.FinishEpoch | p.FailEpoch) -> None:
        if isinstance(outcome, p.FinishEpoch):
            self.job.complete(self._epoch, outcome.reports)
        self._outcome = outcome

    def _send_all(self, frame: Frame) -> None:
        for slot in self.slots:
            self.later(partial(slot.obey, frame), (-1, slot.number))

    def on_frame(self, slot: int, frame: Frame) -> None:
        """Handle a frame from a slot to the driver."""
        if frame.kind is Kind.REGISTER:
            self.handle(p.SlotRegistered(slot, f"/{slot}"))
        elif frame.kind is Kind.CONNECTED:
            self.handle(p.SlotConnected(slot))
        elif frame.kind is Kind.REPORT:
            self.handle(p.SlotReported(slot, frame.epoch, frame.payload))
        elif frame.kind is Kind.LOST:
            self.handle(p.ConnectionLost(f"slot {slot}"))
        else:
            self.handle(p.SlotFailed(slot, frame.payload.decode()))

    # --- the network

    def later(self, action: Callable[[], None], link: tuple[int, int] | None = None) -> None:
        """Run an action after a delay; actions of one link stay in order."""
        world = self.world
        arrival = world.now + self.job.delay * world.random.random()
        if link is not None:
            arrival = self._last_arrival[link] = max(arrival, self._last_arrival.get(link, 0.0))
        world.after(arrival - world.now, action)

    def send_to_driver(self, slot: int, frame: Frame) -> None:
        for _ in range(1 + (frame.kind is Kind.REPORT and self._tampers((slot, -1), "report duplicated"))):
            self.later(partial(self.on_frame, slot, frame), (slot, -1))

    def send(self, sender: int, target: int, frame: Frame) -> None:
        """Send from slot to slot."""
        link = sender, target
        if link in self._disconnected:
            return
        if self.faults.strikes("connection breaks"):
            self.disconnect(sender, target)
            return
        slot = self.slots[target]
        if frame.kind is Kind.DATA and frame.epoch > 1 and self._tampers(link, "old block"):
            old = Frame(Kind.DATA, frame.epoch - 1, frame.level, pickle.dumps(((0, 0, 0, 0, 0), [])))
            self.later(partial(slot.take, sender, old), link)
            self._mark(link, "old block")
        if self._tampers(link, "frame lost"):
            self._mark(link, "frame lost")
            return
        self.later(partial(slot.take, sender, frame), link)
        if self._tampers(link, "frame duplicated"):
            self.later(partial(slot.take, sender, frame), link)
            self._mark(link, "frame duplicated")

    def _tampers(self, link: tuple[int, int], fault: str) -> bool:
        # At most one fault: two faults together may be undetectable.
        if self.was_tampered_with or not self.faults.strikes(fault):
            return False
        self.world.note(f"{fault} from {link[0]} to {link[1]}")
        self.was_tampered_with = True
        return True

    def _mark(self, link: tuple[int, int], fault: str) -> None:
        """Expect the receiver of a link to detect a fault, unless it has already."""
        self.later(lambda: None if self.has_detected else self.tampered.update({link: fault}), link)

    def disconnect(self, one: int, other: int) -> None:
        """Break a connection: both ends detect it after the frames sent before."""
        for sender, target in ((one, other), (other, one)):
            if (sender, target) not in self._disconnected:
                self._disconnected.add((sender, target))
                if target == -1:
                    self.later(partial(self.handle, p.ConnectionLost(f"slot {sender} died")), (sender, -1))
                elif sender >= 0:
                    self.later(partial(self.slots[target].lose, sender), (sender, target))


class _Slot:
    """A slot: follows `exchange.slot_loop.SlotLoop`, with the real `ReceiveBuffer`."""

    def __init__(self, execution: _Execution, number: int) -> None:
        self.number = number
        self.is_alive = True
        self._execution = execution
        self._world = execution.world
        self._job = execution.job
        self._receive_buffer = ReceiveBuffer(number, execution.job.widths)
        self._commands: list[Frame] = []
        self._has_lost_connection = False
        self._frames = self._run_slot()
        # The condition it waits for.
        self._until: Callable[[], bool] = lambda: True
        self._is_working = False

    # --- incoming frames

    def obey(self, command: Frame) -> None:
        self._commands.append(command)
        self.step()

    def take(self, sender: int, frame: Frame) -> None:
        if not self.is_alive:
            return
        try:
            self._receive_buffer.take(sender, frame)
        except ProtocolError as e:
            self._execution.has_detected = True
            self._execution.tampered.clear()
            self._fail(f"ProtocolError: {e}")
            return
        fault = self._execution.tampered.get((sender, self.number))
        # The next END frame reveals any fault: it has the number of blocks, and its level must be the expected one.
        if fault is not None and frame.kind is Kind.END:
            self._world.violate(f"{fault} from slot {sender} to slot {self.number}, and {frame[:3]} was accepted")
        self.step()

    def lose(self, sender: int) -> None:
        self._has_lost_connection = True
        self.step()

    def die(self) -> None:
        if not self.is_alive:
            return
        self.is_alive = False
        for other in self._execution.slots:
            if other is not self:
                self._execution.disconnect(self.number, other.number)
        self._execution.disconnect(self.number, -1)

    def _fail(self, text: str) -> None:
        self._execution.send_to_driver(self.number, Frame(Kind.FAILED, payload=text.encode()))
        self._until = lambda: False

    # --- epochs

    def step(self) -> None:
        """Continue if the awaited input has arrived."""
        while self.is_alive and not self._is_working:
            if self._has_lost_connection:
                self._has_lost_connection = False
                self._execution.send_to_driver(self.number, Frame(Kind.LOST))
                self._until = lambda: False
            if not self._until():
                return
            try:
                self._until = next(self._frames)
            except StopIteration:
                self.die()
            except ProtocolError as e:
                self._fail(f"ProtocolError: {e}")

    def _run_slot(self) -> Iterator[Callable[[], bool]]:
        driver = partial(self._execution.send_to_driver, self.number)
        driver(Frame(Kind.REGISTER))
        while True:
            yield lambda: bool(self._commands)
            command = self._commands.pop(0)
            if command.kind is Kind.STOP:
                return
            if command.kind is Kind.ROSTER:
                driver(Frame(Kind.CONNECTED))
                continue
            yield from self._run(pickle.loads(command.payload))

    def _run(self, epoch: int) -> Iterator[Callable[[], bool]]:
        widths = self._job.widths
        received: Received = []
        last = len(widths) - 1
        for level in range(len(widths)):
            if self.number >= widths[level]:
                continue
            if level:
                yield partial(self._receive_buffer.is_complete, epoch, level)
                messages = [pickle.loads(m) for m in self._receive_buffer.collect(epoch, level)]
                received = [blocks for _, passed in messages for blocks in passed]
                received.append(((level, self.number), [block for block, _ in messages if block is not None]))
            yield from self._work()
            if level < last:
                self._send_level(epoch, level + 1, received)
        if self.number < widths[-1]:
            self._execution.send_to_driver(self.number, Frame(Kind.REPORT, epoch, last, pickle.dumps(received)))

    def _work(self) -> Iterator[Callable[[], bool]]:
        """Run user code for a while without handling frames, or fail in it."""
        execution = self._execution
        if execution.faults.strikes("slot dies"):
            execution.later(self.die)
        if execution.faults.strikes("user code raises"):
            self._fail("Boom")
            yield lambda: False
        self._is_working = True
        execution.later(self._finish_work)
        yield lambda: True

    def _finish_work(self) -> None:
        self._is_working = False
        self.step()

    def _send_level(self, epoch: int, level: int, received: Received) -> None:
        """Send blocks, forward the received blocks to one slot, then send END frames."""
        width = self._job.widths[level]
        sent = dict.fromkeys(range(width), 0)
        blocks: list[tuple[int, Block | None, Received]] = [
            (block[3], block, []) for block in self._job.blocks(epoch, level, self.number)
        ]
        blocks.append((self.number % width, None, received))
        for target, block, passed in blocks:
            self._send(target, Frame(Kind.DATA, epoch, level, pickle.dumps((block, passed))))
            sent[target] += 1
        for target, count in sent.items():
            self._send(target, end_of(epoch, level, count))

    def _send(self, target: int, frame: Frame) -> None:
        if target == self.number:
            self._receive_buffer.take(target, frame)
        else:
            self._execution.send(self.number, target, frame)
