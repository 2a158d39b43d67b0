"""Reads the files of checkpoints and savepoints using only the formats documented in docs/guides/savepoints.md."""

from __future__ import annotations

import base64
import hashlib
import json
import pickle
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from millstream.testing import LocalJob, save_checkpoint, save_savepoint
from tests.support.state_programs import build

ROWS = {0: 0 + 7 + 14, "1": 1 + 8 + 15}


def running() -> LocalJob:
    job = LocalJob(build(2)[0], epoch_sizes=lambda: 7)
    for _ in range(3):
        job.run_epoch()
    return job


def manifest(location: str) -> dict[str, Any]:
    head, body = Path(location, "_metadata").read_bytes().split(b"\n", 1)
    header = json.loads(head)
    checked = f"{header['millstream']} {header['version']}".encode() + body
    assert (header["version"], header["length"], header["crc32"]) == (3, len(body), zlib.crc32(checked))
    read: dict[str, Any] = json.loads(body)
    assert header["millstream"] == read["kind"]
    return read


def operator_id(uid: str) -> str:
    return hashlib.blake2b(b"uid\0" + uid.encode(), digest_size=16).hexdigest()


def vertex_of(read: dict[str, Any], uid: str) -> dict[str, Any]:
    (vertex,) = [v for v in read["vertices"] if any(o["id"] == operator_id(uid) for o in v["operators"])]
    return vertex  # type: ignore[no-any-return]


def text_group(key: str, groups: int) -> int:
    return (zlib.crc32(key.encode()) * 0x9E3779B1 & 0xFFFFFFFF) * groups >> 32


def test_savepoint_files_match_documented_format(tmp_path: Path) -> None:
    location = save_savepoint(running(), tmp_path)
    read = manifest(location)
    vertex = vertex_of(read, "keep")
    about = next(o for o in vertex["operators"] if o["uid"] == "keep")["tables"][""]
    assert about["total"] == {"kind": "value", "address": "key", "type": "Integer", "ttl": ""}
    totals: dict[str, Any] = {}
    for subtask, snapshot in enumerate(vertex["subtasks"]):
        name, checksum = snapshot["parts"][operator_id("keep")]
        data = Path(location, name).read_bytes()
        assert zlib.crc32(data) == checksum
        for row in pq.read_table(Path(location, name)).to_pylist():
            assert row["key_group"] * vertex["parallelism"] // vertex["max_parallelism"] == subtask
            if row["state"] == "total":
                totals[row["key"]] = row
    assert pickle.loads(totals['"1"']["pickled_value"]) == int(totals['"1"']["value"]) == ROWS["1"]
    assert pickle.loads(totals['"1"']["pickled_row"]) == "1"
    assert totals['"1"']["key_group"] == text_group("1", 128)
    assert set(totals) == {"0", '"1"', '[5, "x"]', "[3, 1]", '{"k": 4}', "3", '"3"'}
    assert pickle.loads(unpacked(read["sources"][operator_id("numbers")])) == {0: (21, 60)}


def test_runtime_snapshot_matches_documented_format(tmp_path: Path) -> None:
    read = manifest(save_savepoint(running(), tmp_path))
    for snapshot in vertex_of(read, "keep")["subtasks"]:
        data = unpacked(snapshot["runtime_snapshot"])
        # Version 3, no requests in flight, no pending input.
        assert struct.unpack(">BBH", data[:4]) == (3, 0, 0)
        watermark, idle, ended, channels, operators, watermarks, ended_edges, *pending = pickle.loads(data[4:])
        assert pending == [[], [], []]
        # The last numbers of the two senders are 19 and 20; watermarks are six behind.
        assert (watermark, idle, ended, ended_edges) == (13, False, False, None)
        edges = [e[0] for e in read["edges"] if e[2] == operator_id("keep")]
        assert [(c[0] in edges, *c[1:]) for c in channels] == [(True, 0, 14, False, False), (True, 1, 13, False, False)]
        assert operators == {operator_id("kept"): (None,)}
        assert watermarks == {operator_id("keep"): 13, operator_id("kept"): 13}


def unpacked(text: str) -> bytes:
    return base64.b64decode(text)


def sections(path: Path) -> tuple[dict[str, Any], list[tuple[str, Any]]]:
    data = path.read_bytes()
    assert struct.unpack(">4sH", data[:6]) == (b"MSCL", 3)
    length, checksum, magic = struct.unpack(">II4s", data[-12:])
    assert magic == b"MSCL"
    text = data[-12 - length : -12]
    assert zlib.crc32(text) == checksum
    footer = json.loads(text)
    results, offset = [], 6
    for about in footer["sections"]:
        body = data[offset : offset + about["length"]]
        assert zlib.crc32(body) == about["crc"]
        results.append((about["name"], pickle.loads(zlib.decompress(body) if about["zlib"] else body)))
        offset += about["length"]
    return footer, results


def test_checkpoint_files_match_documented_format(tmp_path: Path) -> None:
    location = save_checkpoint(running(), tmp_path, 5)
    read = manifest(location)
    assert (read["id"], read["state"], Path(location).name) == (5, "../shared", "chk-5")
    totals: dict[Any, Any] = {}
    for snapshot in vertex_of(read, "keep")["subtasks"]:
        chain = snapshot["states"][operator_id("keep")]
        last, _ = sections(Path(location, read["state"], chain[-1]))
        assert [p[0] for p in last["parents"]] == chain[:-1]
        for name in chain:
            for table, changes in sections(Path(location, read["state"], name))[1]:
                if table == "total":
                    totals.update(changes)
    assert {k: totals[k] for k in ROWS} == ROWS


def test_savepoint_read_starts_no_arrow_threads(tmp_path: Path) -> None:
    """A thread of Arrow that still starts when a command exits aborts the process."""
    location = save_savepoint(running(), tmp_path)
    counted = (
        "import os, sys\n"
        "import pyarrow, pyarrow.compute, pyarrow.parquet\n"
        "from millstream.state_processor import Savepoint\n"
        "before = len(os.listdir('/proc/self/task'))\n"
        "savepoint = Savepoint.load(sys.argv[1])\n"
        "assert savepoint.operators() and list(savepoint.keyed_state('keep', 'total'))\n"
        "print(len(os.listdir('/proc/self/task')) - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", counted, location], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("0\n", "")
