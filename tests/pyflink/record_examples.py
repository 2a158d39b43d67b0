"""Record what apache-flink's own examples print, run unmodified by apache-flink itself.

    record_examples.py [name | table/name ...]

Run it with the interpreter of a venv that has apache-flink (`make test-pyflink` makes one). What an example prints goes
to examples/<name>.txt under a first line that says where it comes from. The examples themselves are not copied.
"""

import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).resolve().parent
EXPECTED = HERE / "examples"

# Those that end by themselves and need no server.
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

# Of the Table API: without the one that never ends, and the one that aggregates in pandas.
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

# Those that fail in the middle, on apache-flink too: its `json` is a function of expressions, no longer the module.
FAILING = {"basic_operations"}

# What PyFlink and Beam log when an example lets logs go to its output.
NOISE = ("Using Any for unsupported type", "No module named google", "PYFLINK_CYTHON_ENABLED")


def recording(name: str, package: str = "datastream") -> Path:
    folder = EXPECTED if package == "datastream" else HERE / f"{package}_examples"
    return folder / f"{Path(name).name}.txt"


def record(name: str, package: str = "datastream") -> None:
    """Run one example and keep what it prints."""
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
    chosen = sys.argv[1:] or [*NAMES, *(f"table/{name}" for name in TABLE_NAMES)]
    for one in chosen:
        record(one.removeprefix("table/"), "table") if one.startswith("table/") else record(one)
