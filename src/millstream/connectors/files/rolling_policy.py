"""RollingPolicy: when a FileSink closes a part file and starts another; and how part files are called."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.common.errors import InvalidProgramError

__all__ = ["DefaultRollingPolicy", "OnCheckpointRollingPolicy", "OutputFileConfig", "RollingPolicy"]


@dataclass(frozen=True)
class RollingPolicy:
    """When a part file is closed. A checkpoint and the end of the input close it in any case.

    Attributes:
        part_size: at how many bytes.
        rollover_interval: how many milliseconds after it was started.
        inactivity_interval: how many milliseconds after it was last written to.
    """

    part_size: int | None = None
    rollover_interval: int | None = None
    inactivity_interval: int | None = None

    @staticmethod
    def default_rolling_policy(
        part_size: int = 1024 * 1024 * 128, rollover_interval: int = 60_000, inactivity_interval: int = 60_000
    ) -> DefaultRollingPolicy:
        """Return a policy by size and time."""
        lengths = {
            "part_size": part_size,
            "rollover_interval": rollover_interval,
            "inactivity_interval": inactivity_interval,
        }
        for name, value in lengths.items():
            if value <= 0:
                raise InvalidProgramError(f"default_rolling_policy: {name} must be above 0, it is {value}.")
        return DefaultRollingPolicy(**lengths)

    @staticmethod
    def on_checkpoint_rolling_policy() -> OnCheckpointRollingPolicy:
        """Return a policy that closes files at checkpoints only."""
        return OnCheckpointRollingPolicy()

    def is_full(self, size: int) -> bool:
        """Tell whether a file of so many bytes is to be closed."""
        return self.part_size is not None and size >= self.part_size

    def is_due(self, created: int, modified: int, now: int) -> bool:
        """Tell whether a file is to be closed because of the time."""
        old = self.rollover_interval is not None and now - created >= self.rollover_interval
        idle = self.inactivity_interval is not None and now - modified >= self.inactivity_interval
        return old or idle


class DefaultRollingPolicy(RollingPolicy):
    """By size, age and inactivity."""


class OnCheckpointRollingPolicy(RollingPolicy):
    """At checkpoints only."""


class OutputFileConfig:
    """How part files are called: `{prefix}-{id}-{n}{suffix}`.

    Example:
        >>> OutputFileConfig.builder().with_part_suffix(".csv").build().get_part_suffix()
        '.csv'
    """

    def __init__(self, part_prefix: str, part_suffix: str) -> None:
        for what, text in (("prefix", part_prefix), ("suffix", part_suffix)):
            if "/" in text or "\0" in text:
                raise InvalidProgramError(f"OutputFileConfig: the {what} {text!r} must not contain a slash.")
        if part_prefix.startswith((".", "_")):
            raise InvalidProgramError(f"OutputFileConfig: with the prefix {part_prefix!r} readers skip all files.")
        self._prefix = part_prefix
        self._suffix = part_suffix

    @staticmethod
    def builder() -> OutputFileConfigBuilder:
        """Begin with Flink's names, `part-...`."""
        return OutputFileConfigBuilder()

    def get_part_prefix(self) -> str:
        """Return what file names begin with."""
        return self._prefix

    def get_part_suffix(self) -> str:
        """Return what file names end with."""
        return self._suffix


class OutputFileConfigBuilder:
    """Builds an OutputFileConfig; without more files are called `part-{id}-{n}`."""

    def __init__(self) -> None:
        self._prefix = "part"
        self._suffix = ""

    def with_part_prefix(self, prefix: str) -> OutputFileConfigBuilder:
        """Say what file names begin with."""
        self._prefix = prefix
        return self

    def with_part_suffix(self, suffix: str) -> OutputFileConfigBuilder:
        """Say what file names end with."""
        self._suffix = suffix
        return self

    def build(self) -> OutputFileConfig:
        """Return the names."""
        return OutputFileConfig(self._prefix, self._suffix)


# PyFlink has it inside the class it builds.
OutputFileConfig.OutputFileConfigBuilder = OutputFileConfigBuilder  # type: ignore[attr-defined]
