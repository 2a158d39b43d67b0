"""Words everybody uses."""

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
