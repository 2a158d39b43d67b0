from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from millstream.common import Types
from millstream.common.errors import InvalidProgramError
from millstream.common.job_status import JobStatus
from millstream.datastream import DataStream, ProcessFunction, StreamExecutionEnvironment
from millstream.datastream.connectors.number_seq import NumberSequenceSource
from millstream.datastream.stream_base import transformation_of
from millstream.datastream.stream_execution_environment import builder_of
from millstream.graph.job_graph import build_job_graph
from millstream.graph.plan import draw
from millstream.graph.stream_graph import StreamGraph
from millstream.graph.transformations import UpstreamEdge
from millstream.operators.runtime.vertex import Vertex
from millstream.testing import CollectSink
from millstream.testing.local_job import run_locally

Env = StreamExecutionEnvironment


def numbers(env: Env) -> DataStream:
    return env.from_source(NumberSequenceSource(0, 9))


def graph(env: Env) -> StreamGraph:
    return builder_of(env).stream_graph("job", builder_of(env).sinks)


def vertices(env: Env) -> list[Vertex]:
    return build_job_graph(graph(env)).vertices


def names(env: Env) -> list[str]:
    return [v.name for v in vertices(env)]


def test_chaining_joins_a_linear_program(env: Env) -> None:
    numbers(env).map(lambda x: x).filter(lambda x: True).print()
    assert names(env) == ["Source: Sequence Source -> Map -> Filter -> Print to Std. Out"]


BREAKS: dict[str, Callable[[DataStream], DataStream]] = {
    "key_by": lambda s: s.key_by(lambda x: x).map(lambda x: x),
    "rebalance": lambda s: s.rebalance().map(lambda x: x),
    "parallelism": lambda s: s.map(lambda x: x).set_parallelism(3),
    "start_new_chain": lambda s: s.map(lambda x: x).start_new_chain(),
    "slot_sharing_group": lambda s: s.map(lambda x: x).slot_sharing_group("other"),
    "two inputs": lambda s: s.union(numbers(s.get_execution_environment())).map(lambda x: x),
}


@pytest.mark.parametrize("change", BREAKS)
def test_chaining_breaks_on_repartitioning_or_parallelism(env: Env, change: str) -> None:
    BREAKS[change](numbers(env)).print()
    heads = [n for n in names(env) if n.startswith("Map")]
    assert len(heads) == 1, names(env)


def test_disable_chaining_isolates_an_operator(env: Env) -> None:
    numbers(env).map(lambda x: x).disable_chaining().print()
    assert names(env) == ["Source: Sequence Source", "Map", "Print to Std. Out"]


def test_start_new_chain_lets_the_next_operator_join(env: Env) -> None:
    numbers(env).map(lambda x: x).start_new_chain().print()
    assert names(env) == ["Source: Sequence Source", "Map -> Print to Std. Out"]


def test_chaining_can_be_disabled_for_the_job(env: Env) -> None:
    env.disable_operator_chaining()
    numbers(env).map(lambda x: x).print()
    assert len(names(env)) == 3


def test_chaining_keeps_a_fork_in_one_chain(env: Env) -> None:
    mapped = numbers(env).map(lambda x: x)
    mapped.print()
    mapped.filter(lambda x: True).print()
    assert names(env) == ["Source: Sequence Source -> Map -> (Print to Std. Out, Filter -> Print to Std. Out)"]


def test_batch_levels_place_a_chain_right_before_its_reader(env: Env) -> None:
    """Input read early for a late level would pass all levels between."""
    first, second, third = (numbers(env).name(name) for name in ("first", "second", "third"))
    grouped = first.union(second).key_by(lambda x: x).map(lambda x: x).name("grouped")
    grouped.union(third).rebalance().map(lambda x: x).name("end").print()
    second.rebalance().map(lambda x: x).name("aside").print()

    def levels(batch: bool) -> dict[str, int]:
        return {
            v.name.split(" ->")[0].removeprefix("Source: "): v.level
            for v in build_job_graph(graph(env), batch).vertices
        }

    assert levels(False) == {"first": 0, "second": 0, "third": 0, "grouped": 1, "end": 2, "aside": 1}
    # No reader waits for the end: the chain runs as early as possible.
    assert levels(True) == {"first": 0, "second": 0, "third": 1, "grouped": 1, "end": 2, "aside": 1}


