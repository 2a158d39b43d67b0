"""ExecutionConfig: settings of an environment by methods, over the same Configuration that keys reach."""

from __future__ import annotations

from typing import Any

from millstream.common.configuration import Configuration

__all__ = ["ExecutionConfig"]


class ExecutionConfig:
    """Flink's older way to settings.

    What has no meaning here (Kryo, Avro, closure cleaning) is remembered and does nothing.
    """

    PARALLELISM_DEFAULT = -1
    PARALLELISM_UNKNOWN = -2

    def __init__(self, configuration: Configuration) -> None:
        self._config = configuration

    def _set(self, key: str, value: Any) -> ExecutionConfig:
        self._config.set_string(key, str(value).lower() if isinstance(value, bool) else str(value))
        return self

    def set_auto_watermark_interval(self, interval: int) -> ExecutionConfig:
        """Accepted; here the end of an epoch is the tick of periodic watermarks."""
        return self._set("pipeline.auto-watermark-interval", interval)

    def get_auto_watermark_interval(self) -> int:
        return self._config.get_integer("pipeline.auto-watermark-interval", 200)

    def set_latency_tracking_interval(self, interval: int) -> ExecutionConfig:
        return self._set("metrics.latency.interval", interval)

    def get_latency_tracking_interval(self) -> int:
        return self._config.get_integer("metrics.latency.interval", 0)

    def set_parallelism(self, parallelism: int) -> ExecutionConfig:
        return self._set("parallelism.default", parallelism)

    def get_parallelism(self) -> int:
        return self._config.get_integer("parallelism.default", -1)

    def set_max_parallelism(self, max_parallelism: int) -> ExecutionConfig:
        return self._set("pipeline.max-parallelism", max_parallelism)

    def get_max_parallelism(self) -> int:
        return self._config.get_integer("pipeline.max-parallelism", -1)

    def set_task_cancellation_interval(self, interval: int) -> ExecutionConfig:
        return self._set("task.cancellation.interval", interval)

    def get_task_cancellation_interval(self) -> int:
        return self._config.get_integer("task.cancellation.interval", 30000)

    def set_task_cancellation_timeout(self, timeout: int) -> ExecutionConfig:
        return self._set("task.cancellation.timeout", timeout)

    def get_task_cancellation_timeout(self) -> int:
        return self._config.get_integer("task.cancellation.timeout", 180000)

    def enable_object_reuse(self) -> ExecutionConfig:
        return self._set("pipeline.object-reuse", True)

    def disable_object_reuse(self) -> ExecutionConfig:
        return self._set("pipeline.object-reuse", False)

    def is_object_reuse_enabled(self) -> bool:
        return self._config.get_boolean("pipeline.object-reuse", False)

    def enable_auto_generated_uids(self) -> ExecutionConfig:
        return self._set("pipeline.auto-generate-uids", True)

    def disable_auto_generated_uids(self) -> ExecutionConfig:
        return self._set("pipeline.auto-generate-uids", False)

    def has_auto_generated_uids_enabled(self) -> bool:
        return self._config.get_boolean("pipeline.auto-generate-uids", True)

    def set_use_snapshot_compression(self, use_snapshot_compression: bool) -> ExecutionConfig:
        return self._set("execution.checkpointing.snapshot-compression", use_snapshot_compression)

    def is_use_snapshot_compression(self) -> bool:
        return self._config.get_boolean("execution.checkpointing.snapshot-compression", False)

    def set_global_job_parameters(self, global_job_parameters_dict: dict[str, str]) -> ExecutionConfig:
        """Set parameters that functions read with `get_job_parameter`."""
        for key, value in global_job_parameters_dict.items():
            self._set(key, value)
        self._parameters = dict(global_job_parameters_dict)
        return self

    def get_global_job_parameters(self) -> dict[str, str]:
        return dict(getattr(self, "_parameters", {}))

    # --- what concerns Flink's Java serializers: remembered, and nothing depends on it

    def enable_closure_cleaner(self) -> ExecutionConfig:
        return self._set("pipeline.closure-cleaner-level", "RECURSIVE")

    def disable_closure_cleaner(self) -> ExecutionConfig:
        return self._set("pipeline.closure-cleaner-level", "NONE")

    def is_closure_cleaner_enabled(self) -> bool:
        return self._config.get_string("pipeline.closure-cleaner-level", "RECURSIVE") != "NONE"

    def enable_force_kryo(self) -> ExecutionConfig:
        return self._set("pipeline.force-kryo", True)

    def disable_force_kryo(self) -> ExecutionConfig:
        return self._set("pipeline.force-kryo", False)

    def is_force_kryo_enabled(self) -> bool:
        return self._config.get_boolean("pipeline.force-kryo", False)

    def enable_generic_types(self) -> ExecutionConfig:
        return self._set("pipeline.generic-types", True)

    def disable_generic_types(self) -> ExecutionConfig:
        return self._set("pipeline.generic-types", False)

    def has_generic_types_disabled(self) -> bool:
        return not self._config.get_boolean("pipeline.generic-types", True)

    def enable_force_avro(self) -> ExecutionConfig:
        return self._set("pipeline.force-avro", True)

    def disable_force_avro(self) -> ExecutionConfig:
        return self._set("pipeline.force-avro", False)

    def is_force_avro_enabled(self) -> bool:
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
