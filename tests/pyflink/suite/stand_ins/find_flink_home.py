"""PyFlink's lookup of Flink's installation, which does not exist here."""

from __future__ import annotations

from pyflink.java_gateway import NeedsJava


def _find_flink_home() -> str:
    raise NeedsJava("the folder of Flink")


def _find_flink_source_root() -> str:
    raise NeedsJava("the folder of Flink's sources")
