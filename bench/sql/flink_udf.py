"""A scalar function in Python on PyFlink: prints JSON with records and seconds. Runs in the venv `pyflink`."""

import json
import sys
import time

from pyflink.common import WatermarkStrategy
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.connectors.number_seq import NumberSequenceSource
from pyflink.table import DataTypes, StreamTableEnvironment
from pyflink.table.udf import udf

kind, records = sys.argv[1], int(sys.argv[2])
env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
t_env = StreamTableEnvironment.create(env)


def run(count, number):
    numbers = env.from_source(NumberSequenceSource(0, count - 1), WatermarkStrategy.no_watermarks(), "numbers")
    t_env.create_temporary_view(f"seq{number}", t_env.from_data_stream(numbers).alias("n"))
    t_env.execute_sql(f"CREATE TABLE snk{number} (n BIGINT) WITH ('connector' = 'blackhole')")
    started = time.perf_counter()
    t_env.execute_sql(f"INSERT INTO snk{number} SELECT plus_one(n) FROM seq{number}").wait()
    return time.perf_counter() - started


plus_one = udf(lambda n: n + 1, result_type=DataTypes.BIGINT(), func_type=kind)
t_env.create_temporary_system_function("plus_one", plus_one)
run(records // 10, 0)
print(json.dumps({"records": records, "seconds": run(records, 1)}))
