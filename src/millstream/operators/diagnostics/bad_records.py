"""What becomes of records that cannot be read: one policy for all sources and formats."""

from __future__ import annotations

from typing import Any

from millstream.common.errors import MillstreamError
from millstream.common.fast_dataclass import fast_dataclass
from millstream.operators.diagnostics.failures import shorten
from millstream.operators.functions.output_tag import OutputTag, check_tag

__all__ = ["BadRecord", "BadRecords", "FormatUnavailable"]

# How many records could not be read, as a metric of the source: Flink's name.
COUNTER = "numRecordsInErrors"


@fast_dataclass
class BadRecord:
    """A record that could not be read.

    Attributes:
        where: topic, partition and offset, or file and line.
        value: the record as it came, as far as it could be told.
        error: why it could not be read.
    """

    where: str
    value: Any
    error: str


class FormatUnavailable(MillstreamError):
    """Records cannot be read now for a reason that is not theirs: they are not bad, and must not be skipped."""


@fast_dataclass
class BadRecords:
    """What a source does with records that cannot be read: `source.on_bad_records(...)`. All are counted.

    Example:
        >>> BadRecords.skip().fails
        False
        >>> BadRecords.to(OutputTag("unreadable")).tag
        OutputTag('unreadable')
    """

    fails: bool = True
    tag: OutputTag[BadRecord] | None = None

    @staticmethod
    def fail() -> BadRecords:
        """Fail the job with the place of the record and what is wrong with it; what sources do if nothing is said."""
        return BadRecords()

    @staticmethod
    def skip() -> BadRecords:
        """Leave them out; the metric `numRecordsInErrors` counts them."""
        return BadRecords(fails=False)

    @staticmethod
    def to(output_tag: OutputTag[BadRecord]) -> BadRecords:
        """Send them, as BadRecord, to a side output of the source."""
        check_tag(output_tag, "BadRecords.to")
        return BadRecords(fails=False, tag=output_tag)

    def meet(self, record: BadRecord) -> BadRecord:
        """Return the record, to stand among the others in its place; where the job is to fail, raise what is wrong."""
        if self.fails:
            raise MillstreamError(
                f"{record.where}: {shorten(record.value)} cannot be read: {record.error.rstrip('.')}. Correct it, or "
                "say what is to become of such records with source.on_bad_records(BadRecords.skip()) or .to(tag)."
            )
        return record
