"""Any text is a valid name, and a chain may be longer than Python's stack is deep."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from millstream.checkpoint.manifest import Manifest, decode_manifest, encode_manifest
from millstream.checkpoint.snapshot import Snapshot
from millstream.common import Configuration, Duration, WatermarkStrategy
from millstream.common.display_text import printable
from millstream.testing import CollectSink, LocalEnvironment
from millstream.testing.local_job import LocalJob

NAMES = ["a\0b", "x" * 5000, "", "a\nb\r\t", "\ud800", "ü😀\u202e", "'\"\\{}%s%d", "</title>", "../../b", "\x1b[31m"]


@pytest.mark.parametrize("name", NAMES)
def test_operator_and_job_names_accept_any_text(name: str, tmp_path: Path) -> None:
    config = {"execution.checkpointing.interval": "20ms", "execution.checkpointing.dir": str(tmp_path)}
    env = LocalEnvironment(Configuration.from_dict(config))
    pairs = env.from_collection(range(5)).name(name).map(lambda x: (x % 2, x)).name(name).uid(name or "uid")
    sums = pairs.key_by(lambda t: t[0]).reduce(lambda a, b: (a[0], a[1] + b[1])).name(name)
    ElementTree.fromstring(sums._repr_svg_())
    job = sums.execute_and_collect(name)
    assert max(job) == (1, 4)
    manifest = encode_manifest(Manifest("checkpoint", 1, 0, Snapshot("id", name, 1), ""))
    assert decode_manifest("there", manifest).snapshot.job_name == name


def test_name_rejects_values_that_are_no_text() -> None:
    with pytest.raises(TypeError, match=r"name\(\) takes a text, not 5"):
        LocalEnvironment().from_collection([1]).name(5)  # type: ignore[arg-type]


def test_printable_escapes_and_truncates_names() -> None:
    assert printable("a\0b") == "a\\x00b"
    assert printable("\ud800\n") == "\\ud800\\n"
    assert printable("ü😀 plain") == "ü😀 plain"
    assert len(printable("x" * 5000, 60)) == 60


@pytest.mark.parametrize("kind", ["map", "filter", "flat_map", "keyed", "watermarks"])
def test_chain_of_600_operators_runs(kind: str) -> None:
    env, sink = LocalEnvironment(), CollectSink()
    stream: Any = env.from_collection([1, 2, 3])
    if kind == "keyed":
        stream = stream.key_by(lambda v: v)
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(1))
    for _ in range(600):
        if kind == "map":
            stream = stream.map(lambda v: v)
        elif kind == "flat_map":
            stream = stream.flat_map(lambda v: [v])
        elif kind == "watermarks":
            stream = stream.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(lambda v, t: v))
        else:
            stream = stream.filter(lambda v: True)
    stream.sink_to(sink)
    LocalJob(env, epoch_sizes=lambda: 1).run()
    assert sink.results() == [1, 2, 3]