def test_levels_follow_the_longest_path(env: Env) -> None:
    a = numbers(env)
    b = a.key_by(lambda x: x).sum().key_by(lambda x: x).sum()
    a.rebalance().connect(b.rebalance()).map(_Both()).print()  # type: ignore[arg-type]
    assert {v.name.split(" ->")[0]: v.level for v in vertices(env)} == {
        "Source: Sequence Source": 0,
        "Reduce": 2,
        "Co-Map": 3,
    }


class _Both:
    def map1(self, value: int) -> int:
        return value

    def map2(self, value: int) -> int:
        return value


def test_slot_sharing_groups_have_separate_slots(env: Env) -> None:
    numbers(env).map(lambda x: x).set_parallelism(3).slot_sharing_group("other").print()
    offsets = {v.name.split(" ->")[0]: v.slot_offset for v in vertices(env)}
    assert offsets["Source: Sequence Source"] == 0
    assert offsets["Map"] == 2


def test_operator_ids_are_stable_across_runs(env: Env, config: object) -> None:
    def ids(env: Env) -> list[str]:
        numbers(env).map(lambda x: x).uid("m").key_by(lambda x: x).sum().print()
        return [n.operator_id for n in graph(env).nodes]

    first = ids(env)
    assert first == ids(Env(env.get_configuration()))
    assert all(len(i) == 32 and int(i, 16) >= 0 for i in first)
    assert len(set(first)) == len(first)


def test_operator_id_depends_only_on_the_uid(env: Env) -> None:
    numbers(env).map(lambda x: x).uid("m").print()
    other = Env(env.get_configuration())
    numbers(other).filter(lambda x: True).map(lambda x: x).uid("m").print()

    def find(e: Env) -> str:
        return next(n.operator_id for n in graph(e).nodes if n.name == "Map")

    assert find(env) == find(other)


def test_execution_plan_has_the_structure_of_flink(env: Env) -> None:
    numbers(env).key_by(lambda x: x).sum().set_parallelism(1).print()
    nodes = json.loads(env.get_execution_plan())["nodes"]
    assert [(n["id"], n["type"], n["pact"], n["parallelism"]) for n in nodes] == [
        (1, "Source: Sequence Source", "Data Source", 2),
        (2, "Reduce", "Operator", 1),
        (3, "Print to Std. Out", "Data Sink", 2),
    ]
    assert [p["ship_strategy"] for n in nodes for p in n.get("predecessors", [])] == ["HASH", "REBALANCE"]
    assert nodes[1]["predecessors"][0]["id"] == 1


def test_svg_shows_every_operator(env: Env) -> None:
    numbers(env).map(lambda x: x).name("double <it>").key_by(lambda x: x).sum().print()
    svg = draw(build_job_graph(graph(env)))
    assert svg.startswith("<svg")
    for text in ("double &lt;it&gt;", "Reduce", "HASH", "parallelism 2"):
        assert text in svg


# --- programs that cannot run


def test_notebook_shows_a_stream_and_the_pending_job(env: Env) -> None:
    assert env._repr_svg_() is None
    doubled = numbers(env).map(lambda x: 2 * x).name("doubled")
    assert env._repr_svg_() is None
    keyed = doubled.key_by(lambda x: x)
    for stream in (doubled, keyed, doubled.union(numbers(env))):
        picture = stream._repr_svg_()
        assert picture.startswith("<svg") and "doubled" in picture
        assert "Print" not in picture
    keyed.reduce(lambda a, b: a + b).print()
    shown = env._repr_svg_()
    assert shown is not None and "Reduce" in shown and "Print to Std. Out" in shown


def test_execution_plan_does_not_fix_the_max_parallelism(env: Env) -> None:
    env.set_max_parallelism(16)
    numbers(env).print()
    env.get_execution_plan()
    env.set_max_parallelism(64)
    assert {n.max_parallelism for n in graph(env).nodes} == {64}


def test_execute_rejects_a_program_without_a_sink(env: Env) -> None:
    numbers(env)
    with pytest.raises(InvalidProgramError, match=r"no sink.*print"):
        env.execute()


def test_graph_rejects_a_cycle(env: Env) -> None:
    first = numbers(env).map(lambda x: x).name("first")
    second = first.map(lambda x: x).name("second")
    transformation_of(first).inputs.append(UpstreamEdge(transformation_of(second)))
    second.print()
    with pytest.raises(InvalidProgramError, match="cycle.*'first' -> 'first'|cycle.*first.*second"):
        graph(env)


def test_graph_rejects_duplicate_uids(env: Env) -> None:
    numbers(env).map(lambda x: x).name("a").uid("same").filter(lambda x: True).name("b").uid("same").print()
    with pytest.raises(
        InvalidProgramError, match=r"'a' \(made at .*\) and 'b' \(made at .*\) have the same uid 'same'"
    ):
        graph(env)


