"""Plans programs that were uploaded, each in a process of its own, which runs its main and no job."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from typing import Any

from millstream.common.masking import masked_text
from millstream.service.session.submission import Submission

_MAIN = "millstream.cli.session_plan"
# How long a program may take to its execute().
_PATIENCE = 60.0
# So many bytes of what it said last are told when there is no plan.
_LAST_WORDS = 4000


class NotPlanned(Exception):
    """There is no plan; the text says why."""


def plan_program(submission: Submission, settings: dict[str, str], home: str) -> dict[str, Any]:
    """Return the plan of a program.

    Args:
        submission: the program.
        settings: the cluster's, which programs begin with.
        home: where it may have a directory for as long as that takes.
    """
    directory = tempfile.mkdtemp(prefix="plan-", dir=home)
    try:
        return _planned(submission, settings, directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _planned(submission: Submission, settings: dict[str, str], directory: str) -> dict[str, Any]:
    told, plan = os.path.join(directory, "program.json"), os.path.join(directory, "plan.json")
    spec = {**submission.as_dict(), "settings": {**settings, **submission.settings}, "plan": plan}
    with open(os.open(told, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
        json.dump(spec, file)
    with open(os.path.join(directory, "err"), "w+b") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", _MAIN, told],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said, cwd=directory, start_new_session=True,
        )  # fmt: skip
        try:
            process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            raise NotPlanned(f"The program has not come to its execute() within {_PATIENCE:g} s.") from None
        finally:
            # With whatever it has started.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if not os.path.exists(plan):
            said.seek(0)
            words = said.read()[-_LAST_WORDS:].decode(errors="replace").strip()
            raise NotPlanned(masked_text(words) or f"The program ended with code {process.returncode} without a plan.")
    with open(plan) as found:
        made: dict[str, Any] = json.load(found)
        return made
