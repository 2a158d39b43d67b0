"""Translation of Java's regular expressions to Python's, and to RE2's where the semantics agree."""

from __future__ import annotations

import re
import sys
import unicodedata
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from millstream.common.fast_dataclass import fast_dataclass

_LINE_ENDS = "\\n\\r\\x85\\u2028\\u2029"
_NO_LINE_END = f"[^{_LINE_ENDS}]"
_ANY = "[\\s\\S]"
# Named classes, ASCII only.
_POSIX = {
    "Lower": "a-z",
    "Upper": "A-Z",
    "ASCII": "\\x00-\\x7f",
    "Alpha": "a-zA-Z",
    "Digit": "0-9",
    "Alnum": "a-zA-Z0-9",
    "Punct": "!-/:-@\\[-`{-~",
    "Graph": "!-~",
    "Print": " -~",
    "Blank": " \\t",
    "Cntrl": "\\x00-\\x1f\\x7f",
    "XDigit": "0-9a-fA-F",
    "Space": " \\t\\n\\x0b\\f\\r",
}
_SHORT = {
    "d": "0-9",
    "w": "a-zA-Z0-9_",
    "s": " \\t\\n\\x0b\\f\\r",
    "h": " \\t\\xa0\\u1680\\u180e\\u2000-\\u200a\\u202f\\u205f\\u3000",
    "v": "\\n\\x0b\\f\\r\\x85\\u2028\\u2029",
}
_CONTROLS = {"t": "\\t", "n": "\\n", "r": "\\r", "f": "\\f", "a": "\\x07", "e": "\\x1b"}
_HEX = "0123456789abcdefABCDEF"


class BadPattern(ValueError):
    """An invalid pattern, or one that Python cannot express."""


@fast_dataclass
class JavaPattern:
    """A pattern.

    Attributes:
        python: the pattern for Python.
        re2: the pattern for RE2; None if it cannot express it.
    """

    python: re.Pattern[str]
    re2: str | None


@lru_cache(maxsize=1000)
def java_pattern(pattern: str) -> JavaPattern:
    """Return a translated Java pattern.

    Raises:
        BadPattern: Java would reject it, or Python cannot express it.

    Example:
        >>> java_pattern(r"[a-z&&[^b]]+\\d").python.fullmatch("ac1") is not None
        True
    """
    reader = _Reader(pattern)
    translated = reader.read()
    try:
        compiled = re.compile(translated, re.ASCII)
    except (re.error, OverflowError, RecursionError) as e:
        raise BadPattern(str(e)) from e
    # RE2 finds empty matches at other positions.
    return JavaPattern(compiled, _for_re2(translated) if reader.is_plain and compiled.match("") is None else None)


def _for_re2(pattern: str) -> str | None:
    """Return a pattern in RE2's syntax; None if RE2 rejects it."""
    written = re.sub(r"\\(?:u([0-9a-f]{4})|U([0-9a-f]{8}))", lambda m: f"\\x{{{m.group(1) or m.group(2)}}}", pattern)
    try:
        pc.match_substring_regex(pa.array([""]), written)
    except pa.ArrowInvalid:
        return None
    return written


@lru_cache(maxsize=64)
def _category(name: str) -> str:
    """Return the characters of a Unicode category, as the inside of a class."""
    required = name.removeprefix("Is").removeprefix("general_category=").removeprefix("gc=")
    test = _TESTS.get(name)
    if test is None:
        if not re.fullmatch(r"[A-Z][a-z]?|LC|LD|L1|all", required):
            raise BadPattern(f"Unknown character property name {{{name}}}")
        test = {
            "LC": lambda c: unicodedata.category(c) in ("Lu", "Ll", "Lt"),
            "LD": lambda c: unicodedata.category(c)[0] == "L" or unicodedata.category(c) == "Nd",
            "L1": lambda c: c <= "\xff",
            "all": lambda c: True,
        }.get(required) or (lambda c: unicodedata.category(c).startswith(required))
    ranges: list[list[int]] = []
    for code in range(sys.maxunicode + 1):
        if test(chr(code)):
            if ranges and ranges[-1][1] == code - 1:
                ranges[-1][1] = code
            else:
                ranges.append([code, code])
    if not ranges:
        raise BadPattern(f"Unknown character property name {{{name}}}")
    return "".join(_code(a) if a == b else f"{_code(a)}-{_code(b)}" for a, b in ranges)


