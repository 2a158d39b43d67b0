"""SQL scripts on apache-flink and on Millstream: what PyFlink prints for them, and the differences.

    compare.py record [name ...]     record with this interpreter, which must have apache-flink
    compare.py [name ...]            run the scripts on Millstream and print the differences from the recordings

A script consists of statements with semicolons. Each is executed, and its result printed; for an error, the first line
with its message. A comment `-- unordered` before a statement says that the order of its rows is undefined. `{dir}` is
replaced by a temporary directory; a line `-- set: key = value` is a setting.
"""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SCRIPTS = HERE / "scripts"
RECORDED = HERE / "recorded"
_MODE = re.compile(r"^-- mode: (\w+)", re.MULTILINE)
_SETTING = re.compile(r"^-- set: (\S+) = (.*)$", re.MULTILINE)
# Parts of the output that differ by design: names of part files, ends of positions.
_MARK = "\x1e"
_NOISE = re.compile(r"part-[0-9a-f-]+")
_POSITION = re.compile(r"From (line \d+, column \d+) to line \d+, column \d+")


def names() -> list[str]:
    return sorted(p.stem for p in SCRIPTS.glob("*.sql"))


def statements(text: str) -> list[tuple[str, bool]]:
    """Return the statements of a script, each with whether the order of its rows is defined."""
    result = []
    for part in re.split(r";\s*\n", text):
        lines = [line for line in part.splitlines() if line.strip() and not line.strip().startswith("--")]
        if lines:
            result.append(("\n".join(lines).rstrip("; \n"), "-- unordered" not in part))
    return result


def _first_line(error: BaseException) -> str:
    """Return the message of an error, without Java's stack trace."""
    text = str(error)
    for line in text.splitlines():
        match = re.search(r"(?:Exception|Error): (.*)", line)
        if match and "Py4J" not in line:
            return match.group(1)
    return next((line for line in text.splitlines() if line.strip()), "")


def _execute(t_env: Any, statement: str) -> None:
    """Execute a statement and print its result or its error."""
    try:
        result = t_env.execute_sql(statement)
        if statement.upper().startswith(("INSERT", "EXECUTE")):
            result.wait()
        else:
            result.print()
    except Exception as e:
        print(f"error: {_first_line(e)}", flush=True)


def run(text: str, t_env: Any) -> list[str]:
    """Return the output of each statement."""
    printed = []
    with tempfile.TemporaryDirectory() as directory:
        for statement, ordered in statements(text):
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                _execute(t_env, statement.replace("{dir}", directory))
            printed.append(_cleaned(out.getvalue(), directory, ordered))
    return printed


def _cleaned(body: str, directory: str, ordered: bool) -> str:
    body = _POSITION.sub(r"At \1", _NOISE.sub("part-N", body.replace(directory, "{dir}")))
    return body if ordered else _sorted(body)


def _sorted(body: str) -> str:
    """Return the lines, with those of rows sorted."""
    lines = body.splitlines()
    # After the header, which is the first line with a bar.
    header = next((i for i, line in enumerate(lines) if line.startswith("|")), -1)
    positions = [i for i, line in enumerate(lines) if i > header and line.startswith(("|", "+I", "-U", "+U", "-D"))]
    for index, line in zip(positions, sorted(lines[i] for i in positions), strict=True):
        lines[index] = line
    return "\n".join(lines) + "\n" if positions else body


def rendered(text: str, printed: list[str]) -> str:
    """Return statements with their output."""
    return "".join(f"> {s}\n{p}" for (s, _), p in zip(statements(text), printed, strict=True))


def is_batch(text: str) -> bool:
    match = _MODE.search(text)
    return match is not None and match.group(1) == "batch"


def _configure(t_env: Any, text: str) -> None:
    for key, value in _SETTING.findall(text):
        t_env.get_config().set(key, value)


def record(name: str) -> None:
    """Record a script in a separate process: Java's output bypasses Python, and goes to the same standard output."""
    text = (SCRIPTS / f"{name}.sql").read_text()
    command = [sys.executable, "-W", "ignore", __file__, "statements", name]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=280, check=True)
    directory, *bodies = done.stdout.split(_MARK)
    cleaned = [_cleaned(b, directory.strip(), o) for b, (_, o) in zip(bodies, statements(text), strict=True)]
    RECORDED.mkdir(exist_ok=True)
    (RECORDED / f"{name}.txt").write_text(rendered(text, cleaned))
    print(f"recorded {name}", flush=True)


def execute_on_flink(name: str) -> None:
    """Execute a script on apache-flink in this process, with a mark before each statement."""
    from pyflink.table import EnvironmentSettings, TableEnvironment

    text = (SCRIPTS / f"{name}.sql").read_text()
    settings = EnvironmentSettings.in_batch_mode() if is_batch(text) else EnvironmentSettings.in_streaming_mode()
    t_env = TableEnvironment.create(settings)
    t_env.get_config().set("parallelism.default", "1").set("table.local-time-zone", "UTC")
    _configure(t_env, text)
    with tempfile.TemporaryDirectory() as directory:
        print(directory, flush=True)
        for statement, _ in statements(text):
            print(_MARK, end="", flush=True)
            _execute(t_env, statement.replace("{dir}", directory))


def with_expected_errors(actual: str, expected: str) -> str:
    """Return the actual output, in which errors that are equal up to additional text have the expected text."""
    lines, theirs = actual.splitlines(), expected.splitlines()
    if len(lines) != len(theirs):
        return actual
    pairs = zip(lines, theirs, strict=True)
    return "".join(f"{t if t.startswith('error:') and f.startswith(t) else f}\n" for f, t in pairs)


def run_here(name: str) -> str:
    """Return the output of a script on Millstream."""
    from millstream.table import EnvironmentSettings, StreamTableEnvironment
    from millstream.testing import LocalEnvironment

    text = (SCRIPTS / f"{name}.sql").read_text()
    settings = EnvironmentSettings.in_batch_mode() if is_batch(text) else EnvironmentSettings.in_streaming_mode()
    t_env = StreamTableEnvironment.create(LocalEnvironment(), settings)
    t_env.get_config().set("table.local-time-zone", "UTC")
    _configure(t_env, text)
    return rendered(text, run(text, t_env))


if __name__ == "__main__":
    if sys.argv[1:2] == ["record"]:
        for script in sys.argv[2:] or names():
            record(script)
    elif sys.argv[1:2] == ["statements"]:
        execute_on_flink(sys.argv[2])
    else:
        import difflib

        for script in sys.argv[1:] or names():
            expected = (RECORDED / f"{script}.txt").read_text()
            actual = with_expected_errors(run_here(script), expected)
            sys.stdout.writelines(
                difflib.unified_diff(expected.splitlines(True), actual.splitlines(True), script, "here")
            )
