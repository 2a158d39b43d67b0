"""TypeInformation, and the types of single values: numbers, strings, dates and times, any Python object."""

from __future__ import annotations

import datetime
from enum import Enum

from millstream.common.aliases import Value
from millstream.common.coercion import BASIC, BASIC_INFERRED_TYPES, Converter, instance_of
from millstream.common.errors import WrongTypeError
from millstream.common.inferred_types import ANYTHING, InferredType, Some
from millstream.common.java_text import java_instant, java_number, java_timestamp
from millstream.common.time import Instant
from millstream.common.unsupported import JAVA, missing_function


class TypeInformation:
    """The type of a stream's elements: the base of all types, which `Types` creates."""

    def converter(self) -> Converter | None:
        """Return a function that coerces a value or raises TypeMismatchError; None if any value fits."""
        raise NotImplementedError(f"{type(self).__name__} must implement converter()")

    def inferred_type(self) -> InferredType | None:
        """Return the inferred type of values that the converter leaves unchanged; None if there is none."""
        return None

    @property
    def copies(self) -> bool:
        """Whether a converted value shares no mutable object with the original."""
        return True

    def has_field(self, field: int | str) -> bool:
        """Return whether values of this type can have a field."""
        return True

    def format(self, value: Value) -> str:
        """Format a value as Flink prints it.

        Example:
            >>> from millstream.common import Types
            >>> Types.DOUBLE().format(2e23), Types.ROW([Types.INT(), Types.BOOLEAN()]).format((1, True))
            ('2.0E23', '+I[1, true]')
        """
        return "null" if value is None else str(value)

    get_java_type_info = missing_function("get_java_type_info", JAVA)

    def need_conversion(self) -> bool:
        """Return whether `to_internal_type` changes values of this type."""
        return False

    def to_internal_type(self, obj: Value) -> Value:
        """Return a value in Flink's internal form: days, microseconds, tuples. Unused here.

        Example:
            >>> import datetime
            >>> from millstream.common import Types
            >>> Types.SQL_DATE().to_internal_type(datetime.date(1970, 1, 3))
            2
        """
        return obj

    def from_internal_type(self, obj: Value) -> Value:
        """Return the value of an internal form.

        Example:
            >>> from millstream.common import Types
            >>> Types.SQL_DATE().from_internal_type(2)
            datetime.date(1970, 1, 3)
        """
        return obj

    def named(self) -> TypeInformation:
        """Return the type with default field names `f0`, `f1`, ... printed.

        As in PyFlink, a type prints its given names, and the type of a stream the names of all fields.
        """
        return self

    def _identity(self) -> tuple[object, ...]:
        return ()

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash((type(self), self._identity()))

    def __repr__(self) -> str:
        return str(self)


def check_type(type_info: object, taker: str) -> None:
    """Refuse an object that is not a type, most often one without its parentheses; None is allowed."""
    if type_info is None or isinstance(type_info, TypeInformation):
        return
    name = getattr(type_info, "__qualname__", "")
    if name.startswith("Types."):
        raise WrongTypeError(f"{taker}: {name} lacks its parentheses, write {name}().")
    raise WrongTypeError(f"{taker}: a type is for example Types.INT(), not {type_info!r}.")


class BasicType(Enum):
    """Flink's basic types."""

    STRING = "String"
    BYTE = "Byte"
    BOOLEAN = "Boolean"
    SHORT = "Short"
    INT = "Integer"
    LONG = "Long"
    FLOAT = "Float"
    DOUBLE = "Double"
    CHAR = "Char"
    BIG_INT = "BigInteger"
    BIG_DEC = "BigDecimal"
    INSTANT = "Instant"


