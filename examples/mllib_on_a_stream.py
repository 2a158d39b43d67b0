"""MLlib on a stream: applies a model that Spark has trained to every epoch of a stream.

Shows:    every epoch of a stream as a DataFrame (stream.to_spark), so that a stateful stream can use MLlib and all
          connectors of Spark; env.from_spark(frame) is the reverse.
Change:   KNOWN; another model of pyspark.ml. A function that writes must be idempotent per epoch number: it is called
          again if the job fails before the call is recorded.
Run:      python examples/mllib_on_a_stream.py

Expected output:

    trained: price = 50 + 3.0 * area
    flat of 30 m2: about 140
    flat of 100 m2: about 350
    flat of 70 m2: about 260
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.common import Row, Types
from millstream.datastream import StreamExecutionEnvironment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KNOWN = [(float(area), 50.0 + 3 * area) for area in range(20, 200, 10)]
OFFERED = [Row(area=30.0), Row(area=100.0), Row(area=70.0)]


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
    spark = env.get_spark_session()
    # Import MLlib after the session exists: its import looks for Spark.
    from pyspark.ml.feature import VectorAssembler
    from pyspark.ml.regression import LinearRegression

    features = VectorAssembler(inputCols=["area"], outputCol="features")
    known = features.transform(spark.createDataFrame(KNOWN, ["area", "price"]))
    model = LinearRegression(labelCol="price").fit(known)
    print(f"trained: price = {model.intercept:.0f} + {model.coefficients[0]:.1f} * area")

    def estimate(flats: DataFrame, epoch: int) -> None:
        for flat in model.transform(features.transform(flats)).collect():
            print(f"flat of {flat.area:.0f} m2: about {flat.prediction:.0f}")

    offered = env.from_collection(OFFERED, Types.ROW_NAMED(["area"], [Types.DOUBLE()]))
    offered.to_spark(estimate)
    env.execute("prices")


if __name__ == "__main__":
    main()
