"""Several job managers of one job: the real election, fence and job master in a simulated world.

A seed determines the job, the lease duration and the faults: job managers are killed, frozen at any step and resumed
much later, or disconnected from the lease cell; responses are slow or lost; tasks fail. Their clocks are independent.
All run concurrently in greenlets that take turns, so that a schedule depends only on its seed.

Invariants: every record counts once; no two running job managers lead at the same time; no term is used twice.
"""

from __future__ import annotations

import math
import traceback
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import greenlet

from millstream.checkpoint.manifest import NAME, SHARED
from millstream.checkpoint.origin import delete_former_runs, find_published, supersede_runs
from millstream.checkpoint.store import CheckpointStore
from millstream.common.checkpointing_mode import CheckpointingMode
from millstream.common.configuration import Configuration
from millstream.common.errors import DeposedError, MillstreamError
from millstream.common.job_status import JobStatus
from millstream.common.run_ids import run_id
from millstream.jobmaster.job import JobMaster
from millstream.jobmaster.machine import events as e
from millstream.jobmaster.machine.options import JobOptions
from millstream.leader import election as m
from millstream.leader.cas_cells import OvertakenError
from millstream.leader.fence import Fence, JobRecord
from millstream.operators.runtime.messages import JobPlan

from .driver import _OWNER
from .master import make_master
from .outcome import Outcome
from .program import make_plan
from .scene import Scene
from .schedule import check_output, patched_services
from .storage import ROOT, Disk, SimulatedStorage
from .tasks import SimulatedTasks
from .world import DriverDied, Injected, Violated, World

_JOB = "5" * 32
_CANDIDATES = 2
# The probability of a fault at a job manager's step; a schedule scales each.
_RATES = {"freeze": 0.004, "disconnect": 0.004}
_SCALES = (0.0, 0.3, 1.0, 3.0)
# Faults are more likely at these steps, at which most errors are possible.
_CRITICAL_STEPS = ("commit", "publish", "manifest", "recover", "abort", "cell", "delete", "clean-up")
_MAX_FAULTS = 12
# A schedule that takes longer, in seconds of virtual time, counts as stuck.
_MAX_SECONDS = 300.0


@dataclass
class Manager:
    """A job manager's process."""

    number: int
    # The offset of its monotonic clock at the start.
    offset: float
    is_alive: bool = True
    frozen_until: float = -math.inf
    disconnected_until: float = -math.inf


@dataclass(eq=False)
class Strand:
    """A concurrent activity of a job manager: it waits until a time or a condition."""

    manager: Manager
    run: Any
    wake_at: float
    until: Callable[[], bool] = field(default=lambda: False)


