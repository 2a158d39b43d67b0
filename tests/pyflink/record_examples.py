"""Record the output of apache-flink's own examples, run unmodified by apache-flink itself.

    record_examples.py [name | table/name ...]

Run it with the interpreter of a venv with apache-flink (`make test-pyflink` creates one). The output goes to
examples/<name>.txt; a first line names the recorded version. The examples themselves are not copied.
"""

import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).resolve().parent
EXPECTED = HERE / "examples"

# Examples that end by themselves and need no server.
NAMES = [
    "basic_operations",
    "event_time_timer",
    "process_json_data",
    "state_access",
    "windowing/session_with_dynamic_gap_window",
    "windowing/session_with_gap_window",
    "windowing/sliding_time_window",
    "windowing/tumbling_count_window",
    "windowing/tumbling_time_window",
    "word_count",
]

# Table API examples, except for one that never ends, and one that aggregates in pandas.
TABLE_NAMES = [
    "async/async_scalar_function",
    "basic_operations",
    "mixing_use_of_datastream_and_table",
    "multi_sink",
    "pandas/conversion_from_dataframe",
    "process_json_data",
    "process_json_data_with_udf",
    "windowing/over_window",
    "windowing/session_window",
    "windowing/sliding_window",
    "windowing/tumble_window",
    "word_count",
]

# Examples that fail, on apache-flink too: their `json` is a function of expressions, no longer the module.
FAILING = {"basic_operations"}

# Log lines of PyFlink and Beam in the output of examples.
NOISE = ("Using Any for unsupported type", "No module named google", "PYFLINK_CYTHON_ENABLED")


def recording(name: str, package: str = "datastream") -> Path:
    folder = EXPECTED if package == "datastream" else HERE / f"{package}_examples"
    return folder / f"{Path(name).name}.txt"


def record(name: str, package: str = "datastream") -> None:
    """Run one example and record its output."""
    pyflink = Path(find_spec("pyflink").origin).parent  # type: ignore[arg-type, union-attr]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(pyflink / "examples" / package / f"{name}.py")],
        stdout=subprocess.PIPE,
        text=True,
        timeout=300,
        check=package == "datastream" or name not in FAILING,
    )
    printed = "".join(line for line in done.stdout.splitlines(True) if not line.startswith(NOISE))
    recording(name, package).parent.mkdir(exist_ok=True)
    recording(name, package).write_text(
        f"# recorded from {name}.py of apache-flink {version('apache-flink')}\n{printed}"
    )
    print(f"recorded {name}", flush=True)


if __name__ == "__main__":
    selected = sys.argv[1:] or [*NAMES, *(f"table/{name}" for name in TABLE_NAMES)]
    for name in selected:
        record(name.removeprefix("table/"), "table") if name.startswith("table/") else record(name)
