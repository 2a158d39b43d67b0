"""Catalog statements: their effects, the output of SHOW and DESCRIBE, and Flink's error messages."""

from __future__ import annotations

import pytest

from millstream.sql.errors import CatalogException, ValidationException
from millstream.sql.language.errors import SqlParserException
from tests.support.sql_planning import Session

FULL = """CREATE TABLE full_one (
    a INT NOT NULL COMMENT 'the a', b DECIMAL(10, 2), `c d` STRING, m BIGINT METADATA FROM 'offset' VIRTUAL,
    ts TIMESTAMP(3), r ROW<f INT, g STRING>, arr ARRAY<INT NOT NULL>, x AS b + 1, p AS PROCTIME(),
    WATERMARK FOR ts AS ts - INTERVAL '5' SECOND, CONSTRAINT pk1 PRIMARY KEY (a) NOT ENFORCED
) COMMENT 'a table' PARTITIONED BY (`c d`) WITH ('connector' = 'none', 'rows' = '1')"""

# As Flink 2.3 prints it.
SHOWN = """CREATE TABLE `default_catalog`.`default_database`.`full_one` (
  `a` INT NOT NULL COMMENT 'the a',
  `b` DECIMAL(10, 2),
  `c d` VARCHAR(2147483647),
  `m` BIGINT METADATA FROM 'offset' VIRTUAL,
  `ts` TIMESTAMP(3),
  `r` ROW<`f` INT, `g` VARCHAR(2147483647)>,
  `arr` ARRAY<INT NOT NULL>,
  `x` AS `b` + 1,
  `p` AS PROCTIME(),
  WATERMARK FOR `ts` AS `ts` - INTERVAL '5' SECOND,
  CONSTRAINT `pk1` PRIMARY KEY (`a`) NOT ENFORCED
)
COMMENT 'a table'
PARTITIONED BY (`c d`)
WITH (
  'connector' = 'none',
  'rows' = '1'
)
"""


@pytest.fixture
def session() -> Session:
    return Session()


def test_show_create_table_matches_flink(session: Session) -> None:
    session.run(FULL)
    assert session.names("SHOW CREATE TABLE full_one") == [SHOWN]
    # The output parses again.
    session.run("DROP TABLE full_one")
    session.run(SHOWN)
    assert session.names("SHOW CREATE TABLE full_one") == [SHOWN]


def test_describe_shows_keys_watermarks_and_column_origins(session: Session) -> None:
    session.run(FULL)
    assert session.rows("DESCRIBE full_one") == [
        ("a", "INT", False, "PRI(a)", None, None, "the a"),
        ("b", "DECIMAL(10, 2)", True, None, None, None, None),
        ("c d", "STRING", True, None, None, None, None),
        ("m", "BIGINT", True, None, "METADATA FROM 'offset' VIRTUAL", None, None),
        ("ts", "TIMESTAMP(3) *ROWTIME*", True, None, None, "`ts` - INTERVAL '5' SECOND", None),
        ("r", "ROW<`f` INT, `g` STRING>", True, None, None, None, None),
        ("arr", "ARRAY<INT NOT NULL>", True, None, None, None, None),
        ("x", "DECIMAL(13, 2)", True, None, "AS `b` + 1", None, None),
        ("p", "TIMESTAMP_LTZ(3) *PROCTIME*", False, None, "AS PROCTIME()", None, None),
    ]
    assert [r[0] for r in session.rows("SHOW COLUMNS FROM full_one LIKE 'a%'")] == ["a", "arr"]


