"""Settings of a StreamExecutionEnvironment: parallelism, checkpoints, restarts and files for the workers."""

from __future__ import annotations

import warnings
from typing import Self

from millstream.checkpoint.options import SAVEPOINT_DIRECTORY
from millstream.common.call_site import warn_deprecated
from millstream.common.checkpointing_mode import CheckpointingMode
from millstream.common.configuration import Configuration
from millstream.common.errors import InvalidProgramError
from millstream.common.execution_config import ExecutionConfig
from millstream.common.pipeline_options import (
    BUFFER_TIMEOUT,
    BUFFER_TIMEOUT_ENABLED,
    CHAINING,
    CHAINING_DIFFERENT_MAX,
    MAX_PARALLELISM,
    PARALLELISM,
    buffer_timeout,
    runs_here,
)
from millstream.common.restart_strategy import RestartStrategyConfiguration, configured_strategy
from millstream.common.setting import ChoiceSetting, FlagSetting
from millstream.datastream.checkpoint_config import CheckpointConfig
from millstream.datastream.execution_mode import RuntimeExecutionMode
from millstream.datastream.launch_context import with_overrides
from millstream.datastream.slot_sharing_group import SlotSharingGroup
from millstream.datastream.state_backend import StateBackend, configured_backend, write_backend
from millstream.datastream.time_characteristic import TimeCharacteristic
from millstream.graph.transformations import check_max_parallelism, check_parallelism
from millstream.operating_system import system

RUNTIME_MODE = ChoiceSetting("execution.runtime-mode", RuntimeExecutionMode.STREAMING)
_CHANGELOG = FlagSetting("state.changelog.enabled", False, ("state.backend.changelog.enabled",))
# Set by set_default_local_parallelism, for all environments of the process.
_defaults: dict[str, int] = {}


