"""Which keys a configuration can have: a key that nobody knows is most likely misspelt, and would have no effect."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from difflib import get_close_matches
from functools import cache
from importlib.resources import files

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
    "millstream.testing.fault",
)
# Where a key begins like this, and nobody knows it, it is no parameter of the user's own.
_OF_FLINK = ("execution.", "parallelism.", "pipeline.", "python.", "restart-strategy.", "state.")
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
    for key in unsure:
        if key in known:
            continue
        alike = get_close_matches(key, [*OWN, *_OF_SPARK, *known], 1, _ALIKE)
        hint = f" Did you mean {alike[0]}?" if alike else ""
        if key.startswith(OWN_PREFIX):
            raise InvalidProgramError(f"{key} is no setting of millstream's.{hint}")
        if alike or key.startswith(_OF_FLINK):
            log.warning("the configuration key %s is not known, and has no effect.%s", key, hint)


@cache
def flink_keys() -> frozenset[str]:
    """Return the keys of Flink's options, also the older spellings."""
    text = files("millstream.common").joinpath("flink_keys.txt").read_text()
    return frozenset(text.split())
