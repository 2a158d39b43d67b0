"""Encodings of text and bytes: hashes, base 64, charsets, URLs, IP addresses."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Callable
from urllib.parse import SplitResult, quote_plus, unquote_to_bytes, urlsplit

from millstream.sql import types as t
from millstream.sql.errors import TableException
from millstream.sql.functions.function import Function, Kernel
from millstream.sql.functions.rules import (
    BIGINT,
    BYTES,
    STRING,
    any_integer,
    binary,
    integer,
    takes,
    text,
    text_or_binary,
)
from millstream.sql.functions.vectors import by_row


def _hash(name: str) -> Kernel:
    def digest(value: str | bytes) -> str:
        return hashlib.new(name, value.encode() if isinstance(value, str) else value).hexdigest()

    return by_row(digest)


def _sha2(value: str | bytes, length: int) -> str:
    if length not in (224, 256, 384, 512):
        raise TableException("Unsupported algorithm.")
    return hashlib.new(f"sha{length}", value.encode() if isinstance(value, str) else value).hexdigest()


def _to_base64(value: str | bytes) -> str:
    return base64.b64encode(value.encode() if isinstance(value, str) else value).decode()


def _from_base64(value: str | bytes) -> str:
    """Decode base 64 as Java does: padding is optional."""
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
    result = _CHARSETS.get(charset.upper())
    if result is None:
        raise TableException(f"UnsupportedEncodingException: {charset}")
    return result


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


_URL_PARTS: dict[str, Callable[[SplitResult], str | None]] = {
    "HOST": lambda u: _host(u),
    "PATH": lambda u: u.path,
    "QUERY": lambda u: u.query or None,
    "REF": lambda u: u.fragment or None,
    "PROTOCOL": lambda u: u.scheme,
    "FILE": lambda u: u.path + (f"?{u.query}" if u.query else ""),
    "AUTHORITY": lambda u: u.netloc,
    "USERINFO": lambda u: u.netloc.rpartition("@")[0] or None,
}


def _host(url: SplitResult) -> str:
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
    result = re.search(rf"(?:&|^){re.escape(key)}=([^&]*)", url.query)
    return result.group(1) if result else None


def _unhex(value: str) -> bytes | None:
    """Decode hexadecimal digits; with an odd number the first digit counts as zero, as in Flink."""
    if not re.fullmatch("[0-9a-fA-F]*", value):
        return None
    return bytes.fromhex(value if len(value) % 2 == 0 else f"00{value[1:]}")


def _inet_aton(value: str) -> int | None:
    parts = value.split(".")
    if not 1 <= len(parts) <= 4 or any(not re.fullmatch(r"\d+", p) for p in parts):
        return None
    numbers = [int(p) for p in parts]
    if any(n > 255 for n in numbers):
        return None
    result = numbers[-1]
    for i, n in enumerate(numbers[:-1]):
        result += n << (8 * (3 - i))
    return result


def _inet_ntoa(value: int) -> str | None:
    if not 0 <= value < 1 << 32:
        return None
    return ".".join(str(value >> shift & 255) for shift in (24, 16, 8, 0))


_HASHES = {"MD5": "md5", "SHA1": "sha1", "SHA224": "sha224", "SHA256": "sha256", "SHA384": "sha384", "SHA512": "sha512"}


FUNCTIONS = [
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
    Function("INET_ATON", takes(text, to=BIGINT, nulls="always"), by_row(_inet_aton), api="inet_aton"),
    Function("INET_NTOA", takes(any_integer, to=STRING, nulls="always"), by_row(_inet_ntoa), api="inet_ntoa"),
]
