"""Ask Flink's CepOperator what it does with cases, and keep its answers.

    python -m tests.cep.record                   record the cases that the tests compare with, into recorded.jsonl.gz
    python -m tests.cep.record --check FROM TO   ask about the random cases of these seeds, and say which of ours differ

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


def ask(cases: list[Case]) -> Iterable[dict[str, Any]]:
    """Yield Flink's answer to each case; all are asked in one JVM."""
    path = classpath()
    if not (WORK / "classes" / "Record.class").exists():
        source = str(HERE / "flink" / "Record.java")
        subprocess.run(["javac", "-nowarn", "-cp", path, "-d", str(WORK / "classes"), source], check=True)
    text = "".join(json.dumps(case) + "\n" for case in cases)
    opens = [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in ("util", "lang")]
    command = ["java", "-Xmx700m", *opens, "-cp", f"{WORK / 'classes'}:{path}", "Record"]
    done = subprocess.run(command, input=text, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    yield from map(json.loads, done.stdout.splitlines())


def classpath() -> str:
    """Return Flink's jars, with those of its tests."""
    folder = flink_folder()
    assert folder is not None, "apache-flink is not installed"
    jars = WORK / "jars"
    if not jars.exists():
        pom = str(HERE / "flink" / "pom.xml")
        copy = ["mvn", "-q", "-f", pom, "dependency:copy-dependencies", f"-DoutputDirectory={jars}"]
        subprocess.run(copy, check=True)
    lib = folder / "lib"
    found = [*jars.glob("*.jar"), *lib.glob("flink-cep*.jar"), *lib.glob("flink-dist*.jar"), *lib.glob("log4j*.jar")]
    return ":".join(map(str, found))


def endless(case: Case) -> bool:
    """Tell whether Flink would never end with a case."""
    return "never end" in answer(case).get("error", "")


def _check(first: int, last: int) -> int:
    cases = [c for c in (Maker(seed).case() for seed in range(first, last)) if not endless(c)]
    differ = 0
    for case, theirs in zip(cases, ask(cases), strict=True):
        ours = json.loads(json.dumps(answer(case)))
        if ("error" in ours, by_key(ours)) != ("error" in theirs, by_key(theirs)):
            differ += 1
            print(json.dumps(case), "\n  Flink:", theirs, "\n  ours: ", ours)
    print(f"{len(cases)} cases, {differ} differ")
    return differ


def _record() -> None:
    cases = [c for c in (Maker(seed).case() for seed in SEEDS) if not endless(c)]
    lines = [json.dumps([c, a], separators=(",", ":")) for c, a in zip(cases, ask(cases), strict=True)]
    with open(RECORDED, "wb") as file, gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
        packed.write("\n".join(lines).encode())


if __name__ == "__main__":
    if sys.argv[1:2] == ["--check"]:
        sys.exit(1 if _check(int(sys.argv[2]), int(sys.argv[3])) else 0)
    _record()
