"""Java's date patterns: DateTimeFormatter (DATE_FORMAT, TO_TIMESTAMP) and SimpleDateFormat.

Times are local: seconds since 1970 and nanoseconds within the second.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from functools import lru_cache

from millstream.common.fast_dataclass import fast_dataclass

MONTHS = [
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
]
DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
_QUARTERS = ["1st quarter", "2nd quarter", "3rd quarter", "4th quarter"]
EPOCH = dt.date(1970, 1, 1)


class BadDatePattern(ValueError):
    """An invalid pattern, or a field that a local time does not have."""


@fast_dataclass
class Moment:
    """A local date and time."""

    date: dt.date
    second_of_day: int
    nanos: int

    @staticmethod
    def of(seconds: int, nanos: int = 0) -> Moment:
        """Return the moment of seconds since 1970."""
        days, rest = divmod(seconds, 86400)
        try:
            return Moment(EPOCH + dt.timedelta(days=days), rest, nanos)
        except OverflowError:
            raise BadDatePattern("Years from 1 to 9999 can be written by a pattern") from None

    @property
    def hour(self) -> int:
        return self.second_of_day // 3600


@fast_dataclass
class Piece:
    """A piece of a pattern: a repeated letter or literal text."""

    letter: str
    count: int
    text: str = ""
    optional: int = 0


@lru_cache(maxsize=1000)
def pieces_of(pattern: str) -> tuple[Piece, ...]:
    """Return the pieces of a pattern.

    Raises:
        BadDatePattern: the pattern is invalid.
    """
    pieces: list[Piece] = []
    position = depth = 0
    while position < len(pattern):
        c = pattern[position]
        if c.isalpha() and c.isascii():
            end = position
            while end < len(pattern) and pattern[end] == c:
                end += 1
            pieces.append(Piece(c, end - position, optional=depth))
            position = end
        elif c == "'":
            text, position = _quoted(pattern, position + 1)
            pieces.append(Piece("", 0, text, depth))
        elif c in "[]":
            depth += 1 if c == "[" else -1
            if depth < 0:
                raise BadDatePattern("Pattern invalid as it contains ] without previous [")
            pieces.append(Piece(c, 0, optional=depth))
            position += 1
        elif c in "{}#":
            raise BadDatePattern(f"Pattern includes reserved character: '{c}'")
        else:
            pieces.append(Piece("", 0, c, depth))
            position += 1
    return tuple(pieces)


def _quoted(pattern: str, position: int) -> tuple[str, int]:
    if position < len(pattern) and pattern[position] == "'":
        return "'", position + 1
    text = ""
    while position < len(pattern):
        if pattern[position] == "'":
            if position + 1 < len(pattern) and pattern[position + 1] == "'":
                text += "'"
                position += 2
                continue
            return text, position + 1
        text += pattern[position]
        position += 1
    raise BadDatePattern("Pattern ends with an incomplete string literal")


# --- writing, DateTimeFormatter


@lru_cache(maxsize=1000)
def formatter(pattern: str) -> Callable[[Moment], str]:
    """Return a formatter of moments by a DateTimeFormatter pattern.

    Raises:
        BadDatePattern: the pattern is invalid or contains a zone.
    """
    writers: list[Callable[[Moment], str]] = []
    pad = 0
    for piece in pieces_of(pattern):
        if pad and not piece.letter.isalpha():
            raise BadDatePattern(f"Pad letter 'p' must be followed by valid pad pattern: {pattern}")
        if piece.letter == "p":
            pad = piece.count
            continue
        writer = _writer(piece)
        if pad:
            writer = _padded(writer, pad)
            pad = 0
        writers.append(writer)
    return lambda moment: "".join(write(moment) for write in writers)


def _padded(write: Callable[[Moment], str], width: int) -> Callable[[Moment], str]:
    return lambda moment: write(moment).rjust(width)


def _writer(piece: Piece) -> Callable[[Moment], str]:
    letter, count = piece.letter, piece.count
    if letter in ("", "[", "]"):
        return lambda moment: piece.text
    if letter in _TEXTS and count >= 3:
        if count > 5:
            raise BadDatePattern(f"Too many pattern letters: {letter}")
        return lambda moment: _TEXTS[letter](moment, count)
    if letter == "S":
        return lambda moment: f"{moment.nanos:09d}".ljust(count, "0")[:count]
    if letter in ("y", "u", "Y"):
        return lambda moment: _year_text(NUMBERS[letter](moment), count)
    if letter in ("E", "a", "G", "B"):
        if letter in "a" and count > 1:
            raise BadDatePattern(f"Too many pattern letters: {letter}")
        return lambda moment: _WORDS[letter](moment, count)
    number = NUMBERS.get(letter)
    if number is None:
        raise BadDatePattern(f"Unsupported field: {letter}")
    if count > _MAX_LETTERS.get(letter, 2):
        raise BadDatePattern(f"Too many pattern letters: {letter}")
    return lambda moment: f"{number(moment):0{count}d}"


def _year_text(year: int, count: int) -> str:
    if count == 2:
        return f"{abs(year) % 100:02d}"
    text = f"{abs(year):0{count}d}"
    sign = "-" if year < 0 else "+" if count >= 4 and len(text) > count else ""
    return sign + text


def _week_year(moment: Moment) -> tuple[int, int]:
    """Return year and week by US rules: weeks begin on Sunday, the first contains January 1."""
    year = moment.date.year
    for candidate in (year + 1, year):
        start = _first_sunday(candidate)
        if moment.date >= start:
            return candidate, (moment.date - start).days // 7 + 1
    start = _first_sunday(year - 1)
    return year - 1, (moment.date - start).days // 7 + 1


def _first_sunday(year: int) -> dt.date:
    first = dt.date(year, 1, 1)
    return first - dt.timedelta(days=first.isoweekday() % 7)


def _week_of_month(moment: Moment) -> int:
    first = moment.date.replace(day=1)
    return (moment.date.day + first.isoweekday() % 7 - 1) // 7 + 1


def week_in_month(moment: Moment) -> int:
    """Return the occurrence of the day of the week in its month."""
    return (moment.date.day - 1) // 7 + 1


def _quarter(moment: Moment) -> int:
    return (moment.date.month + 2) // 3


NUMBERS: dict[str, Callable[[Moment], int]] = {
    "y": lambda m: m.date.year,
    "u": lambda m: m.date.year,
    "Y": lambda m: _week_year(m)[0],
    "M": lambda m: m.date.month,
    "L": lambda m: m.date.month,
    "d": lambda m: m.date.day,
    "D": lambda m: m.date.timetuple().tm_yday,
    "H": lambda m: m.hour,
    "k": lambda m: m.hour or 24,
    "K": lambda m: m.hour % 12,
    "h": lambda m: m.hour % 12 or 12,
    "m": lambda m: m.second_of_day // 60 % 60,
    "s": lambda m: m.second_of_day % 60,
    "n": lambda m: m.nanos,
    "N": lambda m: m.second_of_day * 1_000_000_000 + m.nanos,
    "A": lambda m: m.second_of_day * 1000 + m.nanos // 1_000_000,
    "w": lambda m: _week_year(m)[1],
    "W": _week_of_month,
    "e": lambda m: m.date.isoweekday() % 7 + 1,
    "c": lambda m: m.date.isoweekday() % 7 + 1,
    "F": lambda m: (m.date.day - 1) % 7 + 1,
    "Q": _quarter,
    "q": _quarter,
}
_MAX_LETTERS = {"D": 3, "n": 19, "N": 19, "A": 19, "W": 1, "F": 1, "c": 1}


def styled(name: str, count: int) -> str:
    """Return a name in full (4 pattern letters), as its first letter (5), or short."""
    return name if count == 4 else name[0] if count == 5 else name[:3]


_TEXTS: dict[str, Callable[[Moment, int], str]] = {
    "M": lambda m, count: styled(MONTHS[m.date.month - 1], count),
    "L": lambda m, count: styled(MONTHS[m.date.month - 1], count),
    "E": lambda m, count: styled(DAYS[m.date.isoweekday() - 1], count),
    "e": lambda m, count: styled(DAYS[m.date.isoweekday() - 1], count),
    "c": lambda m, count: styled(DAYS[m.date.isoweekday() - 1], count),
    "Q": lambda m, count: {3: f"Q{_quarter(m)}", 4: _QUARTERS[_quarter(m) - 1]}.get(count, str(_quarter(m))),
    "q": lambda m, count: {3: f"Q{_quarter(m)}", 4: _QUARTERS[_quarter(m) - 1]}.get(count, str(_quarter(m))),
    "G": lambda m, count: "Anno Domini" if count == 4 else "A" if count == 5 else "AD",
}


def _period(moment: Moment) -> str:
    minute = moment.second_of_day // 60
    if minute == 0:
        return "midnight"
    if minute == 720:
        return "noon"
    hour = moment.hour
    if hour < 6 or hour >= 21:
        return "at night"
    return "in the morning" if hour < 12 else "in the afternoon" if hour < 18 else "in the evening"


_WORDS: dict[str, Callable[[Moment, int], str]] = {
    "E": lambda m, count: styled(DAYS[m.date.isoweekday() - 1], 3),
    "a": lambda m, count: "AM" if m.hour < 12 else "PM",
    "G": lambda m, count: "AD",
    "B": lambda m, count: _period(m),
}

# --- reading, DateTimeFormatter


@fast_dataclass
class Field:
    """A parsed field of a pattern: its letter, its repetition, and its regex group."""

    letter: str
    count: int
    group: str


@lru_cache(maxsize=1000)
def parser(pattern: str) -> Callable[[str], tuple[int, int] | None]:
    """Return a parser by a DateTimeFormatter pattern: seconds and nanoseconds, None for text that does not match.

    Raises:
        BadDatePattern: the pattern is invalid.
    """
    expression = ""
    fields: list[Field] = []
    for i, piece in enumerate(pieces_of(pattern)):
        if piece.letter == "[":
            expression += "(?:"
        elif piece.letter == "]":
            expression += ")?"
        elif not piece.letter:
            expression += re.escape(piece.text)
        else:
            expression += f"(?P<g{i}>{_reading(piece)})"
            fields.append(Field(piece.letter, piece.count, f"g{i}"))
    expression += ")?" * sum(1 if p.letter == "[" else -1 if p.letter == "]" else 0 for p in pieces_of(pattern))
    compiled = re.compile(expression)

    def read(text: str) -> tuple[int, int] | None:
        result = compiled.fullmatch(text)
        if result is None:
            return None
        values = [(f, result.group(f.group)) for f in fields if result.group(f.group) is not None]
        return _resolved(values)

    return read


def _reading(piece: Piece) -> str:
    letter, count = piece.letter, piece.count
    if letter in "yuY":
        if count == 2:
            return r"\d{2}"
        return rf"-?\d{{{count}}}|\+\d{{{count + 1},19}}" if count >= 4 else rf"-?\d{{{count},19}}"
    if letter == "S":
        return rf"\d{{{count}}}"
    if letter in "MLEec" and count >= 3:
        names = DAYS if letter in "Eec" else MONTHS
        return "|".join(styled(name, count) for name in names)
    if letter == "E":
        return "|".join(name[:3] for name in DAYS)
    if letter == "a":
        return "AM|PM"
    if letter == "G":
        return "AD|BC"
    if letter in NUMBERS:
        return rf"\d{{1,{19}}}" if count == 1 else rf"\d{{{count}}}"
    raise BadDatePattern(f"Unsupported field: {letter}")


def _resolved(values: list[tuple[Field, str]]) -> tuple[int, int] | None:
    """Return the moment of parsed fields; missing fields default to 1970."""
    known: dict[str, int] = {}
    nanos = 0
    for field, text in values:
        letter = {"u": "y", "L": "M"}.get(field.letter, field.letter)
        if letter == "y" and field.count == 2:
            known["y"] = 2000 + int(text)
        elif letter == "S":
            nanos = int(text.ljust(9, "0")[:9])
        elif letter == "M" and field.count >= 3:
            known["M"] = 1 + [styled(n, field.count) for n in MONTHS].index(text)
        elif letter == "a":
            known["a"] = 12 if text == "PM" else 0
        elif letter in "EGec":
            continue
        else:
            known[letter] = int(text)
    if not _in_range(known):
        return None
    days = _day_of(known)
    if days is None:
        return None
    second = _hour_of(known) * 3600 + known.get("m", 0) * 60 + known.get("s", 0)
    if "N" in known:
        second, nanos = divmod(known["N"], 1_000_000_000)
    if "A" in known:
        second, nanos = known["A"] // 1000, known["A"] % 1000 * 1_000_000
    return days * 86400 + second, known.get("n", nanos)


_LIMITS = {
    "M": (1, 12),
    "d": (1, 31),
    "D": (1, 366),
    "H": (0, 23),
    "k": (1, 24),
    "K": (0, 11),
    "h": (1, 12),
    "m": (0, 59),
    "s": (0, 59),
}


def _in_range(known: dict[str, int]) -> bool:
    return all(low <= known[k] <= high for k, (low, high) in _LIMITS.items() if k in known)


def _day_of(known: dict[str, int]) -> int | None:
    year = known.get("y", 1970)
    if not 1 <= year <= 9999:
        return None
    if "D" in known and "y" in known and "M" not in known:
        result = dt.date(year, 1, 1) + dt.timedelta(days=known["D"] - 1)
        return (result - EPOCH).days if result.year == year else None
    month, day = known.get("M", 1), known.get("d", 1)
    # A day beyond the month's end becomes the last day, if year and month are present.
    last = (
        (dt.date(year + month // 12, month % 12 + 1, 1) - dt.timedelta(days=1)).day if year < 9999 or month < 12 else 31
    )
    if day > last and not ("y" in known and "M" in known):
        return None
    return (dt.date(year, month, min(day, last)) - EPOCH).days


def _hour_of(known: dict[str, int]) -> int:
    if "H" in known:
        return known["H"]
    if "k" in known:
        return known["k"] % 24
    if "a" in known and ("h" in known or "K" in known):
        return known["a"] + (known["h"] % 12 if "h" in known else known["K"])
    return 0


@lru_cache(maxsize=1000)
def simple_formatter(pattern: str) -> Callable[[Moment, str], str]:
    """Return a formatter of moments and zone names by a SimpleDateFormat pattern.

    Raises:
        BadDatePattern: the pattern is invalid.
    """
    writers = [_simple_writer(piece) for piece in _simple_pieces(pattern)]
    return lambda moment, zone: "".join(write(moment, zone) for write in writers)


def _simple_pieces(pattern: str) -> tuple[Piece, ...]:
    # Brackets are literal there.
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
    """Return a parser by a SimpleDateFormat pattern: seconds and nanoseconds, None for text that does not match.

    It is lenient: numbers overflow into the next field, and trailing text is ignored.

    Raises:
        BadDatePattern: the pattern is invalid.
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
        result = compiled.match(text)
        if result is None:
            return None
        return _date_of_fields([(f, result.group(f.group)) for f in fields])

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


def _date_of_fields(values: list[tuple[Field, str]]) -> tuple[int, int] | None:
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
            # Within 80 years before and 20 years after now, as in SimpleDateFormat.
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
