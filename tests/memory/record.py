"""Record Flink's memory model for random options in recorded.tsv.gz.

Needs a JDK, and apache-flink in its venv (see bench/venvs.py).
"""

from __future__ import annotations

import gzip
import random
import subprocess
import tempfile
from pathlib import Path

from tests.support.apache_flink import flink_folder

HERE = Path(__file__).resolve().parent

RECORDED = HERE / "recorded.tsv.gz"
COUNT = 1500
SIZES = [
    "0",
    "64mb",
    "100 mb",
    "128m",
    "200mb",
    "256mb",
    "333mb",
    "512 mb",
    "700m",
    "1g",
    "1280mb",
    "1728m",
    "2g",
    "4gb",
]
FRACTIONS = ["0", "0.05", "0.1", "0.2", "0.33", "0.4", "0.7", "0.95", "1.5"]
TOTALS = ["process.size", "flink.size"]
TASK_MANAGER = [
    *TOTALS, "task.heap.size", "managed.size", "framework.heap.size", "framework.off-heap.size", "task.off-heap.size",
    "network.min", "network.max", "network.fraction", "managed.fraction",
    "jvm-metaspace.size", "jvm-overhead.min", "jvm-overhead.max", "jvm-overhead.fraction",
]  # fmt: skip
JOB_MANAGER = [
    *TOTALS, "heap.size", "off-heap.size",
    "jvm-metaspace.size", "jvm-overhead.min", "jvm-overhead.max", "jvm-overhead.fraction",
]  # fmt: skip


def case(dice: random.Random) -> str:
    """Return random options as a line."""
    prefix, names = ("taskmanager", TASK_MANAGER) if dice.random() < 0.75 else ("jobmanager", JOB_MANAGER)
    chosen = dice.sample(names, dice.randint(0, 4))
    if dice.random() < 0.8 and not set(chosen) & set(TOTALS):
        chosen.append(dice.choice(TOTALS))
    pairs = [f"{prefix}.memory.{n}={dice.choice(values(n))}" for n in chosen]
    return "\t".join(pairs or [f"{prefix}=0"])


def values(name: str) -> list[str]:
    """Return values for an option that often fit the other options."""
    if name.endswith("fraction"):
        return FRACTIONS
    return SIZES[4:] if name in TOTALS else SIZES[9:] if name.endswith("max") else SIZES[:9]


def main() -> None:
    folder = flink_folder()
    assert folder is not None, "apache-flink is not installed"
    jars = ":".join(map(str, sorted((folder / "lib").glob("*.jar"))))
    dice = random.Random(17)
    cases = [case(dice) for _ in range(COUNT)]
    with tempfile.TemporaryDirectory() as classes:
        subprocess.run(["javac", "-nowarn", "-cp", jars, "-d", classes, str(HERE / "Memory.java")], check=True)
        command = ["java", "-Xmx256m", "-cp", f"{classes}:{jars}", "Memory"]
        process = subprocess.run(command, input="\n".join(cases) + "\n", capture_output=True, text=True, check=True)
    results = [line for line in process.stdout.splitlines() if line.startswith("error: ") or line[:1].isdigit()]
    assert len(results) == len(cases), process.stderr[-2000:]
    with gzip.GzipFile(RECORDED, "wb", mtime=0) as file:
        file.write("".join(f"{r}\t|\t{c}\n" for c, r in zip(cases, results, strict=True)).encode())
    print(f"{len(cases)} cases, {sum(r.startswith('error') for r in results)} rejected")


if __name__ == "__main__":
    main()
