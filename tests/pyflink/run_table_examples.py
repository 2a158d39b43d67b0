"""Run table examples of apache-flink on Millstream in this process, and print their outputs as JSON.

    run_table_examples.py FOLDER name ...

FOLDER is apache-flink's. A single process runs all examples, so that each takes milliseconds.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import runpy
import sys
import traceback
import warnings
from pathlib import Path


def main() -> None:
    import millstream.pyflink  # noqa: F401
    from millstream.datastream import stream_execution_environment as environments

    folder, names = Path(sys.argv[1]), sys.argv[2:]
    # Like `-D millstream.engine=local`.
    original = environments.with_command_line  # type: ignore[attr-defined]
    environments.with_command_line = lambda c: original(c).set_string("millstream.engine", "local")  # type: ignore[assignment, attr-defined]
    warnings.simplefilter("ignore")
    logging.disable(logging.INFO)
    printed = {}
    for name in names:
        out = io.StringIO()
        sys.argv = [str(folder / f"{name}.py")]
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            try:
                runpy.run_path(sys.argv[0], run_name="__main__")
            except BaseException:
                out.write(traceback.format_exc())
        printed[name] = out.getvalue()
    print(json.dumps(printed))


if __name__ == "__main__":
    main()
