"""Pickles a job's plan for the workers, and names the object that cannot be pickled."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import FunctionType, ModuleType

import cloudpickle

from millstream.common.errors import InvalidProgramError
from millstream.operators.functions.user_function import UserFunction
from millstream.operators.runtime.chain import ChainNode
from millstream.operators.runtime.messages import JobPlan


def dump_plan(plan: JobPlan) -> bytes:
    """Pickle a plan; if that fails, name the operator and the object inside its function."""
    try:
        data: bytes = cloudpickle.dumps(plan, 5)
        return data
    except Exception as e:
        for vertex in plan.vertices:
            for node in vertex.nodes:
                _check(node)
        raise InvalidProgramError(f"The program cannot be sent to the workers: {e}") from e


def _check(node: ChainNode) -> None:
    if _failure(node.operator) is None:
        return
    for label, value in _parts(node.operator):
        error = _failure(value)
        if error is not None:
            unpicklable = _deepest(label, value)
            raise InvalidProgramError(
                f"Operator {node.label} cannot be sent to the workers: {unpicklable} cannot be pickled ({error}). "
                "Create it in open(), which runs on the worker, or pass plain data instead."
            )
    raise InvalidProgramError(f"Operator {node.label} cannot be sent to the workers: {_failure(node.operator)}.")


def _failure(value: object) -> str | None:
    try:
        cloudpickle.dumps(value, 5)
    except Exception as e:
        return f"{type(e).__name__}: {e}".splitlines()[0]
    return None


def _deepest(label: str, value: object) -> str:
    """Return the smallest part of an object that cannot be pickled."""
    for _ in range(20):
        for inner_label, inner in _parts(value):
            if _failure(inner) is not None:
                label, value = f"{inner_label} of {label}" if label else inner_label, inner
                break
        else:
            break
    return f"{label}, a {type(value).__module__}.{type(value).__qualname__}," if label else type(value).__qualname__


def _parts(value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, UserFunction):
        yield _function_name(value.function), value.function
    elif isinstance(value, FunctionType):
        closure = inspect.getclosurevars(value)
        for name, inner in {**closure.nonlocals, **closure.globals}.items():
            if not isinstance(inner, ModuleType):
                yield f"the variable '{name}'", inner
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield f"the entry {key!r}", inner
    elif isinstance(value, (list, tuple, set)):
        for i, inner in enumerate(value):
            yield f"the element {i}", inner
    elif hasattr(value, "__dict__"):
        for name, inner in vars(value).items():
            yield f"the attribute '{name}'" if not isinstance(inner, UserFunction) else "", inner


def _function_name(function: object) -> str:
    name = getattr(function, "__qualname__", type(function).__qualname__)
    code = getattr(function, "__code__", None)
    return f"{name} (line {code.co_firstlineno} of {code.co_filename})" if code else name
