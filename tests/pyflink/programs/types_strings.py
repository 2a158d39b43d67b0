from pyflink.common import Types


def main(env):
    for declared in (
        Types.STRING(),
        Types.BYTE(),
        Types.SHORT(),
        Types.INT(),
        Types.LONG(),
        Types.FLOAT(),
        Types.DOUBLE(),
        Types.CHAR(),
        Types.BOOLEAN(),
        Types.BIG_INT(),
        Types.BIG_DEC(),
        Types.INSTANT(),
        Types.SQL_DATE(),
        Types.SQL_TIME(),
        Types.SQL_TIMESTAMP(),
        Types.PICKLED_BYTE_ARRAY(),
        Types.ROW([Types.INT(), Types.STRING()]),
        Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.STRING()]),
        Types.TUPLE([Types.INT(), Types.STRING()]),
        Types.PRIMITIVE_ARRAY(Types.INT()),
        Types.BASIC_ARRAY(Types.INT()),
        Types.OBJECT_ARRAY(Types.ROW([Types.INT()])),
        Types.LIST(Types.INT()),
        Types.MAP(Types.STRING(), Types.LIST(Types.INT())),
    ):
        print(type(declared).__name__, str(declared), repr(declared) == str(declared))
    named = Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.STRING()])
    print(named.get_field_names(), [str(t) for t in named.get_field_types()])
    print(Types.ROW([Types.INT(), Types.STRING()]).get_field_names())
    print(Types.INT() == Types.INT(), Types.INT() == Types.LONG())
    print(named == Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.STRING()]))
    print(named == Types.ROW([Types.INT(), Types.STRING()]))
    print(Types.LIST(Types.INT()) == Types.LIST(Types.INT()))


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