@pytest.mark.parametrize(
    ("statement", "error_text"),
    [
        (
            "CREATE TABLE t (a INT) WITH ('connector'='x')",
            "Table (or view) default_database.t already exists in Catalog",
        ),
        (
            "CREATE TABLE nope.t (a INT) WITH ('connector'='x')",
            "Database nope does not exist in Catalog default_catalog.",
        ),
        ("CREATE TABLE nocat.nope.t (a INT) WITH ('connector'='x')", "Catalog nocat does not exist."),
        (
            "CREATE TABLE x (a INT, WATERMARK FOR a AS a) WITH ('connector'='x')",
            "Invalid data type of time field for watermark definition. The field must be of type TIMESTAMP(p) or "
            "TIMESTAMP_LTZ(p), the supported precision 'p' is from 0 to 3, but the time field type is INT",
        ),
        (
            "CREATE TABLE x (ts TIMESTAMP(6), WATERMARK FOR ts AS ts) WITH ('connector'='x')",
            "but the time field type is TIMESTAMP(6)",
        ),
        (
            "CREATE TABLE x (ts TIMESTAMP(3), WATERMARK FOR ts AS 1) WITH ('connector'='x')",
            "but the watermark expression type is INT NOT NULL",
        ),
        (
            "CREATE TABLE x (ts TIMESTAMP(3), WATERMARK FOR xx AS ts) WITH ('connector'='x')",
            "The rowtime attribute field 'xx' is not defined in the table schema",
        ),
        (
            "CREATE TABLE x (a INT, PRIMARY KEY (b) NOT ENFORCED) WITH ('connector'='x')",
            "Primary key column 'b' is not defined in the schema",
        ),
        (
            "CREATE TABLE x (a INT, b AS a + 1, PRIMARY KEY (b) NOT ENFORCED) WITH ('connector'='x')",
            "A PRIMARY KEY constraint must be declared on physical columns.",
        ),
        ("CREATE TABLE x (a INT, b AS c + 1) WITH ('connector'='x')", "Column 'c' not found in any table"),
        (
            "CREATE TABLE x (a INT, a STRING) WITH ('connector'='x')",
            "A regular Column named 'a' already exists in the table.",
        ),
        (
            "CREATE TABLE x (a INT) PARTITIONED BY (z) WITH ('connector'='x')",
            "Partition column 'z' not defined in the table schema. Available columns: ['a']",
        ),
        ("CREATE TABLE x (WATERMARK FOR ts AS ts) LIKE t", "There already exists a watermark spec for column 'ts'"),
        ("CREATE TABLE x (a STRING) LIKE t", "A column named 'a' already exists in the base table."),
        ("CREATE VIEW x (i) AS SELECT a, b FROM t", "VIEW definition and input fields not match"),
        ("CREATE VIEW x AS SELECT nox FROM t", "Column 'nox' not found in any table"),
        ("DROP TABLE not_there", "Table with identifier 'default_catalog.default_database.not_there' does not exist."),
        ("DROP VIEW t", "View with identifier 'default_catalog.default_database.t' does not exist."),
        (
            "DROP TEMPORARY TABLE not_there",
            "Temporary table or view with identifier 'default_catalog.default_database.not_there' does not exist.",
        ),
        ("ALTER TABLE t RESET ('connector')", "ALTER TABLE RESET does not support changing 'connector'"),
        ("ALTER TABLE t ADD a INT", "Column `a` already exists in the table."),
        ("ALTER TABLE t MODIFY nono BIGINT", "Column `nono` does not exist in the table."),
        ("ALTER TABLE t DROP nono", "The column `nono` does not exist in the base table."),
        ("ALTER TABLE t DROP ts", "The column `ts` is referenced by watermark expression."),
        ("ALTER TABLE u DROP k", "The column `k` is used as the primary key."),
        ("ALTER TABLE t DROP PRIMARY KEY", "The current table does not define any primary key."),
        (
            "ALTER TABLE t ADD WATERMARK FOR ts AS ts",
            "The current table has already defined the watermark strategy `ts` AS `ts` - INTERVAL '5' SECOND.",
        ),
        (
            "ALTER TABLE u ADD PRIMARY KEY (k) NOT ENFORCED",
            "The current table has already defined the primary key constraint [`k`].",
        ),
        (
            "ALTER TABLE nono RENAME TO x",
            "Table `default_catalog`.`default_database`.`nono` doesn't exist or is a temporary table.",
        ),
        ("SHOW TABLES FROM nodb", "Database 'default_catalog'.'nodb' doesn't exist."),
        ("DESCRIBE nothere", "Tables or views with the identifier 'default_catalog.default_database.nothere' doesn't"),
        ("SHOW CREATE TABLE nothere", "Could not execute SHOW CREATE TABLE. Table with identifier"),
        ("LOAD MODULE core", "Could not execute LOAD MODULE `core`. A module with name 'core' already exists"),
        ("USE MODULES zz", "Could not execute USE MODULES: [zz]. No module with name 'zz' exists"),
        ("UNLOAD MODULE zz", "Could not execute UNLOAD MODULE zz. No module with name 'zz' exists"),
        ("DROP FUNCTION f1", "Function default_database.f1 does not exist in Catalog default_catalog."),
        ("DROP TEMPORARY SYSTEM FUNCTION f9", "A function named 'f9' doesn't exist."),
        ("DROP DATABASE default_database", "Cannot drop a database which is currently in use."),
        ("DROP DATABASE d1", "Database d1 does not exist in Catalog default_catalog."),
    ],
)
def test_ddl_validation_errors_match_flink(session: Session, statement: str, error_text: str) -> None:
    with pytest.raises(ValidationException) as e:
        session.run(statement)
    assert error_text in str(e.value)


