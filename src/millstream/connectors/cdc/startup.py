"""Where the reading of a database's changes begins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from millstream.common.errors import InvalidProgramError

__all__ = ["StartupOptions"]

INITIAL, LATEST, OFFSET, COMMITTED, SNAPSHOT = (
    "initial",
    "latest-offset",
    "specific-offset",
    "committed-offset",
    "snapshot",
)


@dataclass(frozen=True)
class StartupOptions:
    """Where to begin when there is no checkpoint to go on from.

    Example:
        >>> StartupOptions.specific_offset("0/1528C90").offset
        '0/1528C90'
    """

    mode: str
    offset: Any = None

    @staticmethod
    def initial() -> StartupOptions:
        """Read the tables as they are, then the log from exactly there."""
        return StartupOptions(INITIAL)

    @staticmethod
    def latest() -> StartupOptions:
        """Read only what is committed from now on."""
        return StartupOptions(LATEST)

    @staticmethod
    def snapshot() -> StartupOptions:
        """Read the tables as they are, and end."""
        return StartupOptions(SNAPSHOT)

    @staticmethod
    def committed_offset() -> StartupOptions:
        """Read the log from where its slot was confirmed: PostgreSQL only."""
        return StartupOptions(COMMITTED)

    @staticmethod
    def specific_offset(offset: str, position: int | None = None) -> StartupOptions:
        """Read the log from a place on.

        Args:
            offset: PostgreSQL's LSN as in `0/1528C90`; for MariaDB and MySQL the binlog's file, or the GTIDs of what is
                done, as in `0-1-270`.
            position: for MariaDB and MySQL, the place in that file.
        """
        if not offset:
            raise InvalidProgramError(
                "StartupOptions.specific_offset takes a place in the log, for example '0/1528C90'."
            )
        return StartupOptions(OFFSET, offset if position is None else (offset, position))

    @property
    def reads_tables(self) -> bool:
        """Whether tables are read as they are."""
        return self.mode in (INITIAL, SNAPSHOT)
