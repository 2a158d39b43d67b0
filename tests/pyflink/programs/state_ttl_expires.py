import time

from pyflink.common import Time, Types
from pyflink.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from pyflink.datastream.state import MapStateDescriptor, StateTtlConfig, ValueStateDescriptor


class Keep(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext):
        config = StateTtlConfig.new_builder(Time.milliseconds(500)).build()
        value = ValueStateDescriptor("value", Types.INT())
        value.enable_time_to_live(config)
        table = MapStateDescriptor("map", Types.INT(), Types.INT())
        table.enable_time_to_live(config)
        self.value = runtime_context.get_state(value)
        self.table = runtime_context.get_map_state(table)
        self.permanent = runtime_context.get_state(ValueStateDescriptor("permanent", Types.INT()))

    def process_element(self, value, ctx):
        if value == 3:
            time.sleep(1.5)
        before = self.value.value(), self.table.get(0), self.permanent.value()
        self.value.update(value)
        self.table.put(0, value)
        self.permanent.update(value)
        yield value, before


def main(env):
    out = env.from_collection([1, 2, 3, 4]).key_by(lambda v: 0).process(Keep())
    for result in out.execute_and_collect():
        print(result)


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
