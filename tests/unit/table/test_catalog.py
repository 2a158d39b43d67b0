"""The Catalog API of the Table API: Flink's error messages, and what a renamed table retains."""

from __future__ import annotations

import pytest

from millstream.pyflink.util import exceptions as e
from millstream.table import DataTypes, TableSchema
from millstream.table.catalog import (
    Catalog,
    CatalogBaseTable,
    CatalogDatabase,
    CatalogFunction,
    CatalogPartition,
    CatalogPartitionSpec,
    CatalogTableStatistics,
    GenericInMemoryCatalog,
    ObjectPath,
)

PATH = ObjectPath("db", "t")
OTHER = ObjectPath("db", "u")


@pytest.fixture
def catalog() -> Catalog:
    catalog = Catalog(GenericInMemoryCatalog("mine"))
    catalog.create_database("db", CatalogDatabase.create_instance({}), False)
    return catalog


def table(*partition_keys: str) -> CatalogBaseTable:
    schema = TableSchema(["a", "b"], [DataTypes.STRING(), DataTypes.INT()])
    return CatalogBaseTable.create_table(schema, list(partition_keys), {}, "")


def view() -> CatalogBaseTable:
    schema = TableSchema(["a"], [DataTypes.INT()])
    return CatalogBaseTable.create_view("SELECT 1", "SELECT 1", schema, {})


def test_catalog_drop_database_rejects_a_database_in_use(catalog: Catalog) -> None:
    catalog.create_table(PATH, table(), False)
    with pytest.raises(e.DatabaseNotEmptyException, match="Database db in catalog mine is not empty."):
        catalog.drop_database("db", True)
    catalog.drop_table(PATH, False)
    catalog.create_function(PATH, CatalogFunction.create_instance("m.f"), False)
    with pytest.raises(e.DatabaseNotEmptyException):
        catalog.drop_database("db", False)
    catalog.drop_function(PATH, False)
    catalog.drop_database("db", False)
    assert not catalog.database_exists("db")


def test_catalog_rename_table_rejects_an_existing_name(catalog: Catalog) -> None:
    catalog.create_table(PATH, table(), False)
    catalog.create_table(OTHER, table("a"), False)
    with pytest.raises(e.TableAlreadyExistException, match=r"Table \(or view\) db.u already exists in Catalog mine."):
        catalog.rename_table(PATH, "u", False)
    assert sorted(catalog.list_tables("db")) == ["t", "u"]


def test_catalog_rename_table_keeps_partitions_and_statistics(catalog: Catalog) -> None:
    catalog.create_table(PATH, table("a"), False)
    spec = CatalogPartitionSpec({"a": "1"})
    catalog.create_partition(PATH, spec, CatalogPartition.create_instance({"k": "v"}), False)
    catalog.alter_table_statistics(PATH, CatalogTableStatistics(7, 1, 2, 3), False)
    catalog.rename_table(PATH, "u", False)
    assert catalog.get_partition(OTHER, spec).get_properties() == {"k": "v"}
    assert catalog.get_table_statistics(OTHER).get_row_count() == 7
    assert not catalog.table_exists(PATH)


def test_catalog_alter_table_rejects_a_view_for_a_table(catalog: Catalog) -> None:
    catalog.create_table(PATH, table(), False)
    with pytest.raises(e.CatalogException, match="Existing table is 'TABLE' and new table is 'VIEW'"):
        catalog.alter_table(PATH, view(), False)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda c: c.get_database("no"), e.DatabaseNotExistException),
        (lambda c: c.list_tables("no"), e.DatabaseNotExistException),
        (lambda c: c.create_table(ObjectPath("no", "t"), table(), True), e.DatabaseNotExistException),
        (lambda c: c.create_database("db", CatalogDatabase({}), False), e.DatabaseAlreadyExistException),
        (lambda c: c.get_table(PATH), e.TableNotExistException),
        (lambda c: c.get_function(PATH), e.FunctionNotExistException),
        (lambda c: c.get_model(PATH), e.ModelNotExistException),
        (lambda c: c.list_partitions(PATH), e.TableNotExistException),
        # Like in Flink: the partition does not exist, regardless of the table's error.
        (lambda c: c.get_partition(PATH, CatalogPartitionSpec({"a": "1"})), e.PartitionNotExistException),
    ],
)
def test_catalog_errors_have_the_class_of_pyflink(catalog: Catalog, call: object, error: type[Exception]) -> None:
    with pytest.raises(error) as raised:
        call(catalog)  # type: ignore[operator]
    assert type(raised.value) is error
    assert isinstance(raised.value, e.JavaException)


def test_object_path_compares_only_with_paths() -> None:
    assert PATH < OTHER and OTHER >= PATH
    assert PATH != "db.t"
    with pytest.raises(TypeError, match="not supported between instances of 'ObjectPath' and 'str'"):
        PATH < "db.t"  # noqa: B015
