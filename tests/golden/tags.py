"""An object for each stable tag, and the first pickle written of it: python -m tests.golden.tags"""

from __future__ import annotations

import base64
import json
import operator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.cep import AfterMatchSkipStrategy, Pattern, SimpleCondition
from millstream.cep.automaton import Runs
from millstream.cep.conditions import TRUE, And, Atom, Not, Or, Subtype
from millstream.cep.dynamic import PatternProcessor, Removed
from millstream.cep.quantifier import Contiguity, Times, WithinType
from millstream.common import Duration, Instant, Row, RowKind, Time
from millstream.common.pickles import dump
from millstream.connectors.cdc.changes import Change
from millstream.connectors.cdc.incremental_snapshot import Progress
from millstream.connectors.cdc.mysql import offsets as mysql_offsets
from millstream.connectors.cdc.mysql.log import BinlogRange
from millstream.connectors.cdc.postgres import log as postgres_log
from millstream.connectors.cdc.postgres.pgoutput import Begin, Column, Relation
from millstream.connectors.cdc.postgres.splits import ChunkRange, LogRange, TableDescription, Visibility
from millstream.connectors.cdc.postgres.values import PostgresType
from millstream.connectors.files.part_files import PartFile, StagedParts
from millstream.connectors.files.partition_commit import Staged
from millstream.connectors.files.source import FilePosition, FileSplit
from millstream.connectors.hybrid_source import HybridPosition, HybridSplitRange
from millstream.connectors.jdbc.source import _Range
from millstream.connectors.kafka.producer import Transaction
from millstream.connectors.rabbitmq.source import Position
from millstream.formats.file_format import FileSplitRange
from millstream.operators.watermarks import BoundedOutOfOrderness, _NoWatermarks
from millstream.operators.windows.windows import CountWindow, GlobalWindow, TimeWindow
from millstream.sql.columns.batch import Batch
from millstream.sql.operators.io.watermark_assigner import _Highest
from millstream.state.column_table import RowChange
from millstream.state.key_groups import FrozenDict, FrozenList, FrozenNaN
from millstream.state.table import REMOVED, Extra, Patch
from millstream.table.data_view import ListView, MapView
from millstream.testing.sources import _Marks, _PerElement

FILE = Path(__file__).parent / "v3" / "tags.json"


def samples() -> dict[str, Any]:
    """Return an object for each tag."""
    named = {**_of_state(), **_of_patterns(), **_of_connectors(), **_of_databases()}
    return {f"{tag}:1": sample for tag, sample in named.items()}


def _of_state() -> dict[str, Any]:
    elements: ListView[int] = ListView()
    elements.add_all([1, 2])
    entries: MapView[str, int] = MapView()
    entries.put("a", 1)
    bounded, highest, each = BoundedOutOfOrderness(5), _Highest(), _PerElement()
    bounded.highest = highest.highest = each._highest = 77
    keys = pa.record_batch([pa.array([1, 2])], ["hash"])
    return {
        "removed-entry": REMOVED,
        "appended-elements": Extra([1, "a"]),
        "changed-entries": Patch({"a": 1, "b": REMOVED}),
        "changed-rows": RowChange(keys, keys.slice(1)),
        "frozen-list": FrozenList((1, "a")),
        "frozen-dict": FrozenDict((("a", 1),)),
        "frozen-nan": FrozenNaN(float),
        "time-window": TimeWindow(0, 10),
        "count-window": CountWindow(3),
        "global-window": GlobalWindow(),
        "row": Row.of_kind(RowKind.UPDATE_AFTER, name="a", n=1),
        "row-kind": RowKind.DELETE,
        "duration": Duration.of_seconds(5),
        "time": Time.seconds(5),
        "instant": Instant(5, 6),
        "list-view": elements,
        "map-view": entries,
        "batch": Batch([pa.array([1, None]), pa.array(["a", "b"])], np.array([0, 3], np.int8)),
        "bounded-out-of-orderness": bounded,
        "no-watermarks": _NoWatermarks(),
        "highest-watermark": highest,
        "scripted-watermarks": _Marks(),
        "per-element-watermarks": each,
    }


