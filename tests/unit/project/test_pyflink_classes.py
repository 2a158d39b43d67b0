"""Small classes that exist because programs for PyFlink use their names."""

from __future__ import annotations

import datetime
from io import BytesIO

import pytest

from millstream.common import ConfigOptions, Duration, Instant, Row, Time, Types
from millstream.common.serializer import VoidNamespaceSerializer
from millstream.common.typeinfo import DateTypeInfo, TimestampTypeInfo, TimeTypeInfo, TypeInformation
from millstream.common.unsupported import NotSupportedError
from millstream.datastream import MemorySize, SlotSharingGroup, StreamExecutionEnvironment  # type: ignore[attr-defined]
from millstream.datastream.connectors import FileSink, PulsarSource  # type: ignore[attr-defined]
from millstream.datastream.window import TimeWindow, TimeWindowSerializer, TumblingEventTimeWindows


def test_time_and_duration_convert_to_milliseconds() -> None:
    assert Time.seconds(0.5).to_milliseconds() == Duration.of_seconds(0.5).to_millis() == 500  # type: ignore[arg-type]
    for make in (Duration.of_seconds, Duration.of_nanos, Time.days, Time.milliseconds):
        with pytest.raises(TypeError, match=rf"{make.__qualname__}\(\) takes a number, not '5' \(str\)"):
            make("5")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"A length of time is a Duration, a Time or .* not '5 s' \(str\)"):
        TumblingEventTimeWindows.of("5 s")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("type_info", "value", "plain"),
    [
        (DateTypeInfo(), datetime.date(1970, 1, 11), 10),
        (TimeTypeInfo(), datetime.time(0, 0, 1, 5), 1_000_005),
        (TimestampTypeInfo(), datetime.datetime(2021, 3, 4, 5, 6, 7, 8), None),
        (Types.INSTANT(), Instant.of_epoch_milli(1234), 1_234_000),
        (Types.ROW_NAMED(["d"], [Types.SQL_DATE()]), Row(d=datetime.date(1970, 1, 2)), (0, 1)),
        (Types.TUPLE([Types.SQL_DATE(), Types.INT()]), (datetime.date(1970, 1, 2), 7), (1, 7)),
    ],
)
def test_typeinfo_internal_type_round_trips(type_info: TypeInformation, value: object, plain: object) -> None:
    internal = type_info.to_internal_type(value)
    assert plain is None or internal == plain
    assert type_info.from_internal_type(internal) == value


def test_memory_size_and_slot_sharing_resources() -> None:
    group = (
        SlotSharingGroup.builder("g")
        .set_cpu_cores(1.0)
        .set_task_heap_memory("2 mb")
        .set_external_resource("gpu", 1.0)
        .build()
    )
    assert group.get_task_heap_memory() == MemorySize(2 << 20)
    assert group.get_external_resources() == {"gpu": 1.0}
    assert MemorySize(1) < MemorySize.of_mebi_bytes(1)
    with pytest.raises(ValueError, match="'2 bytes' is not a memory size"):
        SlotSharingGroup.builder("g").set_managed_memory("2 bytes")


def test_config_options_and_serializers() -> None:
    assert ConfigOptions.key("k").int_type().default_value(3).default == 3
    out = BytesIO()
    TimeWindowSerializer().serialize(TimeWindow(1, 2), out)
    VoidNamespaceSerializer().serialize(None, out)
    out.seek(0)
    assert TimeWindowSerializer().deserialize(out) == TimeWindow(1, 2)
    assert out.read() == b"\0"


def test_add_jars_warns_once() -> None:
    with pytest.warns(UserWarning, match="add_jars.*has no effect") as seen:
        StreamExecutionEnvironment().add_jars("file:///a.jar", "file:///b.jar")
    assert len(seen) == 1


def test_flat_imports_resolve_and_placeholders_raise() -> None:
    assert FileSink.__name__ == "FileSink"
    for use in (lambda: PulsarSource(), lambda: PulsarSource.builder(), lambda: type("Mine", (PulsarSource,), {})()):
        with pytest.raises(NotSupportedError, match="the Pulsar connector is not supported yet"):
            use()  # type: ignore[no-untyped-call]


def test_default_local_parallelism_yields_to_an_explicit_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from millstream.datastream import execution_settings as module

    monkeypatch.setattr(module, "_defaults", {})
    env = StreamExecutionEnvironment()
    env.set_default_local_parallelism(7)
    assert (env.get_parallelism(), env.get_default_local_parallelism()) == (7, 7)
    assert env.set_parallelism(3).get_parallelism() == 3
