"""EnvironmentSettings: streaming or batch mode, and the configuration."""

from __future__ import annotations

from millstream.common.configuration import Configuration

__all__ = ["EnvironmentSettings"]

MODE = "execution.runtime-mode"
CATALOG = "table.builtin-catalog-name"
DATABASE = "table.builtin-database-name"


class EnvironmentSettings:
    """Holds the settings of a new TableEnvironment: streaming or batch mode, and a configuration.

    Example:
        >>> from millstream.common import Configuration
        >>> config = Configuration.from_dict({"parallelism.default": "4"})
        >>> builder = EnvironmentSettings.new_instance().in_batch_mode().with_configuration(config)
        >>> settings = builder.with_built_in_catalog_name("shop").with_built_in_database_name("main").build()
        >>> settings.is_streaming_mode(), settings.get_built_in_catalog_name(), settings.get_built_in_database_name()
        (False, 'shop', 'main')
    """

    class Builder:
        """Builds settings; see EnvironmentSettings for an example."""

        def __init__(self) -> None:
            self._configuration = Configuration()

        def with_configuration(self, config: Configuration) -> EnvironmentSettings.Builder:
            """Add a configuration; later settings override it."""
            self._configuration.add_all(config)
            return self

        def in_batch_mode(self) -> EnvironmentSettings.Builder:
            """Run in batch mode: only final results, of bounded inputs."""
            self._configuration.set_string(MODE, "BATCH")
            return self

        def in_streaming_mode(self) -> EnvironmentSettings.Builder:
            """Run in streaming mode, the default: results are updated as input arrives."""
            self._configuration.set_string(MODE, "STREAMING")
            return self

        def with_built_in_catalog_name(self, built_in_catalog_name: str) -> EnvironmentSettings.Builder:
            """Name the first catalog, by default `default_catalog`."""
            self._configuration.set_string(CATALOG, built_in_catalog_name)
            return self

        def with_built_in_database_name(self, built_in_database_name: str) -> EnvironmentSettings.Builder:
            """Name the first database, by default `default_database`."""
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
        """Return the settings for streaming mode.

        Example:
            >>> EnvironmentSettings.in_streaming_mode().is_streaming_mode()
            True
        """
        return EnvironmentSettings.Builder().in_streaming_mode().build()

    @staticmethod
    def in_batch_mode() -> EnvironmentSettings:
        """Return the settings for batch mode.

        Example:
            >>> EnvironmentSettings.in_batch_mode().is_streaming_mode()
            False
        """
        return EnvironmentSettings.Builder().in_batch_mode().build()
