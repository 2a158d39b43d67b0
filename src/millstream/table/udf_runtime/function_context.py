"""FunctionContext: the context of a user-defined function in `open`."""

from __future__ import annotations

from millstream.common.aliases import Value
from millstream.metrics import MetricGroup
from millstream.operators.functions.context import RuntimeContext


class FunctionContext:
    """Gives `open` of a user-defined function access to metrics, job parameters and its subtask.

    Example:
        >>> from millstream.table.udf import ScalarFunction, udf
        >>> class Discount(ScalarFunction):
        ...     def open(self, function_context):
        ...         self.rate = float(function_context.get_job_parameter("rate", "1.0"))
        ...     def eval(self, price): return price * self.rate
        >>> _ = t_env.get_config().set("pipeline.global-job-parameters", "rate:0.5")
        >>> discount = udf(Discount(), result_type="DOUBLE")
        >>> list(t_env.from_elements([(10,)], ["price"]).select(discount(col("price"))).execute().collect())
        [<Row(5.0)>]
    """

    def __init__(
        self,
        base_metric_group: MetricGroup | None,
        job_parameters: dict[str, str],
        task_name: str | None = None,
        task_name_with_subtasks: str | None = None,
        number_of_parallel_subtasks: int | None = None,
        max_number_of_parallel_subtasks: int | None = None,
        index_of_this_subtask: int | None = None,
        attempt_number: int | None = None,
    ) -> None:
        self._metric_group = base_metric_group
        self._job_parameters = job_parameters
        self._task_name = task_name
        self._task_name_with_subtasks = task_name_with_subtasks
        self._parallelism = number_of_parallel_subtasks
        self._max_parallelism = max_number_of_parallel_subtasks
        self._index = index_of_this_subtask
        self._attempt = attempt_number

    def get_metric_group(self) -> MetricGroup:
        """Return the metrics of the function's operator, to register counters and gauges."""
        if self._metric_group is None:
            raise RuntimeError("The function has no metrics, because it runs outside of a subtask.")
        return self._metric_group

    def get_job_parameter(self, key: str, default_value: str) -> str:
        """Return a global parameter of the job: a key of `pipeline.global-job-parameters`."""
        return self._job_parameters.get(key, default_value)

    def get_task_name(self) -> str | None:
        """Return the name of the task."""
        return self._task_name

    def get_task_name_with_subtasks(self) -> str | None:
        """Return the name of the task with the number of the subtask."""
        return self._task_name_with_subtasks

    def get_number_of_parallel_subtasks(self) -> int | None:
        """Return the parallelism of the function."""
        return self._parallelism

    def get_max_number_of_parallel_subtasks(self) -> int | None:
        """Return the maximum parallelism of the function."""
        return self._max_parallelism

    def get_index_of_this_subtask(self) -> int | None:
        """Return the index of this subtask, from 0."""
        return self._index

    def get_attempt_number(self) -> int | None:
        """Return the number of earlier attempts of the subtask."""
        return self._attempt


def function_context(runtime: RuntimeContext | None) -> FunctionContext:
    """Return the context that `open` of a user function receives in a subtask, or outside of one."""
    if runtime is None:
        return FunctionContext(None, {})
    name = runtime.get_task_name()
    index, width = runtime.get_index_of_this_subtask(), runtime.get_number_of_parallel_subtasks()
    return FunctionContext(
        runtime.get_metrics_group(),
        _Parameters(runtime),
        name,
        f"{name} ({index + 1}/{width})",
        width,
        runtime.get_max_number_of_parallel_subtasks(),
        index,
        runtime.get_attempt_number(),
    )


class _Parameters(dict[str, str]):
    """The job parameters of a runtime context, read on access."""

    def __init__(self, runtime: RuntimeContext) -> None:
        super().__init__()
        self._runtime = runtime

    def get(self, key: str, default: Value = None) -> Value:
        return self._runtime.get_job_parameter(key, default)
