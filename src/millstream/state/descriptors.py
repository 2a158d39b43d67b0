"""State descriptors: the name and type a user gives a piece of state."""

from __future__ import annotations

from millstream.common.errors import InvalidProgramError
from millstream.common.typeinfo import TypeInformation


class StateDescriptor:
    """The name of a state and the type of what it holds."""

    kind = "state"

    def __init__(self, name: str, type_info: TypeInformation | None = None) -> None:
        if not isinstance(name, str) or not name:
            raise InvalidProgramError(f"A state needs a name that is a non-empty string, not {name!r}.")
        self.name = name
        self.type_info = type_info

    def get_name(self) -> str:
        return self.name


class ValueStateDescriptor(StateDescriptor):
    """Describes state that holds one value a key."""

    kind = "value"