class BasicTypeInfo(TypeInformation):
    """A string, a number or a boolean."""

    def __init__(self, basic_type: BasicType | str) -> None:
        self._name: str = basic_type.value if isinstance(basic_type, BasicType) else basic_type

    def converter(self) -> Converter | None:
        return BASIC[self._name]

    def inferred_type(self) -> InferredType | None:
        return BASIC_INFERRED_TYPES.get(self._name)

    def has_field(self, field: int | str) -> bool:
        return field == 0

    def format(self, value: Value) -> str:
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, float):
            return java_number(value, self._name == "Float")
        if isinstance(value, Instant):
            return java_instant(value)
        return "null" if value is None else str(value)

    def _identity(self) -> tuple[object, ...]:
        return (self._name,)

    def __str__(self) -> str:
        return self._name

    @staticmethod
    def STRING_TYPE_INFO() -> BasicTypeInfo:
        """The type of Types.STRING()."""
        return BasicTypeInfo(BasicType.STRING)

    @staticmethod
    def BOOLEAN_TYPE_INFO() -> BasicTypeInfo:
        """The type of Types.BOOLEAN()."""
        return BasicTypeInfo(BasicType.BOOLEAN)

    @staticmethod
    def BYTE_TYPE_INFO() -> BasicTypeInfo:
        """The type of Types.BYTE()."""
        return BasicTypeInfo(BasicType.BYTE)

    @staticmethod
    def SHORT_TYPE_INFO() -> BasicTypeInfo:
        """The type of Types.SHORT()."""
        return BasicTypeInfo(BasicType.SHORT)

    @staticmethod
    def INT_TYPE_INFO() -> BasicTypeInfo:
        """The type of Types.INT()."""
        return BasicTypeInfo(BasicType.INT)

    @staticmethod
    def LONG_TYPE_INFO() -> BasicTypeInfo:
        """The type of Types.LONG()."""
        return BasicTypeInfo(BasicType.LONG)

    @staticmethod
    def FLOAT_TYPE_INFO() -> BasicTypeInfo:
        """The type of Types.FLOAT()."""
        return BasicTypeInfo(BasicType.FLOAT)

    @staticmethod
    def DOUBLE_TYPE_INFO() -> BasicTypeInfo:
        """The type of Types.DOUBLE()."""
        return BasicTypeInfo(BasicType.DOUBLE)

    @staticmethod
    def CHAR_TYPE_INFO() -> BasicTypeInfo:
        """The type of Types.CHAR()."""
        return BasicTypeInfo(BasicType.CHAR)

    @staticmethod
    def BIG_INT_TYPE_INFO() -> BasicTypeInfo:
        """The type of Types.BIG_INT()."""
        return BasicTypeInfo(BasicType.BIG_INT)

    @staticmethod
    def BIG_DEC_TYPE_INFO() -> BasicTypeInfo:
        """The type of Types.BIG_DEC()."""
        return BasicTypeInfo(BasicType.BIG_DEC)

    @staticmethod
    def INSTANT_TYPE_INFO() -> InstantTypeInfo:
        """The type of Types.INSTANT()."""
        return InstantTypeInfo(BasicType.INSTANT)


