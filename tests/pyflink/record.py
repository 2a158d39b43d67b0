"""Record the output of the programs in programs/ on Apache PyFlink.

    record.py                 record every program
    record.py name ...        record these programs
    record.py --check ...     run them again and list those whose output differs from the recording

Each program runs in a separate process, on the interpreter named by the environment variable PYFLINK_PYTHON (by default
the one running this file), which must have apache-flink installed. Its output goes to expected/<name>.txt; a first line
names the recorded version.
"""

import os
import subprocess
import sys
import types
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROGRAMS = HERE / "programs"
EXPECTED = HERE / "expected"

# Recorded in process mode, the default, because thread mode differs: it rejects an AsyncFunction;
# get_index_of_this_subtask of a RuntimeContext and keys() of a broadcast state fail; a trigger's event-time timer on a
# global window does not fire; integers wrap and rows are encoded by position.
PROCESS_MODE = {
    "async_errors",
    "async_ordered",
    "async_retry",
    "async_timeout",
    "async_unordered",
    "broadcast_partitioning",
    "broadcast_state_methods",
    "broadcast_state_parallel",
    "key_groups",
    "partition_custom",
    "rebalance",
    "rescale",
    "names",
    "runtime_context",
    "types_int_bounds",
    "types_row_names",
    "window_custom_trigger",
}


def mode(name: str) -> str:
    """Return the execution mode for a program; PYFLINK_MODE overrides it, to compare the two."""
    return os.environ.get("PYFLINK_MODE") or ("process" if name in PROCESS_MODE else "thread")


def run(name: str) -> None:
    """Run one program with PyFlink in this process."""
    from pyflink.common import Configuration
    from pyflink.datastream import StreamExecutionEnvironment

    source = PROGRAMS / f"{name}.py"
    # Not in sys.modules, so that its functions are pickled by value.
    program = types.ModuleType(name)
    exec(compile(source.read_text(), str(source), "exec"), program.__dict__)
    configuration = Configuration()
    configuration.set_string("python.execution-mode", mode(name))
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(1)
    program.main(env)
    sys.stdout.flush()


def capture(name: str) -> str:
    """Return the output of a program, after a line with the recorded version."""
    python = os.environ.get("PYFLINK_PYTHON", sys.executable)
    path = os.pathsep.join([str(Path(python).parent), os.environ.get("PATH", "")])
    done = subprocess.run(
        [python, "-u", __file__, "--run", name],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=300,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{name} failed\n{done.stdout}\n{done.stderr}")
    flink = subprocess.run(
        [python, "-c", "from importlib.metadata import version; print(version('apache-flink'))"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout.strip()
    return f"# recorded from apache-flink {flink}, {mode(name)} mode\n{done.stdout}"


def body(text: str) -> str:
    return text.split("\n", 1)[1]


def main(arguments: list) -> int:  # type: ignore[type-arg]
    check = "--check" in arguments
    names = [a for a in arguments if not a.startswith("--")]
    n_failed = 0
    for name in names or sorted(p.stem for p in PROGRAMS.glob("*.py")):
        expected = EXPECTED / f"{name}.txt"
        try:
            text = capture(name)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            print(f"FAILED {name}: {error}", flush=True)
            n_failed += 1
            continue
        if not check:
            EXPECTED.mkdir(exist_ok=True)
            expected.write_text(text)
            print(f"recorded {name}", flush=True)
        elif not expected.exists() or body(expected.read_text()) != body(text):
            print(f"DIFFERS {name}\n{text}", flush=True)
            n_failed += 1
        else:
            print(f"same {name}", flush=True)
    return 1 if n_failed else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        run(sys.argv[2])
    else:
        sys.exit(main(sys.argv[1:]))
