"""Late data: records that arrive after their window has closed go to a side output instead of being dropped.

Shows:    watermarks, allowed lateness and the late side output. A reading that is late but allowed
          fires its window again, with a corrected result.
Change:   LATENESS; READINGS. An unbounded source needs no custom generator: use
          WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(5)).
Run:      python examples/late_data.py

Expected output:

    seconds 0 to 10: 2 readings, mean 21.0
    seconds 0 to 10: 3 readings, mean 22.0
    seconds 10 to 20: 1 readings, mean 25.0
    seconds 30 to 40: 1 readings, mean 26.0
    late> Reading(degrees=90, second=5)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from millstream.common import Time, Watermark, WatermarkGenerator, WatermarkOutput, WatermarkStrategy
from millstream.datastream import OutputTag, ProcessWindowFunction, StreamExecutionEnvironment
from millstream.datastream.window import TimeWindow, TumblingEventTimeWindows

LATENESS = Time.seconds(10)
LATE = OutputTag("late")


class Reading(NamedTuple):
    degrees: int
    second: int


READINGS = [
    Reading(20, 1),
    Reading(22, 9),
    Reading(25, 12),  # event time 12: the window from 0 to 10 fires
    Reading(24, 8),  # late, but allowed: the window fires again
    Reading(26, 31),  # event time 31: the window from 10 to 20 fires, the one before is discarded
    Reading(90, 5),  # too late
]


class EveryReading(WatermarkGenerator):
    """Emits the time of the newest reading as the watermark.

    The built-in strategies emit watermarks periodically (in Flink every 200 ms, here when an epoch ends): after all of
    these few readings, so that none would be late.
    """

    def on_event(self, event: Reading, event_timestamp: int, output: WatermarkOutput) -> None:
        output.emit_watermark(Watermark(event_timestamp - 1))

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        pass


class Mean(ProcessWindowFunction[Reading, str, int, TimeWindow]):
    def process(self, key: int, context: ProcessWindowFunction.Context, elements: Iterable[Reading]) -> Iterator[str]:
        degrees = [reading.degrees for reading in elements]
        window = context.window()
        span = f"seconds {window.start // 1000} to {window.end // 1000}"
        yield f"{span}: {len(degrees)} readings, mean {sum(degrees) / len(degrees):.1f}"


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    by_time = WatermarkStrategy.for_generator(EveryReading).with_timestamp_assigner(lambda r, _: r.second * 1000)
    readings = env.from_collection(READINGS).assign_timestamps_and_watermarks(by_time)
    windows = readings.key_by(lambda _: 0).window(TumblingEventTimeWindows.of(Time.seconds(10)))
    means = windows.allowed_lateness(LATENESS).side_output_late_data(LATE).process(Mean()).name("mean")
    means.print()
    # Late data is a normal stream: count it, store it, or correct earlier results with it.
    means.get_side_output(LATE).print("late")
    env.execute("late data")


if __name__ == "__main__":
    main()
