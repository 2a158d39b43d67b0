"""Settings of Flink's that would change results and are not there: a query is not run as if they were not set."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from millstream.sql.errors import TableException


def _is(*words: str) -> Callable[[str], bool]:
    return lambda value: value.strip().upper() in words


_REFUSED: dict[str, tuple[Callable[[str], bool], str]] = {
    "table.exec.legacy-cast-behaviour": (_is("ENABLED"), "use TRY_CAST where a value may not fit"),
    "table.column-expansion-strategy": (lambda value: bool(value.strip(" []")), "name the columns in place of *"),
    "table.sql-dialect": (_is("HIVE"), "write Flink's own SQL"),
}


def check_settings(settings: Mapping[str, str]) -> None:
    """Refuse settings that are not there, each with what to do."""
    for key, (is_set, instead) in _REFUSED.items():
        value = settings.get(key)
        if value is not None and is_set(value):
            raise TableException(f"'{key}' = '{value}' is not supported yet: {instead}.")
