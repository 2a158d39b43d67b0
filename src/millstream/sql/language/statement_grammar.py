"""Parses statements."""

from __future__ import annotations

from collections.abc import Callable

from millstream.sql.language.lexer import Kind
from millstream.sql.language.statements import (
    AlterFunction,
    AlterModel,
    AlterOptions,
    AlterView,
    AnalyzeTable,
    BeginStatementSet,
    CallProcedure,
    Client,
    CompilePlan,
    CreateCatalog,
    CreateDatabase,
    CreateFunction,
    CreateModel,
    CreateView,
    Delete,
    Describe,
    Drop,
    EndStatementSet,
    ExecutePlan,
    Explain,
    Insert,
    Jar,
    LoadModule,
    Options,
    QueryStatement,
    ResetOption,
    SetOption,
    Show,
    Statement,
    StatementSet,
    StopJob,
    Truncate,
    UnloadModule,
    Update,
    Use,
    UseModules,
)
from millstream.sql.language.syntax import Expression
from millstream.sql.language.table_grammar import TableGrammar

_DETAILS = ("ESTIMATED_COST", "CHANGELOG_MODE", "JSON_EXECUTION_PLAN", "PLAN_ADVICE")


def read_statement(text: str) -> Statement:
    """Parse a text with one statement and an optional semicolon."""
    g = StatementGrammar(text)
    result = g.statement()
    g.take(";")
    if not g.is_at_end:
        g.refuse()
    return result


def read_statements(text: str) -> list[tuple[Statement, str]]:
    """Parse semicolon-terminated statements; return each with its text."""
    g, result = StatementGrammar(text), []
    while not g.is_at_end:
        if g.take(";"):
            continue
        at = g.at
        statement = g.statement()
        result.append((statement, text[at : g.before.end]))
        if not g.is_at_end:
            g.need(";")
    return result


