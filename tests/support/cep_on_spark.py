"""Cases as one job: each with its own pattern and watermarks, all from one source, whose epochs cut anywhere."""

from __future__ import annotations

import random
from typing import Any

from millstream.common import WatermarkStrategy
from millstream.common.watermark_strategy import Watermark, WatermarkGenerator, WatermarkOutput
from millstream.datastream import DataStream, ProcessFunction, StreamExecutionEnvironment
from millstream.testing import CollectSink, TestingSource
from tests.support.cep_cases import END, Case
from tests.support.cep_on_operator import LATE, TIMED_OUT, built

# (which case, item of its input, number of the event among them)
Item = tuple[int, list[Any], int]


class _AsSaid(WatermarkGenerator):
    """The watermarks that stand between the events."""

    def on_event(self, event: Item, event_timestamp: int, output: WatermarkOutput) -> None:
        kind, *_, time = event[1]
        # The last one comes with the end of the input.
        if kind == "w" and time != END:
            output.emit_watermark(Watermark(time))

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        pass


class _Late(ProcessFunction):
    """Late events as lines of an answer."""

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield "late", value[0], value[3], ctx.timestamp()


def answers(env: StreamExecutionEnvironment, cases: list[Case], batch_size: int) -> list[dict[str, list[Any]]]:
    """Run cases as one job; return what each says, by key and kind."""
    source = env.from_source(TestingSource(_shuffled(cases), batch_size=batch_size)).set_parallelism(1)
    sink = CollectSink()
    for at, case in enumerate(cases):
        _said(at, case, source).sink_to(sink)
    env.execute()
    said: list[dict[str, list[Any]]] = [{} for _ in cases]
    for at, line in sink.results():
        said[at].setdefault(f"{line[1]} {line[0]}", []).append(line)
    return said


def _said(at: int, case: Case, source: DataStream) -> DataStream:
    mine = source.filter(lambda item: item[0] == at).set_parallelism(1)
    as_said = WatermarkStrategy.for_generator(_AsSaid).with_timestamp_assigner(lambda item, _: item[1][-1])
    events = mine.assign_timestamps_and_watermarks(as_said).set_parallelism(1)
    events = events.filter(lambda item: item[1][0] == "e").set_parallelism(1)
    found = built(case, events.map(lambda item: (*item[1][1:4], item[2])).set_parallelism(1))
    late = found.get_side_output(LATE).process(_Late())
    return found.union(found.get_side_output(TIMED_OUT), late).map(lambda line: (at, list(line)))


def _shuffled(cases: list[Case]) -> list[Item]:
    """Return the inputs of all cases, each in its order, with those of others in between."""
    dice = random.Random(len(cases))
    whose = [at for at, case in enumerate(cases) for _ in case["input"]]
    dice.shuffle(whose)
    left = [iter(_numbered(case)) for case in cases]
    return [(at, *next(left[at])) for at in whose]


def _numbered(case: Case) -> list[tuple[list[Any], int]]:
    items, number = [], 0
    for item in case["input"]:
        items.append((item, number))
        number += item[0] == "e"
    return items
