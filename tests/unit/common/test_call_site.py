"""Every operator records the program line that created it and shows it with its name."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import pytest

from millstream.common.errors import InvalidProgramError, JobExecutionError
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.datagen import DataGeneratorSource
from millstream.datastream.stream_base import transformation_of
from millstream.datastream.stream_execution_environment import builder_of
from millstream.graph.job_graph import build_job_graph
from millstream.graph.plan import draw
from millstream.testing import LocalEnvironment


def line_number(offset: int = 0) -> str:
    """Return the caller's line number plus an offset."""
    frame = inspect.currentframe()
    assert frame is not None and frame.f_back is not None
    return f"{Path(__file__).name}:{frame.f_back.f_lineno + offset}"


def test_call_site_is_in_execution_plan_and_svg() -> None:
    env = LocalEnvironment()
    source = env.from_collection([1, 2])
    call_sites = [line_number(-1)]
    mapped = (
        source.map(lambda x: x)
        .key_by(lambda x: x)
        .reduce(lambda a, b: a + b)
    )  # fmt: skip
    call_sites += [line_number(-4), line_number(-2)]
    sink = mapped.print()
    call_sites.append(line_number(-1))
    nodes = json.loads(env.get_execution_plan())["nodes"]
    assert [node["made_at"] for node in nodes] == call_sites
    picture = draw(build_job_graph(builder_of(env).stream_graph(None, [transformation_of(sink)])))
    assert f"<title>Map, made at {call_sites[1]}</title>" in picture


def test_call_site_is_in_user_code_errors() -> None:
    env = LocalEnvironment()
    stream = env.from_collection([1, 0]).map(lambda x: 1 // x)
    call_site = line_number(-1)
    with pytest.raises(JobExecutionError) as e:
        list(stream.execute_and_collect())
    assert f"in operator 'Map' (no uid), made at {call_site}, subtask 1/1, epoch 1\nrecord: 0" in str(e.value)


def test_call_site_is_in_errors_of_program_construction() -> None:
    env = LocalEnvironment()
    stream = env.from_collection([1])
    with pytest.raises(InvalidProgramError) as e:
        stream.map(str).name("text").set_parallelism(0)
    assert f"operator 'text' (made at {line_number(-1)})" in str(e.value)
    stream.uid("a").map(str).uid("a").print()
    call_site = line_number(-1)
    with pytest.raises(InvalidProgramError) as e:
        env.execute()
    assert f"'Map' (made at {call_site}) have the same uid 'a'" in str(e.value)


class BrokenSource(DataGeneratorSource):
    def create_enumerator(self, parallelism: int, restored: Any) -> Any:  # type: ignore[override]
        raise OSError("the broker is away")


def test_call_site_is_in_errors_of_a_source_enumerator() -> None:
    env = LocalEnvironment()
    stream = env.from_source(BrokenSource(lambda i: i, 3), source_name="orders")
    call_site = line_number(-1)
    with pytest.raises(JobExecutionError) as e:
        list(stream.execute_and_collect())
    assert f"Source 'Source: orders' (made at {call_site}) failed to assign splits: OSError('the broker" in str(e.value)


def test_call_site_is_the_first_frame_outside_millstream() -> None:
    def build() -> Any:
        return StreamExecutionEnvironment().from_collection([1])

    names: dict[str, Any] = {"__name__": "millstream.elsewhere", "build": build}
    assert transformation_of(build()).made_at == line_number(-3)
    exec("def indirectly():\n    return build()", names)
    assert transformation_of(names["indirectly"]()).made_at == line_number(-5)
