"""Flink's common API (pyflink.common), and helpers that every package may import."""

from typing import TYPE_CHECKING

from millstream.common.completable_future import CompletableFuture
from millstream.common.config_options import ConfigOption, ConfigOptions
from millstream.common.configuration import Configuration
from millstream.common.execution_config import ExecutionConfig
from millstream.common.ingestion_time import IngestionTimeAssigner
from millstream.common.input_dependency_constraint import InputDependencyConstraint
from millstream.common.job_client import JobClient
from millstream.common.job_execution_result import JobExecutionResult
from millstream.common.job_id import JobID
from millstream.common.job_status import JobStatus
from millstream.common.restart_strategy import RestartStrategies, RestartStrategyConfiguration
from millstream.common.serialization import (
    ByteArraySchema,
    DeserializationSchema,
    Encoder,
    SerializationSchema,
    SimpleStringEncoder,
    SimpleStringSchema,
    moved_schema,
)
from millstream.common.serializer import TypeSerializer
from millstream.common.time import Duration, Instant, Time
from millstream.common.typeinfo import TypeInformation, Types
from millstream.common.types import Row, RowKind
from millstream.common.watermark_strategy import (
    AssignerWithPeriodicWatermarksWrapper,
    TimestampAssigner,
    Watermark,
    WatermarkGenerator,
    WatermarkOutput,
    WatermarkStrategy,
)

__all__ = [
    "AssignerWithPeriodicWatermarksWrapper",
    "ByteArraySchema",
    "CompletableFuture",
    "ConfigOption",
    "ConfigOptions",
    "Configuration",
    "DeserializationSchema",
    "Duration",
    "Encoder",
    "ExecutionConfig",
    "IngestionTimeAssigner",
    "InputDependencyConstraint",
    "Instant",
    "JobClient",
    "JobExecutionResult",
    "JobID",
    "JobStatus",
    "RestartStrategies",
    "RestartStrategyConfiguration",
    "Row",
    "RowKind",
    "SerializationSchema",
    "SimpleStringEncoder",
    "SimpleStringSchema",
    "Time",
    "TimestampAssigner",
    "TypeInformation",
    "TypeSerializer",
    "Types",
    "Watermark",
    "WatermarkGenerator",
    "WatermarkOutput",
    "WatermarkStrategy",
]

# Resolved on access: these schemas belong to the formats, and PyFlink exports them here too.
if not TYPE_CHECKING:
    __getattr__ = moved_schema
