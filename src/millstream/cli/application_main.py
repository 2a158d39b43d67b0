"""What a cluster runs in application mode: the user's program, with what it was submitted with."""

from __future__ import annotations

import json

# The file that says what to run, in the directory in which the cluster runs it.
TOLD = "millstream-application.json"


def main() -> None:
    """Run the program."""
    # This file is run by itself, before there is a package.
    from millstream.cli.program import run_program
    from millstream.common import pyflink_names

    with open(TOLD) as file:
        told = json.load(file)
    if told["pyflink"]:
        pyflink_names.install()
    run_program(told["program"], told["arguments"], told["settings"], told["last_word"])


if __name__ == "__main__":
    main()
