"""Syntax of statements other than queries."""

from __future__ import annotations

from millstream.common.fast_dataclass import fast_dataclass
from millstream.sql.language.syntax import Expression, Node, Query
from millstream.sql.types import DataType

Path = tuple[str, ...]
Options = tuple[tuple[str, str], ...]


class Statement(Node):
    """A statement."""


@fast_dataclass
class QueryStatement(Statement):
    """A query as a statement."""

    query: Query


# --- tables


@fast_dataclass
class SourceExpression(Node):
    """An expression and its source text."""

    value: Expression
    text: str


@fast_dataclass
class Column(Node):
    """A declared column.

    Attributes:
        name: its name.
        type: its type; None for a computed column.
        computed: the expression of a computed column, else None.
        metadata: whether it is a metadata column; `key` is its metadata key if different, `virtual` whether it is
            read-only.
        comment: its comment.
    """

    name: str
    type: DataType | None = None
    computed: SourceExpression | None = None
    metadata: bool = False
    key: str | None = None
    virtual: bool = False
    comment: str | None = None


@fast_dataclass
class Watermark(Node):
    """WATERMARK FOR a column AS an expression."""

    column: Path
    strategy: SourceExpression


@fast_dataclass
class PrimaryKey(Node):
    """PRIMARY KEY over columns; `name` is that of the constraint, or None."""

    columns: tuple[str, ...]
    name: str | None = None


@fast_dataclass
class Distribution(Node):
    """DISTRIBUTED BY: the bucketing of rows."""

    kind: str | None
    columns: tuple[str, ...]
    buckets: int | None


@fast_dataclass
class Like(Node):
    """LIKE another table: merging options such as (INCLUDING, OPTIONS)."""

    table: Path
    rules: tuple[tuple[str, str], ...]


@fast_dataclass
class CreateTable(Statement):
    """CREATE TABLE."""

    name: Path
    columns: tuple[Column, ...] = ()
    watermarks: tuple[Watermark, ...] = ()
    primary_key: PrimaryKey | None = None
    comment: str | None = None
    distribution: Distribution | None = None
    partition: tuple[str, ...] = ()
    options: Options = ()
    like: Like | None = None
    query: Query | None = None
    # Names without types, for CREATE TABLE t (a, b) AS query.
    names: tuple[str, ...] = ()
    temporary: bool = False
    if_not_exists: bool = False
    replace: bool = False


@fast_dataclass
class Placed(Node):
    """A table part to add or modify, and its position: FIRST, AFTER a column, or last."""

    part: Column | Watermark | PrimaryKey | Distribution
    first: bool = False
    after: str | None = None


@fast_dataclass
class AlterTable(Statement):
    """ALTER TABLE; the attribute that is set determines the change."""

    name: Path
    if_exists: bool = False
    rename: Path | None = None
    rename_column: tuple[Path, str] | None = None
    set: Options | None = None
    reset: tuple[str, ...] | None = None
    add: tuple[Placed, ...] = ()
    modify: tuple[Placed, ...] = ()
    drop_columns: tuple[str, ...] = ()
    drop: str | None = None
    drop_constraint: str | None = None


@fast_dataclass
class Drop(Statement):
    """DROP of a TABLE, VIEW, DATABASE, CATALOG, FUNCTION."""

    kind: str
    name: Path
    if_exists: bool = False
    temporary: bool = False
    system: bool = False
    cascade: bool | None = None


# --- views, functions, catalogs, modules


@fast_dataclass
class CreateView(Statement):
    """CREATE VIEW."""

    name: Path
    query: Query
    text: str
    columns: tuple[str, ...] = ()
    comment: str | None = None
    temporary: bool = False
    if_not_exists: bool = False
    replace: bool = False


@fast_dataclass
class AlterView(Statement):
    """ALTER VIEW: a new name or a new query."""

    name: Path
    rename: Path | None = None
    query: Query | None = None
    text: str = ""


@fast_dataclass
class CreateFunction(Statement):
    """CREATE FUNCTION."""

    name: Path
    implementation: str
    language: str = "JAVA"
    using: tuple[str, ...] = ()
    temporary: bool = False
    system: bool = False
    if_not_exists: bool = False


@fast_dataclass
class AlterFunction(Statement):
    """ALTER FUNCTION."""

    name: Path
    implementation: str
    language: str = "JAVA"
    temporary: bool = False
    system: bool = False
    if_exists: bool = False


@fast_dataclass
class CreateModel(Statement):
    """CREATE MODEL: input and output columns and options."""

    name: Path
    inputs: tuple[Column, ...] = ()
    outputs: tuple[Column, ...] = ()
    comment: str | None = None
    options: Options = ()
    temporary: bool = False
    if_not_exists: bool = False


@fast_dataclass
class AlterModel(Statement):
    """ALTER MODEL: options to set or reset, or a new name."""

    name: Path
    if_exists: bool = False
    set: Options | None = None
    reset: tuple[str, ...] | None = None
    rename: Path | None = None


