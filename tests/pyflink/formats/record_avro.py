"""Write flink.avro and flink.parquet with Apache PyFlink: the records of avro_cases.py in the layout of Flink's sinks.

    HADOOP_CLASSPATH=flink-shaded-hadoop-2-uber-2.8.3-10.0.jar PATH=<venv with apache-flink>/bin:$PATH \\
        python record_avro.py flink-sql-avro-2.3.0.jar flink-sql-parquet-2.3.0.jar

The jars are on Maven Central. fastavro writes the input file that Flink reads; the records pass through Flink's Java
code only, since PyFlink 2.3 cannot write an array from Python.
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path

import fastavro
from avro_cases import RECORDS, SCHEMA
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.connectors.file_system import FileSink
from pyflink.datastream.formats.avro import AvroBulkWriters, AvroInputFormat, AvroSchema
from pyflink.datastream.formats.parquet import AvroParquetWriters

HERE = Path(__file__).parent


def record(name, writers, source, directory):
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    env.add_jars(*[Path(jar).resolve().as_uri() for jar in sys.argv[1:]])
    schema = AvroSchema.parse_string(json.dumps(SCHEMA))
    out = directory / name
    sink = FileSink.for_bulk_format(str(out), writers.for_generic_record(schema)).build()
    env.create_input(AvroInputFormat(str(source), schema)).sink_to(sink)
    env.execute()
    (part,) = out.glob("*/part-*")
    shutil.copy(part, HERE / name)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        source = Path(temporary, "source.avro")
        with open(source, "wb") as file:
            fastavro.writer(file, SCHEMA, RECORDS)
        record("flink.avro", AvroBulkWriters, source, Path(temporary))
        record("flink.parquet", AvroParquetWriters, source, Path(temporary))