class InstantTypeInfo(BasicTypeInfo):
    """A point in time."""

    def need_conversion(self) -> bool:
        return True

    def to_internal_type(self, obj: Value) -> Value:
        return None if obj is None else obj.to_epoch_milli() * 1000

    def from_internal_type(self, obj: Value) -> Value:
        return None if obj is None else Instant.of_epoch_milli(obj // 1000)


_EPOCH = datetime.datetime(1970, 1, 1)
_MICROSECOND = datetime.timedelta(microseconds=1)


class SqlTimeTypeInfo(TypeInformation):
    """A date, a time of day, or a timestamp."""

    _name: str
    _class: type

    @staticmethod
    def DATE() -> DateTypeInfo:
        """The type of Types.SQL_DATE()."""
        return DateTypeInfo()

    @staticmethod
    def TIME() -> TimeTypeInfo:
        """The type of Types.SQL_TIME()."""
        return TimeTypeInfo()

    @staticmethod
    def TIMESTAMP() -> TimestampTypeInfo:
        """The type of Types.SQL_TIMESTAMP()."""
        return TimestampTypeInfo()

    def need_conversion(self) -> bool:
        return True

    def converter(self) -> Converter | None:
        return instance_of(self._name, self._class)

    def inferred_type(self) -> InferredType | None:
        return Some(self._class, exact=False, null=True)

    def __str__(self) -> str:
        return type(self).__name__


class DateTypeInfo(SqlTimeTypeInfo):
    """A date; internally days since 1970."""

    EPOCH_ORDINAL = _EPOCH.toordinal()

    _name = "Date"
    _class = datetime.date

    def to_internal_type(self, d: Value) -> Value:
        return None if d is None else d.toordinal() - self.EPOCH_ORDINAL

    def from_internal_type(self, v: Value) -> Value:
        return None if v is None else datetime.date.fromordinal(v + self.EPOCH_ORDINAL)


class TimeTypeInfo(SqlTimeTypeInfo):
    """A time of day; internally microseconds since midnight."""

    EPOCH_ORDINAL = 0

    _name = "Time"
    _class = datetime.time

    def to_internal_type(self, t: Value) -> Value:
        return None if t is None else (datetime.datetime.combine(_EPOCH, t) - _EPOCH) // _MICROSECOND

    def from_internal_type(self, t: Value) -> Value:
        return None if t is None else (_EPOCH + t * _MICROSECOND).time()

    def format(self, value: Value) -> str:
        return "null" if value is None else value.isoformat("seconds")


class TimestampTypeInfo(SqlTimeTypeInfo):
    """A timestamp; internally microseconds since 1970."""

    _name = "Timestamp"
    _class = datetime.datetime

    def to_internal_type(self, dt: Value) -> Value:
        return None if dt is None else int(dt.replace(microsecond=0).timestamp()) * 10**6 + dt.microsecond

    def from_internal_type(self, ts: Value) -> Value:
        return None if ts is None else datetime.datetime.fromtimestamp(ts // 10**6).replace(microsecond=ts % 10**6)

    def format(self, value: Value) -> str:
        return "null" if value is None else java_timestamp(value)


class LocalTimeTypeInfo(TypeInformation):
    """A date, a time of day or both, without a time zone."""

    class TimeType(Enum):
        """The kind of local time."""

        LOCAL_DATE = 0
        LOCAL_TIME = 1
        LOCAL_DATE_TIME = 2

    def __init__(self, time_type: TimeType) -> None:
        self._time_type = time_type

    def converter(self) -> Converter | None:
        return instance_of(str(self), (datetime.date, datetime.time, datetime.datetime)[self._time_type.value])

    def _identity(self) -> tuple[object, ...]:
        return (self._time_type,)

    def __str__(self) -> str:
        return f"LocalTimeTypeInfo<{self._time_type.name}>"


class ExternalTypeInfo(TypeInformation):
    """A type of Flink's tables."""

    def __init__(self, type_info: TypeInformation) -> None:
        self._type_info = type_info

    def converter(self) -> Converter | None:
        return self._type_info.converter()

    def inferred_type(self) -> InferredType | None:
        return self._type_info.inferred_type()

    @property
    def copies(self) -> bool:
        return self._type_info.copies

    def has_field(self, field: int | str) -> bool:
        return self._type_info.has_field(field)

    def format(self, value: Value) -> str:
        return self._type_info.format(value)

    def _identity(self) -> tuple[object, ...]:
        return (self._type_info,)

    def named(self) -> ExternalTypeInfo:
        return ExternalTypeInfo(self._type_info.named())

    def __str__(self) -> str:
        return f"ExternalTypeInfo<{self._type_info}>"


class PickledBytesTypeInfo(TypeInformation):
    """Any Python object."""

    def converter(self) -> Converter | None:
        return None

    def inferred_type(self) -> InferredType | None:
        return ANYTHING

    @property
    def copies(self) -> bool:
        return False

    def __str__(self) -> str:
        return "PickledByteArrayTypeInfo"
