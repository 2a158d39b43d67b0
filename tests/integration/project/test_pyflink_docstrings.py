"""The examples in PyFlink's docstrings build here with its module names replaced."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

from tests.support.apache_flink import flink_folder, flink_python, needs_flink  # noqa: F401

pytestmark = needs_flink

# Connectors to servers require packages that are not installed here.
SERVERS = ("kafka", "pulsar", "kinesis", "elasticsearch", "cassandra")
# Examples that are not Python, use undefined names, or need missing resources, each with the reason.
BROKEN = {
    "KeyedStream.reduce": "a bracket is missing",
    "WindowedStream.side_output_late_data": "a lambda names what is outside of it",
    "WindowedStream.reduce": "a lambda names what is outside of it",
    "AllWindowedStream.reduce": "a lambda names what is outside of it",
    "OutputTag": "its last line shows what is refused",
    "DataStream": "calls methods of the class itself",
    "HybridSource": "reads Kafka, a server",
}

PRELUDE = """
import os, tempfile
from typing import Tuple
from millstream.common import *
from millstream.common.config_options import ConfigOptions
from millstream.common.watermark_strategy import TimestampAssigner
from millstream.datastream import *
from millstream.datastream.checkpoint_storage import *
from millstream.datastream.connectors.file_system import FileSink, FileSource, StreamFormat
from millstream.datastream.formats.avro import *
from millstream.datastream.formats.csv import *
from millstream.datastream.formats.orc import *
from millstream.datastream.formats.parquet import *
from millstream.datastream.functions import *
from millstream.datastream.output_tag import OutputTag
from millstream.datastream.state import MapStateDescriptor
from millstream.datastream.state_backend import *
from millstream.datastream.window import *
from millstream.table import DataTypes

env = stream_env = StreamExecutionEnvironment.get_execution_environment()
ds = ds1 = ds2 = data_stream = env.from_collection([(1, "a")])
config = env.get_checkpoint_config()
state_backend = EmbeddedRocksDBStateBackend()
JSON_SCHEMA = '{"type": "record", "name": "r", "fields": [{"name": "array", "type": ["null", "int"]}]}'
OUTPUT_DIR = tempfile.mkdtemp()
FILE_PATH = CSV_FILE_PATH = PARQUET_FILE_PATH = os.path.join(OUTPUT_DIR, "in")

class MyMapFunction(MapFunction):
    def map(self, value): return value
class MyFlatMapFunction(FlatMapFunction):
    def flat_map(self, value): yield value
class MyCoMapFunction(CoMapFunction):
    def map1(self, value): return value
    def map2(self, value): return value
class MyReduceFunction(ReduceFunction):
    def reduce(self, a, b): return a
class MyFilterFunction(FilterFunction):
    def filter(self, value): return True
class MyProcessAllWindowFunction(ProcessAllWindowFunction):
    def process(self, context, elements): yield 1
class MyTimestampAssigner(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp): return 0
class Extractor(SessionWindowTimeGapExtractor):
    def extract(self, element): return 1
extractor = Extractor()
"""


def examples() -> dict[str, str]:
    """Return the code of every docstring example, by the name of its object."""
    folder = flink_folder()
    assert folder is not None
    collected: dict[str, str] = {}
    for package in ("common", "datastream", "metrics"):
        for file in sorted((folder / package).rglob("*.py")):
            if not any(server in file.name for server in SERVERS) and "tests" not in file.parts:
                collected |= _in(file)
    return collected


def _in(file: Path) -> dict[str, str]:
    collected: dict[str, str] = {}

    def walk(node: ast.AST, prefix: str) -> None:
        for inner in ast.iter_child_nodes(node):
            if isinstance(inner, (ast.ClassDef, ast.FunctionDef)):
                name = f"{prefix}{inner.name}"
                lines = re.findall(r"^\s*(?:>>>|\.\.\.) ?(.*)$", ast.get_docstring(inner) or "", re.MULTILINE)
                if lines:
                    collected[name] = "\n".join(lines)
                walk(inner, f"{name}.")

    walk(ast.parse(file.read_text()), "")
    return collected


def test_pyflink_docstring_examples_build() -> None:
    programs = examples()
    assert len(programs) > 50
    failed: dict[str, str] = {}
    for name, code in programs.items():
        names: dict[str, Any] = {}
        exec(PRELUDE, names)
        if name.startswith("ExecutionConfig"):
            names["config"] = names["env"].get_config()
        # Code that uses an undefined stream refers to the previous one; a prompt may continue a line.
        code = re.sub(r"^ds\d? = \.\.\.$", "", code, flags=re.MULTILINE).replace("pyflink", "millstream")
        try:
            exec(code, names)
        except Exception as e:
            failed[name] = f"{type(e).__name__}: {e}"
    reported = {name: reason for name, reason in failed.items() if name not in BROKEN}
    assert reported == {}
    assert failed.keys() == BROKEN.keys()
