"""A query imports only modules that it uses before its first row."""

import subprocess
import sys

import pytest

from millstream.sql.plan.nodes import Node
from millstream.sql.translate.registry import TRANSLATIONS, translation_of

_QUERY = """
import sys
from millstream.table import EnvironmentSettings, TableEnvironment

t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
t_env.get_config().set("millstream.engine", "local")
with t_env.execute_sql("SELECT * FROM (VALUES (1, 'a'), (2, 'b')) AS t(x, y)").collect() as rows:
    print(next(rows))
print(*sorted(sys.modules), sep="\\n")
"""
_OPERATORS = "millstream.sql.operators."
_USED = {
    "base",
    "io",
    "io.calc",
    "io.datastream_io",
    "io.table_io",
    "io.watermark_assigner",
    "query_context",
}


def test_values_query_loads_only_its_operators() -> None:
    ran = subprocess.run([sys.executable, "-c", _QUERY], capture_output=True, text=True, timeout=120, check=True)
    first, *loaded = ran.stdout.splitlines()
    operators = {
        m.removeprefix("millstream.sql.operators.") for m in loaded if m.startswith("millstream.sql.operators.")
    }

    assert first == "<Row(1, 'a')>"
    assert operators == _USED
    others = ("pandas", "pyspark", "py4j", "importlib.metadata", "millstream.cep", "millstream.sql.plan.compiled")
    assert not [m for m in loaded if m.startswith(others)]


@pytest.mark.parametrize("kind", TRANSLATIONS, ids=lambda kind: kind.__name__)
def test_translation_imports_only_modules_of_node_kind(kind: type[Node]) -> None:
    translation = translation_of(kind)

    assert translation is not None and translation.__module__.startswith("millstream.sql.translate.")
