"""What the command line shows of an error: the program's own lines and no others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BEGIN = """\
from millstream.datastream import StreamExecutionEnvironment
stream = StreamExecutionEnvironment.get_execution_environment().from_collection([1])
"""

CASES = {
    "a program that is put together wrongly": (
        BEGIN + "stream.map(5)\n",
        '  File "job.py", line 3, in <module>\n'
        "    stream.map(5)\n"
        "map() takes a callable or an object with a method map(), not 5 (int).\n",
    ),
    "something that is not there": (
        BEGIN + "stream.get_execution_environment().create_input(None)\n",
        '  File "job.py", line 3, in <module>\n'
        "    stream.get_execution_environment().create_input(None)\n"
        "millstream has no create_input(): ",
    ),
    "an error of the program's own": (
        "def look(x):\n    return x.there\nlook(1)\n",
        "Traceback (most recent call last):\n"
        '  File "job.py", line 3, in <module>\n'
        "    look(1)\n"
        '  File "job.py", line 2, in look\n'
        "    return x.there\n"
        "           ^^^^^^^\n"
        "AttributeError: 'int' object has no attribute 'there'\n",
    ),
    "an error with a cause": (
        "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise KeyError('a') from e\n",
        "Traceback (most recent call last):\n"
        '  File "job.py", line 2, in <module>\n'
        "    1 / 0\n"
        "    ~~^~~\n"
        "ZeroDivisionError: division by zero\n"
        "\n"
        "The above exception was the direct cause of the following exception:\n"
        "\n"
        "Traceback (most recent call last):\n"
        '  File "job.py", line 4, in <module>\n'
        "    raise KeyError('a') from e\n"
        "KeyError: 'a'\n",
    ),
    "no Python": ("x = (\n", '  File "job.py", line 1\n    x = (\n        ^\nSyntaxError: '),
    "a module that is not there": (
        "import no_such_module_of_anybody\n",
        "Traceback (most recent call last):\n"
        '  File "job.py", line 1, in <module>\n'
        "    import no_such_module_of_anybody\n"
        "ModuleNotFoundError: No module named 'no_such_module_of_anybody'\n",
    ),
}


def shown(directory: Path, program: str) -> str:
    (directory / "job.py").write_text(program)
    command = [sys.executable, "-m", "millstream", "run", "job.py"]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True)
    assert done.returncode == 1
    return done.stderr


@pytest.mark.parametrize("case", CASES)
def test_the_programs_own_lines_are_shown(case: str, tmp_path: Path) -> None:
    program, told = CASES[case]
    assert shown(tmp_path, program).startswith(told)


def test_who_forgets_to_say_that_a_program_is_pyflinks_is_told(tmp_path: Path) -> None:
    said = shown(tmp_path, "import pyflink.datastream\n")
    assert said.endswith("Run it with `millstream run --pyflink`, and pyflink means millstream.\n")
