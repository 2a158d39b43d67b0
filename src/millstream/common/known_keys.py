"""Which keys a configuration can have: a key that nobody knows is most likely misspelt, and would have no effect."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files

from millstream.common.display_text import closest
from millstream.common.errors import InvalidProgramError

log = logging.getLogger("millstream")

# What Spark, and clients of SQL, are told.
_OF_OTHERS = ("spark.", "$internal.", "sql-client.", "sql-gateway.")
# Our own; whatever else begins like them is refused.
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
# Where a key begins like this, and nobody knows it, it is no parameter of the user's own.
_OF_FLINK = ("execution.", "parallelism.", "pipeline.", "python.", "restart-strategy.", "state.", "table.")
# Spark does not say either when it does not know a key; these are the ones most often set.
_OF_SPARK = ("spark.master", "spark.app.name", "spark.driver.memory", "spark.executor.memory", "spark.ui.enabled")
# Of which keys must be that one stands for another.
_ALIKE = 0.85


def check_keys(keys: Iterable[str]) -> None:
    """Warn of keys that look like misspelt ones; refuse unknown ones of our own.

    Keys are also how a program hands parameters to its functions, so most unknown ones are left alone.
    """
    unsure = [key for key in keys if key not in OWN and not key.startswith(_OF_OTHERS)]
    if not unsure:
        return
    known = flink_keys()
    if unused := sorted(key for key in unsure if key in known and not has_effect(key) and not is_harmless(key)):
        log.warning(
            "these options have no effect here: %s. docs/configuration.md, 'Options without effect', says what to do "
            "instead; leave them out.",
            ", ".join(unused),
        )
    for key in unsure:
        if key in known or key in _honoured():
            continue
        alike = closest(key, [*OWN, *_OF_SPARK, *known], _ALIKE)
        hint = f" Did you mean {alike}?" if alike else ""
        if key.startswith(OWN_PREFIX):
            raise InvalidProgramError(f"{key} is no setting of millstream's.{hint}")
        if alike or key.startswith(_OF_FLINK):
            log.warning("the configuration key %s is not known, and has no effect.%s", key, hint)


@cache
def flink_keys() -> frozenset[str]:
    """Return the keys of Flink's options, also the older spellings."""
    return frozenset(_spellings())


def has_effect(key: str) -> bool:
    """Return whether an option of Flink's, under any of its spellings, changes what happens here."""
    return bool(set(_spellings()[key]) & _honoured())


def is_harmless(key: str) -> bool:
    """Return whether an option of Flink's may be left in a configuration, though it has no effect here."""
    return bool(harmless_patterns(key))


def harmless_patterns(key: str) -> list[str]:
    """Return which lines of `harmless_keys.txt` name an option of Flink's."""
    spellings = _spellings()[key]
    return [pattern for pattern in _harmless() if any(fnmatchcase(spelling, pattern) for spelling in spellings)]


@cache
def _spellings() -> dict[str, list[str]]:
    """Return all spellings of an option, by each of them."""
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
