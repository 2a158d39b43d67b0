"""The alias: `import pyflink` returns millstream's own modules, and missing names are reported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

IMPORTS = """
import millstream.pyflink
import millstream.datastream.functions
import pyflink
import pyflink.datastream.state as aliased
from pyflink.datastream import functions, MapFunction
from pyflink.datastream.functions import MapFunction as same
assert functions is millstream.datastream.functions
assert functions.__name__ == functions.__spec__.name == "millstream.datastream.functions"
assert MapFunction is same is millstream.datastream.functions.MapFunction
assert aliased is __import__("millstream.datastream.state", fromlist=["state"])
assert pyflink.__version__ == pyflink.version.__version__ == "2.3.0"
assert not hasattr(pyflink.datastream, "no_such_thing")
"""


def run(code: str, folder: Path) -> str:
    """Run code in a process in which another pyflink can be imported, and return what it printed."""
    (folder / "pyflink").mkdir(exist_ok=True)
    (folder / "pyflink" / "__init__.py").write_text("print('the other pyflink')")
    path = os.pathsep.join([str(folder), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}
    )
    return done.stdout + done.stderr


def test_pyflink_alias_returns_same_objects_with_pyflink_installed(tmp_path: Path) -> None:
    assert run(IMPORTS, tmp_path) == ""


def test_pyflink_import_without_alias_is_unchanged(tmp_path: Path) -> None:
    assert run("import millstream.datastream, pyflink", tmp_path) == "the other pyflink\n"


def test_pyflink_alias_must_be_imported_first(tmp_path: Path) -> None:
    result = run("import pyflink, millstream.pyflink", tmp_path)
    assert "import millstream.pyflink before anything of it" in result.splitlines()[-1]


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("from pyflink.table import Foo", "ImportError: millstream has no pyflink.table.Foo;"),
        ("import pyflink.java_gateway", "ModuleNotFoundError: millstream has no pyflink.java_gateway;"),
        ("from pyflink.datastream import Foo", "ImportError: millstream has no pyflink.datastream.Foo;"),
        ("from pyflink.common.time import Foo", "ImportError: millstream has no pyflink.common.time.Foo;"),
        ("import pyflink.common as c; c.Foo", "AttributeError: millstream has no pyflink.common.Foo;"),
    ],
)
def test_pyflink_alias_reports_missing_name_in_one_sentence(code: str, error: str, tmp_path: Path) -> None:
    last = run(f"import millstream.pyflink; {code}", tmp_path).splitlines()[-1]
    assert last.startswith(error)
    assert last.endswith("docs/reference/parity.md lists the supported names.")


def test_pyflink_alias_deprecation_warns_at_program_line(tmp_path: Path) -> None:
    program = tmp_path / "old.py"
    program.write_text("import millstream.pyflink\nfrom pyflink.datastream import ExternalizedCheckpointCleanup\n")
    result = run(f"import runpy; runpy.run_path({str(program)!r}, run_name='__main__')", tmp_path)
    assert f"{program}:2: DeprecationWarning" in result


def test_pyflink_alias_provides_shell_and_exceptions(tmp_path: Path) -> None:
    code = """
import millstream.pyflink
from pyflink.shell import s_env, st_env, DataTypes, MapFunction, Tumble, ObjectPath
from pyflink.util.exceptions import JavaException, TableException, TableNotExistException
from millstream.sql.errors import TableException as ours
assert ours is TableException and issubclass(TableNotExistException, JavaException)
print(st_env.from_elements([(1,)], DataTypes.ROW([DataTypes.FIELD("a", DataTypes.INT())])).get_resolved_schema())
"""
    assert run(code, tmp_path) == "(\n  `a` INT\n)\n"
