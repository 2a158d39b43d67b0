"""Validates spark.master and Spark's log level before a JVM is started."""

from __future__ import annotations

import os
import re
import socket
from enum import Enum

from millstream.common.configuration import Configuration
from millstream.common.errors import InvalidProgramError
from millstream.common.setting import ChoiceSetting

DEFAULT_MASTER = "local[*]"

_KNOWN = re.compile(r"local|local\[(\*|[1-9]\d*)(,\s*\d+)?\]|local-cluster\[\d+,\s*\d+,\s*\d+\]|yarn|k8s://.+")
_STANDALONE = re.compile(r"spark://([^:,/]+:\d+)(,[^:,/]+:\d+)*")
_TIMEOUT_SECONDS = 5.0


class LogLevel(Enum):
    """Spark's log level."""

    OFF = 0
    FATAL = 1
    ERROR = 2
    WARN = 3
    INFO = 4
    DEBUG = 5
    TRACE = 6
    ALL = 7


LOG_LEVEL = ChoiceSetting("millstream.spark.log-level", LogLevel.OFF)


def check_settings(config: Configuration) -> None:
    """Refuse invalid settings of Spark."""
    LOG_LEVEL.read(config)
    check_master(master_of(config))


def master_of(config: Configuration) -> str:
    return config.get_string("spark.master", os.environ.get("MASTER") or DEFAULT_MASTER)


def spark_notation(master: str) -> str:
    """Return a master in the form of SparkContext: spark-submit allows k8s:// without https://."""
    address = master.removeprefix("k8s://")
    return master if address == master or "://" in address else f"k8s://https://{address}"


def check_master(master: str) -> None:
    """Refuse a master that Spark does not know or that cannot be reached."""
    if _STANDALONE.fullmatch(master):
        addresses = [address.rpartition(":") for address in master.removeprefix("spark://").split(",")]
        problems = [_unreachable(host, int(port)) for host, _, port in addresses]
        if all(problems):
            raise InvalidProgramError(
                f"spark.master is {master}, which cannot be reached ({problems[0]}): start it or correct the address."
            )
    elif not _KNOWN.fullmatch(master):
        raise InvalidProgramError(
            f"spark.master is {master!r}: it must be local, local[4], local[*], spark://host:port, yarn or k8s://..."
        )


def hadoop_directories() -> tuple[str, ...]:
    """Return Hadoop's configuration directories, for YARN."""
    values = (os.environ.get(name) for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"))
    directories = tuple(dict.fromkeys(directory for directory in values if directory))
    if not directories:
        raise InvalidProgramError(
            "spark.master is yarn: set the variable HADOOP_CONF_DIR (or YARN_CONF_DIR) to the directory of "
            "yarn-site.xml."
        )
    return directories


def _unreachable(host: str, port: int) -> str | None:
    """Return why an address cannot be reached; None if it can."""
    try:
        socket.create_connection((host, port), _TIMEOUT_SECONDS).close()
    except OSError as e:
        return e.strerror or str(e)
    return None