class SharedWorld(World):
    """A world with several concurrent job managers."""

    def __init__(self, seed: int, verbose: bool = False) -> None:
        self._main = greenlet.getcurrent()
        self._strands: list[Strand] = []
        self._strand: Strand | None = None
        # The job manager whose scheduled event runs.
        self._event_driver: int | None = None
        self.managers: dict[int, Manager] = {}
        super().__init__(seed, verbose)
        self._scales = {kind: rate * self.random.choice(_SCALES) for kind, rate in _RATES.items()}
        self._faults_left = self.random.randrange(_MAX_FAULTS)

    # --- the acting job manager

    @property
    def driver(self) -> int | None:
        """The job manager whose strand or event runs, if it is alive."""
        if self._strand is None:
            return self._event_driver
        return self._strand.manager.number if self._strand.manager.is_alive else None

    @driver.setter
    def driver(self, _: int | None) -> None:
        """Ignored: the running strand determines the driver."""

    def begin(self, manager: Manager, work: Callable[[], None]) -> None:
        """Start another strand of a job manager."""

        def run() -> None:
            with suppress(DriverDied, Violated):
                try:
                    work()
                except Exception as error:
                    self.violation = self.violation or "".join(traceback.format_exception(error))
            self._strands.remove(strand)

        strand = Strand(manager, greenlet.greenlet(run, self._main), self.now)
        self._strands.append(strand)

    def run_until(self, has_ended: Callable[[], bool]) -> None:
        """Advance virtual time until a condition holds."""
        while not has_ended() and self.violation is None:
            if self.now > 1_000 + _MAX_SECONDS:
                self.violation = "the job does not end under any leader"
                break
            if not self._next():
                break
        self._end_strands()

    def _end_strands(self) -> None:
        for manager in self.managers.values():
            manager.is_alive = False
        while self._strands:
            self._switch(self._strands[0])

    def _next(self) -> bool:
        """Run the next event or strand; return whether there was one."""
        next_time, strand = math.inf, None
        for candidate in self._strands:
            due = self._due(candidate)
            if due < next_time:
                next_time, strand = due, candidate
        if self._events and self._events[0].time <= next_time:
            self._run_event()
        elif strand is None:
            return False
        else:
            self.now = max(self.now, next_time)
            self._switch(strand)
        return True

    def _due(self, strand: Strand) -> float:
        manager = strand.manager
        if not manager.is_alive or strand.until():
            return max(self.now, manager.frozen_until) if manager.is_alive else self.now
        return max(strand.wake_at, manager.frozen_until)

    def _run_event(self) -> None:
        event = self._pop()
        manager = None if event.of_driver is None else self.managers[event.of_driver]
        if event.cancelled or (manager is not None and not manager.is_alive):
            return
        self.now = max(self.now, event.time)
        if manager is not None and manager.frozen_until > self.now:
            self.after(manager.frozen_until - self.now, event.action, event.of_driver)
            return
        self._event_driver = event.of_driver
        event.action()
        self._event_driver = None

    def _switch(self, strand: Strand) -> None:
        before, self._strand = self._strand, strand
        strand.run.switch()
        self._strand = before

    # --- time and steps of a job manager

    def sleep(self, seconds: float) -> None:
        self.wait(seconds, lambda: False)

    def wait(self, seconds: float, until: Callable[[], bool]) -> None:
        strand, end = self._strand, self.now + seconds
        assert strand is not None
        while not until():
            if self.now >= end and strand.manager.frozen_until <= self.now:
                return
            strand.wake_at, strand.until = end, until
            self._main.switch()
            self.check_alive()

    def step(self, name: str) -> None:
        strand = self._strand
        assert strand is not None
        times = 6.0 if any(part in name for part in _CRITICAL_STEPS) else 1.0
        for kind, strike in (("freeze", self._freeze), ("disconnect", self._disconnect)):
            if self._faults_left and not self.faults.is_quiet and self.random.random() < self._scales[kind] * times:
                self._faults_left -= 1
                self.faults.happened[kind] += 1
                strike(strand.manager, name)
        super().step(name)

    def _freeze(self, manager: Manager, name: str) -> None:
        manager.frozen_until = self.now + 12 * self.random.random() ** 2
        self.note(f"is frozen at {name} until {manager.frozen_until - 1_000:.3f}")

    def _disconnect(self, manager: Manager, name: str) -> None:
        manager.disconnected_until = self.now + 10 * self.random.random()
        self.note(f"is disconnected at {name} until {manager.disconnected_until - 1_000:.3f}")

    def kill(self) -> None:
        """Kill the running job manager."""
        assert self.driver is not None
        self.managers[self.driver].is_alive = False


# --- shared storage of the job managers


class SimulatedCell:
    """A compare-and-swap cell with delayed requests and responses; even a frozen client's requests are executed."""

    def __init__(self, world: SharedWorld) -> None:
        self._world = world
        self.data: bytes | None = None
        self.version = 0

    def _request(self, operation: Callable[[], Any]) -> Any:
        world, random = self._world, self._world.random
        world.step("cell")
        assert world.driver is not None
        manager, responses = world.managers[world.driver], []
        is_lost = manager.disconnected_until > world.now
        if not is_lost or random.random() < 0.3:
            world.after(0.05 * random.random() ** 3, lambda: responses.append(operation()))
        world.wait(0.3 if is_lost else 10.0, lambda: bool(responses) and not is_lost)
        if is_lost or not responses:
            raise Injected("the cell does not respond")
        world.step("cell")
        return responses[0]

    def read(self) -> tuple[bytes | None, Hashable]:
        response: tuple[bytes | None, Hashable] = self._request(lambda: (self.data, self.version))
        return response

    def write(self, data: bytes, version: Hashable) -> Hashable:
        if not self._request(partial(self._set, data, version)):
            raise OvertakenError("another client has written")
        assert isinstance(version, int)
        return version + 1

    def _set(self, data: bytes, version: Hashable) -> bool:
        if version != self.version:
            return False
        self.data, self.version = data, self.version + 1
        return True