@pytest.mark.parametrize(
    ("statement", "error_text"),
    [
        ("USE nodb", "A database with name [nodb] does not exist in the catalog: [default_catalog]."),
        ("USE CATALOG nocat", "A catalog with name [nocat] does not exist."),
        ("DROP CATALOG default_catalog", "Cannot drop a catalog which is currently in use."),
        ("DROP CATALOG c1", "Catalog c1 does not exist."),
    ],
)
def test_ddl_catalog_errors_match_flink(session: Session, statement: str, error_text: str) -> None:
    with pytest.raises(CatalogException) as e:
        session.run(statement)
    assert error_text in str(e.value)


def test_parser_rejects_enforced_keys_and_two_watermarks(session: Session) -> None:
    with pytest.raises(SqlParserException, match="doesn't support ENFORCED mode for PRIMARY KEY"):
        session.run("CREATE TABLE x (a INT, PRIMARY KEY (a)) WITH ('connector'='x')")
    with pytest.raises(SqlParserException, match="Multiple WATERMARK declarations"):
        session.run("CREATE TABLE x (ts TIMESTAMP(3), WATERMARK FOR ts AS ts, WATERMARK FOR ts AS ts) WITH ('c'='x')")


def test_create_table_like_options(session: Session) -> None:
    session.run(FULL)
    session.run(
        "CREATE TABLE l (z INT, WATERMARK FOR ts AS ts - INTERVAL '1' SECOND) WITH ('k' = 'v') "
        "LIKE full_one (EXCLUDING PARTITIONS OVERWRITING WATERMARKS)"
    )
    (shown,) = session.names("SHOW CREATE TABLE l")
    assert "`p` AS PROCTIME(),\n  `z` INT,\n  WATERMARK FOR `ts` AS `ts` - INTERVAL '1' SECOND" in shown
    assert "PARTITIONED" not in shown
    assert "'connector' = 'none',\n  'k' = 'v',\n  'rows' = '1'" in shown
    session.run("CREATE TABLE m WITH ('connector'='print') LIKE full_one (EXCLUDING ALL INCLUDING CONSTRAINTS)")
    assert [r[0] for r in session.rows("DESCRIBE m")] == ["a", "b", "c d", "ts", "r", "arr"]
    assert session.rows("DESCRIBE m")[0][3] == "PRI(a)"


