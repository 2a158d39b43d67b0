"""Runs epochs in resident slots: one long Spark job holds them, and the driver sends them epochs over connections.

The tasks of that Spark job fork a process for each slot (`slot_host.py`). For each epoch, `Exchange.run`
(`exchange/driver.py`) sends every slot an EPOCH frame with its tasks, and waits for the REPORT frames of the last
level; `exchange/slot_loop.py` is the slot's side.
"""

from __future__ import annotations

import logging
import pickle
import secrets
import threading
from collections.abc import Callable
from dataclasses import replace

from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JError
from pyspark import SparkContext

from millstream.common.errors import InvalidProgramError
from millstream.common.pickles import dump
from millstream.exchange import exchange_machine as p
from millstream.exchange.credentials import Credentials
from millstream.exchange.driver import START_SECONDS, Exchange, ExchangeFailed
from millstream.jobmaster.engine import QUICK, EpochFailed, EpochRunner
from millstream.operators.runtime.messages import JobPlan, LevelTask, SlotReport, SlotTaskSplitter
from millstream.spark import errors
from millstream.spark.cores import free_cores, hold_cores, is_local, max_cores, may_grow, release_cores
from millstream.spark.embedded import is_dead
from millstream.spark.exchange_settings import TRANSPORT, ExchangeChoice, ExchangeSettings, Transport
from millstream.spark.rdd import interpreter, partitions, python_rdd
from millstream.spark.saved_plan import JobRef
from millstream.spark.slot_host import CLOSE_SECONDS, HostFunction

log = logging.getLogger("millstream")

# Timeout of Spark noticing the end of its tasks.
_SPARK_SECONDS = 3.0
# Maximum idle workers of a dead daemon that are tried for a job.
_MAX_DEAD_WORKERS = 30


class SlotsMissing(EpochFailed):
    """No resident slots are available. No epoch has run."""


