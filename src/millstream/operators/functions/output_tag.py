"""OutputTag: the name of a side output."""

from __future__ import annotations

from typing import Generic

from millstream.common.aliases import T
from millstream.common.errors import InvalidProgramError, WrongTypeError
from millstream.common.typeinfo import PickledBytesTypeInfo, RowTypeInfo, TypeInformation
from millstream.common.unsupported import JAVA, missing_function

__all__ = ["OutputTag"]


class OutputTag(Generic[T]):
    """Names a side output; a process function yields `(tag, value)` to it.

    Example:
        >>> from millstream.datastream import OutputTag, ProcessFunction
        >>> odd = OutputTag("odd")
        >>> class Split(ProcessFunction):
        ...     def process_element(self, value, ctx):
        ...         yield value if value % 2 == 0 else (odd, value)
        >>> even = env.from_collection([1, 2, 3, 4]).process(Split())
        >>> list(even.get_side_output(odd).execute_and_collect())
        [1, 3]
    """

    __slots__ = ("tag_id", "type_info")

    def __init__(self, tag_id: str, type_info: TypeInformation | list[TypeInformation] | None = None) -> None:
        if not isinstance(tag_id, str) or not tag_id:
            raise InvalidProgramError("OutputTag tag_id cannot be None or empty string")
        if isinstance(type_info, list):
            type_info = RowTypeInfo(type_info)
        if type_info is not None and not isinstance(type_info, TypeInformation):
            raise WrongTypeError("OutputTag type_info must be None, list or TypeInformation")
        self.tag_id = tag_id
        self.type_info = type_info or PickledBytesTypeInfo()

    get_java_output_tag = missing_function("get_java_output_tag", JAVA)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OutputTag) and self.tag_id == other.tag_id

    def __hash__(self) -> int:
        return hash(self.tag_id)

    def __repr__(self) -> str:
        return f"OutputTag({self.tag_id!r})"


def check_tag(tag: object, method: str) -> None:
    """Reject values that are not an OutputTag, such as its name."""
    if not isinstance(tag, OutputTag):
        raise WrongTypeError(f"{method}() takes an OutputTag, for example OutputTag('late'), not {tag!r}.")