def test_create_table_as_has_the_columns_of_its_query(session: Session) -> None:
    result = session.run("CREATE TABLE x WITH ('connector'='print') AS SELECT a, b + 1 AS n FROM t WHERE a > 1")
    assert result.insert is not None
    assert result.insert.table == ("default_catalog", "default_database", "x")
    assert [r[:3] for r in session.rows("DESCRIBE x")] == [("a", "INT", True), ("n", "BIGINT", True)]
    session.run("CREATE OR REPLACE TABLE x WITH ('connector'='print') AS SELECT c FROM t")
    assert [r[0] for r in session.rows("DESCRIBE x")] == ["c"]


def test_alter_table_all_forms(session: Session) -> None:
    session.run(FULL)
    for statement in (
        "ALTER TABLE full_one SET ('a' = 'b')",
        "ALTER TABLE full_one RESET ('a', 'zz')",
        "ALTER TABLE full_one ADD (q INT FIRST, q2 STRING COMMENT 'hey' AFTER a)",
        "ALTER TABLE full_one MODIFY q BIGINT AFTER b",
        "ALTER TABLE full_one DROP (q2, m)",
        "ALTER TABLE full_one RENAME a TO aa",
        "ALTER TABLE full_one DROP PRIMARY KEY",
        "ALTER TABLE full_one DROP WATERMARK",
        "ALTER TABLE full_one ADD WATERMARK FOR ts AS ts",
        "ALTER TABLE full_one MODIFY WATERMARK FOR ts AS ts - INTERVAL '1' SECOND",
        "ALTER TABLE full_one ADD PRIMARY KEY (aa) NOT ENFORCED",
        "ALTER TABLE full_one RENAME TO altered",
    ):
        assert session.rows(statement) == [("OK",)]
    (shown,) = session.names("SHOW CREATE TABLE altered")
    assert shown.splitlines()[1:5] == [
        "  `aa` INT NOT NULL COMMENT 'the a',",
        "  `b` DECIMAL(10, 2),",
        "  `q` BIGINT,",
        "  `c d` VARCHAR(2147483647),",
    ]
    assert "WATERMARK FOR `ts` AS `ts` - INTERVAL '1' SECOND,\n  CONSTRAINT `PK_aa` PRIMARY KEY (`aa`)" in shown


def test_temporary_table_hides_a_permanent_one(session: Session) -> None:
    session.run("CREATE TEMPORARY TABLE t (z INT) WITH ('connector' = 'none')")
    assert session.columns("SELECT * FROM t") == ["z INT"]
    with pytest.raises(ValidationException, match="Drop it first before removing the permanent table"):
        session.run("DROP TABLE t")
    with pytest.raises(ValidationException, match="Temporary table '`default_catalog`.`default_database`.`t`' already"):
        session.run("CREATE TEMPORARY TABLE t (z INT) WITH ('connector' = 'none')")
    session.run("DROP TEMPORARY TABLE t")
    assert "a INT" in session.columns("SELECT * FROM t")


def test_view_keeps_the_database_it_was_created_in(session: Session) -> None:
    session.run("CREATE VIEW v AS SELECT a, COUNT(*) AS n FROM t GROUP BY a")
    session.run("CREATE VIEW w (x, y) AS SELECT a, n FROM v WHERE n > 1")
    session.run("CREATE DATABASE other")
    session.run("USE other")
    assert session.columns("SELECT x FROM default_database.w") == ["x INT"]
    session.run("USE default_database")
    assert session.names("SHOW VIEWS") == ["v", "w"]
    session.run("ALTER VIEW v RENAME TO v2")
    session.run("ALTER VIEW v2 AS SELECT c FROM t")
    assert session.columns("SELECT * FROM v2") == ["c STRING"]
    (shown,) = session.names("SHOW CREATE VIEW v2")
    assert "FROM `default_catalog`.`default_database`.`t`" in shown