@fast_dataclass
class CreateCatalog(Statement):
    """CREATE CATALOG."""

    name: str
    options: Options = ()
    comment: str | None = None
    if_not_exists: bool = False


@fast_dataclass
class CreateDatabase(Statement):
    """CREATE DATABASE."""

    name: Path
    options: Options = ()
    comment: str | None = None
    if_not_exists: bool = False


@fast_dataclass
class AlterOptions(Statement):
    """ALTER CATALOG or ALTER DATABASE."""

    kind: str
    name: Path
    set: Options | None = None
    reset: tuple[str, ...] | None = None
    comment: str | None = None


@fast_dataclass
class Use(Statement):
    """USE a CATALOG or a DATABASE."""

    kind: str
    name: Path


@fast_dataclass
class UseModules(Statement):
    """USE MODULES."""

    names: tuple[str, ...]


@fast_dataclass
class LoadModule(Statement):
    """LOAD MODULE."""

    name: str
    options: Options = ()


@fast_dataclass
class UnloadModule(Statement):
    """UNLOAD MODULE."""

    name: str


# --- SHOW, DESCRIBE, EXPLAIN


@fast_dataclass
class Show(Statement):
    """SHOW.

    Attributes:
        kind: such as TABLES, CREATE TABLE, CURRENT CATALOG, FULL MODULES.
        within: the catalog, database or table.
        pattern: the pattern of a LIKE or ILIKE.
        preposition: FROM or IN, as written.
        partition: the partition of SHOW PARTITIONS.
    """

    kind: str
    within: Path = ()
    pattern: str | None = None
    ignores_case: bool = False
    negated: bool = False
    preposition: str = ""
    partition: Options = ()


@fast_dataclass
class Describe(Statement):
    """DESCRIBE a TABLE, CATALOG, DATABASE, FUNCTION, JOB."""

    name: Path
    extended: bool = False
    kind: str = "TABLE"


@fast_dataclass
class Explain(Statement):
    """EXPLAIN."""

    statement: Statement
    details: tuple[str, ...] = ()


# --- data


@fast_dataclass
class Insert(Statement):
    """INSERT INTO or INSERT OVERWRITE."""

    table: Path
    query: Query
    columns: tuple[str, ...] = ()
    partition: tuple[tuple[str, Expression], ...] = ()
    overwrite: bool = False
    options: Options = ()
    # The strategy for rows of different upsert keys with one primary key: NOTHING, ERROR or DEDUPLICATE.
    conflict: str | None = None


@fast_dataclass
class StatementSet(Statement):
    """Statements that form one job."""

    statements: tuple[Insert, ...]


@fast_dataclass
class AnalyzeTable(Statement):
    """ANALYZE TABLE: computes statistics for the catalog.

    Attributes:
        table: its name.
        partition: the partition spec; a key without a value means all.
        columns: the columns to analyze: empty for all; None for the row count only.
    """

    table: Path
    partition: tuple[tuple[str, str | None], ...] = ()
    columns: tuple[str, ...] | None = None


@fast_dataclass
class CallProcedure(Statement):
    """CALL a procedure of a catalog."""

    name: Path
    arguments: tuple[Expression, ...] = ()


@fast_dataclass
class CompilePlan(Statement):
    """COMPILE PLAN to a file; COMPILE AND EXECUTE PLAN also runs it.

    Attributes:
        file: the plan file.
        statement: an INSERT or a StatementSet.
        if_not_exists: whether an existing file is left unchanged.
        execute: whether to run it; an existing plan file is run unchanged.
    """

    file: str
    statement: Statement
    if_not_exists: bool = False
    execute: bool = False


@fast_dataclass
class ExecutePlan(Statement):
    """EXECUTE PLAN from a file."""

    file: str


@fast_dataclass
class BeginStatementSet(Statement):
    """BEGIN STATEMENT SET in a client."""


@fast_dataclass
class EndStatementSet(Statement):
    """END of a statement set in a client."""


@fast_dataclass
class Update(Statement):
    """UPDATE."""

    table: Path
    assignments: tuple[tuple[str, Expression], ...]
    where: Expression | None = None


@fast_dataclass
class Delete(Statement):
    """DELETE FROM."""

    table: Path
    where: Expression | None = None


@fast_dataclass
class Truncate(Statement):
    """TRUNCATE TABLE."""

    table: Path


# --- settings


@fast_dataclass
class SetOption(Statement):
    """SET a setting, or list all."""

    key: str | None = None
    value: str | None = None


@fast_dataclass
class ResetOption(Statement):
    """RESET a setting, or all."""

    key: str | None = None


@fast_dataclass
class Jar(Statement):
    """ADD JAR or REMOVE JAR, which have no effect."""

    action: str
    path: str


@fast_dataclass
class Client(Statement):
    """A client command: QUIT, CLEAR, HELP, SOURCE."""

    word: str
    argument: str | None = None


@fast_dataclass
class StopJob(Statement):
    """STOP JOB."""

    job: str
    savepoint: bool = False
    drain: bool = False
