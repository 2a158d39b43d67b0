"""Tables of files with inferred columns: `read_csv`, `read_json` and `read_parquet`.

Each returns the descriptor of a `filesystem` table, which reads the files like any declared table.
"""

from __future__ import annotations

import json
import os
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Union
from urllib.parse import unquote

from millstream.checkpoint.storage import storage_options
from millstream.common.errors import InvalidProgramError, MillstreamError
from millstream.common.time import Duration
from millstream.connectors.files.source import check_paths
from millstream.formats.base import create_format
from millstream.formats.csv.table import CsvFileFormat
from millstream.formats.file_access import FileAccess, FileStatus, clean_path, without_wildcards
from millstream.formats.inference import csv_columns, json_columns, partition_type
from millstream.formats.json.table import JsonFormat
from millstream.sql.schema import Field
from millstream.sql.types import DataType, RowType
from millstream.table.in_memory_tables import data_type_of
from millstream.table.schema import Schema
from millstream.table.sql_text import as_data_type
from millstream.table.table_descriptor import TableDescriptor

if TYPE_CHECKING:
    from millstream.table.statement_planner import StatementPlanner
    from millstream.table.table import Table

# All columns, or the types of some columns: the others are inferred.
FileSchema = Union[Schema, RowType, Mapping[str, Union[DataType, str]], None]
# Rows from which types are inferred by default.
INFER_ROWS = 1000
# Names of the directory of null partitions: Flink's and Hive's.
_NULL_PARTITIONS = ("__DEFAULT_PARTITION__", "__HIVE_DEFAULT_PARTITION__")
# Footers of Parquet files that are read at the same time.
_THREADS = 8


@dataclass(frozen=True)
class FileTable:
    """Files that are read as a table.

    Attributes:
        method: the method of the user, for errors.
        path: a file, a directory, a pattern or a URL.
        file_format: the identifier of the format.
        access: accesses the files.
        zone: the session's time zone.
        schema: all columns, or the types of some.
        infer_rows: the number of rows from which types are inferred; None for all.
        monitor: the interval at which new files are listed; None to read the existing files.
        watermark: a column and the expression of its watermark.
        options: the options of the table.
    """

    method: str
    path: str
    file_format: str
    access: FileAccess
    zone: str
    schema: FileSchema = None
    infer_rows: int | None = None
    monitor: Duration | None = None
    watermark: tuple[str, str] | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    def descriptor(self) -> TableDescriptor:
        """Return the table with its columns, inferred if necessary."""
        if self.infer_rows is not None and self.infer_rows < 1:
            raise InvalidProgramError(f"{self.method}() takes infer_rows of at least 1, not {self.infer_rows}.")
        check_paths(self.access, (self.path,))
        files = sorted((f for f in self.access.find(self.path) if f.size), key=lambda f: f.path)
        partitions = _Partitions.of(self.method, self.path, files)
        if isinstance(self.schema, (Schema, RowType)):
            schema, inferred = _as_schema(self.schema), None
            keys = [c.name for c in schema.columns if c.name in partitions.values]
        else:
            columns, inferred = self._columns(files, partitions)
            schema = Schema.new_builder().from_fields([c.name for c in columns], [c.type for c in columns]).build()
            keys = list(partitions.values)
        if self.watermark is not None:
            schema = Schema.new_builder().from_schema(schema).watermark(*self.watermark).build()
        builder = TableDescriptor.for_connector("filesystem").schema(schema).partitioned_by(*keys)
        for key, value in self._all_options(partitions, inferred).items():
            builder = builder.option(key, value)
        return builder.build()

    def _all_options(self, partitions: _Partitions, inferred: Sequence[str] | None) -> dict[str, str]:
        options = {"path": self.path, "format": self.file_format, "partition.default-name": partitions.null_name}
        if self.monitor is not None:
            options["source.monitor-interval"] = f"{self.monitor.to_millis()} ms"
        if inferred is not None and self.file_format != "parquet":
            options[f"{self.file_format}.inferred-columns"] = json.dumps(inferred)
        return {**options, **self.options}

    def _columns(self, files: Sequence[FileStatus], partitions: _Partitions) -> tuple[list[Field], list[str]]:
        """Return the columns, and the names of those in the files whose types are inferred."""
        if not files:
            raise InvalidProgramError(
                f"{self.method}(): there is no file with rows in {self.path}, from which columns can be inferred; "
                "correct the path, or pass the columns with schema=."
            )
        stored = _INFER[self.file_format](self, files)
        if not stored:
            raise InvalidProgramError(
                f"{self.method}(): the files in {self.path} have no rows, from which columns can be inferred; pass the "
                "columns with schema=."
            )
        for name in partitions.values:
            if any(c.name == name for c in stored):
                raise InvalidProgramError(
                    f"{self.method}(): the column {name!r} is in the files and in the names of the directories of "
                    f"{self.path}; rename one of them, or pass the columns with schema=."
                )
        columns = [*stored, *(Field(name, partition_type(texts)) for name, texts in partitions.values.items())]
        types = dict(self.schema) if isinstance(self.schema, Mapping) else {}
        if unknown := [name for name in types if all(c.name != name for c in columns)]:
            raise InvalidProgramError(
                f"{self.method}(): schema= has the column {unknown[0]!r}, but the files in {self.path} have only "
                f"{', '.join(repr(c.name) for c in columns)}."
            )
        typed = [replace(c, type=as_data_type(types[c.name])) if c.name in types else c for c in columns]
        return typed, [c.name for c in stored if c.name not in types]


