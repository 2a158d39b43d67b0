"""TableConfig: the settings of a TableEnvironment."""

from __future__ import annotations

import datetime
import os
import time
from collections.abc import Iterator, MutableMapping

from millstream.common.configuration import Configuration, parse_duration_ms
from millstream.common.errors import InvalidProgramError
from millstream.sql.columns.zones import zone_named
from millstream.table.sql_dialect import SqlDialect

__all__ = ["TableConfig"]

_TIME_ZONE = "table.local-time-zone"
_TTL = "table.exec.state.ttl"
_CODE_LENGTH = "table.generated-code.max-length"
_DIALECT = "table.sql-dialect"
_PYTHON = "python.executable"
# Defaults of options that Flink reports even when unset.
DEFAULTS = {
    "table.exec.mini-batch.enabled": "false",
    "table.exec.mini-batch.allow-latency": "0 ms",
    "table.exec.mini-batch.size": "-1",
    _TTL: "0 ms",
    "table.exec.resource.default-parallelism": "-1",
    "table.exec.sink.keyed-shuffle": "AUTO",
    "table.exec.sink.not-null-enforcer": "ERROR",
    "table.exec.sink.type-length-enforcer": "IGNORE",
    "table.exec.sink.upsert-materialize": "AUTO",
    "table.exec.legacy-cast-behaviour": "DISABLED",
    "table.exec.rank.topn-cache-size": "10000",
    "table.optimizer.agg-phase-strategy": "AUTO",
    "table.optimizer.distinct-agg.split.enabled": "false",
    "table.optimizer.distinct-agg.split.bucket-num": "1024",
    _TIME_ZONE: "default",
    "table.dml-sync": "false",
    "table.dynamic-table-options.enabled": "true",
    _DIALECT: "default",
    "table.builtin-catalog-name": "default_catalog",
    "table.builtin-database-name": "default_database",
    "table.display.max-column-width": "30",
}


