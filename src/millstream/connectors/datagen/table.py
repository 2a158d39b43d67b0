"""The connector `datagen`: generates rows in sequence or at random, at a rate."""

from __future__ import annotations

import decimal
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millstream.common.dispatch import Dispatch
from millstream.common.display_text import did_you_mean
from millstream.common.fast_dataclass import fast_dataclass
from millstream.connectors.base import Source, SourceReader, SplitEnumerator
from millstream.connectors.datagen.source import RatedEnumerator
from millstream.formats.options import Options
from millstream.sql import types as t
from millstream.sql.catalog.tables import TableColumn
from millstream.sql.columns.batch import Batch
from millstream.sql.connector_contract import Connector, TableContext, TableSource
from millstream.sql.errors import ValidationException
from millstream.sql.expressions import Expression

_LENGTH = 100
_ELEMENTS = 3
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)


@fast_dataclass
class Block:
    """The rows from `start` to `end` of the block of `size` rows that begins at `first`."""

    first: int
    size: int
    start: int
    end: int

    @property
    def rows(self) -> int:
        return self.end - self.start


class Generator(ABC):
    """Generates a column."""

    @abstractmethod
    def column(self, block: Block) -> pa.Array:
        """Return the values of a block's rows."""


class Sequenced(Generator):
    """The numbers from a start to an end, both included, in the order of rows."""

    def __init__(self, kind: t.DataType, start: int, end: int, arrow: pa.DataType) -> None:
        self._start = start
        self.count = max(end - start + 1, 0)
        self._arrow = arrow
        self._textual = isinstance(kind, (t.CharType, t.VarCharType))

    def column(self, block: Block) -> pa.Array:
        numbers = pa.array(np.arange(self._start + block.start, self._start + block.end, dtype=np.int64))
        if pa.types.is_int64(self._arrow):
            return numbers
        if pa.types.is_decimal(self._arrow):
            return pa.array(numbers.to_pylist(), self._arrow)
        return numbers.cast(self._arrow, safe=not pa.types.is_integer(self._arrow))


_StringType = t.CharType | t.VarCharType | t.BinaryType | t.VarBinaryType
_Make = Callable[[np.random.Generator, int], pa.Array]


class Random(Generator):
    """Random values, some of them null."""

    def __init__(self, make: _Make, seed: tuple[int, ...], null_rate: float) -> None:
        self._make = make
        self._seed = seed
        self._null_rate = null_rate

    def column(self, block: Block) -> pa.Array:
        source = np.random.Generator(np.random.PCG64([*self._seed, block.first]))
        values = self._make(source, block.size)
        if self._null_rate > 0:
            values = _nulled(values, source.random(block.size) < self._null_rate)
        return values.slice(block.start - block.first, block.rows)


def _nulled(values: pa.Array, nulls: NDArray[np.bool_]) -> pa.Array:
    return values.take(pa.array(np.arange(len(values)), mask=nulls))


class Clock(Generator):
    """Timestamps of rows at the configured rate, less a random time of at most `past` milliseconds."""

    def __init__(
        self, started: int, rate: int, past: int, seed: tuple[int, ...], write: Callable[[NDArray[np.int64]], pa.Array]
    ) -> None:
        self._started = started
        self._rate = rate
        self._past = past
        self._seed = seed
        self._write = write

    def column(self, block: Block) -> pa.Array:
        millis = self._started + np.arange(block.start, block.end, dtype=np.int64) * 1000 // self._rate
        if self._past:
            source = np.random.Generator(np.random.PCG64([*self._seed, block.first]))
            back = source.integers(0, self._past, block.size, endpoint=True)
            millis = millis - back[block.start - block.first : block.end - block.first]
        return self._write(millis)


