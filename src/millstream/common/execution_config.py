"""ExecutionConfig: methods over the options of a Configuration."""

from __future__ import annotations

from millstream.common.configuration import Configuration
from millstream.common.pipeline_options import (
    CANCELLATION_INTERVAL,
    CANCELLATION_TIMEOUT,
    GENERATED_UIDS,
    LATENCY_INTERVAL,
    MAX_PARALLELISM,
    OBJECT_REUSE,
    PARALLELISM,
    WATERMARK_INTERVAL,
)

__all__ = ["ExecutionConfig"]


_PARAMETERS = "pipeline.global-job-parameters"


def global_job_parameters(config: Configuration) -> dict[str, str]:
    """Return the global job parameters of Flink's key: `name:value,name:value`."""
    pairs = (part.partition(":") for part in config.get_string(_PARAMETERS, "").split(",") if part)
    return {name.strip(): config.get_string(name.strip(), value.strip()) for name, _, value in pairs}


class ExecutionConfig:
    """Flink's older API for options, of `env.get_config()`.

    Options without a meaning here (Kryo, Avro, closure cleaning) are stored and have no effect.

    Example:
        >>> config = env.get_config().set_parallelism(3).set_max_parallelism(1024)
        >>> config.get_parallelism(), env.get_parallelism(), config.get_max_parallelism()
        (3, 3, 1024)
    """

    PARALLELISM_DEFAULT = -1
    PARALLELISM_UNKNOWN = -2

    def __init__(self, configuration: Configuration) -> None:
        self._config = configuration

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExecutionConfig) and self._config.to_dict() == other._config.to_dict()

    def __hash__(self) -> int:
        return hash(self._config)

    def _set(self, key: str, value: bool | int | str) -> ExecutionConfig:
        self._config.set_string(key, str(value).lower() if isinstance(value, bool) else str(value))
        return self

    def set_auto_watermark_interval(self, interval: int) -> ExecutionConfig:
        """Set the interval of periodic watermarks; they are emitted at the end of each epoch.

        Example:
            >>> env.get_config().set_auto_watermark_interval(100).get_auto_watermark_interval()
            100
        """
        return self._set(WATERMARK_INTERVAL.key, interval)

    def get_auto_watermark_interval(self) -> int:
        """Return the interval of periodic watermarks in milliseconds."""
        return WATERMARK_INTERVAL.read(self._config)

    def set_latency_tracking_interval(self, interval: int) -> ExecutionConfig:
        """Stored without effect: there are no latency markers."""
        return self._set(LATENCY_INTERVAL.key, interval)

    def get_latency_tracking_interval(self) -> int:
        """Return the stored value in milliseconds."""
        return LATENCY_INTERVAL.read(self._config)

    def set_parallelism(self, parallelism: int) -> ExecutionConfig:
        """Set the default parallelism of operators.

        Example:
            >>> env.get_config().set_parallelism(3).get_parallelism()
            3
        """
        return self._set(PARALLELISM.key, parallelism)

    def get_parallelism(self) -> int:
        """Return the default parallelism, -1 if unset."""
        return PARALLELISM.read(self._config)

    def set_max_parallelism(self, max_parallelism: int) -> ExecutionConfig:
        """Set the default maximum parallelism (number of key groups).

        Example:
            >>> env.get_config().set_max_parallelism(1024).get_max_parallelism()
            1024
        """
        return self._set(MAX_PARALLELISM.key, max_parallelism)

    def get_max_parallelism(self) -> int:
        """Return the default maximum parallelism, -1 if unset."""
        return MAX_PARALLELISM.read(self._config)

    def set_task_cancellation_interval(self, interval: int) -> ExecutionConfig:
        """Stored without effect: tasks are cancelled at once."""
        return self._set(CANCELLATION_INTERVAL.key, interval)

    def get_task_cancellation_interval(self) -> int:
        """Return the stored value in milliseconds."""
        return CANCELLATION_INTERVAL.read(self._config)

    def set_task_cancellation_timeout(self, timeout: int) -> ExecutionConfig:
        """Stored without effect: tasks are cancelled at once."""
        return self._set(CANCELLATION_TIMEOUT.key, timeout)

    def get_task_cancellation_timeout(self) -> int:
        """Return the stored value in milliseconds."""
        return CANCELLATION_TIMEOUT.read(self._config)

    def enable_object_reuse(self) -> ExecutionConfig:
        """Stored without effect: values are copied only where necessary."""
        return self._set(OBJECT_REUSE.key, True)

    def disable_object_reuse(self) -> ExecutionConfig:
        """Stored without effect: values are copied only where necessary."""
        return self._set(OBJECT_REUSE.key, False)

    def is_object_reuse_enabled(self) -> bool:
        """Return the stored value."""
        return OBJECT_REUSE.read(self._config)

    def enable_auto_generated_uids(self) -> ExecutionConfig:
        """Generate ids for operators without a uid from their position in the program (the default)."""
        return self._set(GENERATED_UIDS.key, True)

    def disable_auto_generated_uids(self) -> ExecutionConfig:
        """Stored without effect; set a uid for each operator."""
        return self._set(GENERATED_UIDS.key, False)

    def has_auto_generated_uids_enabled(self) -> bool:
        """Return the stored value."""
        return GENERATED_UIDS.read(self._config)

    def set_use_snapshot_compression(self, use_snapshot_compression: bool) -> ExecutionConfig:
        """Enable or disable compression of checkpoint files.

        Example:
            >>> env.get_config().set_use_snapshot_compression(True).is_use_snapshot_compression()
            True
        """
        return self._set("execution.checkpointing.snapshot-compression", use_snapshot_compression)

    def is_use_snapshot_compression(self) -> bool:
        """Return whether checkpoint files are compressed."""
        return self._config.get_boolean("execution.checkpointing.snapshot-compression", False)

    def set_global_job_parameters(self, global_job_parameters_dict: dict[str, str]) -> ExecutionConfig:
        """Set the parameters that functions read with `get_job_parameter`.

        Example:
            >>> env.get_config().set_global_job_parameters({"factor": "10"}).get_global_job_parameters()
            {'factor': '10'}
        """
        for key, value in global_job_parameters_dict.items():
            self._set(key, value)
        self._config.set_string(_PARAMETERS, ",".join(f"{k}:{v}" for k, v in global_job_parameters_dict.items()))
        return self

    def get_global_job_parameters(self) -> dict[str, str]:
        """Return the parameters that functions read with `get_job_parameter`."""
        return global_job_parameters(self._config)

    # --- Flink's Java serializers: stored without effect

    def enable_closure_cleaner(self) -> ExecutionConfig:
        """Stored without effect: there is no closure cleaner."""
        return self._set("pipeline.closure-cleaner-level", "RECURSIVE")

    def disable_closure_cleaner(self) -> ExecutionConfig:
        """Stored without effect: there is no closure cleaner."""
        return self._set("pipeline.closure-cleaner-level", "NONE")

    def is_closure_cleaner_enabled(self) -> bool:
        """Return the stored value."""
        return self._config.get_string("pipeline.closure-cleaner-level", "RECURSIVE") != "NONE"

    def enable_force_kryo(self) -> ExecutionConfig:
        """Stored without effect: there is no Kryo."""
        return self._set("pipeline.force-kryo", True)

    def disable_force_kryo(self) -> ExecutionConfig:
        """Stored without effect: there is no Kryo."""
        return self._set("pipeline.force-kryo", False)

    def is_force_kryo_enabled(self) -> bool:
        """Return the stored value."""
        return self._config.get_boolean("pipeline.force-kryo", False)

    def enable_generic_types(self) -> ExecutionConfig:
        """Stored without effect: any Python value can be a record."""
        return self._set("pipeline.generic-types", True)

    def disable_generic_types(self) -> ExecutionConfig:
        """Stored without effect: any Python value can be a record."""
        return self._set("pipeline.generic-types", False)

    def has_generic_types_disabled(self) -> bool:
        """Return the stored value."""
        return not self._config.get_boolean("pipeline.generic-types", True)

    def enable_force_avro(self) -> ExecutionConfig:
        """Stored without effect: records are not exchanged as Avro."""
        return self._set("pipeline.force-avro", True)

    def disable_force_avro(self) -> ExecutionConfig:
        """Stored without effect: records are not exchanged as Avro."""
        return self._set("pipeline.force-avro", False)

    def is_force_avro_enabled(self) -> bool:
        """Return the stored value."""
        return self._config.get_boolean("pipeline.force-avro", False)

    def get_default_kryo_serializer_classes(self) -> dict[str, str]:
        """Return an empty dict: there is no Kryo."""
        return {}

    def get_registered_kryo_types(self) -> list[str]:
        """Return an empty list: there is no Kryo."""
        return []

    def get_registered_pojo_types(self) -> list[str]:
        """Return an empty list: there are no Java classes."""
        return []
