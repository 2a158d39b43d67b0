"""The size of a checkpoint with KEYS keys that have one open run each.

python -m bench.cep.state KEYS           millstream's
python -m bench.cep.state --flink KEYS   Flink's (hashmap), of the same events and pattern; needs a JDK and Maven
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from millstream.cep import CEP, Pattern
from millstream.common import WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.number_seq import NumberSequenceSource
from millstream.testing import CollectSink, LocalJob

HERE = Path(__file__).resolve().parent


def checkpoint_bytes(keys: int) -> int:
    def is_(letter: str) -> Any:
        return lambda e: e[1] == letter

    def event(k: int) -> tuple[int, str, int]:
        # Two more events advance the watermark. The last is not read before the checkpoint, because the input would
        # end.
        return (k, "a", 1_000) if k < keys else (k, "d", 1_001)

    pattern = Pattern.begin("a").where(is_("a")).followed_by("b").where(is_("b")).within(1_000)
    marks = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda e, _: e[2])
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
    events = env.from_source(NumberSequenceSource(0, keys + 1)).map(event).assign_timestamps_and_watermarks(marks)
    CEP.pattern(events.key_by(lambda e: e[0]), pattern).select(len).sink_to(CollectSink())
    job = LocalJob(env, epoch_sizes=lambda: keys + 1)
    job.run_epoch()
    return sum(len(job.storage.files[name]) for name in job.snapshot().files())


def flink(keys: int) -> None:
    from tests.cep.record import classpath

    path = classpath()
    with tempfile.TemporaryDirectory() as classes:
        subprocess.run(["javac", "-nowarn", "-cp", path, "-d", classes, str(HERE / "StateSize.java")], check=True)
        opens = [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in ("util", "lang")]
        command = ["java", "-Xmx1500m", *opens, "-cp", f"{classes}:{path}", "StateSize", str(keys)]
        subprocess.run(command, stderr=subprocess.DEVNULL, check=True)


if __name__ == "__main__":
    keys = int(sys.argv[-1])
    if "--flink" in sys.argv:
        flink(keys)
    else:
        print(f"bytes per key: {checkpoint_bytes(keys) / keys}")
