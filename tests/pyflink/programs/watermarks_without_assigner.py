from pyflink.common import Duration, Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import ProcessFunction, StreamExecutionEnvironment
from pyflink.datastream.connectors.number_seq import NumberSequenceSource


class Tens(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value * 10


class Stamps(ProcessFunction):
    def process_element(self, value, ctx):
        yield value, ctx.timestamp(), ctx.timer_service().current_watermark()


def main(env):
    """Without an assigner records retain their timestamps, if any."""
    monotonous = WatermarkStrategy.for_monotonous_timestamps()
    bounded = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(1))
    for strategy in (monotonous, bounded, bounded.with_idleness(Duration.of_seconds(1))):
        stream = env.from_collection([1, 2]).assign_timestamps_and_watermarks(strategy)
        print(*stream.process(Stamps()).execute_and_collect())
        source = env.from_source(NumberSequenceSource(1, 2), strategy, "numbers", Types.LONG())
        print(*source.process(Stamps()).execute_and_collect())
    stamped = env.from_collection([1, 2]).assign_timestamps_and_watermarks(monotonous.with_timestamp_assigner(Tens()))
    print(*stamped.assign_timestamps_and_watermarks(monotonous).process(Stamps()).execute_and_collect())


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
