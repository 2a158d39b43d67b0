"""Record the results of Flink's CepOperator.

    python -m tests.cep.record                   record the cases that the tests run, in recorded.jsonl.gz
    python -m tests.cep.record --check FROM TO   run the random cases of these seeds on Flink and print the differences

Needs a JDK, Maven, and apache-flink in its venv (see bench/venvs.py).
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.support.apache_flink import flink_folder
from tests.support.cep_cases import DENSE, RECORDED, Case, Maker, answer, by_key

HERE = Path(__file__).resolve().parent

SEEDS = [*range(1500), *range(DENSE, DENSE + 800)]
WORK = Path(os.environ.get("MILLSTREAM_BENCH_CACHE", Path.home() / ".cache" / "millstream-bench")) / "flink-cep"


def flink_results(cases: list[Case]) -> Iterable[dict[str, Any]]:
    """Yield Flink's result for each case; one JVM runs all cases."""
    path = classpath()
    if not (WORK / "classes" / "Record.class").exists():
        source = str(HERE / "flink" / "Record.java")
        subprocess.run(["javac", "-nowarn", "-cp", path, "-d", str(WORK / "classes"), source], check=True)
    text = "".join(json.dumps(case) + "\n" for case in cases)
    opens = [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in ("util", "lang")]
    command = ["java", "-Xmx700m", *opens, "-cp", f"{WORK / 'classes'}:{path}", "Record"]
    process = subprocess.run(
        command, input=text, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True
    )
    yield from map(json.loads, process.stdout.splitlines())


def classpath() -> str:
    """Return the class path of Flink and its test jars."""
    folder = flink_folder()
    assert folder is not None, "apache-flink is not installed"
    copied = WORK / "jars"
    if not copied.exists():
        pom = str(HERE / "flink" / "pom.xml")
        copy = ["mvn", "-q", "-f", pom, "dependency:copy-dependencies", f"-DoutputDirectory={copied}"]
        subprocess.run(copy, check=True)
    lib = folder / "lib"
    jars = [*copied.glob("*.jar"), *lib.glob("flink-cep*.jar"), *lib.glob("flink-dist*.jar"), *lib.glob("log4j*.jar")]
    return ":".join(map(str, jars))


def is_endless(case: Case) -> bool:
    """Return whether Flink loops forever on a case."""
    return "never end" in answer(case).get("error", "")


def _check(first: int, last: int) -> int:
    cases = [c for c in (Maker(seed).case() for seed in range(first, last)) if not is_endless(c)]
    differences = 0
    for case, expected in zip(cases, flink_results(cases), strict=True):
        actual = json.loads(json.dumps(answer(case)))
        if ("error" in actual, by_key(actual)) != ("error" in expected, by_key(expected)):
            differences += 1
            print(json.dumps(case), "\n  Flink:     ", expected, "\n  Millstream:", actual)
    print(f"{len(cases)} cases, {differences} differ")
    return differences


def _record() -> None:
    cases = [c for c in (Maker(seed).case() for seed in SEEDS) if not is_endless(c)]
    lines = [json.dumps([c, r], separators=(",", ":")) for c, r in zip(cases, flink_results(cases), strict=True)]
    with open(RECORDED, "wb") as file, gzip.GzipFile("", "wb", fileobj=file, mtime=0) as compressed:
        compressed.write("\n".join(lines).encode())


if __name__ == "__main__":
    if sys.argv[1:2] == ["--check"]:
        sys.exit(1 if _check(int(sys.argv[2]), int(sys.argv[3])) else 0)
    _record()
