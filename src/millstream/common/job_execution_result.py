"""JobExecutionResult: the result of execute()."""

from __future__ import annotations

from dataclasses import field

from millstream.common.aliases import Value
from millstream.common.fast_dataclass import fast_dataclass

__all__ = ["JobExecutionResult"]


@fast_dataclass
class JobExecutionResult:
    """The result of a finished job."""

    job_id: str
    job_name: str
    net_runtime_ms: int
    records_in: int
    epochs: int
    accumulators: dict[str, Value] = field(default_factory=dict)

    def get_job_id(self) -> str:
        """Return the job's id."""
        return self.job_id

    def get_net_runtime(self) -> int:
        """Return the job's run time in milliseconds."""
        return self.net_runtime_ms

    def get_accumulator_result(self, accumulator_name: str) -> Value:
        """Return one accumulator."""
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
