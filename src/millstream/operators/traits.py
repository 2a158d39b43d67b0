"""The traits of an operator: how it consumes and emits records."""

from __future__ import annotations

from millstream.common.typeinfo import TypeInformation


class OperatorTraits:
    """How an operator consumes and emits records: the job graph and the chain compiler read it."""

    # Whether its input is partitioned by key, so that it can have keyed state.
    keyed = False
    # The number of inputs: an operator with several always heads its chain.
    inputs = 1
    # Whether its input consists of batches of rows, as between all SQL operators. Batches are immutable, few of them
    # are much work, and metrics count their rows.
    takes_batches = False
    # Whether its output consists of batches of rows.
    emits_batches = False
    # Whether its input must conform to the declared type, even within the chain.
    encodes_input = False
    # Whether it emits outside of the loop.
    emits_later = False
    # Whether it buffers output until `flush`.
    holds_back = False
    # Whether the values it emits in the loop are also its state, which downstream operators must not modify.
    emits_state = False
    # Whether its output may contain (OutputTag, value) pairs for side outputs.
    tags_outputs = False
    # Whether its output has timestamps even if its input has none.
    assigns_timestamps = False
    # Whether its output has no timestamps even if its input has some.
    drops_timestamps = False
    # The type that all its output already conforms to, if any.
    produced_type: TypeInformation | None = None
    # The declared type that its output is coerced to; set before the loop is written.
    declared_type: TypeInformation | None = None

    @property
    def uses_key(self) -> bool:
        """Whether the loop must extract the key of a record."""
        return False

    @property
    def has_operator_state(self) -> bool:
        """Whether it has operator state."""
        return False

    @property
    def follows_clock(self) -> bool:
        """Whether it needs calls when processing time advances."""
        return False
