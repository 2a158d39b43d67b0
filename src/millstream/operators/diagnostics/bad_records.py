"""The policy for records that cannot be deserialized, for all sources and formats."""

from __future__ import annotations

from millstream.common.aliases import Value
from millstream.common.errors import MillstreamError
from millstream.common.fast_dataclass import fast_dataclass
from millstream.operators.diagnostics.failures import shorten
from millstream.operators.functions.output_tag import OutputTag, check_tag

__all__ = ["BadRecord", "BadRecords", "FormatUnavailable"]

# The metric that counts bad records; Flink's name.
COUNTER = "numRecordsInErrors"


@fast_dataclass
class BadRecord:
    """Holds a record that could not be deserialized.

    Attributes:
        where: topic, partition and offset, or file and line.
        value: the received record, as far as it could be delimited.
        error: the reason.
    """

    where: str
    value: Value
    error: str


class FormatUnavailable(MillstreamError):
    """Records cannot be read now for an external reason: they are not bad, and must not be skipped."""


@fast_dataclass
class BadRecords:
    """Says what a source does with records that cannot be read: `source.on_bad_records(...)`. All are counted.

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
        """Fail the job with the location of the record and the error; the default."""
        return BadRecords()

    @staticmethod
    def skip() -> BadRecords:
        """Skip them; the metric `numRecordsInErrors` counts them."""
        return BadRecords(fails=False)

    @staticmethod
    def to(output_tag: OutputTag[BadRecord]) -> BadRecords:
        """Emit them, as BadRecord, to a side output of the source."""
        check_tag(output_tag, "BadRecords.to")
        return BadRecords(fails=False, tag=output_tag)

    def handle(self, record: BadRecord) -> BadRecord:
        """Return the record, which takes the position of the one that is bad; raise its error if the job must fail."""
        if self.fails:
            raise MillstreamError(
                f"{record.where}: {shorten(record.value)} cannot be read: {record.error.rstrip('.')}. Correct it, or "
                "choose another policy with source.on_bad_records(BadRecords.skip()) or .to(tag)."
            )
        return record
