"""What statements are, beside queries."""

from __future__ import annotations

from millstream.common.fast_dataclass import record
from millstream.sql.language.syntax import Expression, Node, Query
from millstream.sql.types import DataType

Path = tuple[str, ...]
Options = tuple[tuple[str, str], ...]


class Statement(Node):
    """What can be executed."""


@record
class QueryStatement(Statement):
    """A query whose rows are wanted."""

    query: Query


# --- tables


@record
class Written(Node):
    """An expression and the text it was read from."""

    value: Expression
    text: str


@record
class Column(Node):
    """A column of a table that is declared.

    Attributes:
        name: its name.
        type: its type, None for a computed one.
        computed: how it is computed, None for one that is not.
        metadata: whether it is metadata; then `key` is its name there if that is another, `virtual` whether it is not
            written.
        comment: what is said of it.
    """

    name: str
    type: DataType | None = None
    computed: Written | None = None
    metadata: bool = False
    key: str | None = None
    virtual: bool = False
    comment: str | None = None


@record
class Watermark(Node):
    """WATERMARK FOR a column AS an expression."""

    column: Path
    strategy: Written


@record
class PrimaryKey(Node):
    """PRIMARY KEY over columns; `name` is that of the constraint, None if it has none."""

    columns: tuple[str, ...]
    name: str | None = None


@record
class Distribution(Node):
    """How rows lie in buckets."""

    kind: str | None
    columns: tuple[str, ...]
    buckets: int | None


@record
class Like(Node):
    """LIKE another table: what is taken over, as pairs such as (INCLUDING, OPTIONS)."""

    table: Path
    rules: tuple[tuple[str, str], ...]


@record
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
    # Names alone, for CREATE TABLE t (a, b) AS query.
    names: tuple[str, ...] = ()
    temporary: bool = False
    if_not_exists: bool = False
    replace: bool = False


@record
class Placed(Node):
    """A part of a table that is added or modified, and where: FIRST, behind a column, or at the end."""

    part: Column | Watermark | PrimaryKey | Distribution
    first: bool = False
    after: str | None = None


@record
class AlterTable(Statement):
    """ALTER TABLE; which of the attributes is set says what is altered."""

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


@record
class Drop(Statement):
    """DROP of a TABLE, VIEW, DATABASE, CATALOG, FUNCTION."""

    what: str
    name: Path
    if_exists: bool = False
    temporary: bool = False
    system: bool = False
    cascade: bool | None = None


# --- views, functions, catalogs, modules


@record
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


@record
class AlterView(Statement):
    """ALTER VIEW: another name or another query."""

    name: Path
    rename: Path | None = None
    query: Query | None = None
    text: str = ""


@record
class CreateFunction(Statement):
    """CREATE FUNCTION."""

    name: Path
    implementation: str
    language: str = "JAVA"
    using: tuple[str, ...] = ()
    temporary: bool = False
    system: bool = False
    if_not_exists: bool = False


@record
class AlterFunction(Statement):
    """ALTER FUNCTION."""

    name: Path
    implementation: str
    language: str = "JAVA"
    temporary: bool = False
    system: bool = False
    if_exists: bool = False


@record
class CreateModel(Statement):
    """CREATE MODEL: what goes in, what comes out, and the options of who answers."""

    name: Path
    inputs: tuple[Column, ...] = ()
    outputs: tuple[Column, ...] = ()
    comment: str | None = None
    options: Options = ()
    temporary: bool = False
    if_not_exists: bool = False


@record
class AlterModel(Statement):
    """ALTER MODEL: options that are set or reset, or another name."""

    name: Path
    if_exists: bool = False
    set: Options | None = None
    reset: tuple[str, ...] | None = None
    rename: Path | None = None


@record
class CreateCatalog(Statement):
    """CREATE CATALOG."""

    name: str
    options: Options = ()
    comment: str | None = None
    if_not_exists: bool = False


@record
class CreateDatabase(Statement):
    """CREATE DATABASE."""

    name: Path
    options: Options = ()
    comment: str | None = None
    if_not_exists: bool = False


@record
class AlterOptions(Statement):
    """ALTER CATALOG or ALTER DATABASE."""

    what: str
    name: Path
    set: Options | None = None
    reset: tuple[str, ...] | None = None
    comment: str | None = None


