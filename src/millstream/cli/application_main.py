"""The driver of application mode: runs the user's program with its submitted arguments and settings."""

from __future__ import annotations

import json
import sys
from functools import partial
from typing import NoReturn

# The file of the submitted application, in its working directory.
SPEC = "millstream-application.json"


def main() -> None:
    """Run the program."""
    # Lazy imports: Spark runs this file as a script, before the package is on the path.
    from millstream.cli.program import run_program
    from millstream.cli.settings import may_use_ha
    from millstream.common import pyflink_names

    with open(SPEC) as file:
        spec = json.load(file)
    if spec["pyflink"]:
        pyflink_names.install()
    run = partial(run_program, spec["program"], spec["arguments"], spec["settings"], spec["overrides"])
    if not may_use_ha(spec["settings"]):
        run()
        return
    from millstream.cli.leader_candidate import run_with_ha

    run_with_ha(spec["settings"], run, exit_for_restart)


def exit_for_restart(reason: str) -> NoReturn:
    """End this process: the cluster starts another one, which is a standby."""
    print(f"millstream: this job manager lost leadership ({reason}): the cluster may start it again", file=sys.stderr)
    sys.stderr.flush()
    sys.exit(1)


if __name__ == "__main__":
    main()