@pytest.mark.parametrize("parallelism", [0, -1, 1.5, "2", True, 32_769])
def test_parallelism_rejects_values_out_of_bounds(env: Env, parallelism: object) -> None:
    with pytest.raises(InvalidProgramError, match="must be an int from 1 to 32768"):
        env.set_parallelism(parallelism)  # type: ignore[arg-type]
    with pytest.raises(InvalidProgramError, match="operator 'Map' .*must be an int from 1 to 32768"):
        numbers(env).map(lambda x: x).set_parallelism(parallelism)  # type: ignore[arg-type]


def test_parallelism_rejects_values_above_the_max_parallelism(env: Env) -> None:
    numbers(env).map(lambda x: x).set_max_parallelism(2).set_parallelism(3).print()
    with pytest.raises(
        InvalidProgramError, match=r"parallelism 3 of operator 'Map' \(made at .*\) is above its max parallelism 2"
    ):
        graph(env)


def test_from_collection_rejects_parallelism_above_one(env: Env) -> None:
    with pytest.raises(InvalidProgramError, match="cannot run in parallel"):
        env.from_collection([1]).set_parallelism(2)


def test_forward_rejects_different_parallelisms(env: Env) -> None:
    numbers(env).forward().map(lambda x: x).set_parallelism(3).print()
    with pytest.raises(InvalidProgramError, match=r"forward\(\).*rebalance\(\)"):
        graph(env)


def test_keyed_stream_rejects_repartitioning(env: Env) -> None:
    keyed = numbers(env).key_by(lambda x: x)
    for call in (keyed.rebalance, keyed.shuffle, keyed.broadcast, keyed.forward, keyed.global_, keyed.rescale):
        with pytest.raises(InvalidProgramError, match="Cannot override partitioning for KeyedStream"):
            call()


def test_union_drops_the_key_and_rejects_mixed_types(env: Env) -> None:
    numbers(env).union(numbers(env).key_by(lambda x: x)).print()
    assert {e.partitioner.name for v in vertices(env) for e in v.in_edges} == {"FORWARD"}
    with pytest.raises(InvalidProgramError, match="Cannot union streams of different types"):
        env.from_collection([1], Types.INT()).union(env.from_collection(["a"], Types.STRING()))  # type: ignore[list-item]


def test_stream_methods_reject_wrong_functions_when_called(env: Env) -> None:
    stream = numbers(env)
    with pytest.raises(InvalidProgramError, match=r"map\(\) takes a callable.*not 3"):
        stream.map(3)  # type: ignore[call-overload]
    with pytest.raises(InvalidProgramError, match="the class Noop: give it an instance"):
        stream.map(Noop)  # type: ignore[arg-type]
    with pytest.raises(InvalidProgramError, match="without process_element"):
        stream.process(lambda v, c: [v])  # type: ignore[call-overload]
    with pytest.raises(InvalidProgramError, match="has no side outputs"):
        from millstream.datastream import OutputTag

        stream.get_side_output(OutputTag("x"))


class Noop(ProcessFunction):
    def map(self, value: int) -> int:
        return value

    def process_element(self, value: int, ctx: object) -> list[int]:
        return [value]


def test_map_accepts_a_class_as_a_plain_callable(env1: Env) -> None:
    sink = CollectSink()
    env1.from_collection([1, 2]).map(str).filter(bool).key_by(str).sink_to(sink)
    run_locally(env1)
    assert sink.results() == ["1", "2"]


def test_typed_stream_rejects_unknown_fields(env: Env) -> None:
    from millstream.common import Types

    stream = env.from_collection([(1, 2)], Types.TUPLE([Types.INT(), Types.INT()]))
    with pytest.raises(InvalidProgramError, match=r"project\(5\).*has no field 5"):
        stream.project(0, 5)


def test_job_status_transitions_follow_the_diagram() -> None:
    assert JobStatus.RUNNING.can_become(JobStatus.FINISHED)
    assert JobStatus.FAILING.can_become(JobStatus.RESTARTING)
    assert not JobStatus.FINISHED.can_become(JobStatus.RUNNING)
    assert not JobStatus.CREATED.can_become(JobStatus.FINISHED)
    for terminal in (JobStatus.FINISHED, JobStatus.CANCELED, JobStatus.FAILED):
        assert terminal.is_globally_terminal_state()
        assert not any(terminal.can_become(s) for s in JobStatus)
