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
        position = g.position
        statement = g.statement()
        result.append((statement, text[position : g.before.end]))
        if not g.is_at_end:
            g.need(";")
    return result


class StatementGrammar(TableGrammar):
    """Parses statements."""

    def statement(self) -> Statement:
        """Parse a statement."""
        position, word = self.position, self.token.upper
        if self.is_at_end:
            self.refuse_at(position, "There is no statement")
        parse = _STATEMENTS.get(word)
        if parse is not None:
            self.skip()
            return parse(self, position)
        if not (self.next_is_query or word in ("(", "TABLE")):
            self.one_of("SELECT", "INSERT", "CREATE", "SHOW", "EXPLAIN", "SET", "...")
            self.refuse()
        return QueryStatement(self.query(), position=position)

    # --- CREATE

    def _create(self, position: int) -> Statement:
        replace = self.take("OR", "REPLACE")
        temporary = self.take_one_of("TEMPORARY", "TEMP") is not None
        system = temporary and self.take("SYSTEM")
        words = ("FUNCTION",) if system else ("TABLE", "VIEW", "FUNCTION", "MODEL")
        if not temporary and not replace:
            words = (*words, "CATALOG", "DATABASE")
        word = self.need_one_of(*words)
        if word == "TABLE":
            return self.create_table(temporary, replace, position)
        if word == "VIEW":
            return self._create_view(temporary, replace, position)
        if word == "MODEL":
            return self._create_model(temporary, position)
        if word == "FUNCTION":
            return self._create_function(temporary, system, position)
        if word == "CATALOG":
            missing, name = self.if_not_exists(), self.name("the name of a catalog")
            comment = self.comment()
            return CreateCatalog(name, self.options() if self.take("WITH") else (), comment, missing, position=position)
        missing, path = self.if_not_exists(), self.path("the name of a database")
        comment = self.comment()
        return CreateDatabase(path, self.options() if self.take("WITH") else (), comment, missing, position=position)

    def _create_view(self, temporary: bool, replace: bool, position: int) -> Statement:
        if_not_exists, name = self.if_not_exists(), self.path("the name of a view")
        columns = self.names_in_parentheses() if self.next_is("(") else ()
        comment = self.comment()
        self.need("AS")
        start = self.position
        query = self.query()
        text = self.text[start : self.before.end]
        return CreateView(name, query, text, columns, comment, temporary, if_not_exists, replace, position=position)

    def _create_model(self, temporary: bool, position: int) -> Statement:
        if_not_exists, name = self.if_not_exists(), self.path("the name of a model")
        inputs = self.columns_in_parentheses() if self.take("INPUT") else ()
        outputs = self.columns_in_parentheses() if inputs and self.need("OUTPUT") >= 0 else ()
        comment = self.comment()
        options = self.options() if self.take("WITH") else ()
        if not options:
            self.refuse_at(position, "Model property list can not be empty")
        return CreateModel(name, inputs, outputs, comment, options, temporary, if_not_exists, position=position)

    def _create_function(self, temporary: bool, system: bool, position: int) -> Statement:
        if_not_exists, name = self.if_not_exists(), self.path("the name of a function")
        implementation, language = self._implementation()
        using: list[str] = []
        if self.take("USING"):
            if language == "PYTHON":
                self.refuse_at(
                    self.before.position, "CREATE FUNCTION USING JAR/ARTIFACT is not supported for Python functions"
                )
            using = self.list_of(lambda: (self.need_one_of("JAR", "ARTIFACT"), self.string())[1])
        return CreateFunction(
            name, implementation, language, tuple(using), temporary, system, if_not_exists, position=position
        )

    def _implementation(self) -> tuple[str, str]:
        self.need("AS")
        implementation = self.string()
        language = self.need_one_of("JAVA", "SCALA", "SQL", "PYTHON") if self.take("LANGUAGE") else "JAVA"
        return implementation, language

    # --- ALTER, DROP

    def _alter(self, position: int) -> Statement:
        temporary = self.take_one_of("TEMPORARY", "TEMP") is not None
        system = temporary and self.take("SYSTEM")
        words = ("FUNCTION",) if temporary else ("TABLE", "VIEW", "FUNCTION", "CATALOG", "DATABASE", "MODEL")
        word = self.need_one_of(*words)
        if word == "TABLE":
            return self.alter_table(position)
        if word == "VIEW":
            return self._alter_view(position)
        if word == "MODEL":
            return self._alter_model(position)
        if word == "FUNCTION":
            if_exists, name = self.if_exists(), self.path("the name of a function")
            implementation, language = self._implementation()
            return AlterFunction(name, implementation, language, temporary, system, if_exists, position=position)
        name = self.path(f"the name of a {word.lower()}")
        if word == "CATALOG" and self.take("COMMENT"):
            return AlterOptions(word, name, comment=self.string(), position=position)
        how = self.need_one_of("SET", "RESET") if word == "CATALOG" else self.need_one_of("SET")
        if how == "SET":
            return AlterOptions(word, name, set=self.options(), position=position)
        return AlterOptions(word, name, reset=self.keys(), position=position)

    def _alter_model(self, position: int) -> Statement:
        if_exists, name = self.if_exists(), self.path("the name of a model")
        how = self.need_one_of("SET", "RESET", "RENAME")
        if how == "SET":
            return AlterModel(name, if_exists, set=self.options(), position=position)
        if how == "RESET":
            return AlterModel(name, if_exists, reset=self.keys(), position=position)
        self.need("TO")
        return AlterModel(name, if_exists, rename=self.path("the name of a model"), position=position)

    def _alter_view(self, position: int) -> Statement:
        name = self.path("the name of a view")
        if self.take("RENAME", "TO"):
            return AlterView(name, rename=self.path(), position=position)
        self.need("AS")
        start = self.position
        query = self.query()
        return AlterView(name, query=query, text=self.text[start : self.before.end], position=position)

    def _drop(self, position: int) -> Statement:
        temporary = self.take_one_of("TEMPORARY", "TEMP") is not None
        system = temporary and self.take("SYSTEM")
        words = ("FUNCTION",) if system else ("TABLE", "VIEW", "FUNCTION", "MODEL")
        word = self.need_one_of(*(words if temporary else (*words, "CATALOG", "DATABASE")))
        if_exists, name = self.if_exists(), self.path(f"the name of a {word.lower()}")
        cascade = None
        if word == "DATABASE" and (how := self.take_one_of("RESTRICT", "CASCADE")) is not None:
            cascade = how == "CASCADE"
        return Drop(word, name, if_exists, temporary, system, cascade, position=position)

    # --- catalogs and modules

    def _use(self, position: int) -> Statement:
        if self.take("CATALOG"):
            return Use("CATALOG", (self.name("the name of a catalog"),), position=position)
        if self.take("MODULES"):
            return UseModules(tuple(self.list_of(self.name)), position=position)
        return Use("DATABASE", self.path("the name of a database"), position=position)

    def _load(self, position: int) -> Statement:
        self.need("MODULE")
        return LoadModule(self.name(), self.options() if self.take("WITH") else (), position=position)

    def _unload(self, position: int) -> Statement:
        self.need("MODULE")
        return UnloadModule(self.name(), position=position)

    # --- SHOW, DESCRIBE, EXPLAIN

    def _show(self, position: int) -> Statement:
        if self.take("CREATE"):
            kind = self.need_one_of("TABLE", "VIEW", "CATALOG", "MODEL")
            return Show(f"CREATE {kind}", self.path(f"the name of a {kind.lower()}"), position=position)
        if self.take("CURRENT"):
            return Show(f"CURRENT {self.need_one_of('CATALOG', 'DATABASE')}", position=position)
        if self.take("FULL"):
            self.need("MODULES")
            return Show("FULL MODULES", position=position)
        if self.take("USER"):
            self.need("FUNCTIONS")
            return self._matching_names("USER FUNCTIONS", position)
        kind = self.need_one_of(
            *("TABLES", "VIEWS", "COLUMNS", "CATALOGS", "DATABASES", "FUNCTIONS", "MODULES", "PARTITIONS"),
            *("JARS", "JOBS", "PROCEDURES", "MODELS"),
        )
        if kind == "PARTITIONS":
            name = self.path("the name of a table")
            return Show(kind, name, partition=self._partition() if self.take("PARTITION") else (), position=position)
        if kind in ("MODULES", "JARS", "JOBS"):
            return Show(kind, position=position)
        return self._matching_names(kind, position)

    def _partition(self) -> Options:
        def value() -> tuple[str, str]:
            key = self.name()
            self.need("=")
            return key, self.skip().text

        return tuple(self.in_parentheses(lambda: self.list_of(value)))

    def _matching_names(self, kind: str, position: int) -> Statement:
        preposition = self.need_one_of("FROM", "IN") if kind == "COLUMNS" else self.take_one_of("FROM", "IN")
        within = self.path() if preposition is not None and kind != "CATALOGS" else ()
        negated = self.take("NOT")
        how = self.need_one_of("LIKE", "ILIKE") if negated else self.take_one_of("LIKE", "ILIKE")
        pattern = self.string() if how is not None else None
        return Show(kind, within, pattern, how == "ILIKE", negated, preposition or "", position=position)

    def _describe(self, position: int) -> Statement:
        for kind in ("CATALOG", "DATABASE", "FUNCTION", "JOB", "MODEL"):
            if self.next_is(kind) and self.ahead(1).upper != ";" and self.ahead(1).kind is not Kind.END:
                self.skip()
                extended = self.take("EXTENDED")
                name = (self.string(),) if kind == "JOB" else self.path()
                return Describe(name, extended, kind, position=position)
        extended = self.take("EXTENDED")
        return Describe(self.path("the name of a table"), extended, position=position)

    def _explain(self, position: int) -> Statement:
        details: list[str] = []
        if not self.take("PLAN", "FOR") and self.one_of(*_DETAILS):
            details = self.list_of(lambda: self.need_one_of(*_DETAILS))
        if self.next_is("STATEMENT", "SET"):
            return Explain(self._execute(position), tuple(details), position=position)
        if self.one_of("EXPLAIN"):
            self.refuse_at(self.position, "EXPLAIN of an EXPLAIN is not supported: Encountered 'EXPLAIN'")
        return Explain(self.statement(), tuple(details), position=position)

    # --- data

    def _insert(self, position: int) -> Statement:
        return self._insert_into(position)

    def _insert_into(self, position: int) -> Insert:
        overwrite = self.need_one_of("INTO", "OVERWRITE") == "OVERWRITE"
        self.take("TABLE")
        table = self.path("the name of a table")
        options = tuple(o for h in self.hints() if h.name == "OPTIONS" for o in h.options)
        partition: tuple[tuple[str, Expression], ...] = ()
        if self.take("PARTITION"):
            partition = tuple(self.in_parentheses(lambda: self.list_of(self._assignment)))
        columns = self.names_in_parentheses() if self.next_is("(") and not self.next_is_query else ()
        query, conflict = self.query(), None
        if self.take("ON", "CONFLICT", "DO"):
            conflict = self.need_one_of("NOTHING", "ERROR", "DEDUPLICATE")
        return Insert(table, query, columns, partition, overwrite, options, conflict, position=position)

    def _assignment(self) -> tuple[str, Expression]:
        name = self.name("a column")
        self.need("=")
        return name, self.expression()

    def _execute(self, position: int) -> Statement:
        if self.take("STATEMENT"):
            return self._statement_set(position)
        if self.take("INSERT"):
            return self._insert_into(position)
        if self.take("PLAN"):
            return ExecutePlan(self.string(), position=position)
        return QueryStatement(self.query(), position=position)

    def _statement_set(self, position: int) -> Statement:
        self.need("SET", "BEGIN")
        inserts: list[Insert] = []
        while not self.take("END"):
            start = self.need("INSERT")
            inserts.append(self._insert_into(start))
            self.need(";")
        return StatementSet(tuple(inserts), position=position)

    def _compile(self, position: int) -> Statement:
        execute = self.take("AND", "EXECUTE")
        self.need("PLAN")
        file = self.string()
        if_not_exists = not execute and self.if_not_exists()
        self.need("FOR")
        planned: Statement
        start, word = self.position, self.need_one_of("STATEMENT", "INSERT")
        planned = self._insert_into(start) if word == "INSERT" else self._statement_set(start)
        return CompilePlan(file, planned, if_not_exists, execute, position=position)

    def _begin(self, position: int) -> Statement:
        self.need("STATEMENT", "SET")
        return BeginStatementSet(position=position)

    def _end(self, position: int) -> Statement:
        return EndStatementSet(position=position)

    def _update(self, position: int) -> Statement:
        table = self.path("the name of a table")
        self._alias()
        self.need("SET")
        assignments = tuple(self.list_of(self._assignment))
        return Update(table, assignments, self.expression() if self.take("WHERE") else None, position=position)

    def _delete(self, position: int) -> Statement:
        self.need("FROM")
        table = self.path("the name of a table")
        self._alias()
        return Delete(table, self.expression() if self.take("WHERE") else None, position=position)

    def _alias(self) -> None:
        """Parse the alias of a table to be changed, which is ignored."""
        if self.take("AS") or self.next_is_name:
            self.name("an alias")

    def _truncate(self, position: int) -> Statement:
        self.need("TABLE")
        return Truncate(self.path("the name of a table"), position=position)

    def _analyze(self, position: int) -> Statement:
        self.need("TABLE")
        table = self.path("the name of a table")
        partition = self._partition_keys() if self.take("PARTITION") else ()
        self.need("COMPUTE", "STATISTICS")
        columns: tuple[str, ...] | None = None
        if self.take("FOR"):
            every = self.take("ALL")
            self.need("COLUMNS")
            columns = () if every else tuple(self.list_of(lambda: self.name("a column")))
        return AnalyzeTable(table, partition, columns, position=position)

    def _partition_keys(self) -> tuple[tuple[str, str | None], ...]:
        def one() -> tuple[str, str | None]:
            key = self.name()
            return key, self.skip().text if self.take("=") else None

        return tuple(self.in_parentheses(lambda: self.list_of(one)))

    def _call(self, position: int) -> Statement:
        name = self.path("the name of a procedure")
        self.need("(")
        arguments = () if self.next_is(")") else tuple(self.list_of(self.expression))
        self.need(")")
        return CallProcedure(name, arguments, position=position)

    # --- settings and clients

    def _set(self, position: int) -> Statement:
        if self.is_at_end or self.next_is(";"):
            return SetOption(position=position)
        key = self.string()
        self.need("=")
        return SetOption(key, self.string(), position=position)

    def _reset(self, position: int) -> Statement:
        return ResetOption(None if self.is_at_end or self.next_is(";") else self.string(), position=position)

    def _jar(self, action: str, position: int) -> Statement:
        self.need("JAR")
        return Jar(action, self.string(), position=position)

    def _stop(self, position: int) -> Statement:
        self.need("JOB")
        job = self.string()
        savepoint = drain = False
        while self.take("WITH"):
            word = self.need_one_of("SAVEPOINT", "DRAIN")
            savepoint, drain = savepoint or word == "SAVEPOINT", drain or word == "DRAIN"
        return StopJob(job, savepoint, drain, position=position)

    def _client(self, position: int) -> Statement:
        word = self.before.upper
        argument = None
        if word == "SOURCE":
            argument = self.string()
        return Client("QUIT" if word == "EXIT" else word, argument, position=position)


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
    "ADD": lambda g, position: g._jar("ADD", position),
    "REMOVE": lambda g, position: g._jar("REMOVE", position),
    "STOP": StatementGrammar._stop,
    **dict.fromkeys(["QUIT", "EXIT", "CLEAR", "HELP", "SOURCE"], StatementGrammar._client),
}
