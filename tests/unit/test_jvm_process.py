"""The Java process of an embedded Spark is reaped, however it ends."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from millstream.common.errors import MillstreamError
from millstream.spark import gateway
from millstream.spark.gateway import Gateway, JvmSettings
from millstream.spark.java import Java


def test_gateway_reaps_java_that_does_not_start_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
