"""How CSV is written down: separators, quotes, escapes and comments, with the rules of Jackson, which Flink uses."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import BinaryIO

from millstream.common.errors import InvalidProgramError


def can_be_cut(dialect: CsvDialect) -> bool:
    """Tell whether quoted fields can be found by their first character and the one before it."""
    quote = dialect.quote or ""
    return dialect.escape is None and not dialect.comments and (quote + dialect.separator).isascii()


@lru_cache
def _records(dialect: CsvDialect) -> re.Pattern[bytes]:
    """Return what finds as many records as there are, each with its newline, in one go."""
    quote, separator = re.escape((dialect.quote or "").encode()), re.escape(dialect.separator.encode())
    rest = rb"[^\r\n" + separator + rb"]*+"
    quoted = quote + rb"(?:[^" + quote + rb"]++|" + quote * 2 + rb")*+" + quote + rest
    field = rb"(?:" + quoted + rb"|(?!" + quote + rb")" + rest + rb")"
    return re.compile(rb"(?:(?:" + field + rb"[\r" + separator + rb"])*+" + field + rb"\n)*+")


def last_record_end(data: bytes, dialect: CsvDialect) -> int:
    """Return how much of some text, which begins with a record, are complete records that end in newlines.

    Example:
        >>> last_record_end(b'a,b\\n"c\\nd",e\\n"f\\n', CsvDialect())
        12
    """
    if dialect.quote is None or dialect.quote.encode() not in data:
        return data.rfind(b"\n") + 1
    found = _records(dialect).match(data)
    return 0 if found is None else found.end()


def cut_behind_record(file: BinaryIO, start: int, wanted: int, end: int, dialect: CsvDialect) -> int:
    """Return where to cut a file: behind the last record before `wanted`, or behind the one that goes on there."""
    file.seek(start)
    length = wanted - start
    data = file.read(length)
    while not (found := last_record_end(data, dialect)):
        if start + len(data) >= end or not (more := file.read(min(len(data), end - start - len(data)))):
            return end
        data += more
    return start + found


_UNESCAPED = {"0": "\0", "n": "\n", "r": "\r", "t": "\t"}
# Jackson looks at no more of a string before it puts it into quotes.
_LOOKED_AT = 24


class CsvError(ValueError):
    """Text that is not CSV; `at` is where."""

    def __init__(self, reason: str, at: int = 0) -> None:
        super().__init__(reason)
        self.at = at


class UnclosedError(CsvError):
    """The text ends within a record; more of it may make it complete."""


@dataclass(frozen=True)
class CsvDialect:
    """The characters of a CSV file.

    Example:
        >>> list(CsvDialect(escape="!").exactly('a!,b,"c""d"'))
        [(0, ['a,b', 'c"d'])]
    """

    separator: str = ","
    quote: str | None = '"'
    escape: str | None = None
    comments: bool = False

    def __post_init__(self) -> None:
        for name in ("separator", "quote", "escape"):
            char = getattr(self, name)
            if char is not None and len(char) != 1:
                raise InvalidProgramError(f"CSV: the {name} must be a single character, it is {char!r}.")

    # --- reading

    def records(self, text: str) -> list[list[str]]:
        """Return the fields of all records in a text, quickly where its lines allow it."""
        escaped = self.escape is not None and self.escape in text
        if not escaped and (self.quote is None or self.quote not in text):
            lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n") if "\r" in text else text.split("\n")
            if not lines[-1]:
                lines.pop()
            if self.comments:
                lines = [line for raw in lines if (line := self._lstrip(raw)) and line[0] != "#"]
            separator = self.separator
            return [line.split(separator) for line in lines]
        if not escaped and not self.comments:
            try:
                rows = csv.reader(
                    io.StringIO(text, newline=""), delimiter=self.separator, quotechar=self.quote, strict=True
                )
                return [row or [""] for row in rows]
            except csv.Error:
                pass
        return [fields for _, fields in self.exactly(text)]

    def _lstrip(self, line: str) -> str:
        return line.lstrip(" ") if self.separator == "\t" else line.lstrip(" \t")

    def exactly(self, text: str, met: Callable[[int, CsvError], None] | None = None) -> Iterator[tuple[int, list[str]]]:
        """Yield the fields of each record, character by character, and where it begins.

        Args:
            text: the text.
            met: told of a record that cannot be read, before the next one is yielded; else it is an error.
        """
        at = 0
        while True:
            if self.comments:
                at = self._behind_comments(text, at)
            if at >= len(text):
                return
            try:
                fields, behind = self._record(text, at)
            except CsvError as e:
                if met is None:
                    raise
                met(at, e)
                # On with the line behind the trouble; of a quote that is never closed, behind where its record begins.
                trouble = at if isinstance(e, UnclosedError) else e.at
                at = behind_line(text, trouble)
                continue
            yield at, fields
            at = behind

    def first_record(self, text: str) -> tuple[list[str], int]:
        """Return the fields of the first record, and where it ends; no fields when there is none."""
        start = self._behind_comments(text, 0) if self.comments else 0
        if start >= len(text):
            return [], len(text)
        return self._record(text, start)

    def _behind_comments(self, text: str, at: int) -> int:
        while match := self._blank_or_comment.match(text, at):
            if match.end() == at:
                break
            at = match.end()
        return at

    @cached_property
    def _blank_or_comment(self) -> re.Pattern[str]:
        blank = r" \r\n" if self.separator == "\t" else r" \t\r\n"
        return re.compile(rf"[{blank}]*(?:#[^\r\n]*)?")

    def _record(self, text: str, at: int) -> tuple[list[str], int]:
        fields = []
        start, end = at, len(text)
        while True:
            if self.quote is not None and text.startswith(self.quote, at):
                value, at = self._quoted(text, at + 1, start)
            else:
                value, at = self._plain(text, at, start)
            fields.append(value)
            if at >= end:
                return fields, at
            if text[at] != self.separator:
                return fields, at + (2 if text.startswith("\r\n", at) else 1)
            at += 1

    @cached_property
    def _ends_plain(self) -> re.Pattern[str]:
        return re.compile(f"[\r\n{re.escape(self.separator + (self.escape or ''))}]")

    @cached_property
    def _ends_quoted(self) -> re.Pattern[str]:
        return re.compile(f"[{re.escape((self.quote or '') + (self.escape or ''))}]")

    def _plain(self, text: str, at: int, start: int) -> tuple[str, int]:
        parts = []
        while match := self._ends_plain.search(text, at):
            if match.group() != self.escape:
                parts.append(text[at : match.start()])
                return "".join(parts), match.start()
            parts += [text[at : match.start()], self._unescaped(text, match.end(), start)]
            at = match.end() + 1
        return "".join((*parts, text[at:])), len(text)

    def _quoted(self, text: str, at: int, start: int) -> tuple[str, int]:
        parts = []
        while match := self._ends_quoted.search(text, at):
            parts.append(text[at : match.start()])
            at = match.end()
            if match.group() == self.escape and match.group() != self.quote:
                parts.append(self._unescaped(text, at, start))
                at += 1
            elif text.startswith(match.group(), at):
                parts.append(match.group())
                at += 1
            else:
                return "".join(parts), self._behind_quote(text, at)
        raise UnclosedError("a quote is not closed", start)

    def _behind_quote(self, text: str, at: int) -> int:
        while at < len(text) and text[at] <= " " and text[at] not in ("\r", "\n", self.separator):
            at += 1
        if at < len(text) and text[at] not in ("\r", "\n", self.separator):
            raise CsvError(f"{text[at]!r} stands behind a closing quote, where {self.separator!r} is expected", at)
        return at

    def _unescaped(self, text: str, at: int, start: int) -> str:
        if at >= len(text):
            raise UnclosedError("nothing stands behind the escape character", start)
        return _UNESCAPED.get(text[at], text[at])

    # --- writing

    @cached_property
    def _needs_quotes(self) -> re.Pattern[str]:
        # Jackson's rule: anything up to the highest of the characters that have a meaning.
        highest = max(self.separator, self.quote or "", "\r")
        return re.compile(f"[\0-{re.escape(highest)}{re.escape(self.escape or chr(92))}]")

    def written(self, text: str) -> str:
        """Return a string as a field, in quotes where it needs them.

        Example:
            >>> CsvDialect().written("a"), CsvDialect().written('a "b"')
            ('a', '"a ""b\"""')
        """
        quote = self.quote
        if quote is None or (len(text) <= _LOOKED_AT and not self._needs_quotes.search(text)):
            return text
        if self.escape is not None:
            text = text.replace(self.escape, self.escape * 2)
        return f"{quote}{text.replace(quote, quote * 2)}{quote}"

    def line(self, fields: Sequence[str]) -> str:
        return self.separator.join(fields)


def behind_line(text: str, at: int) -> int:
    found = re.compile(r"\r\n|\r|\n").search(text, at)
    return found.end() if found else len(text)
