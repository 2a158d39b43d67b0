from pyflink.common import Row, RowKind


def main(env):
    a = Row(name="a", n=1)
    b = Row("a", 1)
    print(a, b, repr(a), repr(b), Row())
    print(a[0], a["n"], a.name, list(a), len(a), "n" in a, "a" in b)
    print(a == b, a == Row(name="a", n=1), b == Row("a", 1), b == Row("a", 2), b == ("a", 1))
    print(hash(b) == hash(Row("a", 1)))
    print(a.as_dict(), Row(x=Row(y=1), z=2).as_dict(), Row(x=Row(y=1)).as_dict(True))
    print(a.get_row_kind(), str(a.get_row_kind()), a.get_row_kind() == RowKind.INSERT)
    b.set_row_kind(RowKind.DELETE)
    print(b.get_row_kind(), b, b == Row("a", 1))
    a["n"] = 5
    a.name = "z"
    b[1] = 7
    print(a, b)
    Person = Row("name", "age")
    print(Person, Person("x", 3))
    for bad in (lambda: a["missing"], lambda: a.missing, lambda: b[9], lambda: Row(1, n=2)):
        try:
            print(bad())
        except Exception as error:
            print(type(error).__name__)


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
