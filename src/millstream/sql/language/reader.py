"""The token reader that all grammars extend."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn, TypeVar

from millstream.sql.language.errors import syntax_error
from millstream.sql.language.lexer import RESERVED, Kind, Token, tokens_of

_Parsed = TypeVar("_Parsed")

_KIND_NAMES = {
    Kind.WORD: "a word",
    Kind.QUOTED: "a name",
    Kind.STRING: "a string",
    Kind.INTEGER: "a whole number",
    Kind.END: "the end",
}


class Reader:
    """The tokens of a text and the current position."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._tokens = tokens_of(text)
        self._next = 0
        # Expectations at the farthest token reached, for the error message.
        self._farthest = 0
        self._expected: list[str] = []

    # --- lookahead

    @property
    def token(self) -> Token:
        """The next token."""
        return self._tokens[self._next]

    def ahead(self, count: int) -> Token:
        """Return the token `count` tokens after the next."""
        return self._tokens[min(self._next + count, len(self._tokens) - 1)]

    @property
    def before(self) -> Token:
        """The last token read."""
        return self._tokens[max(self._next - 1, 0)]

    @property
    def position(self) -> int:
        """The offset of the next token."""
        return self.token.position

    def next_is(self, *words: str) -> bool:
        """Return whether these words or symbols follow in sequence."""
        for i, word in enumerate(words):
            if self.ahead(i).upper != word:
                self._miss(i, word)
                return False
        return True

    def _miss(self, count: int, *expected: str) -> None:
        """Record an unmet expectation `count` tokens after the next."""
        index = self._next + count
        if index > self._farthest:
            self._farthest = index
            self._expected.clear()
        if index == self._farthest:
            self._expected.extend(expected)

    def one_of(self, *words: str) -> str | None:
        """Return the one of these words or symbols that follows, or None."""
        if self.token.upper in words:
            return self.token.upper
        self._miss(0, *words)
        return None

    @property
    def is_at_end(self) -> bool:
        """Whether all tokens have been read."""
        return self.token.kind is Kind.END

    # --- reading

    def skip(self) -> Token:
        """Read any token."""
        token = self.token
        if token.kind is not Kind.END:
            self._next += 1
        return token

    def take(self, *words: str) -> bool:
        """Read these words or symbols if they follow; return whether they did."""
        if not self.next_is(*words):
            return False
        for _ in words:
            self.skip()
        return True

    def take_one_of(self, *words: str) -> str | None:
        """Read one of these words or symbols if it follows, and return it."""
        result = self.one_of(*words)
        if result is not None:
            self.skip()
        return result

    def need(self, *words: str) -> int:
        """Read these words or symbols or raise; return their offset."""
        position = self.position
        for word in words:
            if not self.take(word):
                self.refuse()
        return position

    def need_one_of(self, *words: str) -> str:
        """Read one of these words or symbols or raise."""
        result = self.take_one_of(*words)
        return self.refuse() if result is None else result

    def need_kind(self, kind: Kind) -> Token:
        """Read a token of a kind or raise."""
        if self.token.kind is not kind:
            self._miss(0, _KIND_NAMES.get(kind, kind.name.lower()))
            self.refuse()
        return self.skip()

    # --- common parts

    def string(self) -> str:
        """Read a string; adjacent strings are concatenated."""
        text = self.need_kind(Kind.STRING).text
        while self.token.kind is Kind.STRING:
            text += self.skip().text
        return text

    def whole_number(self) -> int:
        """Read an integer."""
        return int(self.need_kind(Kind.INTEGER).text)

    @property
    def next_is_name(self) -> bool:
        """Return whether a name follows."""
        token = self.token
        return token.kind is Kind.QUOTED or (token.kind is Kind.WORD and token.upper not in RESERVED)

    def name(self, expected: str = "a name") -> str:
        """Read a name; the error names `expected`."""
        if not self.next_is_name:
            self._miss(0, expected)
            self.refuse()
        return self.skip().text

    def path(self, expected: str = "a name") -> tuple[str, ...]:
        """Read a name with up to three dotted parts."""
        parts = [self.name(expected)]
        while self.take("."):
            parts.append(self.name(expected))
        return tuple(parts)

    def list_of(self, read: Callable[[], _Parsed]) -> list[_Parsed]:
        """Read a comma-separated list."""
        result = [read()]
        while self.take(","):
            result.append(read())
        return result

    def in_parentheses(self, read: Callable[[], _Parsed]) -> _Parsed:
        """Read something in parentheses."""
        self.need("(")
        result = read()
        self.need(")")
        return result

    def names_in_parentheses(self) -> tuple[str, ...]:
        """Read a comma-separated list of names in parentheses."""
        return tuple(self.in_parentheses(lambda: self.list_of(self.name)))

    def mark(self) -> int:
        """Return the position for `go_back`."""
        return self._next

    def go_back(self, mark: int) -> None:
        """Return to a position."""
        self._next = mark

    # --- errors

    def refuse(self, expected: str = "") -> NoReturn:
        """Raise an error with the unexpected token and the expected ones."""
        if expected:
            self._farthest, self._expected = self._next, [expected]
        elif self._farthest < self._next:
            self._farthest, self._expected = self._next, []
        token = self._tokens[min(self._farthest, len(self._tokens) - 1)]
        encountered = (
            "the end of the statement" if token.kind is Kind.END else repr(self.text[token.position : token.end])
        )
        alternatives = f", expected {_or(list(dict.fromkeys(self._expected)))}" if self._expected else ""
        is_reserved = token.kind is Kind.WORD and token.upper in RESERVED
        hint = f" (as a name, it is `{token.text}`)" if is_reserved and self._expects_name() else ""
        self.refuse_at(token.position, f"Encountered {encountered}{hint}{alternatives}")

    def _expects_name(self) -> bool:
        return any(expected.startswith(("a ", "an ", "the ")) for expected in self._expected)

    def refuse_at(self, position: int, message: str) -> NoReturn:
        """Raise an error with its own message."""
        raise syntax_error(self.text, position, message)


def _or(words: list[str]) -> str:
    shown = words if len(words) <= 8 else [*words[:8], "..."]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} or {shown[-1]}"