class ExchangeEpochs:
    """Runs the epochs of one execution (an `EpochRunner`). Only `cancel` may be called from other threads."""

    resident_slots = True
    slices = QUICK

    def __init__(
        self,
        context: SparkContext,
        plan: JobPlan,
        job: JobRef,
        name: str,
        settings: ExchangeSettings,
        executable: str | None = None,
        takes_all: bool = False,
    ) -> None:
        """Prepare an execution; with `takes_all`, no core is left free for other jobs."""
        self._context = context
        self._job = job
        self._job_id = plan.settings.job_id
        self._name = name
        self._heartbeat = settings.heartbeat
        self._group = f"millstream-{job.key}"
        self._widths = [plan.slots(level) for level in range(plan.levels)]
        self._task_splitter = SlotTaskSplitter(plan)
        self._python = interpreter(context, executable)
        self._leaves_a_core = settings.choice is ExchangeChoice.AUTO and not takes_all
        host = _driver_host(context, settings.transport)
        identity = settings.identity() if host is not None else None
        self._credentials = Credentials(secrets.token_bytes(32), identity, settings.heartbeat.timeout)
        self._exchange = Exchange(max(self._widths), self._widths[-1], self._credentials, host, self._report_lost)
        # Number of Spark tasks that hold the slots, once known.
        self._tasks = 0
        self._thread: threading.Thread | None = None
        self._spark_error: Exception | None = None
        self._spark_ended = threading.Event()
        self._is_released = False
        self._lost: Callable[[], None] = lambda: None

    def open(self, lost: Callable[[], None]) -> None:
        """Start the Spark job of the slots; the first epoch waits for them."""
        self._lost = lost
        hold_cores(self._job.key, 1)
        self._thread = threading.Thread(target=self._hold, name=f"slots-{self._job.key[:8]}", daemon=True)
        self._thread.start()

    def run(self, tasks: list[LevelTask]) -> list[SlotReport]:
        """Run the levels of one epoch; raise the user's error if one fails."""
        epoch = tasks[0].epoch
        try:
            common, parts = self._task_splitter.split(tasks)
            answers = self._exchange.run(epoch, dump(common), [dump(part) if part else b"" for part in parts])
        except ExchangeFailed as e:
            raise self._translate(e.cause, epoch) from None
        return [report for answer in answers for report in pickle.loads(answer)]

    def cancel(self) -> None:
        """Cancel the running epoch, if any. Any thread may call this."""
        self._exchange.notify(p.CancelRequested())

    def release(self) -> None:
        """End the slots; return when they have ended."""
        if self._is_released:
            return
        self._is_released = True
        try:
            self._exchange.release()
            if self._thread is None:
                return
            if not self._exchange.has_hosts:
                # They may be waiting for a core, which they no longer need.
                self._cancel_spark_job()
            if not self._exchange.serve_until(self._spark_ended.is_set, CLOSE_SECONDS + 0.2):
                self._exchange.release()
                self._await_spark()
        finally:
            release_cores(self._job.key)
            self._exchange.close()

    def _report_lost(self) -> None:
        self._lost()

    def _await_spark(self) -> None:
        if self._exchange.serve_until(self._spark_ended.is_set, CLOSE_SECONDS + _SPARK_SECONDS):
            return
        self._cancel_spark_job()
        if not self._exchange.serve_until(self._spark_ended.is_set, _SPARK_SECONDS):
            log.warning("Spark did not end the slots of job '%s' in time", self._name)

    def _cancel_spark_job(self) -> None:
        try:
            self._context.cancelJobGroup(self._group)
        except Py4JError as e:
            log.debug("the Spark job of the slots could not be cancelled: %s", e)

    def _hold(self) -> None:
        """Run the Spark job that holds the slots, on its own thread."""
        sc = self._context
        try:
            sc.setJobGroup(self._group, f"{self._name}: slots", interruptOnCancel=True)
            sc.addJobTag(self._job_id)
            tasks = self._tasks = self._acquire_cores()
            self._exchange.expect_hosts(tasks)
            address = self._exchange.address
            function = HostFunction(self._job, address, self._credentials, self._widths, tasks, self._heartbeat)
            hosts = python_rdd(sc, partitions(sc, tasks), function, self._python)
            self._start_hosts(hosts)
        except Exception as e:
            self._spark_error = e
        self._spark_ended.set()
        self._exchange.notify(p.SparkEnded(""))

    def _start_hosts(self, hosts: JavaObject) -> None:
        """Run the tasks that hold the slots until they end.

        After the death of its daemon, Spark gives the next tasks the dead workers that were idle. If the only task of
        a local Spark ends before it holds slots, nothing has run, and it starts again with another worker.
        """
        for is_last in [*[False] * _MAX_DEAD_WORKERS, True]:
            if self._is_released:
                return
            try:
                hosts.asJavaRDD().count()
                return
            except Py4JError as e:
                is_lost = is_local(self._context) and errors.is_worker_death(e) and self._exchange.awaits_first_host
                if is_last or not is_lost:
                    raise
                log.debug("an idle worker of Spark was dead: the slots of job '%s' start again", self._name)

    def _acquire_cores(self) -> int:
        """Hold cores for the slots; return the number of Spark tasks: one per free core, at least one."""
        if is_local(self._context):
            # Cores of local Spark are only permits; all processes share the processors.
            return 1
        slots = max(self._widths)
        if may_grow(self._context):
            # Spark allocates executors for pending tasks.
            tasks = min(slots, max_cores(self._context))
        else:
            reserved = 1 if self._leaves_a_core else 0
            # One of the held cores is this execution's own.
            free = free_cores(self._context, slots + reserved - 1, lambda: self._is_released) + 1
            tasks = max(1, min(slots, free - reserved))
        if not self._is_released:
            hold_cores(self._job.key, tasks)
        return tasks

    def _translate(self, cause: p.Cause, epoch: int) -> EpochFailed:
        return self._TRANSLATIONS[cause.kind](self, cause.text, epoch)

    def _raised(self, text: str, epoch: int) -> EpochFailed:
        reported = errors.failure_in(text)
        return reported or EpochFailed(f"A slot could not run epoch {epoch}: {text.rstrip()}", engine_trace=text)

    def _died(self, text: str, epoch: int) -> EpochFailed:
        # Processes of an embedded Spark die with its JVM, which is the cause then.
        return errors.java_ended(epoch, text) if is_dead() else errors.worker_died(epoch, text)

    def _froze(self, text: str, epoch: int) -> EpochFailed:
        return EpochFailed(text)

    def _spark_ended_early(self, text: str, epoch: int) -> EpochFailed:
        if self._spark_error is None:
            return errors.worker_died(epoch, "the Spark job that holds the slots has ended")
        return errors.translate(self._spark_error, epoch)

    def _start_timed_out(self, text: str, epoch: int) -> EpochFailed:
        return SlotsMissing(
            f"Spark did not start the job's slots within {START_SECONDS:g} s: {text}. They need {max(1, self._tasks)} "
            "free cores while the job runs; with millstream.exchange=spark, only while an epoch runs."
        )

    def _unreachable(self, text: str, epoch: int) -> EpochFailed:
        return SlotsMissing(
            f"The hosts of the job's slots cannot reach each other ({text}): open the ports between them, or set "
            "millstream.exchange=spark."
        )

    def _protocol_error(self, text: str, epoch: int) -> EpochFailed:
        return EpochFailed(f"Slots violated the exchange protocol in epoch {epoch}, an error in millstream: {text}.")

    def _cancelled(self, text: str, epoch: int) -> EpochFailed:
        return EpochFailed(f"Epoch {epoch} was cancelled.")

    _TRANSLATIONS: dict[p.FailureKind, Callable[[ExchangeEpochs, str, int], EpochFailed]] = {
        p.FailureKind.RAISED: _raised,
        p.FailureKind.DIED: _died,
        p.FailureKind.FROZEN: _froze,
        p.FailureKind.SPARK: _spark_ended_early,
        p.FailureKind.START_TIMEOUT: _start_timed_out,
        p.FailureKind.UNREACHABLE: _unreachable,
        p.FailureKind.PROTOCOL: _protocol_error,
        p.FailureKind.CANCELLED: _cancelled,
        p.FailureKind.RELEASED: _cancelled,
    }


