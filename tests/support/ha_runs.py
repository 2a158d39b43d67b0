"""Job managers in separate processes, for tests: their programs, the expected output, and failures."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from millstream.common.configuration import Configuration
from millstream.leader.election_runner import find_leader
from millstream.leader.options import HaOptions

KEYS = 7

PROGRAM = f"""
import os, sys, time
from millstream.common import Encoder, Types, WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.file_system import FileSink
from millstream.datastream.connectors.number_seq import NumberSequenceSource

records, out = int(sys.argv[1]), sys.argv[2]
env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
env.enable_checkpointing(200)

def slowly(i):
    if not os.path.exists(out + ".go"):
        time.sleep(0.005)
    return i % {KEYS}, 1, i

numbers = env.from_source(NumberSequenceSource(0, records - 1), WatermarkStrategy.no_watermarks(), "numbers")
counted = numbers.map(slowly).key_by(lambda x: x[0]).reduce(lambda a, b: (a[0], a[1] + b[1], a[2] + b[2])).uid("counts")
counted.map(lambda x: f"{{x[0]}},{{x[1]}}", Types.STRING()).sink_to(
    FileSink.for_row_format(out, Encoder.simple_string_encoder()).build()
)
env.execute("counts")
"""


# Writes the same numbers to Kafka, each once.
KAFKA_PROGRAM = """
import os, sys, time
from millstream.common import SimpleStringSchema, WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.base import DeliveryGuarantee
from millstream.datastream.connectors.kafka import KafkaRecordSerializationSchema, KafkaSink
from millstream.datastream.connectors.number_seq import NumberSequenceSource

records, out, bootstrap, topic = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
env.enable_checkpointing(200)

def slowly(i):
    if not os.path.exists(out + ".go"):
        time.sleep(0.005)
    return str(i)

schema = KafkaRecordSerializationSchema.builder().set_topic(topic)
sink = KafkaSink.builder().set_bootstrap_servers(bootstrap).set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
sink.set_record_serializer(schema.set_value_serialization_schema(SimpleStringSchema()).build())
numbers = env.from_source(NumberSequenceSource(0, records - 1), WatermarkStrategy.no_watermarks(), "numbers")
numbers.map(slowly).sink_to(sink.set_transactional_id_prefix(topic).build())
env.execute("numbers")
"""


def expected_lines(records: int) -> Counter[str]:
    """Return the expected output of the program: a line for each count of each key."""
    counts = Counter(i % KEYS for i in range(records))
    return Counter(f"{key},{n}" for key, count in counts.items() for n in range(1, count + 1))


def written_lines(out: Path) -> Counter[str]:
    """Return the lines of finished files."""
    files = [p for p in out.rglob("*") if p.is_file() and not p.name.startswith(".")]
    return Counter(line for p in files for line in p.read_text().splitlines())


@dataclass
class Managers:
    """Job managers of one application or cluster."""

    directory: Path
    settings: dict[str, str]
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def out(self) -> Path:
        return self.directory / "out"

    def start(self, *command: str, **settings: str) -> subprocess.Popen[bytes]:
        """Start another job manager, with its own log file."""
        number = len(self.processes)
        options = {**self.settings, **{k.replace("__", "."): v for k, v in settings.items()}}
        defines = [word for key, value in options.items() for word in ("-D", f"{key}={value}")]
        head, rest = command[: _options(command)], command[_options(command) :]
        with open(self.directory / f"log-{number}", "wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "millstream", *head, *defines, *rest],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=self.directory,
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def log(self, number: int) -> str:
        return (self.directory / f"log-{number}").read_text(errors="replace")

    def all_logs(self) -> str:
        return "\n".join(f"--- {n}\n{self.log(n)}" for n in range(len(self.processes)))

    def term(self) -> int:
        """Return the term of the current or last leader."""
        options = HaOptions.read(Configuration.from_dict(self.settings))
        assert options is not None
        cells = options.open()
        lease = find_leader(cells)
        cells.close()
        return 0 if lease is None else lease.term

    def until(self, holds: object, seconds: float = 60.0) -> float:
        """Wait until a condition holds; return the seconds it took."""
        assert callable(holds)
        began = time.monotonic()
        while not holds():
            is_dead = all(process.poll() is not None for process in self.processes)
            assert time.monotonic() - began < seconds and not is_dead, self.all_logs()
            time.sleep(0.05)
        return time.monotonic() - began

    def lines(self) -> int:
        return sum(written_lines(self.out).values())

    def stop_throttling(self) -> None:
        """Make the program process the rest of its input at full speed."""
        Path(f"{self.out}.go").touch()


def _options(command: tuple[str, ...]) -> int:
    """Return the index at which settings are inserted: before the program and its arguments."""
    return next((n for n, word in enumerate(command) if word.endswith(".py")), len(command))


@contextmanager
def managers(directory: Path, settings: dict[str, str]) -> Iterator[Managers]:
    """Yield job managers without a process; end all started processes at the end."""
    (directory / "job.py").write_text(PROGRAM)
    (directory / "kafka_job.py").write_text(KAFKA_PROGRAM)
    job_managers = Managers(directory, settings)
    try:
        yield job_managers
    finally:
        for process in job_managers.processes:
            for kill_signal in (signal.SIGCONT, signal.SIGKILL):
                try:
                    os.killpg(process.pid, kill_signal)
                except ProcessLookupError:
                    break
            process.wait()


def quick(directory: Path, **settings: str) -> dict[str, str]:
    """Return settings of job managers that take over within seconds."""
    return {
        "high-availability.type": "filesystem",
        "high-availability.storageDir": str(directory / "ha"),
        "high-availability.cluster-id": "shop",
        "millstream.high-availability.lease-duration": "1500 ms",
        "millstream.high-availability.renew-deadline": "1000 ms",
        "millstream.high-availability.retry-period": "200 ms",
        **settings,
    }