class StatementGrammar(TableGrammar):
    """Parses statements."""

    def statement(self) -> Statement:
        """Parse a statement."""
        at, word = self.at, self.token.upper
        if self.is_at_end:
            self.refuse_at(at, "There is no statement")
        reads = _STATEMENTS.get(word)
        if reads is not None:
            self.skip()
            return reads(self, at)
        if not (self.stands_query or word in ("(", "TABLE")):
            self.one_of("SELECT", "INSERT", "CREATE", "SHOW", "EXPLAIN", "SET", "...")
            self.refuse()
        return QueryStatement(self.query(), at=at)

    # --- CREATE

    def _create(self, at: int) -> Statement:
        replace = self.take("OR", "REPLACE")
        temporary = self.take_one_of("TEMPORARY", "TEMP") is not None
        system = temporary and self.take("SYSTEM")
        words = ("FUNCTION",) if system else ("TABLE", "VIEW", "FUNCTION", "MODEL")
        if not temporary and not replace:
            words = (*words, "CATALOG", "DATABASE")
        word = self.need_one_of(*words)
        if word == "TABLE":
            return self.create_table(temporary, replace, at)
        if word == "VIEW":
            return self._create_view(temporary, replace, at)
        if word == "MODEL":
            return self._create_model(temporary, at)
        if word == "FUNCTION":
            return self._create_function(temporary, system, at)
        if word == "CATALOG":
            missing, name = self.if_not_exists(), self.name("the name of a catalog")
            comment = self.comment()
            return CreateCatalog(name, self.options() if self.take("WITH") else (), comment, missing, at=at)
        missing, path = self.if_not_exists(), self.path("the name of a database")
        comment = self.comment()
        return CreateDatabase(path, self.options() if self.take("WITH") else (), comment, missing, at=at)

    def _create_view(self, temporary: bool, replace: bool, at: int) -> Statement:
        if_not_exists, name = self.if_not_exists(), self.path("the name of a view")
        columns = self.names_in_parentheses() if self.stands("(") else ()
        comment = self.comment()
        self.need("AS")
        start = self.at
        query = self.query()
        text = self.text[start : self.before.end]
        return CreateView(name, query, text, columns, comment, temporary, if_not_exists, replace, at=at)

    def _create_model(self, temporary: bool, at: int) -> Statement:
        if_not_exists, name = self.if_not_exists(), self.path("the name of a model")
        inputs = self.columns_in_parentheses() if self.take("INPUT") else ()
        outputs = self.columns_in_parentheses() if inputs and self.need("OUTPUT") >= 0 else ()
        comment = self.comment()
        options = self.options() if self.take("WITH") else ()
        if not options:
            self.refuse_at(at, "Model property list can not be empty")
        return CreateModel(name, inputs, outputs, comment, options, temporary, if_not_exists, at=at)

    def _create_function(self, temporary: bool, system: bool, at: int) -> Statement:
        if_not_exists, name = self.if_not_exists(), self.path("the name of a function")
        implementation, language = self._implementation()
        using: list[str] = []
        if self.take("USING"):
            if language == "PYTHON":
                self.refuse_at(self.before.at, "CREATE FUNCTION USING JAR/ARTIFACT is not for functions in Python")
            using = self.list_of(lambda: (self.need_one_of("JAR", "ARTIFACT"), self.string())[1])
        return CreateFunction(name, implementation, language, tuple(using), temporary, system, if_not_exists, at=at)

    def _implementation(self) -> tuple[str, str]:
        self.need("AS")
        implementation = self.string()
        language = self.need_one_of("JAVA", "SCALA", "SQL", "PYTHON") if self.take("LANGUAGE") else "JAVA"
        return implementation, language

    # --- ALTER, DROP

    def _alter(self, at: int) -> Statement:
        temporary = self.take_one_of("TEMPORARY", "TEMP") is not None
        system = temporary and self.take("SYSTEM")
        words = ("FUNCTION",) if temporary else ("TABLE", "VIEW", "FUNCTION", "CATALOG", "DATABASE", "MODEL")
        word = self.need_one_of(*words)
        if word == "TABLE":
            return self.alter_table(at)
        if word == "VIEW":
            return self._alter_view(at)
        if word == "MODEL":
            return self._alter_model(at)
        if word == "FUNCTION":
            if_exists, name = self.if_exists(), self.path("the name of a function")
            implementation, language = self._implementation()
            return AlterFunction(name, implementation, language, temporary, system, if_exists, at=at)
        name = self.path(f"the name of a {word.lower()}")
        if word == "CATALOG" and self.take("COMMENT"):
            return AlterOptions(word, name, comment=self.string(), at=at)
        how = self.need_one_of("SET", "RESET") if word == "CATALOG" else self.need_one_of("SET")
        if how == "SET":
            return AlterOptions(word, name, set=self.options(), at=at)
        return AlterOptions(word, name, reset=self.keys(), at=at)

    def _alter_model(self, at: int) -> Statement:
        if_exists, name = self.if_exists(), self.path("the name of a model")
        how = self.need_one_of("SET", "RESET", "RENAME")
        if how == "SET":
            return AlterModel(name, if_exists, set=self.options(), at=at)
        if how == "RESET":
            return AlterModel(name, if_exists, reset=self.keys(), at=at)
        self.need("TO")
        return AlterModel(name, if_exists, rename=self.path("the name of a model"), at=at)

    def _alter_view(self, at: int) -> Statement:
        name = self.path("the name of a view")
        if self.take("RENAME", "TO"):
            return AlterView(name, rename=self.path(), at=at)
        self.need("AS")
        start = self.at
        query = self.query()
        return AlterView(name, query=query, text=self.text[start : self.before.end], at=at)

    def _drop(self, at: int) -> Statement:
        temporary = self.take_one_of("TEMPORARY", "TEMP") is not None
        system = temporary and self.take("SYSTEM")
        words = ("FUNCTION",) if system else ("TABLE", "VIEW", "FUNCTION", "MODEL")
        word = self.need_one_of(*(words if temporary else (*words, "CATALOG", "DATABASE")))
        if_exists, name = self.if_exists(), self.path(f"the name of a {word.lower()}")
        cascade = None
        if word == "DATABASE" and (how := self.take_one_of("RESTRICT", "CASCADE")) is not None:
            cascade = how == "CASCADE"
        return Drop(word, name, if_exists, temporary, system, cascade, at=at)

    # --- catalogs and modules

    def _use(self, at: int) -> Statement:
        if self.take("CATALOG"):
            return Use("CATALOG", (self.name("the name of a catalog"),), at=at)
        if self.take("MODULES"):
            return UseModules(tuple(self.list_of(self.name)), at=at)
        return Use("DATABASE", self.path("the name of a database"), at=at)

    def _load(self, at: int) -> Statement:
        self.need("MODULE")
        return LoadModule(self.name(), self.options() if self.take("WITH") else (), at=at)

    def _unload(self, at: int) -> Statement:
        self.need("MODULE")
        return UnloadModule(self.name(), at=at)

    # --- SHOW, DESCRIBE, EXPLAIN

    def _show(self, at: int) -> Statement:
        if self.take("CREATE"):
            what = self.need_one_of("TABLE", "VIEW", "CATALOG", "MODEL")
            return Show(f"CREATE {what}", self.path(f"the name of a {what.lower()}"), at=at)
        if self.take("CURRENT"):
            return Show(f"CURRENT {self.need_one_of('CATALOG', 'DATABASE')}", at=at)
        if self.take("FULL"):
            self.need("MODULES")
            return Show("FULL MODULES", at=at)
        if self.take("USER"):
            self.need("FUNCTIONS")
            return self._matching_names("USER FUNCTIONS", at)
        what = self.need_one_of(
            *("TABLES", "VIEWS", "COLUMNS", "CATALOGS", "DATABASES", "FUNCTIONS", "MODULES", "PARTITIONS"),
            *("JARS", "JOBS", "PROCEDURES", "MODELS"),
        )
        if what == "PARTITIONS":
            name = self.path("the name of a table")
            return Show(what, name, partition=self._partition() if self.take("PARTITION") else (), at=at)
        if what in ("MODULES", "JARS", "JOBS"):
            return Show(what, at=at)
        return self._matching_names(what, at)

    def _partition(self) -> Options:
        def value() -> tuple[str, str]:
            key = self.name()
            self.need("=")
            return key, self.skip().text

        return tuple(self.in_parentheses(lambda: self.list_of(value)))

    def _matching_names(self, what: str, at: int) -> Statement:
        preposition = self.need_one_of("FROM", "IN") if what == "COLUMNS" else self.take_one_of("FROM", "IN")
        within = self.path() if preposition is not None and what != "CATALOGS" else ()
        negated = self.take("NOT")
        how = self.need_one_of("LIKE", "ILIKE") if negated else self.take_one_of("LIKE", "ILIKE")
        pattern = self.string() if how is not None else None
        return Show(what, within, pattern, how == "ILIKE", negated, preposition or "", at=at)

    def _describe(self, at: int) -> Statement:
        for what in ("CATALOG", "DATABASE", "FUNCTION", "JOB", "MODEL"):
            if self.stands(what) and self.ahead(1).upper != ";" and self.ahead(1).kind is not Kind.END:
                self.skip()
                extended = self.take("EXTENDED")
                name = (self.string(),) if what == "JOB" else self.path()
                return Describe(name, extended, what, at=at)
        extended = self.take("EXTENDED")
        return Describe(self.path("the name of a table"), extended, at=at)

    def _explain(self, at: int) -> Statement:
        details: list[str] = []
        if not self.take("PLAN", "FOR") and self.one_of(*_DETAILS):
            details = self.list_of(lambda: self.need_one_of(*_DETAILS))
        if self.stands("STATEMENT", "SET"):
            return Explain(self._execute(at), tuple(details), at=at)
        if self.one_of("EXPLAIN"):
            self.refuse_at(self.at, "EXPLAIN cannot be explained: Encountered 'EXPLAIN'")
        return Explain(self.statement(), tuple(details), at=at)

    # --- data

    def _insert(self, at: int) -> Statement:
        return self._insert_into(at)

    def _insert_into(self, at: int) -> Insert:
        overwrite = self.need_one_of("INTO", "OVERWRITE") == "OVERWRITE"
        self.take("TABLE")
        table = self.path("the name of a table")
        options = tuple(o for h in self.hints() if h.name == "OPTIONS" for o in h.options)
        partition: tuple[tuple[str, Expression], ...] = ()
        if self.take("PARTITION"):
            partition = tuple(self.in_parentheses(lambda: self.list_of(self._assignment)))
        columns = self.names_in_parentheses() if self.stands("(") and not self.stands_query else ()
        query, conflict = self.query(), None
        if self.take("ON", "CONFLICT", "DO"):
            conflict = self.need_one_of("NOTHING", "ERROR", "DEDUPLICATE")
        return Insert(table, query, columns, partition, overwrite, options, conflict, at=at)

    def _assignment(self) -> tuple[str, Expression]:
        name = self.name("a column")
        self.need("=")
        return name, self.expression()

    def _execute(self, at: int) -> Statement:
        if self.take("STATEMENT"):
            return self._statement_set(at)
        if self.take("INSERT"):
            return self._insert_into(at)
        if self.take("PLAN"):
            return ExecutePlan(self.string(), at=at)
        return QueryStatement(self.query(), at=at)

    def _statement_set(self, at: int) -> Statement:
        self.need("SET", "BEGIN")
        inserts: list[Insert] = []
        while not self.take("END"):
            start = self.need("INSERT")
            inserts.append(self._insert_into(start))
            self.need(";")
        return StatementSet(tuple(inserts), at=at)

    def _compile(self, at: int) -> Statement:
        execute = self.take("AND", "EXECUTE")
        self.need("PLAN")
        file = self.string()
        if_not_exists = not execute and self.if_not_exists()
        self.need("FOR")
        planned: Statement
        start, word = self.at, self.need_one_of("STATEMENT", "INSERT")
        planned = self._insert_into(start) if word == "INSERT" else self._statement_set(start)
        return CompilePlan(file, planned, if_not_exists, execute, at=at)

    def _begin(self, at: int) -> Statement:
        self.need("STATEMENT", "SET")
        return BeginStatementSet(at=at)

    def _end(self, at: int) -> Statement:
        return EndStatementSet(at=at)

    def _update(self, at: int) -> Statement:
        table = self.path("the name of a table")
        self._alias()
        self.need("SET")
        assignments = tuple(self.list_of(self._assignment))
        return Update(table, assignments, self.expression() if self.take("WHERE") else None, at=at)

    def _delete(self, at: int) -> Statement:
        self.need("FROM")
        table = self.path("the name of a table")
        self._alias()
        return Delete(table, self.expression() if self.take("WHERE") else None, at=at)

    def _alias(self) -> None:
        """Parse the alias of a table to be changed, which is ignored."""
        if self.take("AS") or self.stands_name:
            self.name("an alias")

    def _truncate(self, at: int) -> Statement:
        self.need("TABLE")
        return Truncate(self.path("the name of a table"), at=at)

    def _analyze(self, at: int) -> Statement:
        self.need("TABLE")
        table = self.path("the name of a table")
        partition = self._partition_keys() if self.take("PARTITION") else ()
        self.need("COMPUTE", "STATISTICS")
        columns: tuple[str, ...] | None = None
        if self.take("FOR"):
            every = self.take("ALL")
            self.need("COLUMNS")
            columns = () if every else tuple(self.list_of(lambda: self.name("a column")))
        return AnalyzeTable(table, partition, columns, at=at)

    def _partition_keys(self) -> tuple[tuple[str, str | None], ...]:
        def one() -> tuple[str, str | None]:
            key = self.name()
            return key, self.skip().text if self.take("=") else None

        return tuple(self.in_parentheses(lambda: self.list_of(one)))

    def _call(self, at: int) -> Statement:
        name = self.path("the name of a procedure")
        self.need("(")
        arguments = () if self.stands(")") else tuple(self.list_of(self.expression))
        self.need(")")
        return CallProcedure(name, arguments, at=at)

    # --- settings and clients

    def _set(self, at: int) -> Statement:
        if self.is_at_end or self.stands(";"):
            return SetOption(at=at)
        key = self.string()
        self.need("=")
        return SetOption(key, self.string(), at=at)

    def _reset(self, at: int) -> Statement:
        return ResetOption(None if self.is_at_end or self.stands(";") else self.string(), at=at)

    def _jar(self, what: str, at: int) -> Statement:
        self.need("JAR")
        return Jar(what, self.string(), at=at)

    def _stop(self, at: int) -> Statement:
        self.need("JOB")
        job = self.string()
        savepoint = drain = False
        while self.take("WITH"):
            word = self.need_one_of("SAVEPOINT", "DRAIN")
            savepoint, drain = savepoint or word == "SAVEPOINT", drain or word == "DRAIN"
        return StopJob(job, savepoint, drain, at=at)

    def _client(self, at: int) -> Statement:
        word = self.before.upper
        argument = None
        if word == "SOURCE":
            argument = self.string()
        return Client("QUIT" if word == "EXIT" else word, argument, at=at)


