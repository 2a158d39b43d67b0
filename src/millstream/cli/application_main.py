"""What a cluster runs in application mode: the user's program, with what it was submitted with."""

from __future__ import annotations

import json
import sys
from functools import partial
from typing import NoReturn

# The file that says what to run, in the directory in which the cluster runs it.
TOLD = "millstream-application.json"


def main() -> None:
    """Run the program."""
    # This file is run by itself, before there is a package.
    from millstream.cli.program import run_program
    from millstream.cli.settings import asks_for_leaders
    from millstream.common import pyflink_names

    with open(TOLD) as file:
        told = json.load(file)
    if told["pyflink"]:
        pyflink_names.install()
    run = partial(run_program, told["program"], told["arguments"], told["settings"], told["last_word"])
    if not asks_for_leaders(told["settings"]):
        run()
        return
    from millstream.cli.leader_candidate import run_led

    run_led(told["settings"], run, give_way)


def give_way(reason: str) -> NoReturn:
    """End this process, whose Spark is of no use any more: the cluster starts another, which is a standby."""
    print(f"millstream: this job manager leads no longer ({reason}): the cluster may start it again", file=sys.stderr)
    sys.stderr.flush()
    sys.exit(1)


if __name__ == "__main__":
    main()
