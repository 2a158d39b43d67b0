"""More functions of text: padding, splitting, regular expressions, codes, addresses."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import quote_plus, unquote_to_bytes, urlsplit

import pyarrow as pa
import pyarrow.compute as pc

from millstream.sql import type_rules
from millstream.sql import types as t
from millstream.sql.errors import TableException
from millstream.sql.functions.function import Arguments, Function, Kernel, Resolved, Site, Value
from millstream.sql.functions.java_format import BadFormat, formatted
from millstream.sql.functions.java_regex import BadPattern, java_pattern
from millstream.sql.functions.rules import (
    BIGINT,
    BOOLEAN,
    BYTES,
    INT,
    STRING,
    anything,
    binary,
    either,
    integer,
    same_as,
    takes,
    text,
    text_or_binary,
    whole,
)
from millstream.sql.functions.strings import is_ascii, varying
from millstream.sql.functions.vectors import by_row

# --- parts and padding


def _left(value: str, count: int) -> str:
    return value[:count] if count > 0 else ""


def _right(value: str, count: int) -> str:
    return value[-count:] if count > 0 else ""


def _ends(function: Callable[[str, int], str], left: bool) -> Kernel:
    def kernel(site: Site, rows: int, values: Sequence[Value]) -> Value:
        value, count = values
        if isinstance(count, pa.Scalar) and count.is_valid and not isinstance(value, pa.Scalar) and count.as_py() > 0:
            n = count.as_py()
            return pc.utf8_slice_codeunits(value, 0, n) if left else pc.utf8_slice_codeunits(value, -n)
        return by_row(function)(site, rows, values)

    return kernel


def _padded(left: bool) -> Callable[[str, int, str], str | None]:
    def pad(value: str, length: int, by: str) -> str | None:
        if length < 0 or not by:
            return None
        missing = length - len(value)
        if missing <= 0:
            return value[:length]
        filling = (by * (missing // len(by) + 1))[:missing]
        return filling + value if left else value + filling

    return pad


def _pad_kernel(left: bool) -> Kernel:
    operation = pc.utf8_lpad if left else pc.utf8_rpad

    def kernel(site: Site, rows: int, values: Sequence[Value]) -> Value:
        value, length, by = values
        constant = isinstance(length, pa.Scalar) and isinstance(by, pa.Scalar) and length.is_valid and by.is_valid
        if constant and not isinstance(value, pa.Scalar) and length.as_py() >= 0 and len(by.as_py()) == 1:
            cut = pc.utf8_slice_codeunits(value, 0, length.as_py())
            return operation(cut, length.as_py(), by.as_py())
        return by_row(_padded(left))(site, rows, values)

    return kernel


def _repeat(site: Site, rows: int, values: Sequence[Value]) -> Value:
    return by_row(lambda v, n: v * max(n, 0))(site, rows, values)


def _reverse(site: Site, rows: int, values: Sequence[Value]) -> Value:
    return pc.utf8_reverse(values[0])


_WORD = re.compile(r"[a-zA-Z0-9]+")


def _initcap(value: str) -> str:
    """Make the first letter of each word large, where words are letters and digits of ASCII."""
    return _WORD.sub(lambda found: found.group().capitalize(), value)


def _overlay(value: str, by: str, start: int, length: int | None = None) -> str:
    if start <= 0 or start > len(value):
        return value
    size = len(by) if length is None else length
    if start + size > len(value) or size < 0:
        return value[: start - 1] + by
    return value[: start - 1] + by + value[start - 1 + size :]


def _overlaid(arguments: Arguments) -> t.DataType:
    lengths = [varying(kind).length for kind in arguments.types[:2]]  # type: ignore[attr-defined]
    return t.VarCharType(1).with_length(min(sum(lengths), t.MOST_LENGTH))


def _translate(value: str, source: str | None, target: str | None) -> str:
    if not source:
        return value
    table: dict[int, int | None] = {}
    for i, c in enumerate(source):
        table.setdefault(ord(c), ord(target[i]) if target is not None and i < len(target) else None)
    return value.translate(table)


def _locate(needle: str, value: str, start: int = 1) -> int:
    return value.find(needle, max(start - 1, 0)) + 1 if needle else 1


def _instr(value: str, needle: str) -> int:
    return _locate(needle, value)


def _split(value: str, delimiter: str) -> list[str]:
    return list(value) if not delimiter else value.split(delimiter)


def _split_index(value: str, separator: str | int, index: int) -> str | None:
    if index < 0:
        return None
    if isinstance(separator, int):
        if not 0 < separator <= 255:
            return None
        separator = chr(separator)
    parts = _split_preserving(value, separator)
    return parts[index] if index < len(parts) else None


def _split_preserving(value: str, separator: str) -> list[str]:
    if not value:
        return []
    return value.split(separator) if separator else re.split(r"\s+", value)


def _str_to_map(value: str, of_list: str = ",", of_pair: str = "=") -> list[tuple[str, str | None]] | None:
    if not value:
        return []
    found: dict[str, str | None] = {}
    try:
        between, within = java_pattern(of_list).python, java_pattern(of_pair).python
    except BadPattern:
        return None
    for part in _java_split(value, between, 0):
        pair = _java_split(part, within, 2)
        found[pair[0]] = pair[1] if len(pair) > 1 else None
    return list(found.items())


def _java_split(value: str, pattern: re.Pattern[str], limit: int) -> list[str]:
    parts: list[str] = []
    at = 0
    for match in pattern.finditer(value):
        if limit and len(parts) == limit - 1:
            break
        if match.end() == 0:
            continue
        parts.append(value[at : match.start()])
        at = match.end()
    if not parts:
        return [value]
    parts.append(value[at:])
    while not limit and len(parts) > 1 and not parts[-1]:
        parts.pop()
    return parts


def _elt(index: int, *values: Any) -> Any:
    return values[index - 1] if 1 <= index <= len(values) else None


def _elt_kernel(site: Site, rows: int, values: Sequence[Value]) -> Value:
    return by_row(lambda i, *v: None if i is None else _elt(i, *v), keep_nulls=True)(site, rows, values)


def _elt_rule(arguments: Arguments) -> Resolved | None:
    if len(arguments) < 2 or whole(arguments.types[0]) is None:
        return None
    kinds = arguments.types[1:]
    result = type_rules.common_type(kinds)
    if result is None or text_or_binary(result) is None or (arguments.constant(0) or 0) < 0:
        return None
    return Resolved(result.nullable(), (arguments.types[0], *(result.with_nullability(k.is_nullable) for k in kinds)))


def _ascii(value: str) -> int:
    encoded = value.encode()
    return encoded[0] - 256 if encoded and encoded[0] > 127 else encoded[0] if encoded else 0


def _chr(value: int) -> str:
    if value < 0:
        return ""
    code = value & 0xFF
    return chr(code)


# --- regular expressions


def _regexp(value: str, pattern: str) -> bool:
    if not pattern:
        return False
    try:
        return java_pattern(pattern).python.search(value) is not None
    except BadPattern:
        return False


def _regexp_kernel(site: Site, rows: int, values: Sequence[Value]) -> Value:
    value, pattern = values
    if isinstance(pattern, pa.Scalar) and pattern.as_py() and not isinstance(value, pa.Scalar):
        try:
            quick = java_pattern(pattern.as_py()).re2
            if quick is not None and is_ascii(value):
                return pc.match_substring_regex(value, quick)
        except BadPattern:
            pass
    return by_row(_regexp)(site, rows, values)


def _regexp_replace(value: str, pattern: str, by: str) -> str | None:
    try:
        return java_pattern(pattern).python.sub(lambda _: by, value)
    except BadPattern:
        return None


def _regexp_replace_kernel(site: Site, rows: int, values: Sequence[Value]) -> Value:
    value, pattern, by = values
    constant = isinstance(pattern, pa.Scalar) and isinstance(by, pa.Scalar) and pattern.is_valid and by.is_valid
    if constant and not isinstance(value, pa.Scalar) and "\\" not in by.as_py():
        try:
            quick = java_pattern(pattern.as_py()).re2
            if quick is not None and is_ascii(value):
                return pc.replace_substring_regex(value, quick, by.as_py())
        except BadPattern:
            pass
    return by_row(_regexp_replace)(site, rows, values)


def _regexp_extract(value: str, pattern: str, group: int = 0) -> str | None:
    try:
        found = java_pattern(pattern).python.search(value)
    except BadPattern:
        return None
    if found is None or not 0 <= group <= found.re.groups:
        return None
    return found.group(group)  # type: ignore[no-any-return]


def _regexp_extract_all(value: str, pattern: str, group: int = 1) -> list[str | None] | None:
    try:
        compiled = java_pattern(pattern).python
    except BadPattern:
        return None
    if not 0 <= group <= compiled.groups:
        return None
    return [m.group(group) for m in compiled.finditer(value)]


def _regexp_count(value: str, pattern: str) -> int | None:
    try:
        return sum(1 for _ in java_pattern(pattern).python.finditer(value))
    except BadPattern:
        return None


def _regexp_instr(value: str, pattern: str) -> int | None:
    try:
        found = java_pattern(pattern).python.search(value)
    except BadPattern:
        return None
    return 0 if found is None else found.start() + 1


def _regexp_substr(value: str, pattern: str) -> str | None:
    return _regexp_extract(value, pattern)


_SIMILAR_CLASSES = {
    "ALPHA": "a-zA-Z",
    "UPPER": "A-Z",
    "LOWER": "a-z",
    "DIGIT": "0-9",
    "ALNUM": "a-zA-Z0-9",
    "SPACE": " ",
    "WHITESPACE": "\\s",
}


def similar_regex(pattern: str, escape: str | None) -> str:
    """Return a regular expression of Python's for a pattern of SIMILAR TO."""
    out = ""
    at = 0
    inside = False
    while at < len(pattern):
        c = pattern[at]
        if escape and c == escape:
            at += 1
            out += re.escape(pattern[at : at + 1])
        elif inside:
            found = re.match(r"\[:(\w+):\]", pattern[at:])
            if found:
                out += _SIMILAR_CLASSES.get(found.group(1).upper(), "")
                at += found.end() - 1
            else:
                inside = c != "]"
                out += "\\" + c if c in "\\&~|[" else c
        elif c == "[":
            inside = True
            out += c
        elif c == "%":
            out += ".*"
        elif c == "_":
            out += "."
        elif c in ".^$\\":
            out += "\\" + c
        else:
            out += c
        at += 1
    return out


