"""Ready predicates for AsyncRetryStrategy."""

from __future__ import annotations

from typing import Any

__all__ = ["empty_result_predicate", "exception_type_predicate", "has_exception_predicate"]


def empty_result_predicate(result: list[Any]) -> bool:
    """Try again when there are no results."""
    return not result


def has_exception_predicate(exception: Exception) -> bool:
    """Try again whatever was raised."""
    return exception is not None


def exception_type_predicate(exception: Exception, expected_error_type: type[Exception]) -> bool:
    """Try again when an exception of that type was raised."""
    return isinstance(exception, expected_error_type)