def generator_of(
    key: str, kind: t.DataType, options: Options, seed: tuple[int, ...], clock: tuple[int, int]
) -> Generator:
    """Return the generator of a column.

    Args:
        key: the prefix of its options.
        kind: its type.
        options: the table's options.
        seed: distinguishes its random values from those of other columns.
        clock: the first row's time in milliseconds, and the rows per second.
    """
    from millstream.sql.columns.arrow import arrow_type

    if options.text(f"{key}.kind", "random") == "sequence":
        for bound in ("start", "end"):
            if f"{key}.{bound}" not in options:
                raise ValidationException(f"Could not find required property '{key}.{bound}' for sequence generator.")
        if not isinstance(kind, (t.NumericType, t.CharType, t.VarCharType)):
            raise ValidationException(f"Unsupported type: {kind}")
        return Sequenced(kind, options.integer(f"{key}.start", 0), options.integer(f"{key}.end", 0), arrow_type(kind))
    if isinstance(kind, (t.TimestampType, t.LocalZonedTimestampType)):
        past = options.duration(f"{key}.max-past", 0)
        unit, arrow = np.dtype("datetime64[ms]"), arrow_type(kind)
        return Clock(*clock, past, seed, lambda m: pa.array(m.view(unit)).cast(arrow))
    if isinstance(kind, t.DateType):
        return Clock(*clock, 0, seed, lambda m: pa.array((m // 86_400_000).astype(np.int32)).cast(pa.date32()))
    if isinstance(kind, t.TimeType):
        return Clock(*clock, 0, seed, lambda m: pa.array((m % 86_400_000).astype(np.int32)).cast(pa.time32("ms")))
    rate = options.number(f"{key}.null-rate", 0.0)
    return Random(_maker(key, kind, options), seed, rate)


def _maker(key: str, kind: t.DataType, options: Options) -> _Make:
    make = _MAKERS.get(kind)
    if make is None:
        raise ValidationException(f"Unsupported type: {kind}")
    return make(kind, key, options)


def _integers(kind: t.IntegralType, key: str, options: Options) -> _Make:
    half = 1 << (kind.bits - 1)
    low, high = options.integer(f"{key}.min", -half), options.integer(f"{key}.max", half - 1)
    numpy = np.dtype(f"int{kind.bits}")
    return lambda source, rows: pa.array(source.integers(low, high, rows, numpy, endpoint=True))


def _floats(kind: t.FloatType | t.DoubleType, key: str, options: Options) -> _Make:
    numpy = np.float32 if isinstance(kind, t.FloatType) else np.float64
    limit = float(np.finfo(numpy).max)
    low, high = options.number(f"{key}.min", 0.0), options.number(f"{key}.max", limit)

    def make(source: np.random.Generator, rows: int) -> pa.Array:
        fraction = source.random(rows)
        return pa.array((low * (1 - fraction) + high * fraction).astype(numpy))

    return make


def _decimals(kind: t.DecimalType, key: str, options: Options) -> _Make:
    limit = 10 ** (kind.precision - kind.scale) - 1
    low, high = options.number(f"{key}.min", float(-limit)), options.number(f"{key}.max", float(limit))
    unit = decimal.Decimal(1).scaleb(-kind.scale)

    def make(source: np.random.Generator, rows: int) -> pa.Array:
        values = source.uniform(low, high, rows).tolist()
        context = decimal.Context(prec=80)
        return pa.array(
            [decimal.Decimal(v).quantize(unit, context=context) for v in values],
            pa.decimal128(kind.precision, kind.scale),
        )

    return make


def _booleans(kind: t.BooleanType, key: str, options: Options) -> _Make:
    return lambda source, rows: pa.array(source.random(rows) < 0.5)


def _length(key: str, kind: _StringType, options: Options) -> int:
    declared = kind.length
    length = options.integer_or_none(f"{key}.length")
    if isinstance(kind, (t.CharType, t.BinaryType)):
        if length is not None:
            raise ValidationException(f"Custom length for fixed-length type ({kind.root}) field is not supported.")
        return int(declared)
    if length is None:
        return int(min(declared, _LENGTH))
    if length > declared:
        raise ValidationException(
            f"Custom length '{length}' for variable-length type ({kind.root}) field '{key.split('.')[1]}' should be "
            f"shorter than '{declared}' defined in the schema."
        )
    return length


def _offsets(source: np.random.Generator, rows: int, length: int, varies: bool) -> NDArray[np.int32]:
    if not varies:
        return (np.arange(rows + 1) * length).astype(np.int32)
    lengths = source.integers(1, length, rows, endpoint=True)
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)


def _texts(kind: t.CharType | t.VarCharType, key: str, options: Options) -> _Make:
    length, varies = _length(key, kind, options), options.flag(f"{key}.var-len", False)

    def make(source: np.random.Generator, rows: int) -> pa.Array:
        offsets = _offsets(source, rows, length, varies)
        digits = _HEX[source.integers(0, 16, int(offsets[-1]), np.uint8)]
        return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets.tobytes()), pa.py_buffer(digits.tobytes()))

    return make


