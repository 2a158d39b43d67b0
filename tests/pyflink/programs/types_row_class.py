from pyflink.common import Row, RowKind
from pyflink.datastream import StreamExecutionEnvironment


def main(env):
    a = Row(name="a", n=1)
    b = Row("a", 1)
    print(a, b, repr(a), repr(b), Row())
    print(a[0], a["n"], a.name, list(a), len(a), a[0:2], "n" in a, "a" in a, "a" in b)
    print(a == b, a == Row(n=1, name="a"), b == Row("a", 1), b == Row("a", 2), b == ("a", 1))
    print(hash(b) == hash(Row("a", 1)), hash(a) == hash(b))
    print(a.as_dict(), Row(x=Row(y=1), z=2).as_dict(), Row(x=Row(y=1)).as_dict(True))
    print(a.get_row_kind(), a.get_row_kind() == RowKind.INSERT, [str(kind) for kind in RowKind])
    b.set_row_kind(RowKind.DELETE)
    print(b.get_row_kind(), b, b == Row("a", 1), b == Row.of_kind(RowKind.DELETE, "a", 1))
    a["n"] = 5
    b[1] = 7
    print(a, b)
    person = Row("name", "age")
    print(person, person("x", 3))
    for name, bad in (
        ("missing item", lambda: a["missing"]),
        ("missing attribute", lambda: a.missing),
        ("index", lambda: b[9]),
        ("set attribute", lambda: setattr(a, "name", "z")),
        ("set missing", lambda: a.__setitem__("missing", 1)),
        ("positions and names", lambda: Row(1, n=2)),
        ("as_dict without names", lambda: Row(1).as_dict()),
    ):
        try:
            print(name, bad())
        except Exception as error:
            print(name, type(error).__name__)


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    main(env)