class TableConfig:
    """Holds the settings of a TableEnvironment by key, shared with the underlying environment.

    Example:
        >>> config = t_env.get_config()
        >>> config.set("table.exec.state.ttl", "1 h").get("table.exec.state.ttl", "")
        '1 h'
    """

    def __init__(self, configuration: Configuration | None = None) -> None:
        self._configuration = Configuration() if configuration is None else configuration

    def get(self, key: str, default_value: str) -> str:
        """Return a setting as text, or a default.

        Example:
            >>> t_env.get_config().get("table.exec.mini-batch.size", "-1")
            '-1'
        """
        return str(self._configuration.get_string(key, default_value))

    def set(self, key: str, value: str) -> TableConfig:
        """Set a setting for the statements that follow.

        Example:
            >>> _ = t_env.get_config().set("table.local-time-zone", "Europe/Oslo")
            >>> t_env.get_config().get_local_timezone()
            'Europe/Oslo'
        """
        self._configuration.set_string(key, value)
        return self

    def get_local_timezone(self) -> str:
        """Return the session's time zone, by default the machine's.

        Example:
            >>> _ = t_env.get_config().set("table.local-time-zone", "+02:00")
            >>> t_env.get_config().get_local_timezone()
            '+02:00'
        """
        zone = self.get(_TIME_ZONE, "default")
        return zone if zone != "default" else local_zone()

    def set_local_timezone(self, timezone_id: str) -> None:
        """Set the session time zone, by name or as an offset such as `+01:00`; TIMESTAMP_LTZ is shown in it.

        Example:
            >>> t_env.get_config().set_local_timezone("Asia/Tokyo")
            >>> list(t_env.execute_sql("SELECT CAST(TO_TIMESTAMP_LTZ(0, 3) AS STRING)").collect())
            [<Row('1970-01-01 09:00:00.000')>]
        """
        zone_named(timezone_id)
        self.set(_TIME_ZONE, timezone_id)

    def get_max_generated_code_length(self) -> int:
        """Return the configured value; it has no effect, as no Java is generated."""
        return int(self.get(_CODE_LENGTH, "4000"))

    def set_max_generated_code_length(self, max_generated_code_length: int) -> None:
        """Accepted without effect: no Java is generated here."""
        self.set(_CODE_LENGTH, str(max_generated_code_length))

    def set_idle_state_retention(self, duration: datetime.timedelta) -> None:
        """Set how long idle state is retained; 0, the default, means forever.

        Example:
            >>> t_env.get_config().set_idle_state_retention(datetime.timedelta(hours=1))
            >>> t_env.get_config().get("table.exec.state.ttl", "")
            '3600000 ms'
        """
        if not isinstance(duration, datetime.timedelta):
            raise InvalidProgramError(f"set_idle_state_retention() takes a timedelta, not {duration!r}.")
        self.set(_TTL, f"{duration // datetime.timedelta(milliseconds=1)} ms")

    def get_idle_state_retention(self) -> datetime.timedelta:
        """Return how long idle state is retained; 0 means forever.

        Example:
            >>> _ = t_env.get_config().set("table.exec.state.ttl", "90 s")
            >>> t_env.get_config().get_idle_state_retention()
            datetime.timedelta(seconds=90)
        """
        return datetime.timedelta(milliseconds=parse_duration_ms(self.get(_TTL, "0 ms")))

    def get_configuration(self) -> Configuration:
        """Return the settings, to read and to change."""
        return self._configuration

    def add_configuration(self, configuration: Configuration) -> None:
        """Add settings.

        Example:
            >>> t_env.get_config().add_configuration(Configuration.from_dict({"table.exec.state.ttl": "1 h"}))
            >>> t_env.get_config().get("table.exec.state.ttl", "")
            '1 h'
        """
        self._configuration.add_all(configuration)

    def to_map(self) -> dict[str, str]:
        """Return all settings that are set."""
        return {key: str(value) for key, value in self._configuration.to_dict().items()}

    def get_sql_dialect(self) -> int:
        """Return the dialect of SQL."""
        return SqlDialect.HIVE if self.get(_DIALECT, "default").lower() == "hive" else SqlDialect.DEFAULT

    def set_sql_dialect(self, sql_dialect: int) -> None:
        """Set the SQL dialect; only Flink's default is supported."""
        if sql_dialect == SqlDialect.HIVE:
            raise InvalidProgramError("The dialect of Hive is not supported: write statements in Flink's SQL.")
        self.set(_DIALECT, "default")

    def set_python_executable(self, python_exec: str) -> None:
        """Choose the Python interpreter of the workers, by default that of the program."""
        self.set(_PYTHON, python_exec)

    def get_python_executable(self) -> str | None:
        """Return the workers' interpreter that was chosen, or None.

        Example:
            >>> t_env.get_config().set_python_executable("python3")
            >>> t_env.get_config().get_python_executable()
            'python3'
        """
        return self.get(_PYTHON, "") or None

    @staticmethod
    def get_default() -> TableConfig:
        """Return settings with default values."""
        return TableConfig()


def local_zone() -> str:
    """Return the name of this machine's time zone."""
    named = os.environ.get("TZ")
    if named:
        return named.lstrip(":")
    target = os.path.realpath("/etc/localtime")
    _, separator, name = target.partition("zoneinfo/")
    return name if separator else time.tzname[0]


class SettingsMap(MutableMapping[str, str]):
    """A configuration as a mapping of texts."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration

    def __getitem__(self, key: str) -> str:
        if not self._configuration.contains_key(key):
            raise KeyError(key)
        return str(self._configuration.get_string(key, ""))

    def __setitem__(self, key: str, value: str) -> None:
        self._configuration.set_string(key, value)

    def __delitem__(self, key: str) -> None:
        self._configuration.remove_config(key)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._configuration.key_set()))

    def __len__(self) -> int:
        return len(self._configuration.key_set())