class VirtualLock:
    """A lock between strands."""

    def __init__(self, world: SharedWorld) -> None:
        self._world = world
        self._is_held = False

    def __enter__(self) -> None:
        self._world.wait(math.inf, lambda: not self._is_held)
        self._is_held = True

    def __exit__(self, *_: object) -> None:
        self._is_held = False


class SlowStorage(SimulatedStorage):
    """Storage with slow writes; the writer can be killed, frozen or disconnected meanwhile.

    Attributes:
        is_deposed: returns whether another leader has the job; that leader deletes the files it does not need.
    """

    is_deposed: Callable[[], bool]

    def make_durable(self, names: Iterable[str]) -> None:
        paths = list(names)
        if self.is_deposed() and any(self._path(name) not in self._disk.files for name in paths):
            raise Injected("the files are deleted")
        super().make_durable(paths)

    def publish(self, name: str, data: bytes, private: bool = False) -> None:
        world = self._world
        world.step("publish")
        world.sleep(0.2 * world.random.random() ** 2)
        self._disk.put(self._path(name), data)
        world.step("publish")


class LeaderMailbox:
    """Events arrive while virtual time passes; manifests are written in other strands."""

    def __init__(self, world: SharedWorld, manager: Manager) -> None:
        self._world = world
        self._manager = manager
        self._events: list[e.Event] = []

    def put(self, event: e.Event) -> None:
        self._events.append(event)

    def take(self, seconds: float) -> e.Event | None:
        if not self._events:
            self._world.wait(seconds, lambda: bool(self._events))
        return self._events.pop(0) if self._events else None

    def work(self, work: Callable[[], e.Event]) -> None:
        self._world.begin(self._manager, lambda: self.put(work()))


# --- a job manager


@dataclass
class Cluster:
    """The job managers' shared state in a schedule."""

    scene: Scene
    world: SharedWorld
    lease: SimulatedCell
    job: SimulatedCell
    timing: m.Timing
    elections: dict[int, m.Election] = field(default_factory=dict)
    terms: list[int] = field(default_factory=list)
    # When the end of the job was detected.
    ended_at: float | None = None

    def record(self) -> JobRecord | None:
        return None if self.job.data is None else JobRecord.from_bytes(self.job.data)

    @property
    def has_finished(self) -> bool:
        record = self.record()
        return record is not None and record.outcome == JobStatus.FINISHED.name

    def on_leader(self, number: int, term: int) -> None:
        """Record that a job manager leads; no other running job manager may lead."""
        world = self.world
        world.note(f"leads in term {term}")
        if self.terms and term <= self.terms[-1]:
            world.violate(f"term {term} comes after term {self.terms[-1]}")
        self.terms.append(term)
        for other, election in self.elections.items():
            manager = world.managers[other]
            runs = manager.is_alive and manager.frozen_until <= world.now
            if other != number and runs and election.is_leader(world.now + manager.offset):
                world.violate(f"job managers {other} and {number} both lead, in terms {election.term} and {term}")


