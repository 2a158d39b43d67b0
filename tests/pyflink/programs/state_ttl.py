from pyflink.common import Time, Types
from pyflink.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from pyflink.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)


class Keep(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext):
        config = (
            StateTtlConfig.new_builder(Time.hours(1))
            .set_update_type(StateTtlConfig.UpdateType.OnReadAndWrite)
            .set_state_visibility(StateTtlConfig.StateVisibility.NeverReturnExpired)
            .cleanup_full_snapshot()
            .cleanup_incrementally(10, True)
            .cleanup_in_rocksdb_compact_filter(1000)
            .build()
        )
        value = ValueStateDescriptor("value", Types.INT())
        elements = ListStateDescriptor("list", Types.INT())
        table = MapStateDescriptor("map", Types.INT(), Types.INT())
        for descriptor in (value, elements, table):
            descriptor.enable_time_to_live(config)
        self.value = runtime_context.get_state(value)
        self.elements = runtime_context.get_list_state(elements)
        self.table = runtime_context.get_map_state(table)

    def process_element(self, value, ctx):
        self.value.update((self.value.value() or 0) + value)
        self.elements.add(value)
        self.table.put(value, value * 10)
        yield value, self.value.value(), list(self.elements), sorted(self.table.items())


def main(env):
    config = (
        StateTtlConfig.new_builder(Time.seconds(5))
        .update_ttl_on_create_and_write()
        .never_return_expired()
        .build()
    )
    print(config.get_update_type().name, config.get_state_visibility().name)
    print(config.get_ttl().to_milliseconds(), config.is_enabled())
    print(config.get_ttl_time_characteristic().name)
    config = StateTtlConfig.new_builder(Time.seconds(5)).build()
    print(config.get_update_type().name, config.get_state_visibility().name)
    out = env.from_collection([1, 2, 3, 4]).key_by(lambda v: v % 2).process(Keep())
    for result in out.execute_and_collect():
        print(result)


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
