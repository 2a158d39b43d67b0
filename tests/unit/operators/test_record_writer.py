"""Blocks are limited in size; a single record above the limit is an error that names its size."""

from __future__ import annotations

import pytest

from millstream.common.pickles import dump
from millstream.jobmaster.engine import EpochFailed
from millstream.operators.runtime import record_writer
from millstream.operators.runtime.messages import SlotReport, SubtaskReport
from millstream.testing import CollectSink, LocalEnvironment
from millstream.testing.local_job import LocalJob


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_writer, "MAX_BLOCK_BYTES", 1 << 20)


def test_large_records_are_sent_in_several_blocks() -> None:
    env = LocalEnvironment()
    texts = env.from_collection(range(20)).map(lambda i: "x" * 300_000 + str(i)).rebalance().map(len)
    assert list(texts.execute_and_collect()) == [300_001] * 10 + [300_002] * 10


@pytest.mark.parametrize("partitioning", ["keyed", "rebalance", "broadcast"])
def test_large_record_above_the_limit_fails_with_size_and_operator(partitioning: str) -> None:
    env = LocalEnvironment(restarts=3)
    stream = env.from_collection(range(300)).map(lambda i: "x" * (3 << 20) if i == 77 else "x").name("enlarge")
    if partitioning == "keyed":
        sent = stream.key_by(len).map(len)
    else:
        sent = (stream.rebalance() if partitioning == "rebalance" else stream.broadcast()).map(len)
    with pytest.raises(
        EpochFailed, match=r"A record \(str\) takes 3 MB, and 1 MB is the maximum between two subtasks"
    ) as e:
        list(sent.execute_and_collect())
    assert "in operator 'enlarge'" in str(e.value)
    assert e.value.unrecoverable


def test_large_sink_output_above_the_report_limit_names_the_sink() -> None:
    env = LocalEnvironment()
    numbers = env.from_collection([1])
    numbers.sink_to(CollectSink()).name("small")
    numbers.sink_to(CollectSink()).name("large").uid("large")
    job = LocalJob(env)
    nodes = {n.name: n.id for v in job.plan.vertices for n in v.nodes}
    reports = [
        SubtaskReport(
            vertex=v.id,
            subtask=0,
            records_in=1,
            records_out=0,
            bytes_out=0,
            state_files={},
            state_bytes=0,
            committables={nodes["small"]: b"x", nodes["large"]: b"x" * (3 << 20)},
            watermark=0,
            metrics={},
            runtime_snapshot=b"",
            next_wake=None,
            aligned={},
            ended=True,
            tables={},
            exported={},
        )
        for v in job.plan.vertices
    ]
    message = dump([SlotReport(level=0, slot=0, subtasks=reports, printed="")])
    failed = job.slots[0].too_large(message, 1 << 20, 7)
    assert "has 3 MB, more than the 1 MB that Spark transfers" in str(failed)
    assert "in operator 'large' (uid large), subtask 1/1, epoch 7" in str(failed)
    assert failed.failure.unrecoverable