class JobManager:
    """One job manager: takes part in the election, and runs the job while it leads."""

    def __init__(self, cluster: Cluster, manager: Manager) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._scene = cluster.scene
        self._manager = manager
        self._election = m.Election(f"manager-{manager.number}", "", cluster.timing)
        cluster.elections[manager.number] = self._election
        # The term in which it leads and runs the job.
        self._term: int | None = None
        self._master: JobMaster | None = None
        self.has_ended = False

    def start(self) -> None:
        self._world.begin(self._manager, self._elect)
        self._world.begin(self._manager, self._run_terms)

    # --- the election; follows `ElectionRunner`

    def _clock(self) -> float:
        return self._world.now + self._manager.offset

    def _elect(self) -> None:
        events: list[m.Event] = []
        while not self.has_ended:
            if not events:
                left = self._election.deadline - self._clock()
                # A shorter wait may be lost in rounding.
                self._world.wait(max(left, 1e-6) if left > 0 else 0.0, lambda: bool(events) or self.has_ended)
            event = events.pop(0) if events else m.Ticked()
            for instruction in self._election.handle(event, self._clock()):
                self._execute(instruction, events)

    def _execute(self, instruction: m.Instruction, events: list[m.Event]) -> None:
        match instruction:
            case m.Lead(term):
                self._cluster.on_leader(self._manager.number, term)
                self._term = term
            case m.StepDown(reason):
                self._world.note(f"steps down: {reason}")
                self._term = None
                if self._master is not None:
                    self._master.suspend(reason)
            case m.ReadLease() | m.WriteLease():
                self._world.begin(self._manager, lambda: events.append(self._access(instruction)))

    def _access(self, instruction: m.ReadLease | m.WriteLease) -> m.Event:
        cell = self._cluster.lease
        try:
            if isinstance(instruction, m.ReadLease):
                data, version = cell.read()
                return m.LeaseRead(None if data is None else _LEASES[data], version)
            data = repr(instruction.lease).encode()
            _LEASES[data] = instruction.lease
            return m.LeaseWritten(cell.write(data, instruction.version))
        except OvertakenError:
            return m.LeaseRefused()
        except Injected as error:
            return m.LeaseUnreachable(str(error))

    # --- the job

    def _run_terms(self) -> None:
        while not self.has_ended:
            self._world.wait(math.inf, lambda: self._term is not None)
            assert self._term is not None
            term = self._term
            try:
                self.has_ended = self._run(term)
            except DeposedError as error:
                self._world.note(f"cannot start: {error}")
            except MillstreamError as error:
                self._world.note(f"cannot start: {error}")
            self._master = None
            # A retry needs another term.
            if self._term == term and not self.has_ended:
                self._manager.is_alive = False
                raise DriverDied

    def _run(self, term: int) -> bool:
        """Run the job; return whether it reached a terminal status."""
        scene, world = self._scene, self._world
        fence = _Fence(self._cluster.job, _JOB, "job", term, _run=f"{term}-{self._manager.number}")
        fence.disk = scene.disk
        fence._lock = VirtualLock(world)  # type: ignore[assignment]
        record = fence.claim()
        if record.outcome is not None:
            return True
        origin = None
        if record.checkpoints:
            origin = find_published(Configuration(), "job", record.checkpoints)
            fence.withdraw_after(origin.location)
        world.note(f"restores {origin.location if origin else 'nothing'}")
        home = f"{ROOT}/{fence.run_id}"
        storage = SlowStorage(world, scene.disk, home)
        storage.is_deposed = lambda: (now := self._cluster.record()) is not None and now.term > term
        options = JobOptions(
            buffer_timeout=0.05,
            checkpoints=scene.setup.checkpoints,
            restart=scene.setup.restart(),
            origin=origin,
        )
        plan = partial(self._plan, fence.run_id)
        former = [run_id(_JOB, earlier_term) for earlier_term in range(1, term)]
        store = CheckpointStore(storage, _OWNER, None, fence)  # type: ignore[arg-type]
        self._master = make_master(
            scene,
            plan(scene.parallelism()),
            _Engine(scene, home),
            storage,
            store,
            options,
            replan=plan,
            claim=lambda _: supersede_runs(ROOT, former, origin, {}),
            delete_former=lambda _: delete_former_runs(ROOT, former, {}),
            inbox=LeaderMailbox(world, self._manager),
        )
        if self._term != term:
            self._master.suspend("it was deposed before the job began")
        self._master.run()
        status = self._master.view.status
        world.note(f"the job is {status.name}")
        self._check_error()
        # A job that an injected fault fails permanently ends here; its output is not checked.
        return status is not JobStatus.SUSPENDED

    def _check_error(self) -> None:
        assert self._master is not None
        error = self._master.result.exception()
        if error is not None and not isinstance(error, MillstreamError):
            self._world.violation = "".join(traceback.format_exception(error))

    def _plan(self, run_id: str, parallelism: int) -> JobPlan:
        return make_plan(self._world, self._scene.external, self._scene.records, run_id, parallelism)