_STATEMENTS: dict[str, Callable[[StatementGrammar, int], Statement]] = {
    "CREATE": StatementGrammar._create,
    "ALTER": StatementGrammar._alter,
    "DROP": StatementGrammar._drop,
    "USE": StatementGrammar._use,
    "LOAD": StatementGrammar._load,
    "UNLOAD": StatementGrammar._unload,
    "SHOW": StatementGrammar._show,
    "DESCRIBE": StatementGrammar._describe,
    "DESC": StatementGrammar._describe,
    "EXPLAIN": StatementGrammar._explain,
    "INSERT": StatementGrammar._insert,
    "EXECUTE": StatementGrammar._execute,
    "COMPILE": StatementGrammar._compile,
    "BEGIN": StatementGrammar._begin,
    "END": StatementGrammar._end,
    "UPDATE": StatementGrammar._update,
    "DELETE": StatementGrammar._delete,
    "TRUNCATE": StatementGrammar._truncate,
    "ANALYZE": StatementGrammar._analyze,
    "CALL": StatementGrammar._call,
    "SET": StatementGrammar._set,
    "RESET": StatementGrammar._reset,
    "ADD": lambda g, at: g._jar("ADD", at),
    "REMOVE": lambda g, at: g._jar("REMOVE", at),
    "STOP": StatementGrammar._stop,
    **dict.fromkeys(["QUIT", "EXIT", "CLEAR", "HELP", "SOURCE"], StatementGrammar._client),
}
