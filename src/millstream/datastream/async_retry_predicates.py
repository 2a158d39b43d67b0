"""Ready predicates for AsyncRetryStrategy."""

from __future__ import annotations

from millstream.common.aliases import Value

__all__ = ["empty_result_predicate", "exception_type_predicate", "has_exception_predicate"]


def empty_result_predicate(result: list[Value]) -> bool:
    """Retry when a request returns no results."""
    return not result


def has_exception_predicate(error: Exception) -> bool:
    """Retry after any exception."""
    return error is not None


def exception_type_predicate(error: Exception, expected_error_type: type[Exception]) -> bool:
    """Retry after an exception of that type."""
    return isinstance(error, expected_error_type)
