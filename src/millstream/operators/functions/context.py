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
from millstream.state.handles import MapState, ValueState
from millstream.state.keyed import KeyedState
from millstream.state.merging_handles import AggregatingState, ListState, ReducingState


class RuntimeContext:
    """The runtime context of one function instance, given to its `open()`: subtask, parallelism, state and metrics.

    Example:
        >>> from millstream.datastream import MapFunction
        >>> class WithTask(MapFunction):
        ...     def open(self, runtime_context):
        ...         self.task = runtime_context.get_task_name_with_subtasks()
        ...     def map(self, value):
        ...         return value, self.task
        >>> list(env.from_collection([1]).map(WithTask()).name("label").execute_and_collect())
        [(1, 'label (1/1)')]
    """

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
        """Return the operator's name.

        Example:
            >>> from millstream.datastream import MapFunction
            >>> class WithTask(MapFunction):
            ...     def open(self, runtime_context):
            ...         self.task = runtime_context.get_task_name()
            ...     def map(self, value):
            ...         return value, self.task
            >>> list(env.from_collection([1]).map(WithTask()).name("label").execute_and_collect())
            [(1, 'label')]
        """
        return self._task_name

    def get_index_of_this_subtask(self) -> int:
        """Return the index of this subtask, from 0.

        Example:
            >>> from millstream.datastream import MapFunction
            >>> class WithSubtask(MapFunction):
            ...     def open(self, runtime_context):
            ...         self.subtask = runtime_context.get_index_of_this_subtask()
            ...     def map(self, value):
            ...         return value, self.subtask
            >>> numbers = env.set_parallelism(2).from_collection([1, 2]).broadcast().map(WithSubtask())
            >>> sorted(numbers.execute_and_collect())
            [(1, 0), (1, 1), (2, 0), (2, 1)]
        """
        return self._subtask

    def get_number_of_parallel_subtasks(self) -> int:
        """Return the parallelism of the operator.

        Example:
            >>> from millstream.datastream import MapFunction
            >>> class WithParallelism(MapFunction):
            ...     def open(self, runtime_context):
            ...         self.parallelism = runtime_context.get_number_of_parallel_subtasks()
            ...     def map(self, value):
            ...         return value, self.parallelism
            >>> list(env.from_collection([1]).map(WithParallelism()).set_parallelism(3).execute_and_collect())
            [(1, 3)]
        """
        return self._parallelism

    def get_max_number_of_parallel_subtasks(self) -> int:
        """Return the maximum parallelism of the operator, which is its number of key groups.

        Example:
            >>> from millstream.datastream import MapFunction
            >>> class WithMaximum(MapFunction):
            ...     def open(self, runtime_context):
            ...         self.maximum = runtime_context.get_max_number_of_parallel_subtasks()
            ...     def map(self, value):
            ...         return value, self.maximum
            >>> keyed = env.set_max_parallelism(64).from_collection([1]).key_by(lambda value: value)
            >>> list(keyed.map(WithMaximum()).execute_and_collect())
            [(1, 64)]
        """
        return self._max_parallelism

    def get_task_name_with_subtasks(self) -> str:
        """Return the operator's name with the subtask, counted from 1, and the parallelism.

        Example:
            >>> from millstream.datastream import MapFunction
            >>> class WithTask(MapFunction):
            ...     def open(self, runtime_context):
            ...         self.task = runtime_context.get_task_name_with_subtasks()
            ...     def map(self, value):
            ...         return value, self.task
            >>> list(env.from_collection([1]).map(WithTask()).name("label").execute_and_collect())
            [(1, 'label (1/1)')]
        """
        return f"{self._task_name} ({self._subtask + 1}/{self._parallelism})"

    def get_attempt_number(self) -> int:
        """Return the number of restarts of the job.

        Example:
            >>> from millstream.datastream import MapFunction
            >>> class WithAttempt(MapFunction):
            ...     def open(self, runtime_context):
            ...         self.attempt = runtime_context.get_attempt_number()
            ...     def map(self, value):
            ...         return value, self.attempt
            >>> list(env.from_collection([1]).map(WithAttempt()).execute_and_collect())
            [(1, 0)]
        """
        return self._attempt

    def get_job_parameter(self, key: str, default_value: str) -> str:
        """Return a global job parameter, or the default.

        Example:
            >>> from millstream.datastream import MapFunction
            >>> class Scale(MapFunction):
            ...     def open(self, runtime_context):
            ...         self.factor = int(runtime_context.get_job_parameter("factor", "1"))
            ...     def map(self, value):
            ...         return value * self.factor
            >>> _ = env.get_config().set_global_job_parameters({"factor": "10"})
            >>> list(env.from_collection([1, 2]).map(Scale()).execute_and_collect())
            [10, 20]
        """
        return self._job_parameters.get(key, default_value)

    def get_metrics_group(self) -> MetricGroup:
        """Return the metric group of the function, as PyFlink names it.

        Example:
            >>> from millstream.datastream import MapFunction
            >>> from millstream.testing import OneInputHarness
            >>> class Count(MapFunction):
            ...     def open(self, runtime_context):
            ...         self.seen = runtime_context.get_metrics_group().counter("seen")
            ...     def map(self, value):
            ...         self.seen.inc()
            ...         return value
            >>> with OneInputHarness(Count()) as harness:
            ...     harness.process_elements(["a", "b"])
            ...     harness.metrics()
            {'Map.seen': 2}
        """
        return self._metrics

    def get_metric_group(self) -> MetricGroup:
        """Return the metric group of the function, as Flink's Java API names it: the same as `get_metrics_group()`."""
        return self._metrics

    def get_state(self, state_descriptor: ValueStateDescriptor) -> ValueState:
        """Return the value state of that name, for the current key.

        Example:
            >>> from millstream.datastream import MapFunction
            >>> from millstream.datastream.state import ValueStateDescriptor
            >>> class Count(MapFunction):
            ...     def open(self, runtime_context):
            ...         self.count = runtime_context.get_state(ValueStateDescriptor("count"))
            ...     def map(self, word):
            ...         self.count.update((self.count.value() or 0) + 1)
            ...         return word, self.count.value()
            >>> list(env.from_collection(["a", "b", "a"]).key_by(lambda word: word).map(Count()).execute_and_collect())
            [('a', 1), ('b', 1), ('a', 2)]
        """
        state: ValueState = self._state(state_descriptor)
        return state

    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState:
        """Return the list state of that name, for the current key.

        Example:
            >>> from millstream.datastream import MapFunction
            >>> from millstream.datastream.state import ListStateDescriptor
            >>> class History(MapFunction):
            ...     def open(self, runtime_context):
            ...         self.history = runtime_context.get_list_state(ListStateDescriptor("history"))
            ...     def map(self, value):
            ...         self.history.add(value)
            ...         return self.history.get()
            >>> list(env.from_collection([3, 1]).key_by(lambda value: 0).map(History()).execute_and_collect())
            [[3], [3, 1]]
        """
        state: ListState = self._state(state_descriptor)
        return state

    def get_map_state(self, state_descriptor: MapStateDescriptor) -> MapState:
        """Return the map state of that name, for the current key.

        Example:
            >>> from millstream.datastream import FilterFunction
            >>> from millstream.datastream.state import MapStateDescriptor
            >>> class New(FilterFunction):
            ...     def open(self, runtime_context):
            ...         self.seen = runtime_context.get_map_state(MapStateDescriptor("seen"))
            ...     def filter(self, page):
            ...         is_new = page not in self.seen
            ...         self.seen[page] = True
            ...         return is_new
            >>> list(env.from_collection(["home", "home"]).key_by(lambda page: 0).filter(New()).execute_and_collect())
            ['home']
        """
        state: MapState = self._state(state_descriptor)
        return state

    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor) -> ReducingState:
        """Return the reducing state of that name, for the current key.

        Example:
            >>> from millstream.datastream import MapFunction
            >>> from millstream.datastream.state import ReducingStateDescriptor
            >>> class Longest(MapFunction):
            ...     def open(self, runtime_context):
            ...         self.longest = runtime_context.get_reducing_state(ReducingStateDescriptor("longest", max))
            ...     def map(self, word):
            ...         self.longest.add(len(word))
            ...         return self.longest.get()
            >>> list(env.from_collection(["to", "not"]).key_by(lambda word: 0).map(Longest()).execute_and_collect())
            [2, 3]
        """
        state: ReducingState = self._state(state_descriptor)
        return state

    def get_aggregating_state(self, state_descriptor: AggregatingStateDescriptor) -> AggregatingState:
        """Return the aggregating state of that name, for the current key.

        Example:
            >>> from millstream.datastream import AggregateFunction, MapFunction
            >>> from millstream.datastream.state import AggregatingStateDescriptor
            >>> class Average(AggregateFunction):
            ...     create_accumulator = lambda self: (0, 0)
            ...     add = lambda self, value, acc: (acc[0] + value, acc[1] + 1)
            ...     get_result = lambda self, acc: acc[0] / acc[1]
            ...     merge = lambda self, a, b: (a[0] + b[0], a[1] + b[1])
            >>> average = AggregatingStateDescriptor("average", Average())
            >>> class RunningAverage(MapFunction):
            ...     def open(self, runtime_context):
            ...         self.average = runtime_context.get_aggregating_state(average)
            ...     def map(self, value):
            ...         self.average.add(value)
            ...         return self.average.get()
            >>> list(env.from_collection([3, 4, 8]).key_by(lambda value: 0).map(RunningAverage()).execute_and_collect())
            [3.0, 3.5, 5.0]
        """
        state: AggregatingState = self._state(state_descriptor)
        return state

    def _state(self, descriptor: StateDescriptor) -> Value:
        if self._keyed_state is None:
            raise InvalidProgramError(
                f"Operator '{self._task_name}' uses keyed state {descriptor.name!r} but its input is not keyed: "
                "call key_by(...) before it."
            )
        return self._keyed_state.handle(descriptor)
