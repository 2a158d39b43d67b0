"""How a JdbcSink reaches its database, and how it puts records into batches."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from millstream.common.errors import InvalidProgramError


@dataclass(frozen=True)
class JdbcConnectionOptions:
    """Where a database is and who asks.

    Example:
        >>> builder = JdbcConnectionOptions.JdbcConnectionOptionsBuilder()
        >>> builder.with_url("jdbc:sqlite:/tmp/words.db").build().get_db_url()
        'jdbc:sqlite:/tmp/words.db'
    """

    url: str
    driver_name: str | None = None
    user_name: str | None = None
    password: str | None = None

    # PyFlink has the builders inside the classes they build.
    JdbcConnectionOptionsBuilder: ClassVar[type[ConnectionOptionsBuilder]]

    def get_db_url(self) -> str:
        """Return where the database is."""
        return self.url

    def get_driver_name(self) -> str | None:
        """Return what was set; it has no effect."""
        return self.driver_name

    def get_user_name(self) -> str | None:
        """Return who asks."""
        return self.user_name

    def get_password(self) -> str | None:
        """Return the password."""
        return self.password

    def __repr__(self) -> str:
        # A password has no place in a log.
        return f"JdbcConnectionOptions({self.url!r}, user_name={self.user_name!r})"


class ConnectionOptionsBuilder:
    """Builds JdbcConnectionOptions."""

    def __init__(self) -> None:
        self._options = JdbcConnectionOptions("")

    def with_url(self, url: str) -> ConnectionOptionsBuilder:
        """Say where: jdbc:postgresql://host:port/database or jdbc:sqlite:/path."""
        self._options = replace(self._options, url=url)
        return self

    def with_driver_name(self, driver_name: str) -> ConnectionOptionsBuilder:
        """Accepted, without effect: the URL says which Python module connects."""
        self._options = replace(self._options, driver_name=driver_name)
        return self

    def with_user_name(self, user_name: str) -> ConnectionOptionsBuilder:
        """Say who asks."""
        self._options = replace(self._options, user_name=user_name)
        return self

    def with_password(self, password: str) -> ConnectionOptionsBuilder:
        """Give the password."""
        self._options = replace(self._options, password=password)
        return self

    def build(self) -> JdbcConnectionOptions:
        """Return the options."""
        if not self._options.url:
            raise InvalidProgramError("JdbcConnectionOptions: say with_url() where the database is.")
        return self._options


@dataclass(frozen=True)
class JdbcExecutionOptions:
    """How records are put into batches.

    Attributes:
        batch_interval_ms: a batch waits no longer than so many milliseconds for the next record; 0: as long as it may.
        batch_size: how many records make a batch; the end of an epoch makes one of those that are left.
        max_retries: how often a batch that failed is tried again.

    Example:
        >>> JdbcExecutionOptions.builder().with_batch_size(100).build()
        JdbcExecutionOptions(batch_interval_ms=0, batch_size=100, max_retries=3)
    """

    batch_interval_ms: int = 0
    batch_size: int = 5000
    max_retries: int = 3

    Builder: ClassVar[type[ExecutionOptionsBuilder]]

    def get_batch_interval_ms(self) -> int:
        """Return after how many milliseconds a batch is written; 0 for no limit."""
        return self.batch_interval_ms

    def get_batch_size(self) -> int:
        """Return at how many records a batch is written."""
        return self.batch_size

    def get_max_retries(self) -> int:
        """Return how often a batch that failed is written again."""
        return self.max_retries

    @staticmethod
    def defaults() -> JdbcExecutionOptions:
        """Return batches of 5000 records, three retries."""
        return JdbcExecutionOptions()

    @staticmethod
    def builder() -> ExecutionOptionsBuilder:
        """Begin with the defaults."""
        return ExecutionOptionsBuilder()


class ExecutionOptionsBuilder:
    """Builds JdbcExecutionOptions."""

    def __init__(self) -> None:
        self._options = JdbcExecutionOptions()

    def with_batch_size(self, size: int) -> ExecutionOptionsBuilder:
        """Write a batch at so many records."""
        _at_least("with_batch_size", size, 1)
        self._options = replace(self._options, batch_size=size)
        return self

    def with_batch_interval_ms(self, interval_ms: int) -> ExecutionOptionsBuilder:
        """Write a batch after so many milliseconds at the latest."""
        _at_least("with_batch_interval_ms", interval_ms, 0)
        self._options = replace(self._options, batch_interval_ms=interval_ms)
        return self

    def with_max_retries(self, max_retries: int) -> ExecutionOptionsBuilder:
        """Write a batch that failed so many times again."""
        _at_least("with_max_retries", max_retries, 0)
        self._options = replace(self._options, max_retries=max_retries)
        return self

    def build(self) -> JdbcExecutionOptions:
        """Return the options."""
        return self._options


def _at_least(what: str, value: int, least: int) -> None:
    if value < least:
        raise InvalidProgramError(f"JdbcExecutionOptions: {what} takes a number of at least {least}, not {value}.")


JdbcConnectionOptions.JdbcConnectionOptionsBuilder = ConnectionOptionsBuilder
JdbcExecutionOptions.Builder = ExecutionOptionsBuilder
