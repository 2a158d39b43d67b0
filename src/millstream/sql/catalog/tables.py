"""Declarations of tables, views and models in a catalog."""

from __future__ import annotations

from dataclasses import field, replace
from enum import Enum
from typing import TYPE_CHECKING

from millstream.common.fast_dataclass import fast_dataclass
from millstream.sql.errors import ValidationException
from millstream.sql.language import statements as s
from millstream.sql.types import DataType

if TYPE_CHECKING:
    from millstream.sql.catalog.manager import CatalogManager, Path


class ColumnKind(Enum):
    """The kind of a column."""

    PHYSICAL = "PHYSICAL"
    COMPUTED = "COMPUTED"
    METADATA = "METADATA"


@fast_dataclass
class TableColumn:
    """A column of a table.

    Attributes:
        name: its name.
        type: its type; for a computed column that of the expression.
        kind: physical, computed or metadata.
        expression: the SQL of a computed column.
        metadata_key: the connector's name of a metadata column; None if it is the column's own.
        virtual: whether a metadata column is read-only.
        comment: its comment.
    """

    name: str
    type: DataType
    kind: ColumnKind = ColumnKind.PHYSICAL
    expression: str | None = None
    metadata_key: str | None = None
    virtual: bool = False
    comment: str | None = None

    @property
    def is_persisted(self) -> bool:
        """Whether the sink writes it."""
        return self.kind is ColumnKind.PHYSICAL or (self.kind is ColumnKind.METADATA and not self.virtual)


@fast_dataclass
class CatalogTable:
    """A table or a view.

    Attributes:
        columns: in the order of the declaration.
        watermark: the column and SQL expression of WATERMARK FOR; None without one.
        primary_key: the columns of the primary key; empty without one.
        primary_key_name: the name of its constraint.
        partition: the columns of PARTITIONED BY.
        options: the options of WITH.
        comment: its comment.
        query: a view's expanded query; None for a table.
        original_query: a view's query as typed.
    """

    columns: tuple[TableColumn, ...]
    watermark: tuple[str, str] | None = None
    primary_key: tuple[str, ...] = ()
    primary_key_name: str | None = None
    partition: tuple[str, ...] = ()
    options: dict[str, str] = field(default_factory=dict)
    comment: str | None = None
    query: str | None = None
    original_query: str | None = None

    @property
    def is_view(self) -> bool:
        return self.query is not None

    @property
    def persisted(self) -> list[TableColumn]:
        """The columns that a sink writes: physical ones, then metadata."""
        metadata = [c for c in self.columns if c.is_persisted and c.kind is ColumnKind.METADATA]
        return self.physical + metadata

    @property
    def physical(self) -> list[TableColumn]:
        """Its physical columns."""
        return [c for c in self.columns if c.kind is ColumnKind.PHYSICAL]


@fast_dataclass
class CatalogModel:
    """A model: input and output columns and options.

    Attributes:
        inputs, outputs: its columns.
        options: the options of WITH; `provider` names the service.
        comment: its comment.
    """

    inputs: tuple[TableColumn, ...] = ()
    outputs: tuple[TableColumn, ...] = ()
    options: dict[str, str] = field(default_factory=dict)
    comment: str | None = None


class Models:
    """The models of an environment; temporary ones take precedence."""

    def __init__(self, catalogs: CatalogManager) -> None:
        self._catalogs = catalogs
        self._temporary: dict[Path, CatalogModel] = {}

    def _permanent(self, path: Path) -> dict[str, CatalogModel]:
        catalog = self._catalogs.catalogs.get(path[0])
        return {} if catalog is None or path[1] not in catalog.databases() else catalog.models(path[1])

    def find(self, path: Path) -> CatalogModel | None:
        """Return a model, or None."""
        return self._temporary.get(path) or self._permanent(path).get(path[2])

    def is_temporary(self, path: Path) -> bool:
        """Return whether a model is temporary."""
        return path in self._temporary

    def names(self, catalog: str, database: str) -> list[str]:
        """Return the names of a database's models, without temporary ones, as Flink does."""
        return sorted(self._permanent((catalog, database, "")))

    def temporary_names(self, catalog: str, database: str) -> list[str]:
        """Return the names of temporary models."""
        return sorted(p[2] for p in self._temporary if p[:2] == (catalog, database))

    def create(self, path: Path, model: CatalogModel, temporary: bool, if_not_exists: bool) -> None:
        """Add a model."""
        temporary_models = self._temporary if temporary else None
        if path in temporary_models if temporary_models is not None else path[2] in self._permanent(path):
            if if_not_exists:
                return
            if temporary:
                raise ValidationException(f"Temporary model '{_quoted(path)}' already exists")
            raise ValidationException(
                f"Could not execute CreateModel in path {_quoted(path)}. Model {path[1]}.{path[2]} already exists in "
                f"Catalog {path[0]}."
            )
        if temporary_models is not None:
            temporary_models[path] = model
        else:
            self._catalogs.catalog(path[0]).models(path[1])[path[2]] = model

    def drop(self, path: Path, temporary: bool, if_exists: bool) -> bool:
        """Drop a model; return whether it existed."""
        if temporary or path not in self._temporary:
            dropped = self._temporary.pop(path, None) if temporary else self._permanent(path).pop(path[2], None)
            if dropped is None and not if_exists:
                kind = "Temporary model" if temporary else "Model"
                raise ValidationException(f"{kind} with identifier '{'.'.join(path)}' does not exist.")
            return dropped is not None
        raise ValidationException(
            f"Temporary model with identifier '{_quoted(path)}' exists. Drop it first before removing the permanent "
            "model."
        )

    def alter(self, a: s.AlterModel) -> None:
        """Change the options of a model, or its name."""
        path = self._catalogs.full_path(a.name)
        models = self._permanent(path)
        result = models.get(path[2])
        if result is None:
            if a.if_exists:
                return
            raise ValidationException(f"Model {_quoted(path)} doesn't exist.")
        if a.rename is not None:
            new = self._catalogs.full_path(a.rename)
            if new[2] in self._permanent(new):
                raise ValidationException(
                    f"Could not execute ALTER MODEL {'.'.join(path)} RENAME TO {'.'.join(new)}. Model "
                    f"{new[1]}.{new[2]} already exists in Catalog {new[0]}."
                )
            del models[path[2]]
            self._permanent(new)[new[2]] = result
            return
        options = {**result.options, **dict(a.set or ())}
        models[path[2]] = replace(result, options={k: v for k, v in options.items() if k not in (a.reset or ())})


def declared(c: s.CreateModel) -> CatalogModel:
    """Return the model that a statement declares."""
    return CatalogModel(_columns(c.inputs), _columns(c.outputs), dict(c.options), c.comment)


def _columns(columns: tuple[s.Column, ...]) -> tuple[TableColumn, ...]:
    return tuple(TableColumn(one.name, one.type, comment=one.comment) for one in columns if one.type is not None)


def _quoted(path: Path) -> str:
    return ".".join(f"`{part}`" for part in path)