def _of_patterns() -> dict[str, Any]:
    condition = SimpleCondition.of(operator.truth)
    atom = Atom(operator.truth, False, condition, "a", "a.where")
    pattern = Pattern.begin("a", AfterMatchSkipStrategy.skip_to_last("a")).where(condition).times(2, 3).greedy()
    group = Pattern.begin(pattern).followed_by("c").optional().within(Time.seconds(5))
    runs = Runs()
    first = (None, "a", "event", 5, 0)
    runs.queue = [((5, 0), "b", first)]
    runs.stamp, runs.count = 5, 1
    runs.set_timer(9)
    return {
        "cep-runs": runs,
        "cep-always": TRUE,
        "cep-atom": atom,
        "cep-not": Not(atom),
        "cep-and": And(atom, TRUE),
        "cep-or": Or(TRUE, atom),
        "cep-subtype": Subtype(int),
        "cep-simple-condition": condition,
        "cep-within-type": WithinType.FIRST_AND_LAST,
        "cep-contiguity": Contiguity.RELAXED,
        "cep-quantifier": pattern.get_quantifier(),
        "cep-times": Times(1, 2, 5000),
        "cep-pattern": pattern,
        "cep-group-pattern": group.get_previous(),
        "cep-no-skip": AfterMatchSkipStrategy.no_skip(),
        "cep-skip-to-next": AfterMatchSkipStrategy.skip_to_next(),
        "cep-skip-past-last-event": AfterMatchSkipStrategy.skip_past_last_event(),
        "cep-skip-to-element": AfterMatchSkipStrategy.skip_to_first("a").throw_exception_on_miss(),
        "cep-pattern-processor": PatternProcessor("pairs", 2, pattern, max),
        "cep-removed-pattern": Removed("pairs"),
    }


def _of_connectors() -> dict[str, Any]:
    split, part = FileSplit("/in/a", 5, 10, 20, 1.5), PartFile("/out/.a", "/out/a", 7, 1)
    parts = StagedParts((part,), ("/out/old",))
    return {
        "file-split": split,
        "file-position": FilePosition(2, {1: split}, b"12345678"),
        "file-split-range": FileSplitRange(1, "/in/a", 5, 10, 20, True),
        "part-file": part,
        "staged-parts": parts,
        "staged-partitions": Staged(parts, 5, 2, {"day=1": 5}),
        "kafka-transaction": Transaction("id", 5, 1),
        "hybrid-position": HybridPosition(1, {"next": 5}),
        "hybrid-split-range": HybridSplitRange(1, (0, 5)),
        "jdbc-split-range": _Range("id", 1, 5, True, False),
        "rabbitmq-position": Position(5, "channel", 7, frozenset(["a"])),
    }


def _of_databases() -> dict[str, Any]:
    change = Change("u", "t", ("id", "v"), (0,), [1, "a"], [1, "b"], True, 5, {"file": "binlog.1"}, "s")
    offset = mysql_offsets.BinlogOffset(1, 500, 2, "binlog.")
    column, type_note = Column("id", 23, True), PostgresType(21, 23, ";")
    relation = Relation(16384, "public", "t", "f", (column,))
    described = TableDescription(relation, ((23, type_note),), (0,))
    begin, visibility = Begin(500, 5, 77), Visibility(70, 80, frozenset([75]))
    return {
        "cdc-change": change,
        "cdc-progress": Progress((5,), False, (((5,), visibility, 500),), visibility, 1),
        "mysql-split-range": BinlogRange(True, [change]),
        "mysql-offset": offset,
        "mysql-binlog-seen": mysql_offsets.BinlogVisibility(offset),
        "postgres-begin": begin,
        "postgres-column": column,
        "postgres-relation": relation,
        "postgres-offset": postgres_log.PostgresOffset(500, 77, 2),
        "postgres-schema": described,
        "postgres-log-range": LogRange({16384: described}, [(begin, [b"I"])]),
        "postgres-chunk-range": ChunkRange(described, b"rows", 500, 5),
        "postgres-type": type_note,
        "postgres-visibility": visibility,
    }


def main() -> None:
    """Add the pickles of new tags; existing pickles do not change."""
    known = json.loads(FILE.read_text()) if FILE.exists() else {}
    written = {name: base64.b64encode(dump(sample)).decode() for name, sample in samples().items()} | known
    FILE.write_text(json.dumps(dict(sorted(written.items())), indent=1) + "\n")


if __name__ == "__main__":
    main()