def test_catalogs_databases_and_use(session: Session) -> None:
    session.run("CREATE CATALOG c1 WITH ('type' = 'generic_in_memory', 'default-database' = 'dd')")
    session.run("USE CATALOG c1")
    assert session.names("SHOW CURRENT DATABASE") == ["dd"]
    session.run("CREATE DATABASE d2 COMMENT 'two' WITH ('x' = 'y')")
    session.run("CREATE TABLE d2.t (a INT) WITH ('connector' = 'none')")
    assert session.names("SHOW DATABASES") == ["d2", "dd"]
    assert session.names("SHOW TABLES FROM c1.d2") == ["t"]
    with pytest.raises(ValidationException, match="is not empty"):
        session.run("DROP DATABASE d2")
    session.run("DROP DATABASE d2 CASCADE")
    session.run("USE CATALOG default_catalog")
    assert session.names("SHOW CREATE CATALOG c1") == [
        "CREATE CATALOG `c1`\nWITH (\n  'default-database' = 'dd',\n  'type' = 'generic_in_memory'\n)\n"
    ]
    session.run("DROP CATALOG c1")
    assert session.names("SHOW CATALOGS") == ["default_catalog"]


def test_show_statements_filter_by_like(session: Session) -> None:
    assert session.names("SHOW TABLES LIKE 'u%'") == ["u", "ups"]
    assert session.names("SHOW TABLES NOT LIKE '%e%'") == ["t", "u", "ups"]
    assert session.names("SHOW CURRENT CATALOG") == ["default_catalog"]
    assert session.rows("SHOW FULL MODULES") == [("core", True)]
    assert "upper" in session.names("SHOW FUNCTIONS")
    session.run("CREATE TEMPORARY FUNCTION mine AS 'my.mod' LANGUAGE PYTHON")
    session.run("CREATE FUNCTION other AS 'my.mod' LANGUAGE PYTHON")
    assert session.names("SHOW USER FUNCTIONS") == ["mine", "other"]


def test_set_and_reset_options(session: Session) -> None:
    session.run("SET 'table.exec.state.ttl' = '1 h'")
    assert session.settings == {"table.exec.state.ttl": "1 h"}
    assert session.rows("SET") == [("table.exec.state.ttl", "1 h")]
    session.run("RESET 'table.exec.state.ttl'")
    assert session.settings == {}


def test_view_definition_is_stored_expanded(session: Session) -> None:
    # As Flink 2.3 prints it.
    session.run("CREATE VIEW v (x, y) COMMENT 'vv' AS SELECT q.a, COUNT(*) FROM t AS q JOIN u ON q.a = k GROUP BY q.a")
    assert session.names("SHOW CREATE VIEW v") == [
        "CREATE VIEW `default_catalog`.`default_database`.`v` (\n  `x`,\n  `y`\n)\nCOMMENT 'vv'\n"
        "AS SELECT `q`.`a`, COUNT(*)\nFROM `default_catalog`.`default_database`.`t` AS `q`\n"
        "INNER JOIN `default_catalog`.`default_database`.`u` AS `u` ON `q`.`a` = `u`.`k`\nGROUP BY `q`.`a`\n"
    ]


def test_view_keeps_its_columns_when_the_table_changes(session: Session) -> None:
    session.run("CREATE VIEW everything AS SELECT * FROM files WHERE EXISTS (SELECT 1 FROM u WHERE k = a)")
    session.run("CREATE VIEW fields AS SELECT r.*, t.c FROM t ORDER BY b LIMIT 3")
    session.run("ALTER TABLE files ADD (z INT FIRST)")
    assert session.columns("SELECT * FROM everything") == ["a INT", "b BIGINT"]
    assert session.columns("SELECT * FROM fields") == ["f INT", "g STRING", "c STRING"]
    (shown,) = session.names("SHOW CREATE VIEW everything")
    assert "SELECT `files`.`a`, `files`.`b`" in shown
    assert "WHERE `u`.`k` = `files`.`a`" in shown


def test_core_module_loads_again_after_unload(session: Session) -> None:
    session.run("UNLOAD MODULE core")
    assert session.names("SHOW MODULES") == []
    session.run("LOAD MODULE core")
    assert session.names("SHOW MODULES") == ["core"]
