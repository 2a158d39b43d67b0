"""Python values as tables: rejected values, and inferred types."""

from __future__ import annotations

import array
import decimal
from typing import Any

import numpy as np
import pytest

from millstream.common.errors import TypeMismatchError
from millstream.table import DataTypes, EnvironmentSettings, TableEnvironment
from millstream.table.types import DataType, UserDefinedType


@pytest.fixture
def t_env() -> TableEnvironment:
    t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    t_env.get_config().set("parallelism.default", "1").set("millstream.engine", "local")
    return t_env


def one(kind: DataType) -> DataType:
    return DataTypes.ROW([DataTypes.FIELD("a", kind)])


@pytest.mark.parametrize(
    ("value", "kind", "error"),
    [
        (1.5, DataTypes.INT(), TypeMismatchError),
        (2**31, DataTypes.INT(), ValueError),
        (None, DataTypes.INT(False), ValueError),
        ([None], DataTypes.ARRAY(DataTypes.INT(False)), ValueError),
        ({"a": None}, DataTypes.MAP(DataTypes.STRING(), DataTypes.INT(False)), ValueError),
        ("abc", DataTypes.VARCHAR(2), ValueError),
        (b"abc", DataTypes.BINARY(2), ValueError),
        (True, DataTypes.BIGINT(), TypeMismatchError),
    ],
)
def test_from_elements_rejects_lossy_conversions(
    t_env: TableEnvironment, value: Any, kind: DataType, error: type[Exception]
) -> None:
    with pytest.raises(error):
        t_env.from_elements([(value,)], one(kind))


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (1, DataTypes.DOUBLE(), 1.0),
        (1, DataTypes.DECIMAL(10, 0), decimal.Decimal(1)),
        (np.int32(5), DataTypes.INT(), 5),
        (np.array([1, 2]), DataTypes.ARRAY(DataTypes.BIGINT()), [1, 2]),
        (None, DataTypes.INT(), None),
    ],
)
def test_from_elements_accepts_lossless_conversions(
    t_env: TableEnvironment, value: Any, kind: DataType, expected: Any
) -> None:
    assert [tuple(r) for r in t_env.from_elements([(value,)], one(kind)).execute().collect()] == [(expected,)]


@pytest.mark.parametrize(
    ("values", "kind"),
    [([300], DataTypes.TINYINT()), ([1.5], DataTypes.INT()), (["1"], DataTypes.INT()), ([1], DataTypes.STRING())],
)
def test_from_pandas_rejects_values_of_another_type(t_env: TableEnvironment, values: list[Any], kind: DataType) -> None:
    import pandas as pd

    with pytest.raises(TypeMismatchError, match="the column 'a' .* is not of type"):
        t_env.from_pandas(pd.DataFrame({"a": values}), one(kind))


class PointType(UserDefinedType):
    @classmethod
    def sql_type(cls) -> DataType:
        return DataTypes.ARRAY(DataTypes.DOUBLE())

    def serialize(self, obj: Any) -> Any:
        return [obj.x, obj.y]

    def deserialize(self, datum: Any) -> Any:
        return Point(*datum)


class Point:
    __UDT__ = PointType()

    def __init__(self, x: float, y: float) -> None:
        self.x, self.y = x, y

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Point) and (self.x, self.y) == (other.x, other.y)


class Pair:
    def __init__(self) -> None:
        self.b, self.a = "x", 1


def test_from_elements_infers_user_types_arrays_and_objects(t_env: TableEnvironment) -> None:
    table = t_env.from_elements([(Point(1.0, 2.0), [Point(3.0, 4.0)], array.array("h", [1]), Pair())])
    kinds = table.get_resolved_schema().get_column_data_types()
    assert [str(k) for k in kinds[2:]] == ["ARRAY<SMALLINT NOT NULL>", "ROW<`a` BIGINT, `b` STRING>"]
    (row,) = table.execute().collect()
    assert tuple(row)[:3] == (Point(1.0, 2.0), [Point(3.0, 4.0)], [1])
    assert tuple(row[3]) == (1, "x")
