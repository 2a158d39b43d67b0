"""The options of Flink and their deprecated keys: writes src/millstream/common/flink_keys.txt.

    python -m tests.pyflink.option_keys PYFLINK_FOLDER FLINK_1_17_FOLDER

The first is the folder of the package `pyflink` of apache-flink 2.3. The second has the jars of Flink 1.17
(flink-streaming-java, flink-clients, flink-python, flink-statebackend-rocksdb and their dependencies), whose deprecated
keys count as well if the option still exists. Each line of the file is a key and its deprecated keys.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
KEYS = HERE.parents[1] / "src" / "millstream" / "common" / "flink_keys.txt"

Options = dict[str, list[str]]


def options(class_path: str, jars: list[Path]) -> Options:
    """Return the options that the classes in some jars define."""
    command = ["java", "-cp", class_path, str(HERE / "OptionKeys.java"), *map(str, jars)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return read(done.stdout)


def options_of_pyflink(folder: Path) -> Options:
    """Return the options of the Flink that the package `pyflink` contains."""
    jars = [j for part in ("lib", "opt") for j in sorted((folder / part).glob("flink-*.jar"))]
    parts = ("flink-dist", "flink-python", "flink-connector-files", "flink-table-api-java-uber")
    chosen = [j for j in jars if j.name.startswith(parts)]
    return options(":".join(map(str, [*(folder / "lib").glob("*.jar"), *chosen])), chosen)


def read(text: str) -> Options:
    lines = [line.split("\t") for line in text.splitlines() if line]
    return {key: [other for other in others if other] for key, *others in lines}


def with_older(now: Options, before: Options) -> Options:
    """Add to the current options the deprecated keys of an earlier Flink."""
    merged = {}
    for key, others in now.items():
        known = dict.fromkeys(others)
        for name in (key, *others):
            known.update(dict.fromkeys(o for o in before.get(name, []) if o != key))
        merged[key] = list(known)
    return merged


def main(pyflink: str, before: str) -> None:
    jars = sorted(Path(before).glob("flink-*.jar"))
    merged = with_older(options_of_pyflink(Path(pyflink)), options(f"{before}/*", jars))
    KEYS.write_text("".join("\t".join([key, *merged[key]]) + "\n" for key in sorted(merged)))


if __name__ == "__main__":
    main(*sys.argv[1:])
