"""Record Flink's types and values of all recorded expressions again, and of new ones.

    python -m tests.sql.record [NEW]     NEW has expressions, one per line

Needs a JDK, and apache-flink in its venv (see bench/venvs.py); takes an hour.
"""

from __future__ import annotations

import gzip
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.apache_flink import flink_folder

HERE = Path(__file__).resolve().parent

# Type TAB value TAB expression; for aggregates: type TAB select list and the rest of the query.
VALUES, AGGREGATES = HERE / "values.tsv.gz", HERE / "aggregates.tsv.gz"
# A JVM retains the generated code of all expressions, so each gets a limited number.
_PER_JVM = 800


def read_recorded(source: Path) -> list[list[str]]:
    """Return the recorded results of a file."""
    return [line.split("\t") for line in gzip.decompress(source.read_bytes()).decode().split("\n") if line]


def write_recorded(lines: list[str], target: Path) -> None:
    """Write results; equal results give an identical file."""
    target.write_bytes(gzip.compress(("\n".join(lines) + "\n").encode(), mtime=0))


def evaluate_on_flink(expressions: list[str], only_types: bool = False) -> list[str]:
    """Return Flink's results: type TAB value TAB expression."""
    lines: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for start in range(0, len(expressions), _PER_JVM):
            lines += _evaluate(expressions[start : start + _PER_JVM], Path(folder), only_types)
            print(f"{len(lines)} of {len(expressions)}", flush=True)
    return lines


def _evaluate(expressions: list[str], folder: Path, only_types: bool) -> list[str]:
    flink = flink_folder()
    assert flink is not None, "apache-flink is not installed"
    classpath = ":".join([str(folder), *map(str, (flink / "lib").glob("*.jar"))])
    if not (folder / "Evaluate.class").exists():
        source = str(HERE / "flink" / "Evaluate.java")
        subprocess.run(["javac", "-nowarn", "-cp", classpath, "-d", str(folder), source], check=True)
        (folder / "log4j2.properties").write_text("rootLogger.level = OFF\n")
    input_file, output = folder / "questions.txt", folder / "answers.txt"
    input_file.write_text("\n".join(expressions) + "\n")
    opens = [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in ("util", "lang", "time", "nio")]
    settings = ["-Xmx900m", "-Duser.timezone=UTC", "-Dfile.encoding=UTF-8"]
    arguments = [str(input_file), str(output), *(["types"] if only_types else [])]
    subprocess.run(["java", *settings, *opens, "-cp", classpath, "Evaluate", *arguments], check=True)
    with output.open(newline="\n") as results:
        return results.read().split("\n")[:-1]


def _type_and_expression(line: str) -> str:
    output, _, expression = line.split("\t", 2)
    return f"{'!' if output.startswith('!') else output}\t{expression}"


if __name__ == "__main__":
    new = Path(sys.argv[1]).read_text().splitlines() if len(sys.argv) > 1 else []
    write_recorded(evaluate_on_flink(list(dict.fromkeys([*(line[2] for line in read_recorded(VALUES)), *new]))), VALUES)
    write_recorded(
        list(
            map(
                _type_and_expression,
                evaluate_on_flink([line[1] for line in read_recorded(AGGREGATES)], only_types=True),
            )
        ),
        AGGREGATES,
    )
