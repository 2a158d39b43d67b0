"""Settings that are not there, and would change results, are refused."""

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

_CHOICES = {
    "table.exec.async-scalar.retry-strategy": ("FIXED_DELAY", "NO_RETRY"),
    "table.exec.sink.keyed-shuffle": ("NONE", "AUTO", "FORCE"),
    "table.exec.sink.nested-constraint-enforcer": ("IGNORE", "ROWS", "ROWS_AND_COLLECTIONS"),
    "table.exec.sink.not-null-enforcer": ("ERROR", "DROP"),
    "table.exec.sink.upsert-materialize": ("NONE", "AUTO", "FORCE"),
    "table.optimizer.agg-phase-strategy": ("AUTO", "ONE_PHASE", "TWO_PHASE"),
    "table.optimizer.non-deterministic-update.strategy": ("IGNORE", "TRY_RESOLVE"),
}


def check_settings(settings: Mapping[str, str]) -> None:
    """Refuse settings that are not there, each with what to do, and words that say nothing."""
    for key, words in _CHOICES.items():
        if settings.get(key, words[0]).strip().upper() not in words:
            raise TableException(
                f"Could not parse value '{settings[key]}' for '{key}'. It is one of {', '.join(words)}."
            )
    for key, (is_set, instead) in _REFUSED.items():
        value = settings.get(key)
        if value is not None and is_set(value):
            raise TableException(f"'{key}' = '{value}' is not supported yet: {instead}.")
