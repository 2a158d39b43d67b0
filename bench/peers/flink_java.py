"""The programs on Flink's own Java API: compiles flink/FlinkJob.java against the jars of apache-flink's wheel, runs it.

Runs in the venv `pyflink`, for its jars. One JVM, Flink's local environment and defaults, after a warm-up job. S is the
net runtime that Flink itself reports. Needs javac; without it, prints a message and exits with 3.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pyflink

HERE = Path(__file__).parent
LIB = Path(pyflink.__file__).parent / "lib"
# Next to the venv that contains the jars.
BUILT = Path(sys.prefix).parent / "flink-java"
OPENS = ["java.lang", "java.util", "java.util.concurrent", "java.net", "java.io", "java.nio", "java.time", "sun.nio.ch"]
QUIET = """\
rootLogger.level = OFF
"""


def compiled(jars: str) -> Path:
    source, built = HERE / "flink" / "FlinkJob.java", BUILT / "FlinkJob.class"
    if not built.exists() or built.stat().st_mtime < source.stat().st_mtime:
        if shutil.which("javac") is None:
            print("no javac: install a Java development kit to compare with Flink in Java", file=sys.stderr)
            raise SystemExit(3)
        BUILT.mkdir(parents=True, exist_ok=True)
        subprocess.run(["javac", "-nowarn", "-cp", jars, "-d", str(BUILT), str(source)], check=True)
        (BUILT / "log4j2.properties").write_text(QUIET)
    return BUILT


def main() -> None:
    jars = ":".join(map(str, sorted(LIB.glob("*.jar"))))
    classes = compiled(jars)
    opens = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENS]
    done = subprocess.run(["java", "-Xmx4g", *opens, "-cp", f"{classes}:{jars}", "FlinkJob", *sys.argv[1:]])
    raise SystemExit(done.returncode)


if __name__ == "__main__":
    main()