_TESTS = {
    "IsAlphabetic": str.isalpha,
    "IsLetter": str.isalpha,
    "IsDigit": lambda c: unicodedata.category(c) == "Nd",
    "IsLowercase": str.islower,
    "IsUppercase": str.isupper,
    "IsWhite_Space": str.isspace,
    "IsWhiteSpace": str.isspace,
    "IsPunctuation": lambda c: unicodedata.category(c)[0] == "P",
    "IsControl": lambda c: unicodedata.category(c) == "Cc",
    "javaLowerCase": str.islower,
    "javaUpperCase": str.isupper,
    "javaLetter": str.isalpha,
    "javaDigit": lambda c: unicodedata.category(c) == "Nd",
    "javaLetterOrDigit": lambda c: c.isalpha() or unicodedata.category(c) == "Nd",
    "javaWhitespace": str.isspace,
    "IsLatin": lambda c: unicodedata.name(c, "").startswith("LATIN"),
    "IsGreek": lambda c: unicodedata.name(c, "").startswith("GREEK"),
    "IsCyrillic": lambda c: unicodedata.name(c, "").startswith("CYRILLIC"),
    "IsHan": lambda c: unicodedata.name(c, "").startswith("CJK"),
    "InGreek": lambda c: "\u0370" <= c <= "\u03ff",
    "InCyrillic": lambda c: "\u0400" <= c <= "\u04ff",
    "InBasicLatin": lambda c: c <= "\x7f",
}


def _code(code: int) -> str:
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _literal(c: str) -> str:
    return c if (c.isalnum() and c.isascii()) or c == "_" else re.escape(c) if c.isascii() else c


