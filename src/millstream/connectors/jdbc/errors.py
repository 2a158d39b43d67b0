"""Errors of databases: those that may be over the next time, and those that are mistakes. Pure."""

from __future__ import annotations

__all__ = ["is_lost_connection", "is_lost_race", "is_mistake", "is_refusal"]

# DB-API's names for what no second try cures.
_MISTAKES = {"ProgrammingError", "IntegrityError", "DataError", "NotSupportedError"}
# A transaction lost against another and may win the next time: serialization failure, deadlock, lock not available.
_LOST_STATES = {"40001", "40P01", "55P03"}
# MySQL: lock wait timeout, deadlock, record has changed.
_LOST_CODES = {1205, 1213, 1020}
# MySQL: too many connections, shutdown, killed, network; its client: cannot connect, gone away, lost during query.
_GONE_CODES = {1040, 1053, 1158, 1159, 1160, 1161, 1927, 2002, 2003, 2006, 2013, 2055, 4031}
# MySQL: this user, this password, this database, this host.
_REFUSED_CODES = {1044, 1045, 1049, 1130, 1698}
# PostgreSQL gives no state to who is not let in, only words.
_REFUSED_WORDS = (
    "authentication failed",
    "does not exist",
    "no password supplied",
    "no pg_hba.conf entry",
    "permitted",
)
_SQLITE_MISTAKES = ("no such", "syntax error", "has no column", "near ", "incomplete input", "values for")


def _code(error: Exception) -> int | None:
    """Return MySQL's number of an error."""
    first = error.args[0] if error.args else None
    return first if isinstance(first, int) else None


def _state(error: Exception) -> str:
    return getattr(error, "sqlstate", None) or getattr(error, "pgcode", None) or ""


def is_lost_race(error: Exception) -> bool:
    """Tell whether another transaction was in the way."""
    is_sqlite = type(error).__module__ == "sqlite3"
    return (
        _state(error) in _LOST_STATES
        or _code(error) in _LOST_CODES
        or (is_sqlite and ("is locked" in str(error) or "busy" in str(error)))
    )


def is_lost_connection(error: Exception) -> bool:
    """Tell whether the server has gone away; it may be back."""
    state = _state(error)
    return state[:2] == "08" or state[:4] == "57P0" or _code(error) in _GONE_CODES


def is_refusal(error: Exception) -> bool:
    """Tell whether a server does not let this user in, or not into this database."""
    fatal = "FATAL:" in str(error) and any(words in str(error) for words in _REFUSED_WORDS)
    return _code(error) in _REFUSED_CODES or fatal


def is_mistake(error: Exception) -> bool:
    """Tell whether a second try would end in the same way: a wrong statement, password, or row that is refused."""
    if is_refusal(error):
        return True
    if is_lost_race(error) or is_lost_connection(error):
        return False
    if any(cls.__name__ in _MISTAKES for cls in type(error).__mro__):
        return True
    if type(error).__module__ == "sqlite3":
        return any(words in str(error) for words in _SQLITE_MISTAKES)
    code = _code(error)
    # MySQL calls some wrong statements operational: no such column, no default, access denied.
    return code is not None and 1000 < code < 2000 and code not in (1040, 1053)