def _driver_host(context: SparkContext, transport: Transport) -> str | None:
    """Return the driver's host for connections of slots; None for a Unix socket."""
    if transport is Transport.AUTO:
        transport = Transport.UNIX if is_local(context) else Transport.TCP
    if transport is Transport.TCP:
        return str(context.getConf().get("spark.driver.host", "127.0.0.1"))
    if not str(context.master).startswith("local"):
        raise InvalidProgramError(f"{TRANSPORT}=unix needs all slots on this machine; the master is {context.master}.")
    return None


class FallbackEpochs:
    """Runs epochs of one execution in resident slots, or through Spark's shuffle if there are none."""

    resident_slots = True
    slices = QUICK

    def __init__(self, resident: EpochRunner, create_fallback: Callable[[], EpochRunner]) -> None:
        """Try resident slots first.

        Args:
            resident: runs epochs in resident slots.
            create_fallback: creates the runner to fall back to.
        """
        self._runner = resident
        self._create_fallback = create_fallback
        self._lock = threading.Lock()
        self._is_cancelled = False
        self._has_fallen_back = False
        self._lost: Callable[[], None] = lambda: None

    def open(self, lost: Callable[[], None]) -> None:
        self._lost = lost
        self._runner.open(lost)

    def run(self, tasks: list[LevelTask]) -> list[SlotReport]:
        if self._has_fallen_back:
            return self._runner.run([_with_state_files(task) for task in tasks])
        try:
            return self._runner.run(tasks)
        except SlotsMissing as e:
            log.warning("%s The job falls back to Spark's shuffle.", e)
            self._runner.release()
        # No epoch has run: the other runner starts with the same one.
        with self._lock:
            self._runner = self._create_fallback()
            if self._is_cancelled:
                raise EpochFailed(f"Epoch {tasks[0].epoch} was cancelled.")
        self._has_fallen_back = True
        self._runner.open(self._lost)
        return self._runner.run([_with_state_files(task) for task in tasks])

    def cancel(self) -> None:
        with self._lock:
            self._is_cancelled = True
            self._runner.cancel()

    def release(self) -> None:
        self._runner.release()


def _with_state_files(task: LevelTask) -> LevelTask:
    """Return a task that writes its state to files: it was created for resident slots."""
    return replace(task, writes_state=True, held_epoch=None)