class _Reader:
    """Parses a Java pattern and writes Python's."""

    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._position = 0
        # Per open group the number of flag groups opened in it.
        self._wraps: list[list[str]] = [[]]
        self._flags: list[set[str]] = [set()]
        self.is_plain = True

    def read(self) -> str:
        """Return the whole pattern."""
        out: list[str] = []
        while self._position < len(self._text):
            out.append(self._next())
        if len(self._wraps) > 1:
            raise BadPattern("Unclosed group")
        out.append(")" * len(self._wraps[-1]))
        return "".join(out)

    @property
    def _mode(self) -> set[str]:
        return self._flags[-1]

    def _peek(self, count: int = 1) -> str:
        return self._text[self._position : self._position + count]

    def _take(self) -> str:
        if self._position >= len(self._text):
            raise BadPattern("Unexpected end of pattern")
        self._position += 1
        return self._text[self._position - 1]

    def _next(self) -> str:
        c = self._take()
        if c == "\\":
            return self._escape()
        if c == "[":
            return self._class()
        if c == "(":
            return self._group()
        if c == ")":
            return self._close()
        if c == "|":
            wraps = self._wraps[-1]
            return ")" * len(wraps) + "|" + "".join(wraps)
        if c == ".":
            if "s" in self._mode:
                return _ANY
            return "[^\\n]" if "d" in self._mode else _NO_LINE_END
        if c == "$":
            self.is_plain = False
            if "m" in self._mode:
                return f"(?=[{_LINE_ENDS}]|\\Z)"
            return f"(?=(?:\\r\\n|[{_LINE_ENDS}])?\\Z)"
        if c == "^":
            self.is_plain = self.is_plain and "m" not in self._mode
            return "(?:(?<=\\n)|^)" if "m" in self._mode else "^"
        if c in "*+?":
            return self._quantifier(c)
        if c == "{":
            return self._braces()
        if "x" in self._mode:
            return self._commented(c)
        return _literal(c)

    def _commented(self, c: str) -> str:
        if c.isspace():
            return ""
        if c == "#":
            while self._position < len(self._text) and self._take() not in "\n\r":
                pass
            return ""
        return _literal(c)

    def _quantifier(self, c: str) -> str:
        if self._peek() == "+":
            self.is_plain = False
        return c

    def _braces(self) -> str:
        result = re.match(r"(\d+)(,(\d*))?\}", self._text[self._position :])
        if result is None:
            raise BadPattern("Illegal repetition")
        self._position += result.end()
        if result.group(3) and int(result.group(3)) < int(result.group(1)):
            raise BadPattern("Illegal repetition range")
        if self._peek() == "+" or int(result.group(3) or result.group(1)) > 1000:
            self.is_plain = False
        return "{" + result.group(0)

    # --- groups

    def _group(self) -> str:
        if self._peek() != "?":
            return self._open("(")
        self._take()
        kind = self._take()
        if kind == ":":
            return self._open("(?:")
        if kind in "=!>":
            self.is_plain = False
            return self._open(f"(?{kind}")
        if kind == "<":
            if self._peek() in ("=", "!"):
                self.is_plain = False
                return self._open(f"(?<{self._take()}")
            name = self._until(">")
            if not re.fullmatch(r"[a-zA-Z][a-zA-Z0-9]*", name):
                raise BadPattern("named capturing group is missing trailing '>'")
            return self._open(f"(?P<{name}>")
        return self._inline(kind)

    def _open(self, written: str) -> str:
        self._wraps.append([])
        self._flags.append(set(self._mode))
        return written

    def _close(self) -> str:
        if len(self._wraps) == 1:
            raise BadPattern("Unmatched closing ')'")
        self._flags.pop()
        return ")" * len(self._wraps.pop()) + ")"

    def _inline(self, first: str) -> str:
        """Parse flags: (?i) for the rest of the group, (?i:..) for a group."""
        flags = first
        while flags[-1] not in ":)":
            flags += self._take()
        on, _, off = flags[:-1].partition("-")
        if not re.fullmatch(r"[idmsuxU]*-?[idmsuxU]*", flags[:-1]):
            raise BadPattern("Unknown inline modifier")
        changed = (set(self._mode) | set(on)) - set(off)
        # Dots, blanks and line ends are written out; Python gets only the flags for letters.
        reported = ("i" if "i" in on else "") + ("-i" if "i" in off else "")
        written = f"(?{reported}:" if reported else "(?:"
        if flags[-1] == ":":
            self._wraps.append([])
            self._flags.append(changed)
            return written
        self._flags[-1] = changed
        self._wraps[-1].append(written)
        return written

    def _until(self, end: str) -> str:
        stop = self._text.find(end, self._position)
        if stop < 0:
            raise BadPattern(f"Missing {end}")
        result = self._text[self._position : stop]
        self._position = stop + 1
        return result

    # --- escapes

    def _escape(self) -> str:
        c = self._take()
        if c == "Q":
            stop = self._text.find("\\E", self._position)
            result = self._text[self._position : stop if stop >= 0 else None]
            self._position = stop + 2 if stop >= 0 else len(self._text)
            return "".join(map(_literal, result))
        if c in "bB":
            return f"\\{c}"
        if c in "AG":
            return "\\A"
        if c in "zZ":
            self.is_plain = False
            return "\\Z" if c == "z" else f"(?=(?:\\r\\n|[{_LINE_ENDS}])?\\Z)"
        if c == "R":
            return f"(?:\\r\\n|[{_SHORT['v']}])"
        if c == "k":
            self.is_plain = False
            if self._take() != "<":
                raise BadPattern("\\k is not followed by '<' for named capturing group")
            return f"(?P={self._until('>')})"
        if c in "123456789":
            self.is_plain = False
            return f"(?:\\{c})"
        inside, negated = self._class_item(c)
        return f"[{'^' if negated else ''}{inside}]"

    def _class_item(self, c: str) -> tuple[str, bool]:
        """Return the class of an escape, as the inside of a class, and whether it is negated."""
        if c.lower() in _SHORT:
            return _SHORT[c.lower()], c.isupper()
        if c in "pP":
            name = self._until("}") if self._peek() == "{" and self._take() else self._take()
            negated = name.startswith("^")
            return _POSIX.get(name) or _category(name), (c == "P") != negated
        return self._character(c), False

    def _character(self, c: str) -> str:
        """Return the character of an escape."""
        if c in _CONTROLS:
            return _CONTROLS[c]
        if c == "0":
            result = re.match(r"[0-3]?[0-7]{1,2}", self._text[self._position :])
            if result is None:
                raise BadPattern("Illegal octal escape sequence")
            self._position += result.end()
            return _code(int(result.group(), 8))
        if c == "x":
            digits = self._until("}") if self._peek() == "{" and self._take() else self._take() + self._take()
            return self._hexadecimal(digits)
        if c == "u":
            return self._hexadecimal("".join(self._take() for _ in range(4)))
        if c == "c":
            return _code(ord(self._take()) ^ 64)
        if c.isalpha() and c.isascii():
            raise BadPattern("Illegal/unsupported escape sequence")
        return re.escape(c) if c.isascii() else c

    def _hexadecimal(self, digits: str) -> str:
        if not digits or any(d not in _HEX for d in digits):
            raise BadPattern("Illegal hexadecimal escape sequence")
        return _code(int(digits, 16))

    # --- classes

    def _class(self) -> str:
        """Parse a class after its bracket; nested ones become alternatives and lookaheads."""
        negated = self._peek() == "^" and bool(self._take())
        sides: list[str] = []
        parts: list[str] = []
        inside = ""
        first = True
        while True:
            c = self._take()
            if c == "]" and not (first and not parts and not inside and not sides):
                break
            first = False
            if c == "[":
                parts.append(self._class())
                self.is_plain = False
            elif c == "&" and self._peek() == "&":
                self._take()
                sides.append(self._united(parts, inside))
                parts, inside = [], ""
                self.is_plain = False
            elif c == "\\":
                inside, parts = self._escaped_in_class(inside, parts)
            elif "x" in self._mode and c.isspace():
                continue
            else:
                inside += "\\" + c if c in "[]\\^-&~|#" and c != "-" else c if c != "-" else self._dash()
        if not sides and not parts:
            if not inside:
                raise BadPattern("Unclosed character class")
            return f"[{'^' if negated else ''}{inside}]"
        sides.append(self._united(parts, inside))
        known = [s for s in sides if s]
        whole = "".join(f"(?={s})" for s in known[:-1]) + known[-1]
        return f"(?:(?!{whole}){_ANY})" if negated else f"(?:{whole})"

    def _dash(self) -> str:
        following = self._peek()
        return "-" if following not in ("]", "[", "&") else "\\-"

    def _escaped_in_class(self, inside: str, parts: list[str]) -> tuple[str, list[str]]:
        c = self._take()
        if c == "Q":
            stop = self._text.find("\\E", self._position)
            result = self._text[self._position : stop if stop >= 0 else None]
            self._position = stop + 2 if stop >= 0 else len(self._text)
            return inside + "".join(map(re.escape, result)), parts
        reported, negated = self._class_item(c)
        if negated:
            self.is_plain = False
            return inside, [*parts, f"[^{reported}]"]
        return inside + reported, parts

    def _united(self, parts: list[str], inside: str) -> str:
        every = [*([f"[{inside}]"] if inside else []), *parts]
        return every[0] if len(every) == 1 else f"(?:{'|'.join(every)})" if every else ""
