"""Keeps the tables of docs/reference/configuration.md current (`make config-docs`).

The page has the meaning of each option. The other columns of a row (keys, type, default) come from the option's
declaration in the code if it has one.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from dataclasses import dataclass
from functools import cache
from typing import Any

import millstream
from millstream.common.known_keys import OWN
from millstream.common.setting import ChoiceSetting, DurationSetting, FlagSetting, FloatSetting, Setting, in_words
from millstream.sql.optimizer.planner import CHOICES
from millstream.table.table_config import DEFAULTS
from tests.pyflink.option_keys import KEYS, read
from tests.support.paths import DOCS, ROOT

PAGE = DOCS / "reference" / "configuration.md"
HEAD = "| key | type | default | meaning |"
# Defaults that depend on other options or on the machine; the code has a placeholder.
COMPUTED = {
    "execution.checkpointing.dir": "the job's own directory",
    "execution.checkpointing.incremental": "incremental",
    "execution.checkpointing.storage": "by the directory",
    "high-availability.zookeeper.client.session-timeout": "the lease's",
    "io.tmp.dirs": "the system's",
    "jobmanager.adaptive-scheduler.rescale-trigger.max-delay": "three times the checkpoint interval",
    "kubernetes.namespace": "the pod's",
    "millstream.batch.memory": "a quarter of the slot's memory; 256 MiB where no memory is set",
    "millstream.epoch.slice": "`200 ms` with resident slots, else `1 s`; shorter with a small buffer timeout",
    "millstream.epoch.target": "the slice; `1 s` in BATCH and with `AT_MOST_ONCE`",
    "millstream.failures.dir": "a per-user directory below the temporary directory",
    "millstream.high-availability.kubernetes.ca-file": "the pod's",
    "millstream.high-availability.kubernetes.server": "the pod's",
    "millstream.high-availability.kubernetes.token-file": "the pod's",
    "parallelism.default": "the number of Spark's cores",
    "pipeline.max-parallelism": "128, or by Flink's rule",
    "rest.bind-address": "`rest.address`, else `127.0.0.1`",
    "restart-strategy.type": "`none` without checkpoints, `exponential-delay` with them",
    "scheduler-mode": "none",
    "sql-gateway.endpoint.rest.address": "`127.0.0.1`",
    "sql-gateway.endpoint.rest.bind-address": "the address",
    "state.backend.type": "`hashmap`",
    "table.local-time-zone": "the system's",
    "taskmanager.numberOfTaskSlots": "four a core on this machine, else Spark's cores",
    "web.upload.dir": "the cluster's own",
}
_UNLIMITED = 2**31 - 1


@dataclass(frozen=True)
class Option:
    """The declared parts of an option; None for a part that only the page has."""

    type: str | None
    default: str | None


@cache
def all_settings() -> dict[str, Setting[Any]]:
    """Return every typed option of the package, by key."""
    settings: dict[str, Setting[Any]] = {}
    for module in pkgutil.walk_packages(millstream.__path__, "millstream."):
        # The others of these packages import Spark, or have no options.
        is_skipped = module.name.startswith(("millstream.spark", "millstream.testing", "millstream.pyflink"))
        if not is_skipped or module.name in ("millstream.spark.exchange_settings", "millstream.spark.master"):
            values = vars(importlib.import_module(module.name)).values()
            settings |= {t.key: t for t in values if isinstance(t, Setting)}
    return settings


def declared() -> dict[str, Option]:
    """Return the options that the code declares, by key."""
    options = {key: Option(_type(setting), _default(setting)) for key, setting in all_settings().items()}
    for key in DEFAULTS.keys() | CHOICES.keys():
        words = CHOICES.get(key)
        kind = None if words is None else ", ".join(f"`{word}`" for word in words)
        default = DEFAULTS.get(key, None if words is None else words[0])
        options[key] = Option(kind, COMPUTED.get(key, f"`{default}`"))
    return options


def _type(setting: Setting[Any]) -> str:
    if isinstance(setting, ChoiceSetting):
        # The mode that stands for an option that is not set has no name in Flink.
        hidden = "DEFAULT" if setting.key == "scheduler-mode" else ""
        names = [name for name in type(setting.default).__members__ if name != hidden]
        return ", ".join(f"`{name}`" for name in names)
    for kind, name in ((DurationSetting, "duration"), (FlagSetting, "boolean"), (FloatSetting, "number")):
        if isinstance(setting, kind):
            return name if setting.limit is None else f"{name}, {setting.limit.words}"
    name = "integer" if isinstance(setting.default, int) else "text"
    return name if setting.limit is None else f"{name}, {setting.limit.words}"


def _default(setting: Setting[Any]) -> str:
    if setting.key in COMPUTED:
        return COMPUTED[setting.key]
    if setting.default is None or (setting.default == -1 and not isinstance(setting.default, bool)):
        return "none"
    if setting.default == _UNLIMITED:
        return "no limit"
    if isinstance(setting, DurationSetting):
        return f"`{in_words(setting.default)}`"
    return f"`{setting.text(setting.default)}`"


def other_keys(key: str) -> list[str]:
    """Return the other keys of an option: Flink's deprecated ones, and those that Millstream's own options replace."""
    setting = all_settings().get(key)
    return list(setting.old) if setting is not None else list(read(KEYS.read_text()).get(key, ()))


def page() -> str:
    """Return the text of the page with current tables."""
    options, lines, in_table = declared(), [], False
    for line in PAGE.read_text().splitlines():
        in_table = line == HEAD or (in_table and line.startswith("|"))
        found = re.match(r"\| `([^`]+)`", line)
        lines.append(_row(found[1], line, options) if in_table and found else line)
    return "\n".join(lines) + "\n"


def _row(key: str, line: str, options: dict[str, Option]) -> str:
    _, kind, default, meaning = [cell.strip() for cell in line.strip("|").split(" | ")]
    option = options.get(key, Option(None, None))
    others = ", ".join(f"`{other}`" for other in other_keys(key))
    cells = [f"`{key}`" + (f" ({others})" if others else ""), option.type or kind, option.default or default, meaning]
    return f"| {' | '.join(cells)} |"


def documented() -> set[str]:
    """Return all keys that the first cells of the page's tables name."""
    rows = re.findall(r"^\| (.*?) \|", PAGE.read_text(), re.MULTILINE)
    return {key for cell in rows for key in re.findall(r"`([^`]+)`", cell)}


def options_with_effect() -> set[str]:
    """Return the keys of all options that have an effect, except one that only tests set."""
    honoured = (ROOT / "src/millstream/common/honoured_keys.txt").read_text().split()
    return {*OWN, *honoured, *all_settings()} - {"millstream.testing.fault"}


if __name__ == "__main__":
    PAGE.write_text(page())
