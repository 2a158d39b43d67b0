"""RuntimeContext: runtime information and state for user functions."""

from __future__ import annotations

from millstream.common.aliases import Value
from millstream.common.errors import InvalidProgramError
from millstream.operators.functions.metrics import MetricGroup
from millstream.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from millstream.state.handles import AggregatingState, ListState, MapState, ReducingState, ValueState
from millstream.state.keyed import KeyedState


class RuntimeContext:
    """The runtime context of one function instance: subtask, parallelism, state, metrics."""

    def __init__(
        self,
        task_name: str,
        subtask: int,
        parallelism: int,
        max_parallelism: int,
        attempt: int,
        job_parameters: dict[str, str],
        metrics: MetricGroup,
        keyed_state: KeyedState | None,
    ) -> None:
        self._task_name = task_name
        self._subtask = subtask
        self._parallelism = parallelism
        self._max_parallelism = max_parallelism
        self._attempt = attempt
        self._job_parameters = job_parameters
        self._metrics = metrics
        self._keyed_state = keyed_state

    def get_task_name(self) -> str:
        """Return the operator's name."""
        return self._task_name

    def get_index_of_this_subtask(self) -> int:
        """Return the index of this subtask, from 0."""
        return self._subtask

    def get_number_of_parallel_subtasks(self) -> int:
        """Return the parallelism of the operator."""
        return self._parallelism

    def get_max_number_of_parallel_subtasks(self) -> int:
        """Return the maximum parallelism of the operator."""
        return self._max_parallelism

    def get_task_name_with_subtasks(self) -> str:
        """Return the operator's name with the subtask and the parallelism."""
        return f"{self._task_name} ({self._subtask + 1}/{self._parallelism})"

    def get_attempt_number(self) -> int:
        """Return the number of restarts of the job."""
        return self._attempt

    def get_job_parameter(self, key: str, default_value: str) -> str:
        """Return a job parameter, or the default."""
        return self._job_parameters.get(key, default_value)

    def get_metrics_group(self) -> MetricGroup:
        """Return the metric group of the function."""
        return self._metrics

    def get_metric_group(self) -> MetricGroup:
        """Return the metric group of the function."""
        return self._metrics

    def get_state(self, state_descriptor: ValueStateDescriptor) -> ValueState:
        """Return the value state of that name, for the current key."""
        state: ValueState = self._state(state_descriptor)
        return state

    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState:
        """Return the list state of that name, for the current key."""
        state: ListState = self._state(state_descriptor)
        return state

    def get_map_state(self, state_descriptor: MapStateDescriptor) -> MapState:
        """Return the map state of that name, for the current key."""
        state: MapState = self._state(state_descriptor)
        return state

    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor) -> ReducingState:
        """Return the reducing state of that name, for the current key."""
        state: ReducingState = self._state(state_descriptor)
        return state

    def get_aggregating_state(self, state_descriptor: AggregatingStateDescriptor) -> AggregatingState:
        """Return the aggregating state of that name, for the current key."""
        state: AggregatingState = self._state(state_descriptor)
        return state

    def _state(self, descriptor: StateDescriptor) -> Value:
        if self._keyed_state is None:
            raise InvalidProgramError(
                f"Operator '{self._task_name}' uses keyed state {descriptor.name!r} but its input is not keyed: "
                "call key_by(...) before it."
            )
        return self._keyed_state.handle(descriptor)
