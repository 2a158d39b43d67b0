"""JobExecutionResult: the result of execute()."""

from __future__ import annotations

from dataclasses import field

from millstream.common.aliases import Value
from millstream.common.fast_dataclass import fast_dataclass

__all__ = ["JobExecutionResult"]


@fast_dataclass
class JobExecutionResult:
    """The result of a finished job, which `execute()` returns.

    Example:
        >>> _ = env.from_collection([1, 2]).add_sink(lambda value: None)
        >>> result = env.execute("numbers")
        >>> result.job_name, result.records_in
        ('numbers', 2)
    """

    job_id: str
    job_name: str
    net_runtime_ms: int
    records_in: int
    epochs: int
    accumulators: dict[str, Value] = field(default_factory=dict)

    def get_job_id(self) -> str:
        """Return the job's id: 32 hexadecimal digits.

        Example:
            >>> _ = env.from_collection([1, 2]).add_sink(lambda value: None)
            >>> len(env.execute().get_job_id())
            32
        """
        return self.job_id

    def get_net_runtime(self) -> int:
        """Return the job's run time in milliseconds.

        Example:
            >>> _ = env.from_collection([1, 2]).add_sink(lambda value: None)
            >>> env.execute().get_net_runtime() < 60_000
            True
        """
        return self.net_runtime_ms

    def get_accumulator_result(self, accumulator_name: str) -> Value:
        """Return one accumulator, None if there is none.

        Example:
            >>> _ = env.from_collection([1, 2]).add_sink(lambda value: None)
            >>> env.execute().get_accumulator_result("seen") is None
            True
        """
        return self.accumulators.get(accumulator_name)

    def get_all_accumulator_results(self) -> dict[str, Value]:
        """Return all accumulators, summed over subtasks."""
        return dict(self.accumulators)

    def is_job_execution_result(self) -> bool:
        """Return True: the job has ended."""
        return True

    def __str__(self) -> str:
        return (
            f"Job '{self.job_name}' ({self.job_id}) finished in {self.net_runtime_ms} ms: "
            f"{self.records_in} records read, {self.epochs} epochs"
        )
