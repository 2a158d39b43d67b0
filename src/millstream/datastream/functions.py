"""The functions a user writes. Wherever one of these is taken, a plain callable of the same shape is too."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from millstream.common.errors import InvalidProgramError
from millstream.operators.context import RuntimeContext
from millstream.operators.functions import UserFunction
from millstream.operators.process import ProcessContext

__all__ = [
    "CoFlatMapFunction",
    "CoMapFunction",
    "CoProcessFunction",
    "FilterFunction",
    "FlatMapFunction",
    "Function",
    "KeySelector",
    "KeyedCoProcessFunction",
    "KeyedProcessFunction",
    "MapFunction",
    "Partitioner",
    "ProcessFunction",
    "ReduceFunction",
    "RuntimeContext",
    "SinkFunction",
]

IN = TypeVar("IN")
IN1 = TypeVar("IN1")
IN2 = TypeVar("IN2")
OUT = TypeVar("OUT")
KEY = TypeVar("KEY")
T = TypeVar("T")


class Function(ABC):
    """A function with a life: opened once before its first record and closed once after its last.

    There is one instance per subtask; its attributes live as long as the subtask and are not fault tolerant.
    """

    def open(self, runtime_context: RuntimeContext) -> None:
        """Called once, before the first record."""

    def close(self) -> None:
        """Called once, at the end."""


class MapFunction(Function, Generic[IN, OUT]):
    """One record in, one record out."""

    @abstractmethod
    def map(self, value: IN) -> OUT: ...


class FlatMapFunction(Function, Generic[IN, OUT]):
    """One record in, any number out."""

    @abstractmethod
    def flat_map(self, value: IN) -> Iterable[OUT] | None: ...


class FilterFunction(Function, Generic[T]):
    """Keeps the records for which it is true."""

    @abstractmethod
    def filter(self, value: T) -> bool: ...


class ReduceFunction(Function, Generic[T]):
    """Combines two records into one of the same type."""

    @abstractmethod
    def reduce(self, value1: T, value2: T) -> T: ...


class KeySelector(Function, Generic[IN, KEY]):
    """Gives a record its key."""

    @abstractmethod
    def get_key(self, value: IN) -> KEY: ...


class Partitioner(Function, Generic[KEY]):
    """Chooses the subtask for a key."""

    @abstractmethod
    def partition(self, key: KEY, num_partitions: int) -> int: ...


class CoMapFunction(Function, Generic[IN1, IN2, OUT]):
    """map over two connected streams; a result of None is not emitted."""

    @abstractmethod
    def map1(self, value: IN1) -> OUT: ...

    @abstractmethod
    def map2(self, value: IN2) -> OUT: ...


class CoFlatMapFunction(Function, Generic[IN1, IN2, OUT]):
    """flat_map over two connected streams."""

    @abstractmethod
    def flat_map1(self, value: IN1) -> Iterable[OUT] | None: ...

    @abstractmethod
    def flat_map2(self, value: IN2) -> Iterable[OUT] | None: ...


class ProcessFunction(Function, Generic[IN, OUT]):
    """Sees a record and its context; yields records, and `(OutputTag, value)` for side outputs."""

    Context = ProcessContext

    @abstractmethod
    def process_element(self, value: IN, ctx: ProcessContext) -> Iterable[OUT] | None: ...


class KeyedProcessFunction(Function, Generic[KEY, IN, OUT]):
    """A process function on a keyed stream: it has keyed state, and its context knows the current key."""

    Context = ProcessContext

    @abstractmethod
    def process_element(self, value: IN, ctx: ProcessContext) -> Iterable[OUT] | None: ...


class CoProcessFunction(Function, Generic[IN1, IN2, OUT]):
    """process over two connected streams."""

    Context = ProcessContext

    @abstractmethod
    def process_element1(self, value: IN1, ctx: ProcessContext) -> Iterable[OUT] | None: ...

    @abstractmethod
    def process_element2(self, value: IN2, ctx: ProcessContext) -> Iterable[OUT] | None: ...


class KeyedCoProcessFunction(Function, Generic[KEY, IN1, IN2, OUT]):
    """process over two connected streams with the same keys, and one keyed state for both."""

    Context = ProcessContext

    @abstractmethod
    def process_element1(self, value: IN1, ctx: ProcessContext) -> Iterable[OUT] | None: ...

    @abstractmethod
    def process_element2(self, value: IN2, ctx: ProcessContext) -> Iterable[OUT] | None: ...


class SinkFunction(Function, Generic[IN]):
    """Called for every record at the end of a stream; what it does cannot be taken back on a failure."""

    @abstractmethod
    def invoke(self, value: IN, context: Any) -> None: ...


def as_user_function(function: Any, method: str, operation: str) -> UserFunction:
    """Accept an object with the method, or a plain callable; anything else is an error that says so."""
    if isinstance(function, type):
        raise InvalidProgramError(
            f"{operation}() was given the class {function.__name__}: give it an instance, {function.__name__}()."
        )
    if hasattr(function, method) and not isinstance(function, (str, bytes, int, float)):
        return UserFunction(function, method)
    if callable(function):
        return UserFunction(function, None)
    raise InvalidProgramError(
        f"{operation}() takes a callable or an object with a method {method}(), "
        f"not {function!r} ({type(function).__name__})."
    )


def as_rich_function(function: Any, methods: tuple[str, ...], operation: str) -> UserFunction:
    """Accept only an object that has all the methods."""
    missing = [m for m in methods if not hasattr(function, m)]
    if isinstance(function, type) or missing:
        what = function.__name__ if isinstance(function, type) else type(function).__name__
        reason = "a class, not an instance" if isinstance(function, type) else f"without {', '.join(missing)}()"
        raise InvalidProgramError(f"{operation}() takes a function object; it was given {what}, {reason}.")
    return UserFunction(function, methods[0])


def key_of(selector: Any) -> UserFunction:
    """Accept what key_by takes: a KeySelector, a callable, or the index or name of a field."""
    if isinstance(selector, (int, str)) and not isinstance(selector, bool):
        field = selector
        getter: Callable[[Any], Any] = lambda value: value[field]  # noqa: E731
        return UserFunction(getter, None)
    return as_user_function(selector, "get_key", "key_by")
