"""Known configuration keys: an unknown key is probably misspelt and would have no effect."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files

from millstream.common.display_text import closest
from millstream.common.errors import InvalidProgramError

log = logging.getLogger("millstream")

# Keys of Spark and of SQL clients.
_OF_OTHERS = ("spark.", "$internal.", "sql-client.", "sql-gateway.")
# Millstream's own keys; other keys with this prefix are refused.
OWN_PREFIX = "millstream."
OWN = (
    "millstream.batch.memory",
    "millstream.engine",
    "millstream.epoch.max-bytes",
    "millstream.epoch.max-records",
    "millstream.epoch.slice",
    "millstream.epoch.target",
    "millstream.exchange",
    "millstream.exchange.tls.certificate",
    "millstream.exchange.tls.key",
    "millstream.exchange.tls.trusted",
    "millstream.exchange.transport",
    "millstream.failures.dir",
    "millstream.failures.keep-bytes",
    "millstream.high-availability.kubernetes.ca-file",
    "millstream.high-availability.kubernetes.server",
    "millstream.high-availability.kubernetes.token-file",
    "millstream.high-availability.lease-duration",
    "millstream.high-availability.renew-deadline",
    "millstream.high-availability.retry-period",
    "millstream.inlining",
    "millstream.log.format",
    "millstream.quiet",
    "millstream.rest.tls.certificate",
    "millstream.rest.tls.key",
    "millstream.rest.token",
    "millstream.rest.token-file",
    "millstream.spark.class-archive",
    "millstream.spark.log-level",
    "millstream.state.signing-key-file",
    "millstream.testing.fault",
)
# Unknown keys with these prefixes are not user parameters.
_OF_FLINK = ("execution.", "parallelism.", "pipeline.", "python.", "restart-strategy.", "state.", "table.")
# Spark does not report unknown keys; these are the ones most often set.
_OF_SPARK = ("spark.master", "spark.app.name", "spark.driver.memory", "spark.executor.memory", "spark.ui.enabled")
# Minimum similarity of a key and its suggestion.
_MIN_SIMILARITY = 0.85


def check_keys(keys: Iterable[str]) -> None:
    """Warn of probably misspelt keys; refuse unknown ones with millstream's prefix.

    Programs also pass parameters to functions as keys, so most unknown keys are ignored.
    """
    unsure = [key for key in keys if key not in OWN and not key.startswith(_OF_OTHERS)]
    if not unsure:
        return
    known = flink_keys()
    if unused := sorted(key for key in unsure if key in known and not has_effect(key) and not is_harmless(key)):
        log.warning(
            "these options have no effect here: %s. docs/reference/configuration.md, 'Options without effect', says "
            "what to do instead; remove them.",
            ", ".join(unused),
        )
    for key in unsure:
        if key in known or key in _honoured():
            continue
        suggestion = closest(key, [*OWN, *_OF_SPARK, *known], _MIN_SIMILARITY)
        hint = f" Did you mean {suggestion}?" if suggestion else ""
        if key.startswith(OWN_PREFIX):
            raise InvalidProgramError(f"{key} is not an option of millstream.{hint}")
        if suggestion or key.startswith(_OF_FLINK):
            log.warning("the configuration key %s is unknown and has no effect.%s", key, hint)


@cache
def flink_keys() -> frozenset[str]:
    """Return the keys of Flink's options, including deprecated ones."""
    return frozenset(_spellings())


def has_effect(key: str) -> bool:
    """Return whether one of Flink's options, under any of its keys, has an effect here."""
    return bool(set(_spellings()[key]) & _honoured())


def is_harmless(key: str) -> bool:
    """Return whether one of Flink's options may be set although it has no effect here."""
    return bool(harmless_patterns(key))


def harmless_patterns(key: str) -> list[str]:
    """Return the lines of `harmless_keys.txt` that match one of Flink's options."""
    spellings = _spellings()[key]
    return [pattern for pattern in _harmless() if any(fnmatchcase(spelling, pattern) for spelling in spellings)]


@cache
def _spellings() -> dict[str, list[str]]:
    """Return all keys of each option, by each of them."""
    options = [line.split() for line in _lines("flink_keys.txt")]
    return {spelling: option for option in options for spelling in option}


@cache
def _honoured() -> frozenset[str]:
    return frozenset(_lines("honoured_keys.txt"))


@cache
def _harmless() -> tuple[str, ...]:
    return tuple(_lines("harmless_keys.txt"))


def _lines(name: str) -> list[str]:
    text = files("millstream.common").joinpath(name).read_text()
    return [line for line in text.splitlines() if line and not line.startswith("#")]
