"""The base classes of PyFlink's tests, without a Java cluster: jobs run in this process."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import unittest
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

from pyflink.common import Configuration
from pyflink.datastream.execution_mode import RuntimeExecutionMode
from pyflink.datastream.stream_execution_environment import StreamExecutionEnvironment
from pyflink.java_gateway import NeedsJava
from pyflink.table.table_environment import StreamTableEnvironment, TableEnvironment
from pyflink.util.java_utils import get_j_env_configuration


class _JavaEnvironment:
    """The Java object of an environment, through which tests read settings."""

    def __init__(self, env: StreamExecutionEnvironment) -> None:
        self.get_configuration = env.get_configuration

    def __getattr__(self, name: str) -> Any:
        raise NeedsJava(f"StreamExecutionEnvironment.{name}()")


StreamExecutionEnvironment._j_stream_execution_environment = property(_JavaEnvironment)  # type: ignore[attr-defined]
_make_configuration = Configuration.__init__


def _shared_configuration(self: Configuration, other: Any = None, j_configuration: Any = None) -> None:
    _make_configuration(self, other)
    if j_configuration is not None:
        vars(self).update(vars(j_configuration.configuration))


Configuration.__init__ = _shared_configuration  # type: ignore[assignment, method-assign]

# Tests declare CSV files with the option keys of Flink 1.10, which Flink still reads for them.
_LEGACY = {
    "'connector.type'": "'connector'",
    "'connector.path'": "'path'",
    "'format.type'": "'format'",
    "'format.field-delimiter'": "'csv.field-delimiter'",
    "'format.ignore-first-line'": "'csv.allow-comments'",
}
_execute_sql = TableEnvironment.execute_sql


def _execute_legacy_sql(self: TableEnvironment, stmt: str) -> Any:
    if "'connector.path'" in stmt:
        _drop_extra_fields(stmt)
    for old, new in _LEGACY.items():
        stmt = stmt.replace(old, new)
    return _execute_sql(self, stmt)


def _drop_extra_fields(stmt: str) -> None:
    """Truncate the lines of a file to the number of columns of its table, as Flink's legacy CSV source did."""
    match = re.search(r"\((.*)\)\s*with\s*\(.*'connector.path'\s*=\s*'([^']*)'", stmt, re.DOTALL | re.IGNORECASE)
    assert match is not None
    columns = [c for c in match[1].split(",\n") if not re.search(r"\bas\b|\bwatermark\b", c, re.IGNORECASE)]
    path = Path(match[2])
    path.write_text("".join(",".join(line.split(",")[: len(columns)]) + "\n" for line in path.read_text().splitlines()))


TableEnvironment.execute_sql = _execute_legacy_sql  # type: ignore[method-assign]


def exec_insert_table(table: Any, table_path: str) -> Any:
    return table.execute_insert(table_path).get_job_client().get_job_execution_result().result()


def invoke_java_object_method(obj: Any, method_name: str) -> Any:
    raise NeedsJava(method_name)


def _load_specific_flink_module_jars(path: str) -> None:
    raise NeedsJava("jars")


def to_java_data_structure(value: Any) -> Any:
    raise NeedsJava("objects of Java's")


class PyFlinkTestCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.tempdir = tempfile.mkdtemp()
        os.environ["_python_worker_execution_mode"] = "process"  # noqa: SIM112 - as PyFlink

    @classmethod
    def tearDownClass(cls) -> None:
        shutil.rmtree(cls.tempdir, ignore_errors=True)
        os.environ.pop("_python_worker_execution_mode", None)

    @classmethod
    def assert_equals(cls, actual: list[Any], expected: list[Any]) -> None:
        assert sorted(actual) == sorted(expected), f"\n  {sorted(actual)}\n is not\n  {sorted(expected)}"

    @classmethod
    def to_py_list(cls, actual: list[Any]) -> list[Any]:
        return actual


class PyFlinkITTestCase(PyFlinkTestCase):
    mode = RuntimeExecutionMode.STREAMING

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.env = StreamExecutionEnvironment.get_execution_environment()
        cls.env.set_parallelism(2)
        cls.env.set_runtime_mode(cls.mode)


class PyFlinkUTTestCase(PyFlinkTestCase):
    def setUp(self) -> None:
        self.env = StreamExecutionEnvironment.get_execution_environment()
        self.env.set_runtime_mode(RuntimeExecutionMode.STREAMING)
        self.env.set_parallelism(2)
        self.t_env = StreamTableEnvironment.create(self.env)
        self.t_env.get_config().set("python.fn-execution.bundle.size", "1")


class PyFlinkStreamTableTestCase(PyFlinkITTestCase):
    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.t_env = StreamTableEnvironment.create(cls.env)
        cls.t_env.get_config().set("python.fn-execution.bundle.size", "1")


class PyFlinkBatchTableTestCase(PyFlinkStreamTableTestCase):
    mode = RuntimeExecutionMode.BATCH


class PyFlinkStreamingTestCase(PyFlinkITTestCase):
    pass


class PyFlinkBatchTestCase(PyFlinkITTestCase):
    mode = RuntimeExecutionMode.BATCH


class PythonAPICompletenessTestCase:
    def test_completeness(self) -> None:
        raise NeedsJava("the methods of a class of Java's")


def replace_uuid(input_obj: Any) -> Any:
    if isinstance(input_obj, dict):
        return {replace_uuid(k): replace_uuid(v) for k, v in input_obj.items()}
    return re.sub(r"[a-z0-9]{8}(-[a-z0-9]{4}){3}-[a-z0-9]{12}", "{uuid}", input_obj)


class TestEnv:
    def __init__(self) -> None:
        raise NeedsJava("files that Java ships")


def run_with_config(config_dict: dict[str, str]) -> Callable[[Any], Any]:
    def decorator(func: Any) -> Any:
        @wraps(func)
        def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
            config = get_j_env_configuration(self.env._j_stream_execution_environment)
            before = {key: config.configuration.get_string(key, None) for key in config_dict}
            for key, value in config_dict.items():
                config.setString(key, value)
            try:
                return func(self, *args, **kwargs)
            finally:
                for key, value in before.items():
                    config.removeKey(key) if value is None else config.setString(key, value)

        return wrapper

    return decorator
