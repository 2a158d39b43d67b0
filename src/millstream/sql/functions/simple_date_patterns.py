"""Java's older patterns of dates: SimpleDateFormat's (FROM_UNIXTIME, UNIX_TIMESTAMP, CONVERT_TZ, TO_DATE)."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from functools import lru_cache

from millstream.sql.functions.date_patterns import (
    DAYS,
    EPOCH,
    MONTHS,
    NUMBERS,
    BadDatePattern,
    Field,
    Moment,
    Piece,
    pieces_of,
    styled,
    week_in_month,
)


@lru_cache(maxsize=1000)
def simple_formatter(pattern: str) -> Callable[[Moment, str], str]:
    """Return what writes moments, with the name of their zone, by a pattern of SimpleDateFormat's.

    Raises:
        BadDatePattern: it is none.
    """
    writers = [_simple_writer(piece) for piece in _simple_pieces(pattern)]
    return lambda moment, zone: "".join(write(moment, zone) for write in writers)


def _simple_pieces(pattern: str) -> tuple[Piece, ...]:
    # Brackets mean nothing there.
    shielded = re.sub(r"([\[\]{}#]+)", r"'\1'", pattern) if "'" not in pattern else pattern
    return pieces_of(shielded)


def _simple_writer(piece: Piece) -> Callable[[Moment, str], str]:
    letter, count = piece.letter, piece.count
    if not letter:
        return lambda moment, zone: piece.text
    if letter in "yY":
        number = NUMBERS[letter]
        if count == 2:
            return lambda moment, zone: f"{number(moment) % 100:02d}"
        return lambda moment, zone: f"{number(moment):0{count}d}"
    if letter in "ML" and count >= 3:
        return lambda moment, zone: styled(MONTHS[moment.date.month - 1], 4 if count >= 4 else 3)
    if letter == "E":
        return lambda moment, zone: styled(DAYS[moment.date.isoweekday() - 1], 4 if count >= 4 else 3)
    if letter == "u":
        return lambda moment, zone: f"{moment.date.isoweekday():0{count}d}"
    if letter == "S":
        return lambda moment, zone: f"{moment.nanos // 1_000_000:0{count}d}"
    if letter == "a":
        return lambda moment, zone: "AM" if moment.hour < 12 else "PM"
    if letter == "G":
        return lambda moment, zone: "AD"
    if letter in "zZX":
        return lambda moment, zone: {"z": zone, "Z": "+0000", "X": "Z"}[letter]
    if letter in "wWDdFHkKhms" or letter in "ML":
        number = week_in_month if letter == "F" else NUMBERS[letter]
        return lambda moment, zone: f"{number(moment):0{count}d}"
    raise BadDatePattern(f"Illegal pattern character '{letter}'")


@lru_cache(maxsize=1000)
def simple_parser(pattern: str) -> Callable[[str], tuple[int, int] | None]:
    """Return what reads text by a pattern of SimpleDateFormat's: seconds and nanoseconds, None if it cannot.

    It is lenient: numbers that are too large count on, and what follows is not looked at.

    Raises:
        BadDatePattern: it is none.
    """
    pieces = _simple_pieces(pattern)
    expression = ""
    fields: list[Field] = []
    for i, piece in enumerate(pieces):
        if not piece.letter:
            expression += re.escape(piece.text)
            continue
        adjacent = i + 1 < len(pieces) and bool(pieces[i + 1].letter)
        expression += f"(?P<g{i}>{_simple_reading(piece, adjacent)})"
        fields.append(Field(piece.letter, piece.count, f"g{i}"))
    compiled = re.compile(expression)

    def read(text: str) -> tuple[int, int] | None:
        found = compiled.match(text)
        if found is None:
            return None
        return _counted_on([(f, found.group(f.group)) for f in fields])

    return read


def _simple_reading(piece: Piece, adjacent: bool) -> str:
    letter, count = piece.letter, piece.count
    if letter in "ML" and count >= 3:
        return "(?i:" + "|".join([*MONTHS, *(m[:3] for m in MONTHS)]) + ")"
    if letter == "E":
        return "(?i:" + "|".join([*DAYS, *(d[:3] for d in DAYS)]) + ")"
    if letter == "a":
        return "(?i:AM|PM)"
    if letter == "G":
        return "AD|BC"
    if letter in "zZX":
        return r"[A-Za-z]+|[+-]\d{2}:?\d{2}"
    if letter in "yYMLdDHkKhmsSwWFu":
        return rf"\s*\d{{{count}}}" if adjacent else r"\s*-?\d+"
    raise BadDatePattern(f"Illegal pattern character '{letter}'")


def _counted_on(values: list[tuple[Field, str]]) -> tuple[int, int] | None:
    known: dict[str, int] = {}
    for field, text in values:
        letter = field.letter
        if letter in "ML" and field.count >= 3:
            known["M"] = [m[:3].lower() for m in MONTHS].index(text[:3].lower()) + 1
        elif letter == "a":
            known["a"] = 12 if text.lower() == "pm" else 0
        elif letter in "EGzZX":
            continue
        elif letter == "y" and field.count <= 2 and len(text.strip()) == 2:
            # Within 80 years before and 20 years after now, as SimpleDateFormat has it.
            year = 2000 + int(text)
            known["y"] = year if year < dt.date.today().year + 20 else year - 100
        else:
            known[letter] = int(text)
    months = known.get("y", 1970) * 12 + known.get("M", 1) - 1
    try:
        start = dt.date(months // 12, months % 12 + 1, 1)
    except ValueError:
        return None
    days = (start - EPOCH).days + (known["D"] - 1 if "D" in known else known.get("d", 1) - 1)
    hour = known.get("H", known.get("k", 0) % 24 if "k" in known else 0)
    if "h" in known or "K" in known:
        hour = known.get("a", 0) + (known["h"] % 12 if "h" in known else known["K"])
    seconds = days * 86400 + hour * 3600 + known.get("m", 0) * 60 + known.get("s", 0)
    extra, rest = divmod(known.get("S", 0), 1000)
    return seconds + extra, rest * 1_000_000
