"""Runs each epoch as one Spark job: level 0 | shuffle | level 1 | shuffle | ... | reports."""

from __future__ import annotations

import pickle
from collections.abc import Callable

from py4j.protocol import Py4JError
from pyspark import SparkContext

from millstream.common.aliases import JavaObject
from millstream.common.errors import MillstreamError
from millstream.jobmaster.engine import SHUFFLED, EpochFailed
from millstream.operators.runtime.messages import JobPlan, LevelTask, SlotReport
from millstream.spark import control
from millstream.spark.daemon import HEARTBEAT_PROPERTY, JOB_PROPERTY, LOADS_PROPERTY, RELEASE_PROPERTY
from millstream.spark.errors import translate
from millstream.spark.heartbeat import HeartbeatSettings
from millstream.spark.pyspark_internals import active_context, jvm, results
from millstream.spark.rdd import SERIALIZER, interpreter, partitions, python_rdd
from millstream.spark.saved_plan import JobRef
from millstream.spark.slot_runtime import LevelFunction

# By name: this package must not import the API.
_OF_SQL = "millstream.table.slot_preload"


class SparkEpochs:
    """Runs the epochs of one job. Only `cancel` may be called from other threads."""

    slices = SHUFFLED

    def __init__(
        self,
        context: SparkContext,
        plan: JobPlan,
        job: JobRef,
        name: str,
        heartbeat: HeartbeatSettings,
        executable: str | None = None,
    ) -> None:
        self._context = context
        self._plan = plan
        self._job = job
        self._group = f"millstream-{job.key}"
        self._name = name
        self._heartbeat = heartbeat
        self._slots = [plan.slots(level) for level in range(plan.levels)]
        self._start: JavaObject = None
        self._python = interpreter(context, executable)
        self._embedded = control.is_embedded()
        # A slot process that died is replaced by one that reads the state from files. A batch job has none: it restarts
        # from the beginning, and local slots always run in the same process.
        self.resident_slots = self._embedded and plan.settings.batch

    def open(self, lost: Callable[[], None]) -> None:
        """Set group and slot properties of this thread's Spark jobs."""
        self._context.setJobGroup(self._group, self._name, interruptOnCancel=True)
        self._context.addJobTag(self._plan.settings.job_id)
        self._context.setLocalProperty(JOB_PROPERTY, self._job.key)
        beats = f"{round(self._heartbeat.interval * 1000)}/{round(self._heartbeat.timeout * 1000)}"
        self._context.setLocalProperty(HEARTBEAT_PROPERTY, beats)
        runs_sql = any(n.operator.emits_batches for v in self._plan.vertices for n in v.nodes)
        self._context.setLocalProperty(LOADS_PROPERTY, _OF_SQL if runs_sql else None)  # type: ignore[arg-type]
        # The partitions are the slots.
        self._start = partitions(self._context, self._slots[0])

    def run(self, tasks: list[LevelTask]) -> list[SlotReport]:
        """Run the levels of one epoch; raise the user's error if one fails."""
        shuffles = []
        rdd = self._start
        last = len(tasks) - 1
        for level, task in enumerate(tasks):
            rdd = python_rdd(self._context, rdd, LevelFunction(self._job, task, level == last), self._python)
            if level < last:
                rdd = self._shuffle(rdd, self._slots[level + 1])
                shuffles.append(rdd)
        try:
            info = jvm().PythonRDD.collectAndServe(rdd)
            with results(info, SERIALIZER) as stream:
                return [report for answer in stream for report in pickle.loads(answer)]
        except Exception as e:
            frozen = control.frozen_slot(self._job.key) if self._embedded else ""
            raise (EpochFailed(frozen) if frozen else translate(e, tasks[0].epoch)) from None
        finally:
            # Spark frees shuffles only when the driver's JVM collects garbage, which is too late for a stream.
            for shuffled in shuffles:
                shuffled.cleanShuffleDependencies(False)

    def cancel(self) -> None:
        """Cancel the running epoch, if any. Any thread may call this."""
        if self._embedded:
            # First, so that functions are closed: Spark only disconnects, and kills seconds later.
            control.release(self._job.key)
        self._context.cancelJobGroup(self._group)

    def release(self) -> None:
        """End the job's slot processes on all executors."""
        release_slots(self._context, self._job.key, self._name)

    def _shuffle(self, parent: JavaObject, slots: int) -> JavaObject:
        pairs = jvm().PairwiseRDD(parent).asJavaPairRDD()
        routed = pairs.partitionBy(jvm().PythonPartitioner(slots, 0))
        return jvm().PythonRDD.valueOfPair(routed).rdd()


def release_slots(context: SparkContext, key: str, name: str) -> None:
    """End the slot processes of an execution or of a job."""
    if control.is_embedded():
        control.release(key)
        return
    context.setJobGroup(f"millstream-{key}-release", f"{name}: release slots", interruptOnCancel=True)
    context.setLocalProperty(JOB_PROPERTY, None)  # type: ignore[arg-type]
    context.setLocalProperty(RELEASE_PROPERTY, key)
    # Each executor has its own daemon: enough tasks to reach them all.
    count = 2 * context.defaultParallelism
    try:
        context.parallelize(range(count), count).map(_identity).count()
    finally:
        context.setLocalProperty(RELEASE_PROPERTY, None)  # type: ignore[arg-type]


def _identity(value: int) -> int:
    return value


def end_work_of(job_id: str) -> None:
    """End the Spark jobs and slot processes of a job."""
    context = active_context()
    if context is None:
        return
    try:
        context.cancelJobsWithTag(job_id)
        release_slots(context, job_id, job_id)
    except (Py4JError, OSError) as e:
        raise MillstreamError(f"The Spark jobs and slot processes of job {job_id} could not be ended: {e}") from None
