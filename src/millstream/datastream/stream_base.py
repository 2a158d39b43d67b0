"""The base of streams and sinks: settings of their operators, and access to what a stream consists of.

The functions at the end are for other modules, so that PyFlink's classes have no other public methods than PyFlink's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar, Union

from millstream.common.aliases import T_co, Value
from millstream.common.errors import InvalidProgramError, WrongTypeError
from millstream.common.typeinfo import PickledBytesTypeInfo, TypeInformation
from millstream.datastream.program_builder import ProgramBuilder
from millstream.datastream.slot_sharing_group import SlotSharingGroup
from millstream.graph.transformations import ChainingStrategy, Transformation, UpstreamEdge, check_max_parallelism
from millstream.operators.base import Operator

if TYPE_CHECKING:
    from millstream.datastream.data_stream import DataStream
    from millstream.datastream.stream_execution_environment import StreamExecutionEnvironment

S = TypeVar("S", bound="OperatorSettings")


class OperatorSettings:
    """The settings of the operator that produces a stream, or of a sink."""

    _transformation: Transformation

    def _set(self, action: str) -> Transformation:
        """Return the operator for something to be set; some streams refuse, in PyFlink's words."""
        return self._transformation

    def name(self: S, name: str) -> S:
        """Name the operator, for plans, logs and errors: any text is a name.

        Example:
            >>> env.from_collection([1]).map(lambda x: x).name("identity").get_name()
            'identity'
        """
        if not isinstance(name, str):
            raise WrongTypeError(f"name() takes a text, not {name!r}.")
        operator = self._set("Set name for")
        (operator.source or operator).name = name
        return self

    def get_name(self) -> str:
        """Return the operator's name, by default its kind.

        Example:
            >>> env.from_collection([1]).map(lambda x: x).get_name()
            'Map'
        """
        operator = self._set("Get name of")
        return (operator.source or operator).name

    def uid(self: S, uid: str) -> S:
        """Set a stable id, by which a restored job finds the operator's state; set one on every operator with state.

        Example:
            >>> import json
            >>> _ = env.from_collection([1]).uid("numbers").print().uid("printer")
            >>> [node["type"] for node in json.loads(env.get_execution_plan())["nodes"]]
            ['Source: Collection Source', 'Print to Std. Out']
        """
        operator = self._set("Set uid for")
        if not isinstance(uid, str) or not uid:
            raise InvalidProgramError(f"uid() takes a non-empty string, not {uid!r}.")
        (operator.source or operator).uid = uid
        return self

    def set_uid_hash(self: S, uid_hash: str) -> S:
        """Set the operator's id itself, 32 hexadecimal digits, as logs and savepoints of an older program show it.

        Example:
            >>> stream = env.from_collection([1]).set_uid_hash("2e588ce1c86a9d46e2e85186773ce4fd")
            >>> list(stream.execute_and_collect())
            [1]
        """
        operator = self._set("Set uid hash for")
        if len(uid_hash) != 32 or any(c not in "0123456789abcdef" for c in uid_hash):
            raise InvalidProgramError(f"set_uid_hash() takes 32 lowercase hexadecimal digits, not {uid_hash!r}.")
        operator.uid_hash = uid_hash
        return self

    def set_parallelism(self: S, parallelism: int) -> S:
        """Set the operator's parallelism: the number of its subtasks.

        Example:
            >>> import json
            >>> _ = env.from_collection([1]).map(lambda x: x).set_parallelism(3).print()
            >>> [node["parallelism"] for node in json.loads(env.get_execution_plan())["nodes"]]
            [1, 3, 1]
        """
        self._set("Set parallelism for").set_parallelism(parallelism)
        return self

    def set_max_parallelism(self: S, max_parallelism: int) -> S:
        """Set the number of key groups, the maximum parallelism; unlike in Flink, a restored job may change it.

        Example:
            >>> counts = env.from_collection(["a", "b", "a"]).map(lambda w: (w, 1)).key_by(lambda t: t[0]).sum(1)
            >>> list(counts.set_max_parallelism(1024).execute_and_collect())
            [('a', 1), ('b', 1), ('a', 2)]
        """
        operator = self._set("Set max parallelism for")
        check_max_parallelism(max_parallelism, f"operator '{operator.shown_name}'")
        operator.max_parallelism = max_parallelism
        return self

    def set_description(self: S, description: str) -> S:
        """Describe the operator, for plans and the web UI; its name is for logs.

        Example:
            >>> import json
            >>> _ = env.from_collection([1]).set_description("the number one").print()
            >>> json.loads(env.get_execution_plan())["nodes"][0]["contents"]
            'the number one'
        """
        self._set("Set description for").description = description
        return self

    def set_buffer_timeout(self: S, timeout_millis: int) -> S:
        """Has no effect on one operator: the buffer timeout is that of the environment.

        Example:
            >>> list(env.from_collection([1, 2]).map(lambda x: x * 10).set_buffer_timeout(10).execute_and_collect())
            [10, 20]
        """
        self._set("Set buffer timeout for").buffer_timeout = timeout_millis
        return self

    def slot_sharing_group(self: S, slot_sharing_group: Union[str, SlotSharingGroup]) -> S:
        """Set the slot sharing group; operators of different groups do not share slots.

        Example:
            >>> heavy = env.from_collection([1, 2]).rebalance().map(lambda x: x * 10).slot_sharing_group("heavy")
            >>> list(heavy.execute_and_collect())
            [10, 20]
        """
        operator, group = self._set("Setting slot sharing group for"), slot_sharing_group
        operator.slot_sharing_group = group.name if isinstance(group, SlotSharingGroup) else group
        return self

    def start_new_chain(self: S) -> S:
        """Begin a new chain with this operator: it does not run in the same loop as the operator before it.

        Example:
            >>> list(env.from_collection([1, 2]).map(lambda x: x * 10).start_new_chain().execute_and_collect())
            [10, 20]
        """
        self._set("Start new chain for").chaining = ChainingStrategy.HEAD
        return self

    def disable_chaining(self: S) -> S:
        """Exclude this operator from chains: it runs in a loop of its own.

        Example:
            >>> list(env.from_collection([1, 2]).map(lambda x: x * 10).disable_chaining().execute_and_collect())
            [10, 20]
        """
        self._set("Disable chaining for").chaining = ChainingStrategy.NEVER
        return self


