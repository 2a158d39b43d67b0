from pyflink.common import Types
from pyflink.datastream import StreamExecutionEnvironment


def main(env):
    """A second execute() runs only the operators added since the first."""
    stream = env.from_collection(["a", "b"], type_info=Types.STRING())
    stream.print()
    print(env.execute("first").get_job_id() is not None, flush=True)
    stream.map(lambda v: v + "!", output_type=Types.STRING()).print()
    env.execute("second")
    try:
        env.execute("nothing")
        print("ran")
    except Exception as error:
        print("No operators defined" in str(error))


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
