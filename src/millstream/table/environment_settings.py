"""EnvironmentSettings: streaming or batch mode, and the configuration."""

from __future__ import annotations

from millstream.common.configuration import Configuration

__all__ = ["EnvironmentSettings"]

MODE = "execution.runtime-mode"
CATALOG = "table.builtin-catalog-name"
DATABASE = "table.builtin-database-name"


class EnvironmentSettings:
    """The settings of a new TableEnvironment.

    Example:
        >>> EnvironmentSettings.in_batch_mode().is_streaming_mode()
        False
    """

    class Builder:
        """Builds settings."""

        def __init__(self) -> None:
            self._configuration = Configuration()

        def with_configuration(self, config: Configuration) -> EnvironmentSettings.Builder:
            """Add a configuration."""
            self._configuration.add_all(config)
            return self

        def in_batch_mode(self) -> EnvironmentSettings.Builder:
            """Run in batch mode: final results of bounded input."""
            self._configuration.set_string(MODE, "BATCH")
            return self

        def in_streaming_mode(self) -> EnvironmentSettings.Builder:
            """Run in streaming mode: every change."""
            self._configuration.set_string(MODE, "STREAMING")
            return self

        def with_built_in_catalog_name(self, built_in_catalog_name: str) -> EnvironmentSettings.Builder:
            """Name the default catalog."""
            self._configuration.set_string(CATALOG, built_in_catalog_name)
            return self

        def with_built_in_database_name(self, built_in_database_name: str) -> EnvironmentSettings.Builder:
            """Name the default database."""
            self._configuration.set_string(DATABASE, built_in_database_name)
            return self

        def build(self) -> EnvironmentSettings:
            """Return the settings."""
            return EnvironmentSettings(self._configuration)

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = Configuration(configuration)

    def get_built_in_catalog_name(self) -> str:
        """Return the name of the default catalog."""
        return self._configuration.get_string(CATALOG, "default_catalog")

    def get_built_in_database_name(self) -> str:
        """Return the name of the default database."""
        return self._configuration.get_string(DATABASE, "default_database")

    def is_streaming_mode(self) -> bool:
        """Return whether the mode is streaming."""
        return str(self._configuration.get_string(MODE, "STREAMING")).upper() != "BATCH"

    def get_configuration(self) -> Configuration:
        """Return the configuration."""
        return self._configuration

    @staticmethod
    def new_instance() -> EnvironmentSettings.Builder:
        """Return a builder."""
        return EnvironmentSettings.Builder()

    @staticmethod
    def in_streaming_mode() -> EnvironmentSettings:
        """Return the settings for streaming."""
        return EnvironmentSettings.Builder().in_streaming_mode().build()

    @staticmethod
    def in_batch_mode() -> EnvironmentSettings:
        """Return the settings for batch."""
        return EnvironmentSettings.Builder().in_batch_mode().build()
