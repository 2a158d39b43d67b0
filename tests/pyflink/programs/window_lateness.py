import time

from pyflink.common import Time, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import OutputTag, ProcessWindowFunction, StreamExecutionEnvironment
from pyflink.datastream.window import TumblingEventTimeWindows

LATE = OutputTag("late")


class At(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


class Describe(ProcessWindowFunction):
    def process(self, key, context, elements):
        yield context.window().start, [v[1] for v in elements], context.current_watermark()


def slowly(value):
    """The ticks leave time for the periodic watermark between the elements that matter."""
    if value[0] == "tick":
        time.sleep(0.1)
    return value


def windowed(env, lateness):
    env.get_config().set_auto_watermark_interval(20)
    data = []
    # 2 and 3 are late but allowed by the lateness of 10. 19 is in time. 5 is after the window's end plus the lateness.
    for at in (1, 12, 2, 3, 19, 21, 5, 15, 40, 15):
        data += [("a", at)] + [("tick", 0)] * 4
    stream = (
        env.from_collection(data)
        .rebalance()
        .map(slowly)
        .assign_timestamps_and_watermarks(
            WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(At())
        )
        .filter(lambda v: v[0] != "tick")
    )
    return (
        stream.key_by(lambda v: v[0])
        .window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
        .allowed_lateness(lateness)
        .side_output_late_data(LATE)
        .process(Describe())
    )


def main(env):
    for lateness in (0, 10):
        out = windowed(env, lateness)
        both = out.map(lambda v: ("window", v)).union(
            out.get_side_output(LATE).map(lambda v: ("late", v))
        )
        print("lateness", lateness)
        results = list(both.execute_and_collect())
        for kind in ("window", "late"):
            for result in results:
                if result[0] == kind:
                    print(result)


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