def _as_schema(schema: Schema | RowType) -> Schema:
    return schema if isinstance(schema, Schema) else Schema.new_builder().from_row_data_type(schema).build()


@dataclass(frozen=True)
class _Partitions:
    """The partition columns in the names of directories.

    Attributes:
        values: the texts of each column, without those of null.
        null_name: the directory name of null.
    """

    values: dict[str, set[str]]
    null_name: str

    @staticmethod
    def of(method: str, path: str, files: Sequence[FileStatus]) -> _Partitions:
        """Return the partition columns of the files below a path."""
        root = _local_part(without_wildcards(path))
        values: dict[str, set[str]] = {}
        null_names: set[str] = set()
        for index, file in enumerate(files):
            # For a single file, no directory is below the path.
            directories = _local_part(file.path).removeprefix(root).strip("/").split("/")[:-1]
            parts = [d.partition("=") for d in directories if "=" in d]
            names = [unquote(name) for name, _, _ in parts]
            if index and names != list(values):
                raise InvalidProgramError(
                    f"{method}(): {files[0].path} is in a directory with the partition columns {list(values)}, but "
                    f"{file.path} with {names}; read them as two tables."
                )
            for name, (_, _, text) in zip(names, parts, strict=True):
                known, value = values.setdefault(name, set()), unquote(text)
                (null_names if value in _NULL_PARTITIONS else known).add(value)
        if len(null_names) > 1:
            raise InvalidProgramError(f"{method}(): null partitions in {path} have several names; rename some.")
        return _Partitions(values, next(iter(null_names), _NULL_PARTITIONS[0]))


def _local_part(path: str) -> str:
    """Return a path or a URL without its protocol, which file systems may spell differently."""
    return path.partition("://")[2].lstrip("/") if "://" in path else path


# --- the columns of each format


def _infer_csv(table: FileTable, files: Sequence[FileStatus]) -> list[Field]:
    csv = create_format("csv", table.options, table.zone)
    assert isinstance(csv, CsvFileFormat)
    return csv_columns(csv, table.access, files, table.infer_rows)


def _infer_json(table: FileTable, files: Sequence[FileStatus]) -> list[Field]:
    json_format = create_format("json", table.options, table.zone)
    assert isinstance(json_format, JsonFormat)
    return json_columns(json_format, table.access, files, table.infer_rows)


def _infer_parquet(table: FileTable, files: Sequence[FileStatus]) -> list[Field]:
    """Return the columns that all files have."""
    given = table.schema if isinstance(table.schema, Mapping) else {}

    def columns_of(file: FileStatus) -> dict[str, DataType]:
        return _parquet_columns(table, file, given)

    with ThreadPoolExecutor(_THREADS) as threads:
        first, *others = threads.map(columns_of, files)
    for file, columns in zip(files[1:], others, strict=True):
        for name in sorted({*first, *columns} - {*given}):
            one, other = first.get(name), columns.get(name)
            if one != other:
                raise InvalidProgramError(
                    f"{table.method}(): the column {name!r} is {one or 'missing'} in {files[0].path}, but "
                    f"{other or 'missing'} in {file.path}; pass the columns with schema=."
                )
    return [Field(name, kind) for name, kind in first.items()]


def _parquet_columns(table: FileTable, file: FileStatus, given: Mapping[str, DataType | str]) -> dict[str, DataType]:
    # Imported on use, because it takes long to load.
    import pyarrow as pa
    from pyarrow import parquet

    with table.access.open(file.path) as stream:
        try:
            schema = parquet.read_schema(stream)
        except (pa.ArrowException, OSError) as e:
            raise MillstreamError(
                f"{table.method}(): {file.path} is not a complete Parquet file ({e}); remove it from the directory."
            ) from None
    columns: dict[str, DataType] = {}
    for column in schema:
        if column.name in given:
            columns[column.name] = as_data_type(given[column.name])
            continue
        try:
            columns[column.name] = data_type_of(column.type)
        except (TypeError, MillstreamError) as e:
            raise InvalidProgramError(
                f"{table.method}(): the type {column.type} of the column {column.name!r} of {file.path} has no SQL "
                f"type ({e}); pass one with schema={{{column.name!r}: ..}}."
            ) from None
    return columns


_INFER: dict[str, Callable[[FileTable, Sequence[FileStatus]], list[Field]]] = {
    "csv": _infer_csv,
    "json": _infer_json,
    "parquet": _infer_parquet,
}


def file_path(path: str | os.PathLike[str]) -> str:
    """Return a path or URL as the `filesystem` connector takes it; a local one is absolute."""
    text = os.fspath(path)
    return clean_path(text if "://" in text else os.path.expanduser(text))