class StreamBase(OperatorSettings, Generic[T_co]):
    """The part of DataStream that other modules of the API use."""

    def __init__(
        self, environment: StreamExecutionEnvironment, builder: ProgramBuilder, ends: list[UpstreamEdge]
    ) -> None:
        """Create a stream.

        Args:
            environment: the environment that the stream belongs to.
            builder: the builder of its program.
            ends: the transformations whose output the stream is, each with partitioner and side output: the input edges
                of the operator that is added next. A union has several.
        """
        self._environment = environment
        self._builder = builder
        self._ends = ends

    @property
    def _transformation(self) -> Transformation:  # type: ignore[override]
        if len(self._ends) != 1 or self._ends[0].tag is not None:
            raise InvalidProgramError(
                "This stream is a union or a side output: set names and parallelism on its operators."
            )
        return self._ends[0].source

    @property
    def _keyed(self) -> bool:
        return False

    def _type(self) -> TypeInformation | None:
        end = self._ends[0]
        if end.tag is None:
            return end.source.type_info
        return None if isinstance(end.tag.type_info, PickledBytesTypeInfo) else end.tag.type_info

    def _without_key(self) -> DataStream[T_co]:
        raise NotImplementedError

    def _unkeyed_input(self) -> DataStream[Value]:
        raise NotImplementedError

    def _add_operator(
        self,
        name: str,
        operator: Operator,
        output_type: TypeInformation | None,
        second: DataStream[Value] | None = None,
    ) -> DataStream[Value]:
        raise NotImplementedError

    def _check_same_program(self, other: StreamBase[Value], operation: str) -> None:
        if not isinstance(other, StreamBase):
            raise WrongTypeError(f"{operation}() takes a stream, not {other!r}.")
        if other._environment is not self._environment:
            raise InvalidProgramError(f"{operation}() needs streams of the same environment.")


def environment_of(stream: StreamBase[Value]) -> StreamExecutionEnvironment:
    """Return the environment of a stream."""
    return stream._environment


def ends_of(stream: StreamBase[Value]) -> list[UpstreamEdge]:
    """Return the upstream edges of a stream."""
    return list(stream._ends)


def transformation_of(stream: OperatorSettings) -> Transformation:
    """Return the transformation of a sink, or of a stream that is neither a union nor a side output."""
    return stream._transformation


def declared_type(stream: StreamBase[Value]) -> TypeInformation | None:
    """Return the type of a stream's records, None if it has not been declared."""
    return stream._type()


def is_keyed(stream: StreamBase[Value]) -> bool:
    """Return whether a stream is partitioned by key."""
    return stream._keyed


def without_key(stream: StreamBase[T_co]) -> DataStream[T_co]:
    """Return the stream before key_by(); a stream without keys as it is."""
    return stream._without_key()


def unkeyed_input(stream: StreamBase[Value]) -> DataStream[Value]:
    """Return a stream to connect with an unkeyed one: of a keyed stream the rows of key and value."""
    return stream._unkeyed_input()


def check_same_program(stream: StreamBase[Value], other: StreamBase[Value], operation: str) -> None:
    """Raise an error unless both are streams of the same environment."""
    stream._check_same_program(other, operation)


def add_operator(
    stream: StreamBase[Value],
    name: str,
    operator: Operator,
    output_type: TypeInformation | None,
    second: DataStream[Value] | None = None,
) -> DataStream[Value]:
    """Add an operator with a stream as input, and a second one if it has two inputs."""
    return stream._add_operator(name, operator, output_type, second)