def _bytes(kind: t.BinaryType | t.VarBinaryType, key: str, options: Options) -> _Make:
    length, varies = _length(key, kind, options), options.flag(f"{key}.var-len", False)

    def make(source: np.random.Generator, rows: int) -> pa.Array:
        offsets = _offsets(source, rows, length, varies)
        body = source.bytes(int(offsets[-1]))
        return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(body)])

    return make


def _intervals(kind: t.YearMonthIntervalType | t.DayTimeIntervalType, key: str, options: Options) -> _Make:
    months = isinstance(kind, t.YearMonthIntervalType)
    limit = 120_000 if months else 86_400_000 * 1000
    low, high = options.integer(f"{key}.min", 0), options.integer(f"{key}.max", limit)
    numpy = np.dtype(np.int32 if months else np.int64)
    return lambda source, rows: pa.array(source.integers(low, high, rows, numpy, endpoint=True))


def _lists(kind: t.ArrayType, key: str, options: Options) -> _Make:
    inner = _maker(f"{key}.element", kind.element_type, options)
    length = options.integer(f"{key}.length", _ELEMENTS)

    def make(source: np.random.Generator, rows: int) -> pa.Array:
        offsets = pa.array((np.arange(rows + 1) * length).astype(np.int32))
        return pa.ListArray.from_arrays(offsets, inner(source, rows * length))

    return make


def _maps(kind: t.MultisetType | t.MapType, key: str, options: Options) -> _Make:
    keys: _Make
    values: _Make
    if isinstance(kind, t.MultisetType):
        keys, values = _maker(f"{key}.element", kind.element_type, options), _counts
    else:
        keys, values = (
            _maker(f"{key}.{p}", k, options) for p, k in (("key", kind.key_type), ("value", kind.value_type))
        )
    length = options.integer(f"{key}.length", _ELEMENTS)

    def make(source: np.random.Generator, rows: int) -> pa.Array:
        offsets = pa.array((np.arange(rows + 1) * length).astype(np.int32))
        return pa.MapArray.from_arrays(offsets, keys(source, rows * length), values(source, rows * length))

    return make


def _counts(source: np.random.Generator, rows: int) -> pa.Array:
    return pa.array(source.integers(1, 10, rows, np.int32))


def _rows(kind: t.RowType, key: str, options: Options) -> _Make:
    inner = [(f.name, _maker(f"{key}.{f.name}", f.data_type, options)) for f in kind.fields]

    def make(source: np.random.Generator, rows: int) -> pa.Array:
        return pa.StructArray.from_arrays([m(source, rows) for _, m in inner], [name for name, _ in inner])

    return make


_MAKERS = (
    Dispatch[[str, Options], _Make]()
    .on(t.BooleanType, _booleans)
    .on(t.TinyIntType, _integers)
    .on(t.SmallIntType, _integers)
    .on(t.IntType, _integers)
    .on(t.BigIntType, _integers)
    .on(t.FloatType, _floats)
    .on(t.DoubleType, _floats)
    .on(t.DecimalType, _decimals)
    .on(t.CharType, _texts)
    .on(t.VarCharType, _texts)
    .on(t.BinaryType, _bytes)
    .on(t.VarBinaryType, _bytes)
    .on(t.YearMonthIntervalType, _intervals)
    .on(t.DayTimeIntervalType, _intervals)
    .on(t.ArrayType, _lists)
    .on(t.MultisetType, _maps)
    .on(t.MapType, _maps)
    .on(t.RowType, _rows)
)