class FileMethods:
    """The methods of TableEnvironment that read files. Not in PyFlink."""

    _planner: StatementPlanner

    @abstractmethod
    def from_descriptor(self, descriptor: TableDescriptor) -> Table:
        """Return the table that a descriptor describes."""

    def read_csv(
        self,
        path: str | os.PathLike[str],
        *,
        header: bool = True,
        delimiter: str = ",",
        quote: str | None = '"',
        null_literal: str = "",
        schema: FileSchema = None,
        infer_rows: int | None = INFER_ROWS,
        watermark: tuple[str, str] | None = None,
        monitor: Duration | None = None,
        options: Mapping[str, str] | None = None,
    ) -> Table:
        """Return a table of CSV files, with types inferred from the first rows: BOOLEAN, BIGINT, DOUBLE, .. STRING.

        A later value that is not of its column's inferred type fails the job; none is changed or lost.

        Args:
            path: a file, a directory, a pattern such as `data/*.csv`, or a URL of fsspec. Directories `key=value` are
                columns.
            header: whether the first line of each file has the names of the columns; without it they are f0, f1, ..
            delimiter: the character between fields.
            quote: the character around fields; None if there is none: then several subtasks read a file.
            null_literal: the text of null, quoted or not.
            schema: all columns, as a Schema or a ROW; or a dictionary with the types of some columns.
            infer_rows: the number of rows from which types are inferred; None for all rows.
            watermark: the event-time column and the expression of its watermark.
            monitor: the interval at which new files are read; by default, the table has the existing files only.
            options: other options of the `filesystem` connector and its format.

        Example:
            >>> import pathlib, tempfile
            >>> file = pathlib.Path(tempfile.mkdtemp(), "words.csv")
            >>> _ = file.write_text("word,n\\nto,1\\nbe,2\\n")
            >>> words = t_env.read_csv(file)
            >>> list(words.select(col("word"), col("n") + 1).execute().collect())
            [<Row('to', 2)>, <Row('be', 3)>]
        """
        quoting = {"csv.disable-quote-character": "true"} if quote is None else {"csv.quote-character": quote}
        own = {"csv.header": str(header).lower(), "csv.field-delimiter": delimiter, "csv.null-literal": null_literal}
        return self._read("csv", path, schema, infer_rows, watermark, monitor, {**own, **quoting, **(options or {})})

    def read_json(
        self,
        path: str | os.PathLike[str],
        *,
        schema: FileSchema = None,
        infer_rows: int | None = INFER_ROWS,
        watermark: tuple[str, str] | None = None,
        monitor: Duration | None = None,
        options: Mapping[str, str] | None = None,
    ) -> Table:
        """Return a table of files with a JSON object in each line, with columns inferred from the first rows.

        Objects are ROWs and arrays ARRAYs. A field with values of several kinds is a STRING of their JSON. A later
        value that is not of its inferred type, or a new field, fails the job. Arguments are those of `read_csv`.

        Example:
            >>> import pathlib, tempfile
            >>> file = pathlib.Path(tempfile.mkdtemp(), "words.json")
            >>> _ = file.write_text('{"word": "to", "at": {"line": 1}}\\n')
            >>> list(t_env.read_json(file).execute().collect())
            [<Row('to', <Row(1)>)>]
        """
        return self._read("json", path, schema, infer_rows, watermark, monitor, options or {})

    def read_parquet(
        self,
        path: str | os.PathLike[str],
        *,
        schema: FileSchema = None,
        watermark: tuple[str, str] | None = None,
        monitor: Duration | None = None,
        options: Mapping[str, str] | None = None,
    ) -> Table:
        """Return a table of Parquet files, with the columns of the files. Arguments are those of `read_csv`.

        Example:
            >>> import pathlib, tempfile
            >>> import pyarrow, pyarrow.parquet
            >>> file = pathlib.Path(tempfile.mkdtemp(), "words.parquet")
            >>> pyarrow.parquet.write_table(pyarrow.table({"word": ["to", "be"], "n": [1, 2]}), file)
            >>> list(t_env.read_parquet(file).execute().collect())
            [<Row('to', 1)>, <Row('be', 2)>]
        """
        return self._read("parquet", path, schema, None, watermark, monitor, options or {})

    def _read(
        self,
        file_format: str,
        path: str | os.PathLike[str],
        schema: FileSchema,
        infer_rows: int | None,
        watermark: tuple[str, str] | None,
        monitor: Duration | None,
        options: Mapping[str, str],
    ) -> Table:
        planner, method = self._planner, f"read_{file_format}"
        access = FileAccess(storage_options(planner.bridge.settings()))
        if monitor is not None and planner.runner.is_batch:
            raise InvalidProgramError(f"{method}(): monitor= needs streaming mode; remove it, or change the mode.")
        zone = planner.config.get_local_timezone()
        table = FileTable(
            method, file_path(path), file_format, access, zone, schema, infer_rows, monitor, watermark, options
        )
        return self.from_descriptor(table.descriptor())