@record
class Use(Statement):
    """USE a CATALOG or a DATABASE."""

    what: str
    name: Path


@record
class UseModules(Statement):
    """USE MODULES."""

    names: tuple[str, ...]


@record
class LoadModule(Statement):
    """LOAD MODULE."""

    name: str
    options: Options = ()


@record
class UnloadModule(Statement):
    """UNLOAD MODULE."""

    name: str


# --- looking


@record
class Show(Statement):
    """SHOW.

    Attributes:
        what: such as TABLES, CREATE TABLE, CURRENT CATALOG, FULL MODULES.
        within: the catalog, database or table that is asked.
        pattern: the pattern of a LIKE or ILIKE.
        preposition: FROM or IN, as it was said.
        partition: the partition of SHOW PARTITIONS.
    """

    what: str
    within: Path = ()
    pattern: str | None = None
    ignores_case: bool = False
    negated: bool = False
    preposition: str = ""
    partition: Options = ()


@record
class Describe(Statement):
    """DESCRIBE a TABLE, CATALOG, DATABASE, FUNCTION, JOB."""

    name: Path
    extended: bool = False
    what: str = "TABLE"


@record
class Explain(Statement):
    """EXPLAIN."""

    statement: Statement
    details: tuple[str, ...] = ()


# --- data


@record
class Insert(Statement):
    """INSERT INTO or INSERT OVERWRITE."""

    table: Path
    query: Query
    columns: tuple[str, ...] = ()
    partition: tuple[tuple[str, Expression], ...] = ()
    overwrite: bool = False
    options: Options = ()
    # What is done where rows of different upsert keys have one primary key: NOTHING, ERROR or DEDUPLICATE.
    conflict: str | None = None


@record
class StatementSet(Statement):
    """Statements that are one job."""

    statements: tuple[Insert, ...]


@record
class AnalyzeTable(Statement):
    """ANALYZE TABLE: counts what is in a table, for a catalog to keep.

    Attributes:
        table: its name.
        partition: of which partition; a key without a value stands for all.
        columns: of which columns values are looked at, too: none of them for all; None for the number of rows alone.
    """

    table: Path
    partition: tuple[tuple[str, str | None], ...] = ()
    columns: tuple[str, ...] | None = None


@record
class CallProcedure(Statement):
    """CALL: has a catalog do something."""

    name: Path
    arguments: tuple[Expression, ...] = ()


@record
class CompilePlan(Statement):
    """COMPILE PLAN: what is planned is written to a file; COMPILE AND EXECUTE PLAN runs it, too.

    Attributes:
        file: where it is written.
        statement: an INSERT or a StatementSet.
        if_not_exists: whether a file that is there is left.
        execute: whether it is run; then a file that is there is run as it is.
    """

    file: str
    statement: Statement
    if_not_exists: bool = False
    execute: bool = False


@record
class ExecutePlan(Statement):
    """EXECUTE PLAN: runs what a file has planned."""

    file: str


@record
class BeginStatementSet(Statement):
    """BEGIN STATEMENT SET, in a client."""


@record
class EndStatementSet(Statement):
    """END of a statement set, in a client."""


@record
class Update(Statement):
    """UPDATE."""

    table: Path
    assignments: tuple[tuple[str, Expression], ...]
    where: Expression | None = None


@record
class Delete(Statement):
    """DELETE FROM."""

    table: Path
    where: Expression | None = None


@record
class Truncate(Statement):
    """TRUNCATE TABLE."""

    table: Path


# --- settings


@record
class SetOption(Statement):
    """SET a setting, or show all."""

    key: str | None = None
    value: str | None = None


@record
class ResetOption(Statement):
    """RESET a setting, or all."""

    key: str | None = None


@record
class Jar(Statement):
    """ADD JAR or REMOVE JAR, which have no effect."""

    what: str
    path: str


@record
class Client(Statement):
    """A word for the client alone: QUIT, CLEAR, HELP, SOURCE."""

    word: str
    argument: str | None = None


@record
class StopJob(Statement):
    """STOP JOB."""

    job: str
    savepoint: bool = False
    drain: bool = False
