"""The Java process of an embedded Spark is reaped, however it ends."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from millstream.common import Configuration
from millstream.common.errors import MillstreamError
from millstream.spark import embedded, gateway
from millstream.spark.gateway import Gateway, JvmSettings
from millstream.spark.java import Java
from tests.support.helpers import wait_until


def test_gateway_reaps_java_after_start_timeout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\nexec sleep 600\n")
    java.chmod(0o755)
    monkeypatch.setattr(gateway, "_START_SECONDS", 0.2)
    before = {process.pid for process in psutil.Process().children()}
    settings = JvmSettings("64m", (), "off", archive=False, quiet=True)
    jvm = Gateway(Java(str(java), 17, "a test"), settings, {"PATH": "/bin:/usr/bin"})
    with pytest.raises(MillstreamError, match="did not start within"):
        jvm.connect()
    assert {process.pid for process in psutil.Process().children()} - before == set()
    jvm.stop()


# Prints its address like Spark: port 1, and a secret of one letter. It ends when its input is closed.
_JAVA = """#!/bin/sh
printf '\\000\\000\\000\\001\\000\\000\\000\\001x' > "$_PYSPARK_DRIVER_CONN_INFO_PATH.new"
mv "$_PYSPARK_DRIVER_CONN_INFO_PATH.new" "$_PYSPARK_DRIVER_CONN_INFO_PATH"
exec cat
"""


def test_embedded_spark_leaves_no_defunct_java_after_five_kills(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = tmp_path / "java"
    java.write_text(_JAVA)
    java.chmod(0o755)
    monkeypatch.setattr(embedded, "find_java", lambda: Java(str(java), 17, "a test"))
    monkeypatch.setattr(embedded, "_started", [])
    config = Configuration.from_dict({"spark.master": "spark://nowhere:7077", embedded.ARCHIVE: "false"})
    before = {process.pid for process in psutil.Process().children()}

    def children() -> list[psutil.Process]:
        return [process for process in psutil.Process().children() if process.pid not in before]

    for _ in range(5):
        embedded.gateway(config).connect()
        (running,) = children()
        running.kill()
        wait_until(lambda process=running: process.status() == psutil.STATUS_ZOMBIE)  # type: ignore[misc]
    last = embedded.gateway(config)
    last.connect()
    assert [process.status() != psutil.STATUS_ZOMBIE for process in children()] == [True]
    last.stop()
    assert children() == []
