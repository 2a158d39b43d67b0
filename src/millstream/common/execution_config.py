"""ExecutionConfig: settings of an environment by methods, over the same Configuration that keys reach."""

from __future__ import annotations

from typing import Any

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
    """Return the parameters for functions that a configuration has under Flink's key: `name:value,name:value`."""
    pairs = (part.partition(":") for part in config.get_string(_PARAMETERS, "").split(",") if part)
    return {name.strip(): config.get_string(name.strip(), value.strip()) for name, _, value in pairs}


class ExecutionConfig:
    """Flink's older way to settings.

    What has no meaning here (Kryo, Avro, closure cleaning) is remembered and does nothing.
    """

    PARALLELISM_DEFAULT = -1
    PARALLELISM_UNKNOWN = -2

    def __init__(self, configuration: Configuration) -> None:
        self._config = configuration

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExecutionConfig) and self._config.to_dict() == other._config.to_dict()

    def __hash__(self) -> int:
        return hash(self._config)

    def _set(self, key: str, value: Any) -> ExecutionConfig:
        self._config.set_string(key, str(value).lower() if isinstance(value, bool) else str(value))
        return self

    def set_auto_watermark_interval(self, interval: int) -> ExecutionConfig:
        """Accepted; here the end of an epoch is the tick of periodic watermarks."""
        return self._set(WATERMARK_INTERVAL.key, interval)

    def get_auto_watermark_interval(self) -> int:
        """Return the interval of periodic watermarks that was set, in milliseconds."""
        return WATERMARK_INTERVAL.read(self._config)

    def set_latency_tracking_interval(self, interval: int) -> ExecutionConfig:
        """Remembered: latency is not tracked by markers."""
        return self._set(LATENCY_INTERVAL.key, interval)

    def get_latency_tracking_interval(self) -> int:
        """Return what was set, in milliseconds."""
        return LATENCY_INTERVAL.read(self._config)

    def set_parallelism(self, parallelism: int) -> ExecutionConfig:
        """Set how many subtasks an operator has that is given no number."""
        return self._set(PARALLELISM.key, parallelism)

    def get_parallelism(self) -> int:
        """Return the default parallelism, -1 when none is set."""
        return PARALLELISM.read(self._config)

    def set_max_parallelism(self, max_parallelism: int) -> ExecutionConfig:
        """Set how many key groups operators have that are given no number."""
        return self._set(MAX_PARALLELISM.key, max_parallelism)

    def get_max_parallelism(self) -> int:
        """Return the number of key groups that was set, -1 for none."""
        return MAX_PARALLELISM.read(self._config)

    def set_task_cancellation_interval(self, interval: int) -> ExecutionConfig:
        """Remembered: tasks are cancelled at once."""
        return self._set(CANCELLATION_INTERVAL.key, interval)

    def get_task_cancellation_interval(self) -> int:
        """Return what was set, in milliseconds."""
        return CANCELLATION_INTERVAL.read(self._config)

    def set_task_cancellation_timeout(self, timeout: int) -> ExecutionConfig:
        """Remembered: tasks are cancelled at once."""
        return self._set(CANCELLATION_TIMEOUT.key, timeout)

    def get_task_cancellation_timeout(self) -> int:
        """Return what was set, in milliseconds."""
        return CANCELLATION_TIMEOUT.read(self._config)

    def enable_object_reuse(self) -> ExecutionConfig:
        """Remembered: a value is copied where it must be, and nowhere else."""
        return self._set(OBJECT_REUSE.key, True)

    def disable_object_reuse(self) -> ExecutionConfig:
        """Remembered: a value is copied where it must be."""
        return self._set(OBJECT_REUSE.key, False)

    def is_object_reuse_enabled(self) -> bool:
        """Return what was set."""
        return OBJECT_REUSE.read(self._config)

    def enable_auto_generated_uids(self) -> ExecutionConfig:
        """Let operators without a uid have an id from their place in the program (the default)."""
        return self._set(GENERATED_UIDS.key, True)

    def disable_auto_generated_uids(self) -> ExecutionConfig:
        """Remembered; give every operator a uid."""
        return self._set(GENERATED_UIDS.key, False)

    def has_auto_generated_uids_enabled(self) -> bool:
        """Return what was set."""
        return GENERATED_UIDS.read(self._config)

    def set_use_snapshot_compression(self, use_snapshot_compression: bool) -> ExecutionConfig:
        """Compress the files of checkpoints, or do not."""
        return self._set("execution.checkpointing.snapshot-compression", use_snapshot_compression)

    def is_use_snapshot_compression(self) -> bool:
        """Tell whether the files of checkpoints are compressed."""
        return self._config.get_boolean("execution.checkpointing.snapshot-compression", False)

    def set_global_job_parameters(self, global_job_parameters_dict: dict[str, str]) -> ExecutionConfig:
        """Set parameters that functions read with `get_job_parameter`."""
        for key, value in global_job_parameters_dict.items():
            self._set(key, value)
        self._config.set_string(_PARAMETERS, ",".join(f"{k}:{v}" for k, v in global_job_parameters_dict.items()))
        return self

    def get_global_job_parameters(self) -> dict[str, str]:
        """Return the parameters that functions read with `get_job_parameter`."""
        return global_job_parameters(self._config)

    # --- what concerns Flink's Java serializers: remembered, and nothing depends on it

    def enable_closure_cleaner(self) -> ExecutionConfig:
        """Remembered only: there is none."""
        return self._set("pipeline.closure-cleaner-level", "RECURSIVE")

    def disable_closure_cleaner(self) -> ExecutionConfig:
        """Remembered only: there is none."""
        return self._set("pipeline.closure-cleaner-level", "NONE")

    def is_closure_cleaner_enabled(self) -> bool:
        """Return what was set."""
        return self._config.get_string("pipeline.closure-cleaner-level", "RECURSIVE") != "NONE"

    def enable_force_kryo(self) -> ExecutionConfig:
        """Remembered only: there is no Kryo."""
        return self._set("pipeline.force-kryo", True)

    def disable_force_kryo(self) -> ExecutionConfig:
        """Remembered only: there is no Kryo."""
        return self._set("pipeline.force-kryo", False)

    def is_force_kryo_enabled(self) -> bool:
        """Return what was set."""
        return self._config.get_boolean("pipeline.force-kryo", False)

    def enable_generic_types(self) -> ExecutionConfig:
        """Remembered only: any Python value can be a record."""
        return self._set("pipeline.generic-types", True)

    def disable_generic_types(self) -> ExecutionConfig:
        """Remembered only: any Python value can be a record."""
        return self._set("pipeline.generic-types", False)

    def has_generic_types_disabled(self) -> bool:
        """Return what was set."""
        return not self._config.get_boolean("pipeline.generic-types", True)

    def enable_force_avro(self) -> ExecutionConfig:
        """Remembered only: records are not written as Avro on their way."""
        return self._set("pipeline.force-avro", True)

    def disable_force_avro(self) -> ExecutionConfig:
        """Remembered only: records are not written as Avro on their way."""
        return self._set("pipeline.force-avro", False)

    def is_force_avro_enabled(self) -> bool:
        """Return what was set."""
        return self._config.get_boolean("pipeline.force-avro", False)

    def get_default_kryo_serializer_classes(self) -> dict[str, str]:
        """Return none: there is no Kryo."""
        return {}

    def get_registered_kryo_types(self) -> list[str]:
        """Return none: there is no Kryo."""
        return []

    def get_registered_pojo_types(self) -> list[str]:
        """Return none: there are no Java classes."""
        return []
