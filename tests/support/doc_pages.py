"""Runs a page of the documentation as its reader does: saves its files, runs its commands, compares their output."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support.paths import ROOT

_FENCE = r"^```(?P<language>\w*)\n(?P<body>.*?)^```$"
_COMMANDS = r"(?:^    [^\n]+\n)+"
_BLOCK = re.compile(rf"{_FENCE}|{_COMMANDS}", re.DOTALL | re.MULTILINE)
_LOCAL = "millstream: running in this process, without Spark (millstream.engine=local)"
# The first line of a file's block: # orders.py, or -- orders.sql.
_NAME = re.compile(r"(?:#|--) (\S+\.\w+)\n")


def files_of(page: Path) -> dict[str, str]:
    """Return the files of a page: fenced blocks whose first line is a comment with the name of the file."""
    return {name: body for name, body, _ in _steps(page) if name}


def has_commands(page: Path) -> bool:
    """Return whether a page has commands with their output."""
    return any(not name for name, _, _ in _steps(page))


def run_page(page: Path, folder: Path) -> None:
    """Save the files and run the commands of a page, in order, in a folder.

    Indented lines right before a fenced block without a language are commands, and the block is their output, in which
    `...` stands for any text. Indented lines that begin with `mkdir` make input, and are run. Others are not.
    """
    for name, body, commands in _steps(page):
        if name:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(body)
        else:
            _run(commands, body, folder)


def _steps(page: Path) -> list[tuple[str, str, str]]:
    """Return a page's files as (name, text, ""), and its commands as ("", output, commands)."""
    steps, commands, end = [], "", 0
    text = page.read_text()
    for block in _BLOCK.finditer(text):
        body = block["body"]
        follows = commands and not text[end : block.start()].strip()
        if body is None:
            commands, end = re.sub("^    ", "", block[0], flags=re.MULTILINE), block.end()
            if commands.startswith("mkdir "):
                steps.append(("", "", commands))
            continue
        if name := _NAME.match(body):
            steps.append((name[1], body, ""))
        elif follows and not block["language"]:
            steps.append(("", body, commands))
        commands = ""
    return steps


def _run(commands: str, promised: str, folder: Path) -> None:
    scripts = str(Path(sys.executable).parent)
    env = {**os.environ, "PATH": os.pathsep.join([scripts, os.environ["PATH"]]), "PYTHONPATH": str(ROOT / "src")}
    shell = ["bash", "-o", "pipefail", "-c", commands]
    done = subprocess.run(shell, cwd=folder, env=env, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, f"{commands}{done.stdout}{done.stderr}"
    # A page shows its warnings and errors, with 2>&1.
    assert set(done.stderr.splitlines()) <= {_LOCAL}, f"{commands}{done.stderr}"
    is_promised = doctest.OutputChecker().check_output(promised, done.stdout, doctest.ELLIPSIS)
    assert is_promised, f"{commands}printed\n{done.stdout}\nand not\n{promised}"
