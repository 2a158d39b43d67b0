"""The session settings that operators of a query use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field

from millstream.common.configuration import parse_duration_ms
from millstream.common.fast_dataclass import fast_dataclass
from millstream.operators.base import OperatorSetup
from millstream.sql.functions.function import EvaluationContext


@fast_dataclass
class Session:
    """Settings of the session that submitted a query.

    Attributes:
        batch: whether the job runs in batch mode, which emits final results only.
        options: the configuration.
        time_zone: the session's time zone.
        query_start: the submission time in milliseconds.
        catalog, database: the current ones.
    """

    batch: bool = False
    options: Mapping[str, str] = field(default_factory=dict)
    time_zone: str = "UTC"
    query_start: int = 0
    catalog: str = "default_catalog"
    database: str = "default_database"

    def context(self, setup: OperatorSetup, watermark: Callable[[], int | None] = lambda: None) -> EvaluationContext:
        """Return the context in which an operator's expressions are evaluated."""
        return EvaluationContext(
            time_zone=self.time_zone,
            clock=setup.clock,
            batch=self.batch,
            query_start=self.query_start,
            watermark=watermark,
            catalog=self.catalog,
            database=self.database,
            runtime_context=setup.context,
            options=self.options,
        )

    def flag(self, key: str) -> bool:
        """Return whether an option is true; False if it is not set."""
        return str(self.options.get(key, "false")).strip().lower() == "true"

    def milliseconds(self, key: str, default: int) -> int:
        """Return an option that is a duration."""
        text = self.options.get(key)
        return default if text is None else parse_duration_ms(str(text))

    def integer(self, key: str, default: int) -> int:
        """Return an option that is a positive integer."""
        text = self.options.get(key)
        return int(text) if text is not None and int(text) > 0 else default