class ExecutionSettings:
    """The part of StreamExecutionEnvironment that reads and writes its configuration."""

    def __init__(self, configuration: Configuration) -> None:
        self._config = configuration
        self._state_backend: StateBackend | None = None

    def configure(self, configuration: Configuration) -> None:
        """Add settings to the configuration; unknown keys are retained.

        Example:
            >>> from millstream.common import Configuration
            >>> env.configure(Configuration().set_integer("parallelism.default", 3))
            >>> env.get_parallelism()
            3
        """
        self._config.add_all(configuration)

    def get_configuration(self) -> Configuration:
        """Return the settings, to read and to change.

        Example:
            >>> _ = env.get_configuration().set_string("pipeline.name", "word counts")
            >>> env.get_configuration().get_string("pipeline.name", "")
            'word counts'
        """
        return self._config

    def get_config(self) -> ExecutionConfig:
        """Return the settings in Flink's older form.

        Example:
            >>> env.get_config().set_parallelism(3).get_parallelism()
            3
        """
        return ExecutionConfig(self._config)

    def set_parallelism(self, parallelism: int) -> Self:
        """Set the default parallelism of operators: the number of their subtasks.

        Example:
            >>> env.set_parallelism(3).get_parallelism()
            3
        """
        check_parallelism(parallelism, "the environment")
        PARALLELISM.write(self._config, parallelism)
        return self

    def get_parallelism(self) -> int:
        """Return the default parallelism: as set, else the number of cores.

        Example:
            >>> env.set_parallelism(3).get_parallelism()
            3
        """
        if not PARALLELISM.is_set(self._config):
            if PARALLELISM.key in _defaults:
                return _defaults[PARALLELISM.key]
            if runs_here(with_overrides(self._config)):
                return system.cores()
            from millstream.spark.embedded import local_parallelism

            cores = local_parallelism(self._config)
            if cores is not None:
                return cores
            # A deferred import: it loads PySpark, which a local master does not need yet.
            from millstream.spark.session import cluster_parallelism

            return cluster_parallelism(self._config)
        parallelism = PARALLELISM.read(self._config)
        check_parallelism(parallelism, f"the environment ({PARALLELISM.key})")
        return parallelism

    def set_max_parallelism(self, max_parallelism: int) -> Self:
        """Set the default number of key groups of operators: their highest possible parallelism.

        Example:
            >>> env.set_max_parallelism(1024).get_max_parallelism()
            1024
        """
        check_max_parallelism(max_parallelism, "the environment")
        MAX_PARALLELISM.write(self._config, max_parallelism)
        return self

    def get_max_parallelism(self) -> int:
        """Return the number of key groups that was set, -1 for none.

        Example:
            >>> env.get_max_parallelism()
            -1
        """
        return MAX_PARALLELISM.read(self._config)

    def set_runtime_mode(self, execution_mode: RuntimeExecutionMode) -> Self:
        """Choose STREAMING, BATCH or AUTOMATIC; a BATCH job needs bounded sources and emits only final results.

        Example:
            >>> from millstream.datastream import RuntimeExecutionMode
            >>> sales = env.set_runtime_mode(RuntimeExecutionMode.BATCH).from_collection([("tea", 3), ("tea", 4)])
            >>> list(sales.key_by(lambda sale: sale[0]).sum(1).execute_and_collect())
            [('tea', 7)]
        """
        RUNTIME_MODE.write(self._config, execution_mode)
        return self

    def set_buffer_timeout(self, timeout_millis: int) -> Self:
        """Set how long input may be buffered before an epoch starts: low for latency, high for throughput.

        0 starts an epoch as soon as input arrives, -1 only when the buffer is full.

        Example:
            >>> env.set_buffer_timeout(10).get_buffer_timeout()
            10
        """
        if not isinstance(timeout_millis, int) or timeout_millis < -1:
            raise InvalidProgramError(f"set_buffer_timeout({timeout_millis!r}): give milliseconds, 0, or -1.")
        BUFFER_TIMEOUT_ENABLED.write(self._config, timeout_millis >= 0)
        if timeout_millis >= 0:
            BUFFER_TIMEOUT.write(self._config, timeout_millis)
        return self

    def get_buffer_timeout(self) -> int:
        """Return how many milliseconds input may be buffered, -1 until the buffer is full.

        Example:
            >>> env.get_buffer_timeout()
            100
        """
        return buffer_timeout(self._config)

    def disable_operator_chaining(self) -> Self:
        """Run every operator as a separate vertex, which costs a transfer between each two.

        Example:
            >>> env.disable_operator_chaining().is_chaining_enabled()
            False
        """
        CHAINING.write(self._config, False)
        return self

    def is_chaining_enabled(self) -> bool:
        """Return whether operators may be chained.

        Example:
            >>> env.is_chaining_enabled()
            True
        """
        return CHAINING.read(self._config)

    def is_chaining_of_operators_with_different_max_parallelism_enabled(self) -> bool:
        """Return the configured value; such operators are never chained here."""
        return CHAINING_DIFFERENT_MAX.read(self._config)

    def register_slot_sharing_group(self, slot_sharing_group: SlotSharingGroup) -> Self:
        """Accepted without effect: setting a group on an operator registers it."""
        return self

    def register_cached_file(self, file_path: str, name: str, executable: bool = False) -> None:
        """Register a file for functions, which read its path with `get_job_parameter(name, "")`.

        The file is not copied, unlike in Flink: all workers must see the path.
        """
        self._config.set_string(name, file_path)

    @staticmethod
    def set_default_local_parallelism(parallelism: int) -> None:
        """Set the parallelism of environments without one, for this process."""
        check_parallelism(parallelism, "the environment")
        _defaults[PARALLELISM.key] = parallelism

    def add_jars(self, *jars_path: str) -> None:
        """Accepted with a warning: Flink's connectors in Java cannot be used."""
        _warn_of_java("add_jars", jars_path)

    def add_classpaths(self, *classpaths: str) -> None:
        """Accepted with a warning: Flink's connectors in Java cannot be used."""
        _warn_of_java("add_classpaths", classpaths)

    def set_stream_time_characteristic(self, characteristic: TimeCharacteristic) -> None:
        """Deprecated, without effect: watermark strategies and windows select the time."""
        warn_deprecated(
            "set_stream_time_characteristic()", "remove the call: window assigners and timers choose the time"
        )

    def get_stream_time_characteristic(self) -> TimeCharacteristic:
        """Deprecated: return EventTime."""
        warn_deprecated(
            "get_stream_time_characteristic()", "remove the call: window assigners and timers choose the time"
        )
        return TimeCharacteristic.EventTime

    def enable_checkpointing(self, interval: int, mode: CheckpointingMode | None = None) -> Self:
        """Checkpoint the job at an interval in milliseconds; after a failure it restores the latest checkpoint.

        The mode is EXACTLY_ONCE unless set here or in the configuration.

        Example:
            >>> _ = env.enable_checkpointing(10_000)
            >>> env.get_checkpoint_interval(), env.get_checkpointing_mode().name
            (10000, 'EXACTLY_ONCE')
        """
        config = self.get_checkpoint_config().set_checkpoint_interval(interval)
        if mode is not None:
            config.set_checkpointing_mode(mode)
        return self

    def get_checkpoint_config(self) -> CheckpointConfig:
        """Return the settings of checkpoints, to read and to change.

        Example:
            >>> _ = env.enable_checkpointing(10_000)
            >>> env.get_checkpoint_config().set_min_pause_between_checkpoints(500).get_checkpoint_interval()
            10000
        """
        return CheckpointConfig(self._config)

    def get_checkpoint_interval(self) -> int:
        """Return the checkpoint interval in milliseconds, -1 if checkpointing is disabled.

        Example:
            >>> env.get_checkpoint_interval(), env.enable_checkpointing(10_000).get_checkpoint_interval()
            (-1, 10000)
        """
        return self.get_checkpoint_config().get_checkpoint_interval()

    def get_checkpointing_mode(self) -> CheckpointingMode:
        """Return the consistency guarantee after a failure.

        Example:
            >>> env.enable_checkpointing(10_000).get_checkpointing_mode().name
            'EXACTLY_ONCE'
        """
        return self.get_checkpoint_config().get_checkpointing_mode()

    def get_checkpointing_consistency_mode(self) -> CheckpointingMode:
        """Return the consistency guarantee after a failure.

        Example:
            >>> env.enable_checkpointing(10_000).get_checkpointing_consistency_mode().name
            'EXACTLY_ONCE'
        """
        return self.get_checkpointing_mode()

    def is_unaligned_checkpoints_enabled(self) -> bool:
        """Return the configured value; every checkpoint is aligned without waiting."""
        return self.get_checkpoint_config().is_unaligned_checkpoints_enabled()

    def is_force_unaligned_checkpoints(self) -> bool:
        """Return the configured value; it has no effect."""
        return self.get_checkpoint_config().is_force_unaligned_checkpoints()

    def set_default_savepoint_directory(self, directory: str) -> Self:
        """Set the directory of savepoints that are taken without one.

        Example:
            >>> env.set_default_savepoint_directory("file:///var/savepoints").get_default_savepoint_directory()
            'file:///var/savepoints'
        """
        SAVEPOINT_DIRECTORY.write(self._config, directory)
        return self

    def get_default_savepoint_directory(self) -> str | None:
        """Return the directory of savepoints that are taken without one, or None.

        Example:
            >>> env.get_default_savepoint_directory() is None
            True
        """
        return SAVEPOINT_DIRECTORY.read(self._config)

    def enable_changelog_state_backend(self, enabled: bool) -> Self:
        """Accepted; state is a changelog in any case."""
        _CHANGELOG.write(self._config, enabled)
        return self

    def is_changelog_state_backend_enabled(self) -> bool | None:
        """Return the configured value, or None."""
        return _CHANGELOG.read(self._config) if _CHANGELOG.is_set(self._config) else None

    def set_state_backend(self, state_backend: StateBackend) -> Self:
        """Deprecated: set `state.backend.type`.

        Example:
            >>> from millstream.common import Configuration
            >>> env.configure(Configuration().set_string("state.backend.type", "rocksdb"))
        """
        warn_deprecated("set_state_backend()", "set state.backend.type in the configuration")
        if not isinstance(state_backend, StateBackend):
            raise InvalidProgramError(
                f"set_state_backend() takes a StateBackend, not {state_backend!r}: use HashMapStateBackend()."
            )
        write_backend(state_backend, self._config)
        self._state_backend = state_backend
        return self

    def get_state_backend(self) -> StateBackend | None:
        """Deprecated: return the state backend that was set, None when none was."""
        warn_deprecated("get_state_backend()", "read state.backend.type of the configuration")
        return configured_backend(self._config, self._state_backend)

    def set_restart_strategy(self, restart_strategy_configuration: RestartStrategyConfiguration) -> Self:
        """Deprecated: set `restart-strategy.type`.

        Example:
            >>> from millstream.common import Configuration
            >>> env.configure(Configuration().set_string("restart-strategy.type", "fixed-delay"))
        """
        warn_deprecated("set_restart_strategy()", "set restart-strategy.type in the configuration")
        if not isinstance(restart_strategy_configuration, RestartStrategyConfiguration):
            raise InvalidProgramError(
                "set_restart_strategy() takes a strategy from RestartStrategies, not "
                f"{restart_strategy_configuration!r}."
            )
        restart_strategy_configuration.write_to(self._config)
        return self

    def get_restart_strategy(self) -> RestartStrategyConfiguration:
        """Deprecated: return the strategy of restart-strategy.type."""
        warn_deprecated("get_restart_strategy()", "read restart-strategy.type of the configuration")
        return configured_strategy(self._config)

    # --- files for the workers

    def add_python_file(self, file_path: str) -> None:
        """Ship a module, a package's directory or a zip, for import on the workers; the last of one name wins.

        Example:
            >>> env.add_python_file("rules.py")
            >>> env.get_configuration().get_string("python.files", "")
            'rules.py'
        """
        before = self._config.get_string("python.files", "")
        self._config.set_string("python.files", f"{file_path},{before}" if before else file_path)

    def add_python_archive(self, archive_path: str, target_dir: str | None = None) -> None:
        """Ship an archive, unpacked in the workers' working directory under its name or `target_dir`.

        Example:
            >>> env.add_python_archive("models.zip", "models")
            >>> env.get_configuration().get_string("python.archives", "")
            'models.zip#models'
        """
        self._append("python.archives", f"{archive_path}#{target_dir}" if target_dir else archive_path)

    def set_python_requirements(self, requirements_file_path: str, requirements_cache_dir: str | None = None) -> None:
        """Install packages for the workers, from an index or from a directory of packages.

        Example:
            >>> env.set_python_requirements("requirements.txt", "wheels")
            >>> env.get_configuration().get_string("python.requirements", "")
            'requirements.txt#wheels'
        """
        cache = f"#{requirements_cache_dir}" if requirements_cache_dir else ""
        self._config.set_string("python.requirements", requirements_file_path + cache)

    def set_python_executable(self, python_exec: str) -> None:
        """Choose the workers' interpreter; millstream and PySpark must be installed for it.

        Example:
            >>> env.set_python_executable("/opt/python/bin/python")
            >>> env.get_configuration().get_string("python.executable", "")
            '/opt/python/bin/python'
        """
        self._config.set_string("python.executable", python_exec)

    def _append(self, key: str, value: str) -> None:
        before = self._config.get_string(key, "")
        self._config.set_string(key, f"{before},{value}" if before else value)


def _warn_of_java(method: str, paths: tuple[str, ...]) -> None:
    warnings.warn(
        f"{method}({', '.join(map(repr, paths))}) has no effect: millstream runs no Java code of Flink's.", stacklevel=3
    )
