"""Resolves user-defined functions from decorated functions, objects and names."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from millstream.sql.catalog.memory import CatalogFunction
from millstream.sql.errors import ValidationException
from millstream.table.udf import AggregateFunction, TableAggregateFunction, UserDefinedFunctionWrapper, udaf, udtaf


def as_function(function: Any) -> UserDefinedFunctionWrapper:
    """Return a user-defined function as the binder's wrapper."""
    if isinstance(function, UserDefinedFunctionWrapper):
        return function
    if isinstance(function, TableAggregateFunction):
        table_aggregate: UserDefinedFunctionWrapper = udtaf(function)
        return table_aggregate
    if isinstance(function, AggregateFunction):
        aggregate: UserDefinedFunctionWrapper = udaf(function)
        return aggregate
    raise ValidationException(
        f"{function!r} is no function for SQL: make it one with udf(...), udtf(...) or udaf(...), which say its types."
    )


def loaded_function(function: CatalogFunction) -> UserDefinedFunctionWrapper:
    """Return the function that CREATE FUNCTION names as `module.object`."""
    name = function.implementation
    if function.language.upper() != "PYTHON":
        raise ValidationException(
            f"The function '{name}' is in {function.language.title()}: functions are in Python here, LANGUAGE PYTHON."
        )
    module, _, attribute = name.rpartition(".")
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as e:
        raise ValidationException(f"Failed to load Python function '{name}': {e}") from e
    return as_function(found)
