"""Generated functions have unique file names, are freed with their chain, and name operator and record in errors."""

from __future__ import annotations

import gc
import linecache
import traceback
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from millstream.datastream import StreamExecutionEnvironment
from millstream.operators.codegen.code_writer import CodeWriter
from millstream.operators.diagnostics.failures import SubtaskFailed, locate
from millstream.operators.functions.user_function import UserFunction
from millstream.operators.runtime.chain import ChainCompiler, ChainNode, ChainOutput
from millstream.operators.stateless import MapOperator
from millstream.testing import CollectSink
from millstream.testing.local_job import LocalJob

CHAINS = 3000


def make_chain(function: Callable[[Any], Any]) -> tuple[ChainNode, Callable[..., None]]:
    """Compile a chain of two maps; the first also emits outside the loop, and so references a function of the chain."""
    first, second = (
        ChainNode(MapOperator(UserFunction(f, None)), name, name, None, None, False)
        for name, f in [("First", function), ("Second", lambda x: x)]
    )
    first.outputs.append(ChainOutput(None, None, node=1))
    compiler = ChainCompiler([first, second], {})
    first.operator.setup = SimpleNamespace(emit=compiler.emit_function(first))  # type: ignore[assignment]
    return first, compiler.source_function()


def listed() -> set[str]:
    """Return the file names of all generated functions in the line cache."""
    return {name for name in linecache.cache if name.startswith("<millstream ")}


def test_codegen_frees_the_source_of_dropped_chains() -> None:
    gc.collect()
    before, operators = listed(), weakref.WeakSet[Any]()
    chain, run = make_chain(lambda x: x + 1)
    for _ in range(CHAINS):
        node, dropped = make_chain(lambda x: x + 1)
        operators.add(node.operator)
        dropped([1, 2])
    del node, dropped
    gc.collect()
    assert not operators
    assert len(listed() - before) == 2
    with pytest.raises(TypeError) as raised:
        run([1, "a"])
    location = locate(raised.value)
    assert (location.operator, location.shown_record) == (chain.operator, "'a'")


def test_codegen_file_names_are_unique() -> None:
    # Dropped chains free their addresses for new ones.
    names = [f.__code__.co_filename for _ in range(CHAINS) for f in (make_chain(lambda x: x)[1],)]
    assert len(set(names)) == CHAINS


def test_codegen_traceback_shows_generated_lines() -> None:
    def fail(x: Any) -> Any:
        raise ValueError("no")

    _, run = make_chain(fail)
    with pytest.raises(ValueError) as raised:
        run([1])
    assert "v1 = call_0(x)" in "".join(traceback.format_exception(raised.value))


@pytest.mark.parametrize("function", [lambda x: 6 // x, lambda x: divmod(6, x)[0]])
def test_codegen_errors_name_operator_and_record_after_other_jobs(function: Callable[[int], int]) -> None:
    for records in ([1, 2, 3], [1, 2, 0, 3]):
        gc.collect()
        env, sink = StreamExecutionEnvironment.get_execution_environment(), CollectSink()
        env.from_collection(records).map(lambda x: x).map(function).name("Divide").map(lambda x: x).sink_to(sink)
        job = LocalJob(env)
        if 0 not in records:
            job.run()
            continue
        with pytest.raises(SubtaskFailed) as raised:
            job.run()
        failure = raised.value.failure
        assert (failure.operator, failure.record) == ("Divide", "0")
        assert failure.user_traceback.count("File ") == 1
        assert __file__ in failure.user_traceback


def test_codegen_skips_unread_values() -> None:
    class Recorder:
        def __init__(self) -> None:
            self.times = 0

        def __getitem__(self, index: int) -> int:
            self.times += 1
            return index

    for reads in (False, True):
        recorder = Recorder()
        seen: list[Any] = []
        w = CodeWriter("test")
        with w.block("for x in batch:"):
            w.assign_if_read("m1", f"{w.bind(recorder, 'recorder')}[7]")
            with w.block("if not x:"):
                w.assign_also(["m1"], "(8,)", None, "")
            if reads:
                w.line(f"{w.bind(seen.append, 'see')}(m1)")
        w.build("batch")([1, 0, 1])
        assert (recorder.times, seen) == ((3, [7, 8, 7]) if reads else (0, []))
