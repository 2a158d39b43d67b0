"""RollingPolicy and OutputFileConfig: when a FileSink closes part files, and their names."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.common.errors import InvalidProgramError

__all__ = ["DefaultRollingPolicy", "OnCheckpointRollingPolicy", "OutputFileConfig", "RollingPolicy"]


@dataclass(frozen=True)
class RollingPolicy:
    """Decides when a part file is closed. Checkpoints and the end of the input always close it.

    Attributes:
        part_size: maximum bytes.
        rollover_interval: maximum milliseconds since its creation.
        inactivity_interval: maximum milliseconds since its last write.

    Example:
        >>> RollingPolicy.default_rolling_policy(part_size=1 << 20, rollover_interval=900_000).is_full(2 << 20)
        True
    """

    part_size: int | None = None
    rollover_interval: int | None = None
    inactivity_interval: int | None = None

    @staticmethod
    def default_rolling_policy(
        part_size: int = 1024 * 1024 * 128, rollover_interval: int = 60_000, inactivity_interval: int = 60_000
    ) -> DefaultRollingPolicy:
        """Return a policy by size and time.

        Args:
            part_size: maximum bytes, by default 128 MiB.
            rollover_interval: maximum milliseconds since the file's creation, by default a minute.
            inactivity_interval: maximum milliseconds since the last write, by default a minute.
        """
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
        """Return a policy that closes files at checkpoints only, the policy of bulk formats."""
        return OnCheckpointRollingPolicy()

    def is_full(self, size: int) -> bool:
        """Return whether a file of this size must be closed."""
        return self.part_size is not None and size >= self.part_size

    def is_due(self, created: int, modified: int, now: int) -> bool:
        """Return whether a file must be closed by age or inactivity."""
        old = self.rollover_interval is not None and now - created >= self.rollover_interval
        idle = self.inactivity_interval is not None and now - modified >= self.inactivity_interval
        return old or idle


class DefaultRollingPolicy(RollingPolicy):
    """Closes files by size, age and inactivity."""


class OnCheckpointRollingPolicy(RollingPolicy):
    """Closes files at checkpoints only."""


class OutputFileConfig:
    """Names part files: `{prefix}-{id}-{n}{suffix}`.

    Example:
        >>> config = OutputFileConfig.builder().with_part_prefix("orders").with_part_suffix(".csv").build()
        >>> config.get_part_prefix(), config.get_part_suffix()
        ('orders', '.csv')
    """

    def __init__(self, part_prefix: str, part_suffix: str) -> None:
        for part, text in (("prefix", part_prefix), ("suffix", part_suffix)):
            if "/" in text or "\0" in text:
                raise InvalidProgramError(f"OutputFileConfig: the {part} {text!r} must not contain a slash.")
        if part_prefix.startswith((".", "_")):
            raise InvalidProgramError(
                f"OutputFileConfig: the prefix {part_prefix!r} must not begin with . or _: readers skip such files."
            )
        self._prefix = part_prefix
        self._suffix = part_suffix

    @staticmethod
    def builder() -> OutputFileConfigBuilder:
        """Return a builder with Flink's default, `part-...`."""
        return OutputFileConfigBuilder()

    def get_part_prefix(self) -> str:
        """Return the prefix of file names."""
        return self._prefix

    def get_part_suffix(self) -> str:
        """Return the suffix of file names."""
        return self._suffix


class OutputFileConfigBuilder:
    """Builds an OutputFileConfig; by default files are named `part-{id}-{n}`."""

    def __init__(self) -> None:
        self._prefix = "part"
        self._suffix = ""

    def with_part_prefix(self, prefix: str) -> OutputFileConfigBuilder:
        """Set the prefix of file names, by default `part`."""
        self._prefix = prefix
        return self

    def with_part_suffix(self, suffix: str) -> OutputFileConfigBuilder:
        """Set the suffix of file names, by default none."""
        self._suffix = suffix
        return self

    def build(self) -> OutputFileConfig:
        """Return the configuration."""
        return OutputFileConfig(self._prefix, self._suffix)


# PyFlink nests the builder in the class.
OutputFileConfig.OutputFileConfigBuilder = OutputFileConfigBuilder  # type: ignore[attr-defined]