def _similar(value: str, pattern: str, escape: str | None = None) -> bool:
    return re.fullmatch(similar_regex(pattern, escape), value, re.DOTALL) is not None


# --- codes


def _hash(name: str) -> Kernel:
    def digest(value: Any) -> str:
        return hashlib.new(name, value.encode() if isinstance(value, str) else value).hexdigest()

    return by_row(digest)


def _sha2(value: Any, length: int) -> str:
    if length not in (224, 256, 384, 512):
        raise TableException("Unsupported algorithm.")
    return hashlib.new(f"sha{length}", value.encode() if isinstance(value, str) else value).hexdigest()


def _to_base64(value: Any) -> str:
    return base64.b64encode(value.encode() if isinstance(value, str) else value).decode()


def _from_base64(value: Any) -> str:
    """Read base 64 as Java does: the padding may be missing."""
    encoded = value.encode() if isinstance(value, str) else value
    wrong = re.search(rb"[^A-Za-z0-9+/=]", encoded)
    if wrong is not None:
        code = wrong.group()[0]
        shown = f"-{256 - code:x}" if code > 127 else f"{code:x}"
        raise TableException(f"IllegalArgumentException: Illegal base64 character {shown}")
    try:
        decoded = base64.b64decode(encoded.rstrip(b"=") + b"=" * (-len(encoded.rstrip(b"=")) % 4))
    except (binascii.Error, ValueError) as e:
        raise TableException(f"IllegalArgumentException: {e}") from None
    return decoded.decode("utf-8", "replace")


