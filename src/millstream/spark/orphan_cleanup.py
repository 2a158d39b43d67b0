"""What a job has left running on Spark when the process that drove it is gone."""

from __future__ import annotations

from py4j.protocol import Py4JError
from pyspark import SparkContext

from millstream.common.errors import MillstreamError
from millstream.spark.shuffle_epochs import release_slots


def end_work_of(job_id: str) -> None:
    """End the Spark jobs and slot processes of a job."""
    context = SparkContext._active_spark_context
    if context is None:
        return
    try:
        context.cancelJobsWithTag(job_id)
        release_slots(context, job_id, job_id)
    except (Py4JError, OSError) as e:
        raise MillstreamError(f"What job {job_id} has left running could not be ended: {e}") from None