# Rows are generated in blocks whose values depend only on the block's number, so a replay generates the same rows.
BLOCK = 1 << 15
_ROWS_PER_SECOND = 10_000


class _Reader(SourceReader):
    def __init__(self, generators: Sequence[Generator], block: int) -> None:
        self._generators = generators
        self._block = block

    def read(self, split_range: tuple[int, int]) -> Iterator[Collection[Batch]]:
        start, end = split_range
        while start < end:
            number = start // self._block
            stop = min((number + 1) * self._block, end)
            block = Block(number * self._block, self._block, start, stop)
            yield [Batch([g.column(block) for g in self._generators], None, stop - start)]
            start = stop

    def rest(self, split_range: tuple[int, int], read: int) -> Iterator[Collection[Batch]]:
        start, end = split_range
        return self.read(((start // self._block + read) * self._block if read else start, end))


class DataGenSource(Source[Batch]):
    """Generates rows."""

    name = "datagen"

    def __init__(self, generators: Sequence[Generator], count: int | None, rate: int) -> None:
        self._generators = list(generators)
        self._count = count
        self._rate = rate
        # Small blocks at a low rate: a block is generated at once.
        self._block = max(min(BLOCK, rate // 20), 1)

    @property
    def is_bounded(self) -> bool:
        return self._count is not None

    def create_enumerator(self, parallelism: int, restored: int | None = None) -> SplitEnumerator:
        return RatedEnumerator(self._count, self._rate, parallelism, restored or 0, self._block, head_start=1)

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        return _Reader(self._generators, self._block)


class _Table(TableSource):
    def __init__(self, context: TableContext) -> None:
        options = Options(context.table.options)
        self._options = options
        self._rate = options.integer("rows-per-second", _ROWS_PER_SECOND)
        if self._rate <= 0:
            raise ValidationException(f"'rows-per-second' must be above 0, it is {self._rate}.")
        seed, now = random.getrandbits(62), time.time_ns() // 1_000_000
        columns = context.table.physical
        self._check(columns, options)
        self._generators = {
            c.name: generator_of(f"fields.{c.name}", c.type, options, (seed, i), (now, self._rate))
            for i, c in enumerate(columns)
        }
        counts = [options.integer_or_none("number-of-rows")]
        counts += [g.count for g in self._generators.values() if isinstance(g, Sequenced)]
        self._count = min((c for c in counts if c is not None), default=None)

    def _check(self, columns: Sequence[TableColumn], options: Options) -> None:
        for column in columns:
            kind = options.text(f"fields.{column.name}.kind", "random")
            if kind not in ("random", "sequence"):
                raise ValidationException(f"Unsupported generator kind: {kind}")
        names = [column.name for column in columns]
        for key in options.under("fields."):
            if not key.startswith(tuple(f"{name}." for name in names)):
                hint = did_you_mean(key.partition(".")[0], names) or "."
                raise ValidationException(f"Option 'fields.{key}' of datagen names no column of the table{hint}")

    def source(
        self, columns: Sequence[str], filters: Sequence[Expression] = (), limit: int | None = None
    ) -> Source[Batch]:
        return DataGenSource([self._generators[c] for c in columns], self._count, self._rate)

    def parallelism(self) -> int | None:
        return self._options.integer_or_none("scan.parallelism")

    @property
    def is_bounded(self) -> bool:
        return self._count is not None


class DataGenConnector(Connector):
    """Generates rows: `fields.x.kind` is `random` or `sequence`."""

    identifier = "datagen"
    optional = frozenset(
        [
            "rows-per-second",
            "number-of-rows",
            "scan.parallelism",
            *(f"fields.#.{o}" for o in ("kind", "min", "max", "max-past", "length", "var-len", "start", "end")),
            "fields.#.null-rate",
        ]
    )

    def table_source(self, context: TableContext) -> TableSource:
        return _Table(context)
