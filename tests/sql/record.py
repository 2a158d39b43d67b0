"""Ask Flink again for types and values of all expressions that are recorded, and of new ones, and keep its answers.

    python -m tests.sql.record [NEW]     NEW has expressions, one a line

A JDK and apache-flink in its venv are needed, see bench/venvs.py; it takes an hour.
"""

from __future__ import annotations

import gzip
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.apache_flink import flink_folder

HERE = Path(__file__).resolve().parent

# Type TAB value TAB expression; of aggregates type TAB what follows SELECT.
VALUES, AGGREGATES = HERE / "values.tsv.gz", HERE / "aggregates.tsv.gz"
# A JVM retains the generated code of all expressions, so each gets a limited number.
_AT_ONCE = 800


def read_recorded(source: Path) -> list[list[str]]:
    """Return the recorded answers in a file."""
    return [line.split("\t") for line in gzip.decompress(source.read_bytes()).decode().split("\n") if line]


def keep(lines: list[str], target: Path) -> None:
    """Write answers; the same ones give the same file."""
    target.write_bytes(gzip.compress(("\n".join(lines) + "\n").encode(), mtime=0))


def ask(expressions: list[str], only_types: bool = False) -> list[str]:
    """Return Flink's answers: type TAB value TAB expression."""
    lines: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for start in range(0, len(expressions), _AT_ONCE):
            lines += _ask(expressions[start : start + _AT_ONCE], Path(folder), only_types)
            print(f"{len(lines)} of {len(expressions)}", flush=True)
    return lines


def _ask(expressions: list[str], folder: Path, only_types: bool) -> list[str]:
    flink = flink_folder()
    assert flink is not None, "apache-flink is not installed"
    classpath = ":".join([str(folder), *map(str, (flink / "lib").glob("*.jar"))])
    if not (folder / "Ask.class").exists():
        source = str(HERE / "flink" / "Ask.java")
        subprocess.run(["javac", "-nowarn", "-cp", classpath, "-d", str(folder), source], check=True)
        (folder / "log4j2.properties").write_text("rootLogger.level = OFF\n")
    questions, reported = folder / "questions.txt", folder / "answers.txt"
    questions.write_text("\n".join(expressions) + "\n")
    opens = [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in ("util", "lang", "time", "nio")]
    settings = ["-Xmx900m", "-Duser.timezone=UTC", "-Dfile.encoding=UTF-8"]
    arguments = [str(questions), str(reported), *(["types"] if only_types else [])]
    subprocess.run(["java", *settings, *opens, "-cp", classpath, "Ask", *arguments], check=True)
    with reported.open(newline="\n") as answers:
        return answers.read().split("\n")[:-1]


def _type_and_expression(line: str) -> str:
    reported, _, expression = line.split("\t", 2)
    return f"{'!' if reported.startswith('!') else reported}\t{expression}"


if __name__ == "__main__":
    new = Path(sys.argv[1]).read_text().splitlines() if len(sys.argv) > 1 else []
    keep(ask(list(dict.fromkeys([*(line[2] for line in read_recorded(VALUES)), *new]))), VALUES)
    keep(
        list(map(_type_and_expression, ask([line[1] for line in read_recorded(AGGREGATES)], only_types=True))),
        AGGREGATES,
    )