class _Fence(Fence):
    """A real fence that also records the manifests it could not delete."""

    disk: Disk

    def withdraw(self, location: str) -> None:
        try:
            super().withdraw(location)
        except MillstreamError:
            self.disk.undeletable.add(f"{location}/{NAME}")
            raise


@dataclass(frozen=True)
class _Engine:
    """Follows `Engine`."""

    scene: Scene
    home: str

    def runner(self, plan: JobPlan, attempt: int) -> SimulatedTasks:
        return SimulatedTasks(self.scene, plan, attempt, f"{self.home}/{SHARED}")

    def slots(self, requested: int) -> int:
        return requested


# Leases by their encoded form: encoding them as JSON would take most of the time.
_LEASES: dict[bytes, m.Lease] = {}


# --- a schedule


def run_leaders(seed: int, verbose: bool = False) -> Outcome:
    """Run the schedule of a seed."""
    _LEASES.clear()
    world = SharedWorld(seed, verbose)
    # No event happens while the scene is drawn.
    scene = _scene(world)
    duration = world.random.choice((0.5, 2.0, 5.0))
    timing = m.Timing(duration, 0.6 * duration, 0.2 * duration)
    cluster = Cluster(scene, world, SimulatedCell(world), SimulatedCell(world), timing)
    world.note(f"{scene.setup.describe()}; {timing}")
    with patched_services(scene), suppress(Violated):
        for number in range(1, _CANDIDATES + 1):
            _start(cluster, number)
        world.after(0.5, partial(_replace_dead, cluster))
        world.run_until(lambda: _has_ended(cluster))
        if world.violation is None and not _has_failed(cluster):
            check_output(scene)
    return Outcome(seed, world.violation, _faults(cluster), world.log)


def _scene(world: SharedWorld) -> Scene:
    scene = Scene.draw(world)
    checkpoints = replace(scene.setup.checkpoints, mode=CheckpointingMode.EXACTLY_ONCE)
    scene.external.promise_exactly_once()
    return replace(scene, setup=replace(scene.setup, checkpoints=checkpoints))


def _start(cluster: Cluster, number: int) -> None:
    manager = Manager(number, cluster.world.random.uniform(-1e5, 1e5))
    cluster.world.managers[number] = manager
    JobManager(cluster, manager).start()


def _replace_dead(cluster: Cluster) -> None:
    """Start another job manager for each that has died."""
    world = cluster.world
    alive = [manager for manager in world.managers.values() if manager.is_alive]
    if len(alive) < _CANDIDATES and not _has_ended(cluster):
        _start(cluster, len(world.managers) + 1)
    world.after(0.5, partial(_replace_dead, cluster))


def _has_failed(cluster: Cluster) -> bool:
    record = cluster.record()
    return record is not None and record.outcome == JobStatus.FAILED.name


def _has_ended(cluster: Cluster) -> bool:
    """Return whether the job has ended, and every frozen job manager has had time to resume since."""
    record, world = cluster.record(), cluster.world
    if record is None or record.outcome is None:
        return False
    if cluster.ended_at is None:
        cluster.ended_at = world.now
    return world.now > cluster.ended_at + 30


def _faults(cluster: Cluster) -> Counter[str]:
    happened = cluster.world.faults.happened
    happened["take-over"] += max(len(cluster.terms) - 1, 0)
    return happened
