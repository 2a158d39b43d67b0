from pyflink.common import Types
from pyflink.datastream import MapFunction, RuntimeContext, StreamExecutionEnvironment


class Describe(MapFunction):
    def open(self, runtime_context: RuntimeContext):
        self.description = (
            runtime_context.get_index_of_this_subtask(),
            runtime_context.get_number_of_parallel_subtasks(),
            runtime_context.get_attempt_number(),
            runtime_context.get_job_parameter("missing", "default"),
        )

    def map(self, value):
        return self.description


def main(env):
    stream = env.from_collection([1, 2, 3], type_info=Types.INT())
    out = stream.broadcast().map(Describe()).set_parallelism(2)
    print(sorted(out.execute_and_collect()))


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
