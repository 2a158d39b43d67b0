"""Ask Flink for types and values of all expressions of `expressions.py` and of aggregates, and keep its answers.

python tests/sql/record.py      (a JDK and apache-flink in its venv are needed, see bench/venvs.py; it takes an hour)
"""

from __future__ import annotations

import gzip
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from apache_flink import flink_folder  # noqa: E402
from expressions import aggregates, all_expressions  # noqa: E402

VALUES, AGGREGATES = HERE / "values.tsv.gz", HERE / "aggregates.tsv.gz"
# A JVM keeps the code of all expressions it was asked.
_AT_ONCE = 800


def ask(expressions: list[str], folder: Path, only_types: bool) -> list[str]:
    """Return Flink's answers: type TAB value TAB expression."""
    flink = flink_folder()
    assert flink is not None, "apache-flink is not installed"
    classpath = ":".join([str(folder), *map(str, (flink / "lib").glob("*.jar"))])
    if not (folder / "Ask.class").exists():
        source = str(HERE / "flink" / "Ask.java")
        subprocess.run(["javac", "-nowarn", "-cp", classpath, "-d", str(folder), source], check=True)
        (folder / "log4j2.properties").write_text("rootLogger.level = OFF\n")
    given, told = folder / "given.txt", folder / "told.txt"
    given.write_text("\n".join(expressions) + "\n")
    opens = [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in ("util", "lang", "time", "nio")]
    settings = ["-Xmx900m", "-Duser.timezone=UTC", "-Dfile.encoding=UTF-8"]
    wanted = [str(given), str(told), *(["types"] if only_types else [])]
    subprocess.run(["java", *settings, *opens, "-cp", classpath, "Ask", *wanted], check=True)
    return told.read_text().splitlines()


def record(expressions: list[str], target: Path, only_types: bool = False) -> None:
    """Keep Flink's answers to expressions."""
    lines: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for start in range(0, len(expressions), _AT_ONCE):
            lines += ask(expressions[start : start + _AT_ONCE], Path(folder), only_types)
            print(f"{len(lines)} of {len(expressions)}", flush=True)
    keep(list(map(_type_and_expression, lines)) if only_types else lines, target)


def _type_and_expression(line: str) -> str:
    told, _, expression = line.split("\t", 2)
    return f"{'!' if told.startswith('!') else told}\t{expression}"


def keep(lines: list[str], target: Path) -> None:
    """Write answers; the same ones give the same file."""
    target.write_bytes(gzip.compress(("\n".join(lines) + "\n").encode(), mtime=0))


if __name__ == "__main__":
    record(all_expressions(), VALUES)
    record(list(aggregates()), AGGREGATES, only_types=True)