_CHARSETS = {
    "UTF-8": "utf-8",
    "UTF8": "utf-8",
    "US-ASCII": "ascii",
    "ASCII": "ascii",
    "ISO-8859-1": "latin-1",
    "LATIN1": "latin-1",
    "UTF-16": "utf-16-be",
    "UTF-16BE": "utf-16-be",
    "UTF-16LE": "utf-16-le",
}


def _codec(charset: str) -> str:
    found = _CHARSETS.get(charset.upper())
    if found is None:
        raise TableException(f"UnsupportedEncodingException: {charset}")
    return found


def _encode(value: str, charset: str) -> bytes:
    codec = _codec(charset)
    mark = b"\xfe\xff" if charset.upper() == "UTF-16" else b""
    return mark + value.encode(codec, "replace")


def _decode(value: bytes, charset: str) -> str:
    codec = _codec(charset)
    if charset.upper() == "UTF-16" and value[:2] in (b"\xfe\xff", b"\xff\xfe"):
        codec = "utf-16-be" if value[:2] == b"\xfe\xff" else "utf-16-le"
        value = value[2:]
    return value.decode(codec, "replace")


def _url_encode(value: str) -> str:
    return quote_plus(value, safe="*-._").replace("~", "%7E")


def _url_decode(value: str) -> str | None:
    if re.search(r"%(?![0-9a-fA-F]{2})", value):
        return None
    return unquote_to_bytes(value.replace("+", " ")).decode("utf-8", "replace")


