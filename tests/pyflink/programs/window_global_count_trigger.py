from pyflink.datastream import ProcessWindowFunction, StreamExecutionEnvironment
from pyflink.datastream.window import CountTrigger, GlobalWindows, PurgingTrigger


class Describe(ProcessWindowFunction):
    def process(self, key, context, elements):
        window = context.window()
        yield key, type(window).__name__, window.max_timestamp(), [v[1] for v in elements]


def main(env):
    data = [("a", 1), ("b", 2), ("a", 3), ("a", 4), ("b", 5), ("a", 6), ("a", 7)]
    stream = env.from_collection(data)
    for trigger in (CountTrigger.of(2), PurgingTrigger.of(CountTrigger.of(2))):
        print(type(trigger).__name__)
        out = (
            stream.key_by(lambda v: v[0])
            .window(GlobalWindows.create())
            .trigger(trigger)
            .process(Describe())
        )
        for result in out.execute_and_collect():
            print(result)


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
