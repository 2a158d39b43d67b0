"""A driver: finds a checkpoint to restore and runs the real job master until the job ends or the driver dies."""

from __future__ import annotations

import os
import socket
import traceback
from collections.abc import Callable
from functools import partial

from millstream.checkpoint.manifest import SHARED, Origin
from millstream.checkpoint.origin import claim_latest, delete_former_drivers, find_origin
from millstream.checkpoint.store import CheckpointStore
from millstream.common.configuration import Configuration
from millstream.common.errors import MillstreamError
from millstream.common.job_status import JobStatus
from millstream.jobmaster.job import JobMaster
from millstream.jobmaster.machine.events import SlotsCounted
from millstream.jobmaster.machine.options import JobOptions
from millstream.jobmaster.machine.requests import CheckpointRequest, Request, RescaleRequest
from millstream.operators.runtime.messages import JobPlan

from .master import VirtualMailbox, make_master
from .program import make_plan
from .scene import Scene
from .storage import ROOT, SimulatedStorage
from .tasks import SimulatedTasks
from .world import DriverDied, Violated

_LATEST = Configuration.from_dict({"execution.state-recovery.path": "latest", "execution.checkpointing.dir": ROOT})

# A process that no longer exists: the ID of this process with another start time.
_OWNER = {"job": "job", "host": socket.gethostname(), "pid": os.getpid(), "started": "never"}


class Driver:
    """One driver of the job, with its own job ID; also the engine of its job master."""

    master: JobMaster

    def __init__(self, scene: Scene, number: int) -> None:
        self.home = f"{ROOT}/{number:032x}"
        self._scene = scene
        self._world = scene.world
        self._number = number
        self._slots = 1

    def run(self) -> JobStatus | None:
        """Run the job until it ends and return its status; None if the driver died before."""
        self._world.driver = self._number
        try:
            # As the job launcher does.
            origin = find_origin(_LATEST, "job")
            self._world.note(f"starts from {origin.location if origin else 'the beginning'}")
            self.master = self._make_master(origin)
            self._plan_interference()
            # As the job's thread does.
            self.master.run()
        except (DriverDied, Violated):
            return None
        except MillstreamError as e:
            self._world.note(f"cannot start: {e}")
            return JobStatus.FAILED
        finally:
            if self._world.driver is not None:
                self._world.kill()
        self._check_error()
        return self.master.view.status

    @property
    def has_finished(self) -> bool:
        """Whether the job finished, even if the driver died during the cleanup."""
        return hasattr(self, "master") and self.master.view.outcome is JobStatus.FINISHED

    def _check_error(self) -> None:
        """Check that only an injected fault failed the job."""
        error = self.master.result.exception()
        if error is not None and not isinstance(error, MillstreamError):
            self._world.violation = "".join(traceback.format_exception(error))

    # --- the job master and its plan

    def _make_master(self, origin: Origin | None) -> JobMaster:
        storage = SimulatedStorage(self._world, self._scene.disk, self.home)
        storage.last_id = origin.manifest.id if origin is not None else 0
        checkpoints, restart = self._scene.setup.checkpoints, self._scene.setup.restart()
        claiming = partial(claim_latest, _LATEST, "job", origin)
        deleting = partial(delete_former_drivers, _LATEST, "job", is_alive=lambda owner: False)
        scaling = self._scene.setup.scaling
        options = JobOptions(
            buffer_timeout=0.05, checkpoints=checkpoints, restart=restart, origin=origin, scaling=scaling
        )
        plan = self._plan(self._scene.parallelism())
        store = CheckpointStore(storage, _OWNER)  # type: ignore[arg-type]
        self._inbox = VirtualMailbox(self._scene, storage)
        arguments = {"replan": self._plan, "claim": claiming, "delete_former": deleting, "inbox": self._inbox}
        return make_master(self._scene, plan, self, storage, store, options, **arguments)  # type: ignore[arg-type]

    def _plan(self, parallelism: int) -> JobPlan:
        return make_plan(self._world, self._scene.external, self._scene.records, f"{self._number:032x}", parallelism)

    # --- the engine's interface

    def runner(self, plan: JobPlan, attempt: int) -> SimulatedTasks:
        """Return the runner of an execution's epochs; follows `Engine`."""
        return SimulatedTasks(self._scene, plan, attempt, f"{self.home}/{SHARED}")

    def slots(self, requested: int) -> int:
        return self._slots

    # --- interference

    def _plan_interference(self) -> None:
        """Schedule requests to the running job, slot changes, a cancellation or a kill."""
        random = self._world.random
        if random.random() < 0.2:
            self._interfere(partial(self._send_request, RescaleRequest(self._scene.parallelism())))
        if random.random() < 0.2:
            self._interfere(partial(self._send_request, CheckpointRequest()))
        if self._scene.setup.scaling is not None:
            for slots in random.choices((0, 1, 2, 3), k=3):
                self._interfere(partial(self._change_slots, slots))
            self._world.after(6.0, partial(self._change_slots, 2), self._number)
        if self._world.faults.strikes("cancel"):
            self._interfere(self._cancel)
        if self._world.faults.strikes("kill"):
            self._interfere(self._world.kill_current_driver)

    def _interfere(self, action: Callable[[], None]) -> None:
        self._world.after(self._world.random.random() ** 2 * 5, action, self._number)

    def _send_request(self, request: Request) -> None:
        if self._world.driver == self._number:
            self._world.note(f"receives {type(request).__name__}")
            self.master.ask(request)

    def _change_slots(self, slots: int) -> None:
        if self._world.driver == self._number:
            self._world.note(f"there are {slots} slots")
            self._slots = slots
            self._inbox.put(SlotsCounted(slots=slots))

    def _cancel(self) -> None:
        if self._world.driver == self._number:
            self._world.note("the job is cancelled")
            self.master.cancel()
