"""PlanReference: the location of a compiled plan."""

from __future__ import annotations

from pathlib import Path

from millstream.common.fast_dataclass import fast_dataclass
from millstream.sql.errors import TableException

__all__ = ["BytesContentPlanReference", "FilePlanReference", "JsonContentPlanReference", "PlanReference"]


class PlanReference:
    """Names the location of a compiled plan, for `load_plan` and `execute_plan`.

    Example:
        >>> print(PlanReference.from_file("count.json"))
        Plan from file 'count.json'
    """

    @staticmethod
    def from_file(path: str | Path) -> FilePlanReference:
        """Return a reference to a plan in a file."""
        return FilePlanReference(str(path))

    @staticmethod
    def from_json_string(json_string: str) -> JsonContentPlanReference:
        """Return a reference to a plan in JSON, as `CompiledPlan.as_json_string` returns it."""
        return JsonContentPlanReference(json_string)

    @staticmethod
    def from_smile_bytes(smile_bytes: bytes) -> BytesContentPlanReference:
        """Return a reference to a plan in bytes, as `CompiledPlan.as_smile_bytes` returns them."""
        return BytesContentPlanReference(smile_bytes)

    def _text(self) -> str:
        raise NotImplementedError


@fast_dataclass
class FilePlanReference(PlanReference):
    """A plan in a file."""

    _file: str

    def get_file(self) -> Path:
        """Return the path of the file."""
        return Path(self._file).resolve()

    def __str__(self) -> str:
        return f"Plan from file '{self._file}'"

    def _text(self) -> str:
        try:
            return Path(self._file).read_text()
        except OSError as error:
            raise TableException(f"Cannot load {self}: {error.strerror}.") from error


@fast_dataclass
class JsonContentPlanReference(PlanReference):
    """A plan in JSON."""

    _content: str

    def get_content(self) -> str:
        """Return the plan."""
        return self._content

    def __str__(self) -> str:
        return f"Plan:\n{self._content}"

    def _text(self) -> str:
        return self._content


@fast_dataclass
class BytesContentPlanReference(PlanReference):
    """A plan in bytes."""

    _content: bytes

    def get_content(self) -> bytes:
        """Return the plan."""
        return self._content

    def _text(self) -> str:
        return self._content.decode()


def plan_text(reference: PlanReference) -> str:
    """Return the compiled plan that a reference names, in JSON."""
    return reference._text()
