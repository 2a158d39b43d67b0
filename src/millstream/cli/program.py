"""Runs a user's program, or plans it."""

from __future__ import annotations

import os
import runpy
import sys

from millstream.common.errors import InvalidProgramError
from millstream.datastream.launch_context import ProgramPlanned, plan_only, set_command_line
from millstream.datastream.program_lint import clear_unexecuted
from millstream.leader.drivers import program_ended


def run_program(
    path: str, arguments: list[str], settings: dict[str, str], overrides: dict[str, str] | None = None
) -> None:
    """Run a program as `python path arguments...` would.

    Args:
        path: the program.
        arguments: its sys.argv.
        settings: settings that override the program's defaults.
        overrides: settings that override all of the program's own.
    """
    set_command_line(settings, overrides)
    # The program may import the files that it ships to workers.
    for file in settings.get("python.files", "").split(","):
        if file:
            sys.path.insert(
                0, os.path.dirname(os.path.abspath(file)) if file.endswith(".py") else os.path.abspath(file)
            )
    _run(path, arguments)


def load_plan(path: str, arguments: list[str], settings: dict[str, str], module: str | None = None) -> ProgramPlanned:
    """Run a program, or a module of it, up to its first execute() and return its plan."""
    set_command_line(settings)
    with plan_only():
        try:
            _run(path, arguments, module)
        except ProgramPlanned as planned:
            return planned
    raise InvalidProgramError(f"{path} ended without a call of execute() or execute_and_collect(): there is no plan.")


def _run(path: str, arguments: list[str], module: str | None = None) -> None:
    sys.argv = [path, *arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)) if module is None else path)
    try:
        if module is None:
            runpy.run_path(path, run_name="__main__")
        else:
            runpy.run_module(module, run_name="__main__")
    except BaseException as e:
        clear_unexecuted()
        program_ended(succeeded=isinstance(e, SystemExit) and not e.code)
        raise
    program_ended()
