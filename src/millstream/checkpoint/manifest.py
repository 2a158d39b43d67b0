"""The manifest of a checkpoint or savepoint: a snapshot as one self-contained text file.

Two lines: a header with kind, version and checksum; then the snapshot as JSON. Opaque values (source positions, staged
output, runtime snapshots of subtasks) are base64. The version covers everything in the manifest.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime

from millstream.checkpoint.signing import SigningKeys, check_digests
from millstream.checkpoint.snapshot import OperatorSnapshot, Snapshot, SubtaskSnapshot, VertexSnapshot, operator_of
from millstream.common.aliases import Json
from millstream.common.checksums import crc32
from millstream.common.display_text import in_bytes
from millstream.common.errors import DamagedStateError
from millstream.state.changelog import StoredState

VERSION = 3
NAME = "_metadata"

# The directory of state files beside a job's checkpoints.
SHARED = "shared"


@dataclass
class Manifest:
    """A complete checkpoint or savepoint.

    Attributes:
        kind: "checkpoint" or "savepoint".
        state: the location of the state files: relative to the manifest's directory, or absolute.
    """

    kind: str
    id: int
    timestamp: int
    snapshot: Snapshot
    state: str
    properties: dict[str, Json] = field(default_factory=dict)


@dataclass
class Origin:
    """The checkpoint or savepoint that a job starts from.

    Attributes:
        claimed: whether the job deletes it as soon as it has a checkpoint of its own.
        state_bytes: the size of its state files.
    """

    manifest: Manifest
    location: str
    state_url: str
    allow_non_restored: bool = False
    claimed: bool = False
    state_bytes: int = 0

    def describe(self) -> str:
        """Return a one-line description."""
        snapshot, created = self.manifest.snapshot, datetime.fromtimestamp(self.manifest.timestamp / 1000, UTC)
        subtasks = [s for v in snapshot.vertices.values() for s in v.subtasks]
        size = in_bytes(self.state_bytes) if self.state_bytes >= 1024 else f"{self.state_bytes} bytes"
        operators = {operator_of(i)[0] for s in subtasks for i in (*s.states, *s.parts)}
        return (
            f"{self.manifest.kind} {self.location}, taken {created:%Y-%m-%d %H:%M:%S} UTC "
            f"after epoch {snapshot.epoch}: {len(operators)} operator(s) with state, {size}; "
            f"{len(snapshot.sources)} source(s)"
        )


def encode_manifest(manifest: Manifest, keys: SigningKeys | None = None) -> bytes:
    """Return the bytes of a manifest, signed if there are keys."""
    snapshot = manifest.snapshot
    body = json.dumps(
        {
            "kind": manifest.kind,
            "id": manifest.id,
            "timestamp": manifest.timestamp,
            "state": manifest.state,
            "properties": manifest.properties,
            "job": {"id": snapshot.job_id, "name": snapshot.job_name},
            "epoch": snapshot.epoch,
            "vertices": [_vertex(v) for v in snapshot.vertices.values()],
            "edges": snapshot.edges,
            "sources": {operator: _base64(state) for operator, state in snapshot.sources.items()},
            "committables": {operator: _base64(staged) for operator, staged in snapshot.committables.items()},
        },
        ensure_ascii=False,
        # A name may contain a lone surrogate, which JSON can only hold as an escape.
    ).encode(errors="backslashreplace")
    checksum = _checksum(manifest.kind, VERSION, body)
    header = {"millstream": manifest.kind, "version": VERSION, "length": len(body), "crc32": checksum}
    if keys is not None:
        check_digests(f"The {manifest.kind} of job '{snapshot.job_name}'", snapshot.checksums())
        header["signature"] = keys.sign(_signed(manifest.kind, VERSION, body))
    return json.dumps(header).encode() + b"\n" + body


def decode_manifest(name: str, data: bytes, keys: SigningKeys | None = None) -> Manifest:
    """Read a manifest; damage or a wrong signature is an error that names the file."""
    head, newline, body = data.partition(b"\n")
    try:
        header = json.loads(head)
        kind, version = header["millstream"], header["version"]
        is_newer = version > VERSION
    except (ValueError, KeyError, TypeError):
        raise DamagedStateError(f"{name} is not a manifest of millstream, or its beginning is damaged.") from None
    if version != VERSION:
        age = "a newer" if is_newer else "an unreleased"
        raise DamagedStateError(
            f"{name} was written by {age} millstream (format {version}); this one reads format {VERSION}."
        )
    if not newline or len(body) != header.get("length") or _checksum(kind, version, body) != header.get("crc32"):
        raise DamagedStateError(f"{name} is damaged: it is incomplete or fails its checksum.")
    if keys is not None:
        keys.check(name, _signed(kind, version, body), header.get("signature"))
    read = json.loads(body)
    snapshot = Snapshot(
        read["job"]["id"],
        read["job"]["name"],
        read["epoch"],
        {v["operators"][0]["id"]: _read_vertex(v) for v in read["vertices"]},
        [tuple(e) for e in read["edges"]],
        {operator: _from_base64(state) for operator, state in read["sources"].items()},
        {operator: _from_base64(staged) for operator, staged in read["committables"].items()},
    )
    if keys is not None:
        check_digests(name, snapshot.checksums())
    return Manifest(kind, read["id"], read["timestamp"], snapshot, read["state"], read["properties"])


def _checksum(kind: str, version: int, body: bytes) -> int:
    return crc32(body, crc32(f"{kind} {version}".encode()))


def _signed(kind: str, version: int, body: bytes) -> bytes:
    return f"{kind} {version}\n".encode() + body


def _vertex(vertex: VertexSnapshot) -> dict[str, Json]:
    return {
        "operators": [{"id": o.id, "uid": o.uid, "name": o.name, "tables": o.tables} for o in vertex.operators],
        "parallelism": vertex.parallelism,
        "max_parallelism": vertex.max_parallelism,
        "ended": vertex.ended,
        "subtasks": [
            {
                "states": s.states,
                "parts": {i: [p.file, p.checksum] for i, p in s.parts.items()},
                "runtime_snapshot": _base64(s.runtime_snapshot),
                "checksums": s.checksums,
            }
            for s in vertex.subtasks
        ],
    }


def _read_vertex(read: dict[str, Json]) -> VertexSnapshot:
    return VertexSnapshot(
        [OperatorSnapshot(o["id"], o["uid"], o["name"], o["tables"]) for o in read["operators"]],
        read["max_parallelism"],
        [
            SubtaskSnapshot(
                s["states"],
                {i: StoredState(*p) for i, p in s["parts"].items()},
                _from_base64(s["runtime_snapshot"]),
                s["checksums"],
            )
            for s in read["subtasks"]
        ],
        read["ended"],
    )


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _from_base64(text: str) -> bytes:
    return base64.b64decode(text)