_URL_PARTS: dict[str, Callable[[Any], str | None]] = {
    "HOST": lambda u: _host(u),
    "PATH": lambda u: u.path,
    "QUERY": lambda u: u.query or None,
    "REF": lambda u: u.fragment or None,
    "PROTOCOL": lambda u: u.scheme,
    "FILE": lambda u: u.path + (f"?{u.query}" if u.query else ""),
    "AUTHORITY": lambda u: u.netloc,
    "USERINFO": lambda u: u.netloc.rpartition("@")[0] or None,
}


def _host(url: Any) -> str:
    host = url.netloc.rpartition("@")[2]
    return re.sub(r":\d*$", "", host)


def _parse_url(value: str, part: str, key: str | None = None) -> str | None:
    url = urlsplit(value)
    if not re.fullmatch(r"https?|ftp|file|jar", url.scheme) or part not in _URL_PARTS:
        return None
    if key is None:
        return _URL_PARTS[part](url)
    if part != "QUERY":
        return None
    found = re.search(rf"(?:&|^){re.escape(key)}=([^&]*)", url.query)
    return found.group(1) if found else None


def _unhex(value: str) -> bytes | None:
    try:
        return bytes.fromhex(value if len(value) % 2 == 0 else f"0{value}") if value.isalnum() or not value else None
    except ValueError:
        return None


def _printf(pattern: str | None, *arguments: Any) -> str | None:
    if pattern is None:
        return None
    try:
        return formatted(pattern, list(arguments))
    except BadFormat:
        return None


def _inet_aton(value: str) -> int | None:
    parts = value.split(".")
    if not 1 <= len(parts) <= 4 or any(not re.fullmatch(r"\d+", p) for p in parts):
        return None
    numbers = [int(p) for p in parts]
    if any(n > 255 for n in numbers[:-1]) or numbers[-1] >= 256 ** (5 - len(parts)):
        return None
    found = numbers[-1]
    for i, n in enumerate(numbers[:-1]):
        found += n << (8 * (3 - i))
    return found


def _inet_ntoa(value: int) -> str | None:
    if not 0 <= value < 1 << 32:
        return None
    return ".".join(str(value >> shift & 255) for shift in (24, 16, 8, 0))


# --- what text looks like


def _test(name: str, test: Callable[[str], bool]) -> Function:
    def kernel(site: Site, rows: int, values: Sequence[Value]) -> Value:
        if isinstance(site.types[0], (t.CharType, t.VarCharType)):
            return by_row(lambda v: v is not None and test(v), keep_nulls=True)(site, rows, values)
        return by_row(lambda v: name != "IS_ALPHA" and v is not None, keep_nulls=True)(site, rows, values)

    return Function(name, takes(anything, to=BOOLEAN, nulls="never"), kernel)


_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?[fFdD]?|[+-]?(NaN|Infinity)")

_HASHES = {"MD5": "md5", "SHA1": "sha1", "SHA224": "sha224", "SHA256": "sha256", "SHA384": "sha384", "SHA512": "sha512"}

