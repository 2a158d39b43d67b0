"""Settings of an operator: name, uid, parallelism, chaining and slot sharing group."""

from __future__ import annotations

from typing import TypeVar, Union

from millstream.common.errors import InvalidProgramError, WrongTypeError
from millstream.datastream.slot_sharing_group import SlotSharingGroup
from millstream.graph.transformations import ChainingStrategy, Transformation, check_max_parallelism

S = TypeVar("S", bound="OperatorSettings")


class OperatorSettings:
    """The settings of the operator that produces a stream, or of a sink."""

    _transformation: Transformation

    def _set(self, action: str) -> Transformation:
        """Return the operator for something to be set; some streams refuse, in PyFlink's words."""
        return self._transformation

    def name(self: S, name: str) -> S:
        """Name the operator, for plans, logs and errors: any text is a name."""
        if not isinstance(name, str):
            raise WrongTypeError(f"name() takes a text, not {name!r}.")
        operator = self._set("Set name for")
        (operator.source or operator).name = name
        return self

    def get_name(self) -> str:
        operator = self._set("Get name of")
        return (operator.source or operator).name

    def uid(self: S, uid: str) -> S:
        """Set a stable id, by which a restored job finds the operator's state."""
        operator = self._set("Set uid for")
        if not isinstance(uid, str) or not uid:
            raise InvalidProgramError(f"uid() takes a non-empty string, not {uid!r}.")
        (operator.source or operator).uid = uid
        return self

    def set_uid_hash(self: S, uid_hash: str) -> S:
        """Set the operator's id itself: 32 hexadecimal digits."""
        operator = self._set("Set uid hash for")
        if len(uid_hash) != 32 or any(c not in "0123456789abcdef" for c in uid_hash):
            raise InvalidProgramError(f"set_uid_hash() takes 32 lowercase hexadecimal digits, not {uid_hash!r}.")
        operator.uid_hash = uid_hash
        return self

    def set_parallelism(self: S, parallelism: int) -> S:
        """Set the operator's parallelism."""
        self._set("Set parallelism for").set_parallelism(parallelism)
        return self

    def set_max_parallelism(self: S, max_parallelism: int) -> S:
        """Set the number of key groups, which is the maximum parallelism."""
        operator = self._set("Set max parallelism for")
        check_max_parallelism(max_parallelism, f"operator '{operator.shown_name}'")
        operator.max_parallelism = max_parallelism
        return self

    def set_description(self: S, description: str) -> S:
        self._set("Set description for").description = description
        return self

    def set_buffer_timeout(self: S, timeout_millis: int) -> S:
        self._set("Set buffer timeout for").buffer_timeout = timeout_millis
        return self

    def slot_sharing_group(self: S, slot_sharing_group: Union[str, SlotSharingGroup]) -> S:
        """Set the slot sharing group; groups do not share slots."""
        operator, group = self._set("Setting slot sharing group for"), slot_sharing_group
        operator.slot_sharing_group = group.name if isinstance(group, SlotSharingGroup) else group
        return self

    def start_new_chain(self: S) -> S:
        """Begin a new chain with this operator."""
        self._set("Start new chain for").chaining = ChainingStrategy.HEAD
        return self

    def disable_chaining(self: S) -> S:
        """Exclude this operator from chains."""
        self._set("Disable chaining for").chaining = ChainingStrategy.NEVER
        return self
