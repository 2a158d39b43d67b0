"""How the command line prints an error: with the program's own lines only."""

from __future__ import annotations

import linecache
import subprocess
import sys
from pathlib import Path

import pytest

from millstream.common.error_rendering import with_source_lines

BEGIN = """\
from millstream.datastream import StreamExecutionEnvironment
stream = StreamExecutionEnvironment.get_execution_environment().from_collection([1])
"""

CASES = {
    "an invalid call": (
        BEGIN + "stream.map(5)\n",
        '  File "job.py", line 3, in <module>\n'
        "    stream.map(5)\n"
        "map() takes a callable or an object with a method map(), not 5 (int).\n",
    ),
    "an unsupported method": (
        BEGIN + "stream.get_execution_environment().create_input(None)\n",
        '  File "job.py", line 3, in <module>\n'
        "    stream.get_execution_environment().create_input(None)\n"
        "millstream has no create_input(): ",
    ),
    "an error of the program": (
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
    "a misspelt name": (
        "numbers = [1]\nprint(nubmers)\n",
        "Traceback (most recent call last):\n"
        '  File "job.py", line 2, in <module>\n'
        "    print(nubmers)\n"
        "          ^^^^^^^\n"
        "NameError: name 'nubmers' is not defined. Did you mean: 'numbers'?\n",
    ),
    "invalid syntax": ("x = (\n", '  File "job.py", line 1\n    x = (\n        ^\nSyntaxError: '),
    "a missing module": (
        "import no_such_module_of_anybody\n",
        "Traceback (most recent call last):\n"
        '  File "job.py", line 1, in <module>\n'
        "    import no_such_module_of_anybody\n"
        "ModuleNotFoundError: No module named 'no_such_module_of_anybody'\n",
    ),
}


def run_millstream(directory: Path, program: str) -> str:
    (directory / "job.py").write_text(program)
    command = [sys.executable, "-m", "millstream", "run", "job.py"]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True)
    assert done.returncode == 1
    return done.stderr


@pytest.mark.parametrize("case", CASES)
def test_run_prints_only_traceback_lines_of_program(case: str, tmp_path: Path) -> None:
    program, expected_error = CASES[case]
    assert run_millstream(tmp_path, program).startswith(expected_error)


def run_python(directory: Path, program: str) -> str:
    (directory / "job.py").write_text(program)
    done = subprocess.run([sys.executable, "job.py"], cwd=directory, capture_output=True, text=True)
    assert done.returncode == 1
    return done.stderr


@pytest.mark.parametrize("case", ["an invalid call", "an unsupported method"])
def test_python_prints_same_error_as_run_command(case: str, tmp_path: Path) -> None:
    program, expected_error = CASES[case]
    assert run_python(tmp_path, program).replace(str(tmp_path) + "/", "").startswith(expected_error)


LOCAL = "from millstream.testing import LocalEnvironment\nenv = LocalEnvironment()\n"


def test_function_error_starts_with_traceback_of_user_code(tmp_path: Path) -> None:
    errors = run_python(tmp_path, LOCAL + "env.from_collection([0]).map(lambda x: 1 // x).print()\nenv.execute()\n")
    file = str(tmp_path / "job.py")
    assert errors == (
        "Traceback (most recent call last):\n"
        f'  File "{file}", line 3, in <lambda>\n'
        "    env.from_collection([0]).map(lambda x: 1 // x).print()\n"
        "                                           ~~^^~~\n"
        "ZeroDivisionError: integer division or modulo by zero\n"
        "in operator 'Map' (no uid), made at job.py:3, subtask 1/1, epoch 1\n"
        "record: 0\n"
    )


@pytest.mark.parametrize(
    ("function", "expected_error"),
    [
        ("lambda x: x.splt()", "AttributeError: 'str' object has no attribute 'splt'. Did you mean: 'split'?\n"),
        ("lambda x: lenn(x)", "NameError: name 'lenn' is not defined. Did you mean: 'len'?\n"),
        ("lambda x: x.nothing_alike()", "AttributeError: 'str' object has no attribute 'nothing_alike'\n"),
    ],
)
def test_function_error_includes_suggestion_of_python(tmp_path: Path, function: str, expected_error: str) -> None:
    errors = run_python(tmp_path, LOCAL + f"env.from_collection(['a b']).map({function}).print()\nenv.execute()\n")
    assert f"{expected_error}in operator 'Map'" in errors


def test_run_preserves_excepthook_of_program(tmp_path: Path) -> None:
    program = "import sys\nsys.excepthook = lambda *error: print('mine', file=sys.stderr)\n" + LOCAL
    assert run_python(tmp_path, program + "env.execute()\n") == "mine\n"
    assert "ZeroDivisionError" in run_python(tmp_path, LOCAL + "1 / 0\n")


def test_with_source_lines_adds_lines_known_to_driver_only() -> None:
    linecache.cache["a cell"] = (6, None, ["x = 1\n", "1 // 0\n"], "a cell")
    expected_error = with_source_lines('  File "a cell", line 2, in f\n  File "a cell", line 1, in g\n    x = 1\nOops')
    assert expected_error == '  File "a cell", line 2, in f\n    1 // 0\n  File "a cell", line 1, in g\n    x = 1\nOops'


def test_run_suggests_pyflink_option_for_pyflink_import(tmp_path: Path) -> None:
    errors = run_millstream(tmp_path, "import pyflink.datastream\n")
    assert errors.endswith("Run it with `millstream run --pyflink`, which imports millstream as pyflink.\n")