FUNCTIONS = [
    Function(
        "LEFT", takes(text, integer, to=lambda a: varying(a.types[0]), nulls="always"), _ends(_left, True), api="left"
    ),
    Function(
        "RIGHT",
        takes(text, integer, to=lambda a: varying(a.types[0]), nulls="always"),
        _ends(_right, False),
        api="right",
    ),
    Function("LPAD", takes(text, integer, text, to=STRING), _pad_kernel(True), api="lpad"),
    Function("RPAD", takes(text, integer, text, to=STRING), _pad_kernel(False), api="rpad"),
    Function("REPEAT", takes(text, integer, to=STRING), _repeat, api="repeat"),
    Function("REVERSE", takes(text, to=STRING, nulls="always"), _reverse, api="reverse"),
    Function("INITCAP", takes(text, to=same_as(0)), by_row(_initcap), api="init_cap"),
    Function("OVERLAY", takes(text, text, integer, integer, to=_overlaid, optional=1), by_row(_overlay), api="overlay"),
    Function("TRANSLATE", takes(text, text, text, to=STRING), by_row(_translate, keep_nulls=False), api="translate"),
    Function("LOCATE", takes(text, text, integer, to=INT, optional=1), by_row(_locate), api="locate"),
    Function("INSTR", takes(text, text, to=INT), by_row(_instr), api="instr"),
    Function("SPLIT", takes(text, text, to=t.ArrayType(STRING)), by_row(_split), api="split"),
    Function(
        "SPLIT_INDEX",
        takes(text, either(text, integer), integer, to=STRING, nulls="always"),
        by_row(_split_index),
        api="split_index",
    ),
    Function(
        "STR_TO_MAP",
        takes(text, text, text, to=t.MapType(STRING, STRING), optional=2, nulls="always"),
        by_row(_str_to_map),
        api="str_to_map",
    ),
    Function("ELT", _elt_rule, _elt_kernel, api="elt"),
    Function("ASCII", takes(text, to=INT), by_row(_ascii), api="ascii"),
    Function("CHR", takes(whole, to=STRING, nulls="always"), by_row(_chr), api="chr"),
    Function("REGEXP", takes(text, text, to=BOOLEAN), _regexp_kernel, api="regexp"),
    Function("RLIKE", takes(text, text, to=BOOLEAN), _regexp_kernel),
    Function(
        "REGEXP_REPLACE",
        takes(text, text, text, to=STRING, nulls="always"),
        _regexp_replace_kernel,
        api="regexp_replace",
    ),
    Function(
        "REGEXP_EXTRACT",
        takes(text, text, integer, to=STRING, optional=1, nulls="always"),
        by_row(_regexp_extract),
        api="regexp_extract",
    ),
    Function(
        "REGEXP_EXTRACT_ALL",
        takes(text, text, whole, to=t.ArrayType(STRING), optional=1, nulls="always"),
        by_row(_regexp_extract_all),
        api="regexp_extract_all",
    ),
    Function("REGEXP_COUNT", takes(text, text, to=INT, nulls="always"), by_row(_regexp_count), api="regexp_count"),
    Function("REGEXP_INSTR", takes(text, text, to=INT, nulls="always"), by_row(_regexp_instr), api="regexp_instr"),
    Function(
        "REGEXP_SUBSTR", takes(text, text, to=STRING, nulls="always"), by_row(_regexp_substr), api="regexp_substr"
    ),
    Function("SIMILAR TO", takes(text, text, text, to=BOOLEAN, optional=1), by_row(_similar), api="similar"),
    *(
        Function(name, takes(text, to=t.CharType(2 * hashlib.new(code).digest_size)), _hash(code), api=name.lower())
        for name, code in _HASHES.items()
    ),
    Function("SHA2", takes(text, integer, to=t.VarCharType(128)), by_row(_sha2), api="sha2", fails=True),
    Function("TO_BASE64", takes(text_or_binary, to=STRING), by_row(_to_base64), api="to_base64"),
    Function("FROM_BASE64", takes(text_or_binary, to=STRING), by_row(_from_base64), api="from_base64", fails=True),
    Function("ENCODE", takes(text, text, to=BYTES), by_row(_encode), api="encode", fails=True),
    Function("DECODE", takes(binary, text, to=STRING), by_row(_decode), api="decode", fails=True),
    Function("URL_ENCODE", takes(text, to=STRING, nulls="always"), by_row(_url_encode), api="url_encode"),
    Function("URL_DECODE", takes(text, to=STRING, nulls="always"), by_row(_url_decode), api="url_decode"),
    Function(
        "PARSE_URL", takes(text, text, text, to=STRING, optional=1, nulls="always"), by_row(_parse_url), api="parse_url"
    ),
    Function("UNHEX", takes(text, to=BYTES, nulls="always"), by_row(_unhex), api="unhex"),
    Function(
        "PRINTF", takes(text, rest=anything, to=STRING, nulls="always"), by_row(_printf, keep_nulls=True), api="printf"
    ),
    Function("INET_ATON", takes(text, to=BIGINT, nulls="always"), by_row(_inet_aton), api="inet_aton"),
    Function("INET_NTOA", takes(whole, to=STRING, nulls="always"), by_row(_inet_ntoa), api="inet_ntoa"),
    _test("IS_ALPHA", lambda v: bool(v) and v.isalpha()),
    _test("IS_DIGIT", lambda v: bool(v) and v.isdigit()),
    _test("IS_DECIMAL", lambda v: bool(v) and _DECIMAL.fullmatch(v) is not None),
]
