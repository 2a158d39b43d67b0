"""An embedded Spark and another user of the machine, user 65534, in separate processes."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

OTHER_USER = 65534
# Runs with umask 000, so that files without explicit permissions are writable by everyone.
_PROGRAM = """
import os, subprocess, sys
os.umask(0)
from pyspark import SparkContext
from millstream.common.configuration import Configuration
from millstream.spark.session import get_context
context = get_context(Configuration.from_dict({"millstream.quiet": "true", "spark.master": "local[1]"}))
assert context.parallelize([1, 2], 2).map(lambda x: x + 1).collect() == [2, 3]
rpc = context.getConf().get("spark.driver.port")
java = SparkContext._gateway.gateway_parameters.port
accumulators = context._accumulatorServer.server_address
attack = [sys.argv[1], "-I", "-c", sys.argv[2], sys.argv[3], accumulators, rpc, str(java)]
subprocess.run(attack, user=65534, group=65534, extra_groups=[], cwd="/")
"""
# Connects to every listener: Unix sockets below a directory, Spark's accumulators and RPC, Java's gateway.
_ATTACK = """
import os, socket, struct, sys
directory, accumulators, rpc, java = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
paths = [os.path.join(folder, name) for folder, _, names in os.walk(directory) for name in names]
for path in [accumulators, *paths]:
    try:
        socket.socket(socket.AF_UNIX).connect(path)
        print("CONNECTED", path)
    except OSError as e:
        print("refused", path, e)
client = socket.create_connection(("127.0.0.1", rpc), 10)
body = b"garbage"
client.sendall(struct.pack(">qbqi", 21 + len(body), 3, 7, len(body)) + body)
client.settimeout(10)
print("RPC", client.recv(65536))
client = socket.create_connection(("127.0.0.1", java), 10)
client.sendall(b"c\\nj\\nexit\\ne\\n")
client.settimeout(10)
print("JAVA", client.recv(65536))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run a process as another user")
def test_embedded_spark_rejects_other_users(tmp_path: Path) -> None:
    shared = Path(subprocess.check_output(["mktemp", "-d"], text=True).strip())
    shared.chmod(0o1777)
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM, "/usr/bin/python3", _ATTACK, str(shared)],
            capture_output=True, text=True, timeout=200, check=False, cwd=tmp_path,
            env={**os.environ, "TMPDIR": str(shared)},
        )  # fmt: skip
        assert "RPC" in done.stdout and "JAVA" in done.stdout, done.stdout + done.stderr
        assert "CONNECTED" not in done.stdout
        # Spark requests authentication; without a secret it would parse the message.
        assert "Sasl" in done.stdout, done.stdout
        assert "Authentication error" in done.stdout
        left = [path for path in shared.rglob("*") if stat.S_ISSOCK(path.lstat().st_mode)]
        assert left == []
    finally:
        subprocess.run(["rm", "-rf", str(shared)], check=True)
