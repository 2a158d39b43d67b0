"""What can be set of an operator: its name, its id, its parallelism, its place in chains and slots."""

from __future__ import annotations

from typing import TypeVar, Union

from millstream.common.errors import InvalidProgramError, WrongTypeError
from millstream.datastream.slot_sharing_group import SlotSharingGroup
from millstream.graph.transformations import ChainingStrategy, Transformation, check_max_parallelism

S = TypeVar("S", bound="OperatorSettings")


class OperatorSettings:
    """The settings of the operator behind a stream or a sink."""

    _transformation: Transformation

    def name(self: S, name: str) -> S:
        """Name the operator, for plans, logs and errors: any text is a name."""
        if not isinstance(name, str):
            raise WrongTypeError(f"name() takes a text, not {name!r}.")
        (self._transformation.source or self._transformation).name = name
        return self

    def get_name(self) -> str:
        return (self._transformation.source or self._transformation).name

    def uid(self: S, uid: str) -> S:
        """Give the operator an id that stays when the program changes; state is found again by it."""
        if not isinstance(uid, str) or not uid:
            raise InvalidProgramError(f"uid() takes a non-empty string, not {uid!r}.")
        (self._transformation.source or self._transformation).uid = uid
        return self

    def set_uid_hash(self: S, uid_hash: str) -> S:
        """Set the operator's id itself: 32 hexadecimal digits."""
        if len(uid_hash) != 32 or any(c not in "0123456789abcdef" for c in uid_hash):
            raise InvalidProgramError(f"set_uid_hash() takes 32 lowercase hexadecimal digits, not {uid_hash!r}.")
        self._transformation.uid_hash = uid_hash
        return self

    def set_parallelism(self: S, parallelism: int) -> S:
        """Set how many subtasks the operator has."""
        self._transformation.set_parallelism(parallelism)
        return self

    def set_max_parallelism(self: S, max_parallelism: int) -> S:
        """Set how many key groups the operator has: the most subtasks it can ever be given."""
        check_max_parallelism(max_parallelism, f"operator '{self._transformation.shown_name}'")
        self._transformation.max_parallelism = max_parallelism
        return self

    def set_description(self: S, description: str) -> S:
        self._transformation.description = description
        return self

    def set_buffer_timeout(self: S, timeout_millis: int) -> S:
        self._transformation.buffer_timeout = timeout_millis
        return self

    def slot_sharing_group(self: S, slot_sharing_group: Union[str, SlotSharingGroup]) -> S:
        """Put the operator into a slot sharing group; groups do not share slots."""
        group = slot_sharing_group
        self._transformation.slot_sharing_group = group.name if isinstance(group, SlotSharingGroup) else group
        return self

    def start_new_chain(self: S) -> S:
        """Begin a new chain with this operator."""
        self._transformation.chaining = ChainingStrategy.HEAD
        return self

    def disable_chaining(self: S) -> S:
        """Keep this operator out of any chain."""
        self._transformation.chaining = ChainingStrategy.NEVER
        return self
