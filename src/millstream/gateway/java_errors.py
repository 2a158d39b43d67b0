"""Errors in the form of a Java stack trace, whose last cause Flink's clients show."""

from __future__ import annotations

import re

from millstream.common.errors import MillstreamError
from millstream.sql.errors import CatalogException, SqlParserException, TableException, ValidationException

_GATEWAY = "org.apache.flink.table.gateway.api.utils.SqlGatewayException"
_OTHER = "java.lang.RuntimeException"
_JAVAS = re.compile(r"(\w+Exception): ")
_API = "org.apache.flink.table.api"
_CLASSES: dict[type[Exception], str] = {
    SqlParserException: f"{_API}.SqlParserException",
    ValidationException: f"{_API}.ValidationException",
    TableException: f"{_API}.TableException",
    CatalogException: "org.apache.flink.table.catalog.exceptions.CatalogException",
}


def told_to_client(action: str, error: Exception) -> str:
    """Return the text of an error for clients.

    Example:
        >>> print(told_to_client("Failed to closeSession.", ValidationException("No session x.")))  # doctest: +ELLIPSIS
        <Exception on server side:
        org.apache.flink.table.gateway.api.utils.SqlGatewayException: Failed to closeSession.
        Caused by: org.apache.flink.table.api.ValidationException: No session x.
        ...at millstream.gateway
        <BLANKLINE>
        End of exception on server side>
    """
    message = str(error) if isinstance(error, MillstreamError) else f"{type(error).__name__}: {error}"
    known = next((name for kind, name in _CLASSES.items() if isinstance(error, kind)), None)
    if known is None:
        # An error of a job under a Java class name keeps that name.
        found = _JAVAS.match(message)
        known, message = (f"java.lang.{found[1]}", message[found.end() :]) if found else (_OTHER, message)
    # Clients extract the text between the last cause and its first stack frame.
    cause = f"Caused by: {known}: {message}\n\tat millstream.gateway"
    return f"<Exception on server side:\n{_GATEWAY}: {action}\n{cause}\n\nEnd of exception on server side>"
