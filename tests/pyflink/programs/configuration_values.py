from pyflink.common import Configuration
from pyflink.datastream import EmbeddedRocksDBStateBackend, MemorySize, SlotSharingGroup, StreamExecutionEnvironment

LISTS = ["a;b", "[a, b]", "['a', \"b\"]", "a", "", "- a\n- b", "\n- a\n- b\n", "a;b;c;", "[]", "a,b", "[1, true, 2.5]"]
LISTS += ["- 'x y'\n- \"z\"", "{a: b}", "a: b", "[a;b]", "['a;b', c]", " a ; b ", "['it''s', \"a, b\"]"]
GROUPS = [{}, {"cpu": 0.0, "heap": 1}, {"cpu": 1.0}, {"heap": 1}, {"cpu": 1.0, "heap": 0}, {"cpu": 1.0, "heap": 1}]
GROUPS += [{"off": 1}, {"managed": 1}, {"gpu": 1.0}, {"cpu": 1.0, "heap": 1, "gpu": 1.0}, {"cpu": -1.0, "heap": 1}]


def group(resources):
    builder = SlotSharingGroup.builder("g")
    if "cpu" in resources:
        builder.set_cpu_cores(resources["cpu"])
    if "heap" in resources:
        builder.set_task_heap_memory(MemorySize.of_mebi_bytes(resources["heap"]))
    if "off" in resources:
        builder.set_task_off_heap_memory_mb(resources["off"])
    if "managed" in resources:
        builder.set_managed_memory_mb(resources["managed"])
    if "gpu" in resources:
        builder.set_external_resource("gpu", resources["gpu"])
    slot_group = builder.build()
    sizes = (slot_group.get_task_heap_memory(), slot_group.get_task_off_heap_memory(), slot_group.get_managed_memory())
    shown = [None if size is None else size.get_bytes() for size in sizes]
    return slot_group.get_name(), slot_group.get_cpu_cores(), shown, slot_group.get_external_resources()


def main(env):
    config = Configuration()
    config.set_string("s", "v").set_integer("i", 1).set_boolean("b", True).set_float("f", 1.5)
    print(config.set_bytearray("y", bytearray(b"ab")).remove_config("missing"))
    print(sorted(config.to_dict().items()))
    typed = {}
    config.add_all_to_dict(typed)
    print(sorted(typed.items()))
    print([config.get_string(key, "") for key in "sibfy"], config.get_bytearray("y", bytearray()))
    print(str(Configuration().set_string("k1", "v1").set_integer("k2", 1)), str(Configuration()))
    print(config == Configuration(config), hash(config) == hash(Configuration(config)))
    print(Configuration().set_integer("a", 1) == Configuration().set_string("a", "1"))
    for text in LISTS:
        print(repr(text), Configuration.parse_list_value(text))
    for resources in GROUPS:
        try:
            print(resources, group(resources))
        except Exception:
            print(resources, "refused")
    backend = EmbeddedRocksDBStateBackend()
    backend.set_db_storage_paths("/tmp/a", "file:///tmp/b")
    print(backend.get_db_storage_paths())
    try:
        backend.set_db_storage_paths("x")
    except Exception:
        print("relative paths refused")


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
