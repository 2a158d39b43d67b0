"""Run cases as one job: each with its own pattern and watermarks, all from one source with arbitrary epochs."""

from __future__ import annotations

import random
from typing import Any

from millstream.common import WatermarkStrategy
from millstream.common.watermark_strategy import Watermark, WatermarkGenerator, WatermarkOutput
from millstream.datastream import DataStream, ProcessFunction, StreamExecutionEnvironment
from millstream.testing import CollectSink, TestingSource
from tests.support.cep_cases import END, Case
from tests.support.cep_on_operator import LATE, TIMED_OUT, built

# (index of the case, item of its input, index of the event in that input)
Item = tuple[int, list[Any], int]


class _ScriptedWatermarks(WatermarkGenerator):
    """Emits the watermarks between the events."""

    def on_event(self, event: Item, event_timestamp: int, output: WatermarkOutput) -> None:
        kind, *_, time = event[1]
        # The end of the input emits the last one.
        if kind == "w" and time != END:
            output.emit_watermark(Watermark(time))

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        pass


class _Late(ProcessFunction):
    """Formats late events as lines of an answer."""

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield "late", value[0], value[3], ctx.timestamp()


def answers(env: StreamExecutionEnvironment, cases: list[Case], batch_size: int) -> list[dict[str, list[Any]]]:
    """Run cases as one job; return the output of each, by key and kind."""
    source = env.from_source(TestingSource(_shuffled(cases), batch_size=batch_size)).set_parallelism(1)
    sink = CollectSink()
    for index, case in enumerate(cases):
        _output_of(index, case, source).sink_to(sink)
    env.execute()
    results: list[dict[str, list[Any]]] = [{} for _ in cases]
    for index, line in sink.results():
        results[index].setdefault(f"{line[1]} {line[0]}", []).append(line)
    return results


def _output_of(index: int, case: Case, source: DataStream) -> DataStream:
    mine = source.filter(lambda item: item[0] == index).set_parallelism(1)
    strategy = WatermarkStrategy.for_generator(_ScriptedWatermarks).with_timestamp_assigner(lambda item, _: item[1][-1])
    events = mine.assign_timestamps_and_watermarks(strategy).set_parallelism(1)
    events = events.filter(lambda item: item[1][0] == "e").set_parallelism(1)
    matches = built(case, events.map(lambda item: (*item[1][1:4], item[2])).set_parallelism(1))
    late = matches.get_side_output(LATE).process(_Late())
    return matches.union(matches.get_side_output(TIMED_OUT), late).map(lambda line: (index, list(line)))


def _shuffled(cases: list[Case]) -> list[Item]:
    """Return the inputs of all cases, interleaved, each in its order."""
    dice = random.Random(len(cases))
    case_indexes = [index for index, case in enumerate(cases) for _ in case["input"]]
    dice.shuffle(case_indexes)
    left = [iter(_numbered(case)) for case in cases]
    return [(index, *next(left[index])) for index in case_indexes]


def _numbered(case: Case) -> list[tuple[list[Any], int]]:
    items, number = [], 0
    for item in case["input"]:
        items.append((item, number))
        number += item[0] == "e"
    return items
