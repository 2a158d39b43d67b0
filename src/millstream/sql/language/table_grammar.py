"""Parses CREATE TABLE and ALTER TABLE."""

from __future__ import annotations

from millstream.sql.language.lexer import Kind
from millstream.sql.language.query_grammar import QueryGrammar
from millstream.sql.language.statements import (
    AlterTable,
    Column,
    CreateTable,
    Distribution,
    Like,
    Options,
    Placed,
    PrimaryKey,
    SourceExpression,
    Watermark,
)
from millstream.sql.language.type_grammar import read_type

_LIKE_RULES = ("ALL", "CONSTRAINTS", "DISTRIBUTION", "GENERATED", "METADATA", "OPTIONS", "PARTITIONS", "WATERMARKS")


class TableGrammar(QueryGrammar):
    """Parses table statements, queries and expressions."""

    # --- common parts

    def if_not_exists(self) -> bool:
        """Parse an optional IF NOT EXISTS."""
        return self.take("IF", "NOT", "EXISTS")

    def if_exists(self) -> bool:
        """Parse an optional IF EXISTS."""
        return self.take("IF", "EXISTS")

    def comment(self) -> str | None:
        """Parse an optional COMMENT."""
        return self.string() if self.take("COMMENT") else None

    def options(self) -> Options:
        """Parse options in parentheses: 'k' = 'v', .."""
        self.need("(")
        result = () if self.next_is(")") else tuple(self.list_of(self._option))
        self.need(")")
        return result

    def _option(self) -> tuple[str, str]:
        key = self.string()
        self.need("=")
        return key, self.string()

    def keys(self) -> tuple[str, ...]:
        """Parse option keys in parentheses."""
        return tuple(self.in_parentheses(lambda: [] if self.next_is(")") else self.list_of(self.string)))

    def source_expression(self) -> SourceExpression:
        """Parse an expression with its source text."""
        position = self.position
        value = self.expression()
        end = self.before.end
        return SourceExpression(value, self.text[position:end], position=position)

    # --- CREATE TABLE

    def create_table(self, temporary: bool, replace: bool, position: int) -> CreateTable:
        """Parse CREATE TABLE after its keywords."""
        if_not_exists, name = self.if_not_exists(), self.path("the name of a table")
        columns: list[Column] = []
        watermarks: list[Watermark] = []
        keys: list[PrimaryKey] = []
        names: tuple[str, ...] = ()
        if self.next_is("("):
            names = self._names_alone()
            if not names:
                self.need("(")
                if not self.next_is(")"):
                    for part in self.list_of(self._part):
                        self._sort(part, columns, watermarks, keys)
                self.need(")")
        comment = self.comment()
        distribution = self._distribution() if self.one_of("DISTRIBUTED") and self.skip() else None
        partition = self.names_in_parentheses() if self.take("PARTITIONED", "BY") else ()
        options = self.options() if self.take("WITH") else ()
        like = self._like_table() if self.take("LIKE") else None
        query = self.query() if self.take("AS") else None
        if query is not None and like is not None:
            self.refuse_at(position, "CREATE TABLE takes LIKE or AS, not both")
        return CreateTable(
            name,
            tuple(columns),
            tuple(watermarks),
            keys[0] if keys else None,
            comment,
            distribution,
            partition,
            options,
            like,
            query,
            names,
            temporary,
            if_not_exists,
            replace,
            position=position,
        )

    def _names_alone(self) -> tuple[str, ...]:
        """Parse names without types in parentheses, as CREATE TABLE .. AS allows."""
        mark = self.mark()
        self.need("(")
        names = []
        while self.next_is_name and self.ahead(1).upper in (",", ")"):
            names.append(self.name())
            if self.take(")"):
                return tuple(names)
            self.need(",")
        self.go_back(mark)
        return ()

    def _sort(
        self,
        part: Column | Watermark | PrimaryKey,
        columns: list[Column],
        watermarks: list[Watermark],
        keys: list[PrimaryKey],
    ) -> None:
        if isinstance(part, Watermark):
            if watermarks:
                self.refuse_at(part.position, "Multiple WATERMARK declarations are not supported yet")
            watermarks.append(part)
        elif isinstance(part, PrimaryKey):
            if keys:
                self.refuse_at(part.position, "Duplicate primary key definition")
            keys.append(part)
        else:
            columns.append(part)
            # A primary key declared at its column.
            if self._key_of_column is not None:
                self._sort(self._key_of_column, columns, watermarks, keys)
                self._key_of_column = None

    _key_of_column: PrimaryKey | None = None

    def _part(self) -> Column | Watermark | PrimaryKey:
        if self.next_is("WATERMARK"):
            return self._watermark()
        if self.one_of("CONSTRAINT", "PRIMARY", "UNIQUE"):
            return self._constraint()
        return self._column()

    def _watermark(self) -> Watermark:
        position = self.need("WATERMARK", "FOR")
        column = self.path("a column")
        self.need("AS")
        return Watermark(column, self.source_expression(), position=position)

    def _constraint(self) -> PrimaryKey:
        position = self.position
        name = self.name("the name of a constraint") if self.take("CONSTRAINT") else None
        if self.next_is("UNIQUE"):
            self.refuse_at(self.position, "UNIQUE constraint is not supported yet: Encountered 'UNIQUE'")
        self.need("PRIMARY", "KEY")
        columns = self.names_in_parentheses()
        self._not_enforced()
        return PrimaryKey(columns, name, position=position)

    def _not_enforced(self) -> None:
        position = self.position
        if not self.take("NOT", "ENFORCED"):
            self.take("ENFORCED")
            self.refuse_at(
                position,
                "Flink doesn't support ENFORCED mode for PRIMARY KEY constraint. ENFORCED/NOT ENFORCED controls if the "
                "constraint checks are performed on the incoming/outgoing data. Flink does not own the data therefore "
                "the only supported mode is the NOT ENFORCED mode",
            )

    def _column(self) -> Column:
        position, name = self.position, self.name("a column")
        if self.take("AS"):
            return Column(name, computed=self.source_expression(), comment=self.comment(), position=position)
        kind = read_type(self)
        if self.take("METADATA"):
            key = self.string() if self.take("FROM") else None
            virtual = self.take("VIRTUAL")
            return Column(
                name, kind, metadata=True, key=key, virtual=virtual, comment=self.comment(), position=position
            )
        if self.one_of("CONSTRAINT", "PRIMARY"):
            key_at = self.position
            constraint = self.name() if self.take("CONSTRAINT") else None
            self.need("PRIMARY", "KEY")
            self._not_enforced()
            self._key_of_column = PrimaryKey((name,), constraint, position=key_at)
            kind = kind.not_null()
        return Column(name, kind, comment=self.comment(), position=position)

    def columns_in_parentheses(self) -> tuple[Column, ...]:
        """Parse the columns of a model."""
        return tuple(self.in_parentheses(lambda: self.list_of(self._column)))

    def _distribution(self) -> Distribution:
        position = self.position
        if self.take("INTO"):
            return Distribution(None, (), self._buckets(), position=position)
        self.need("BY")
        kind = self.take_one_of("HASH", "RANGE")
        columns = self.names_in_parentheses()
        return Distribution(kind, columns, self._buckets() if self.take("INTO") else None, position=position)

    def _buckets(self) -> int:
        count = self.whole_number()
        self.need("BUCKETS")
        return count

    def _like_table(self) -> Like:
        position, table = self.position, self.path("the name of a table")
        rules: list[tuple[str, str]] = []
        if self.take("("):
            while (how := self.take_one_of("INCLUDING", "EXCLUDING", "OVERWRITING")) is not None:
                rules.append((how, self.need_one_of(*_LIKE_RULES)))
            self.need(")")
        return Like(table, tuple(rules), position=position)

    # --- ALTER TABLE

    def alter_table(self, position: int) -> AlterTable:
        """Parse ALTER TABLE after its keywords."""
        if_exists, name = self.if_exists(), self.path("the name of a table")
        if self.take("RENAME", "TO"):
            return AlterTable(name, if_exists, rename=self.path(), position=position)
        word = self.need_one_of("RENAME", "SET", "RESET", "ADD", "MODIFY", "DROP")
        if word == "RENAME":
            column = self.path("a column")
            self.need("TO")
            return AlterTable(name, if_exists, rename_column=(column, self.name()), position=position)
        if word == "SET":
            return AlterTable(name, if_exists, set=self.options(), position=position)
        if word == "RESET":
            return AlterTable(name, if_exists, reset=self.keys(), position=position)
        if word == "ADD":
            return AlterTable(name, if_exists, add=self._placed_parts(), position=position)
        if word == "MODIFY":
            return AlterTable(name, if_exists, modify=self._placed_parts(), position=position)
        return self._drop_part(name, if_exists, position)

    def _placed_parts(self) -> tuple[Placed, ...]:
        if self.next_is("("):
            return tuple(self.in_parentheses(lambda: self.list_of(self._placed)))
        return (self._placed(),)

    def _placed(self) -> Placed:
        position = self.position
        if self.take("DISTRIBUTION"):
            return Placed(self._distribution(), position=position)
        if self.token.kind is Kind.WORD and self.token.upper == "COLUMN":
            self.skip()
        part = self._part()
        first = self.take("FIRST")
        after = self.name("a column") if not first and self.take("AFTER") else None
        return Placed(part, first, after, position=position)

    def _drop_part(self, name: tuple[str, ...], if_exists: bool, position: int) -> AlterTable:
        if self.take("PRIMARY", "KEY"):
            return AlterTable(name, if_exists, drop="PRIMARY KEY", position=position)
        if self.take("CONSTRAINT"):
            return AlterTable(name, if_exists, drop_constraint=self.name(), position=position)
        word = self.take_one_of("WATERMARK", "DISTRIBUTION")
        if word is not None:
            return AlterTable(name, if_exists, drop=word, position=position)
        if self.next_is("("):
            return AlterTable(name, if_exists, drop_columns=self.names_in_parentheses(), position=position)
        return AlterTable(name, if_exists, drop_columns=(self.name("a column"),), position=position)
