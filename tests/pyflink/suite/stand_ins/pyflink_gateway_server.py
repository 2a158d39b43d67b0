"""PyFlink's module that starts a JVM with Flink."""

from __future__ import annotations

import sys
from typing import Any

from pyflink.java_gateway import NeedsJava


def on_windows() -> bool:
    return sys.platform == "win32"


def get_log_dir(*args: Any) -> str:
    raise NeedsJava("the folder of Flink's logs")


def prepare_environment_variables(*args: Any) -> None:
    raise NeedsJava("the environment of Flink's JVM")
