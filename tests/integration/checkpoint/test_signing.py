"""Signed state: with a key, a job restores only state signed with that key, and unpickles nothing else."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from click.testing import CliRunner

from millstream.checkpoint.inspect import Inspection
from millstream.checkpoint.manifest import NAME, Manifest, decode_manifest, encode_manifest
from millstream.checkpoint.origin import find_origin, find_published
from millstream.checkpoint.signing import SIGNING_KEY_FILE, SigningKeys, signing_keys
from millstream.checkpoint.snapshot import OperatorSnapshot, Snapshot, SubtaskSnapshot, VertexSnapshot
from millstream.checkpoint.store import list_checkpoints, open_checkpoint
from millstream.cli.main import cli
from millstream.common.configuration import Configuration
from millstream.common.errors import (
    DamagedStateError,
    InvalidProgramError,
    JobExecutionError,
    UntrustedStateError,
)
from millstream.common.private_files import NotPrivateError
from millstream.datastream.connectors.datagen import DataGeneratorSource
from millstream.operators.runtime.runtime_snapshot import encode as encode_carried
from millstream.state.changelog import FileHeader, Section, decode, encode
from millstream.state_processor import Savepoint
from millstream.testing import CollectSink, LocalEnvironment
from tests.integration.testing.test_local_environment import expected, last, sums, wait_until

RECOVERY = "execution.state-recovery"


class Attack:
    """Creates a directory when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> Any:
        return os.makedirs, (str(self._path), 0o700, True)


@pytest.fixture
def key(tmp_path: Path) -> dict[str, str]:
    """Return the setting of a key."""
    return make_key(tmp_path / "key", "0123456789abcdef" * 4)


def make_key(path: Path, text: str) -> dict[str, str]:
    path.write_text(text + "\n")
    path.chmod(0o600)
    return {SIGNING_KEY_FILE.key: str(path)}


def defined(key: dict[str, str]) -> list[str]:
    return [word for name, value in key.items() for word in ("-D", f"{name}={value}")]


def take_savepoint(directory: Path, settings: dict[str, str]) -> tuple[str, int]:
    """Take a savepoint of a job that sums numbers; return its location and the number of records read."""
    local = LocalEnvironment(Configuration.from_dict(settings))
    sink = sums(local, 1_000_000, 2_000)
    client = local.execute_async()
    wait_until(lambda: len(sink.results()) > 20)
    location = client.stop_with_savepoint(False, str(directory)).result()
    return location, int(Inspection.open(location).sources()[0].position)


def foreign_savepoint(path: Path, mark: Path) -> str:
    """Write a forged savepoint that runs code when it is restored; return its location."""
    path.mkdir()
    runtime_snapshot = encode_carried(
        watermark=0,
        idle=False,
        ended=False,
        channels={},
        operators={"any": Attack(mark)},
        watermarks={},
        pending_ranges=[(None, "share", 0)],
    )
    operator = OperatorSnapshot("ab" * 16, "other", "other")
    vertex = VertexSnapshot([operator], 128, [SubtaskSnapshot(runtime_snapshot=runtime_snapshot)], False)
    manifest = Manifest("savepoint", 1, 1, Snapshot("cd" * 16, "job", 1, {operator.id: vertex}), "")
    (path / NAME).write_bytes(encode_manifest(manifest))
    return str(path)


def forge(data: bytes, offset: int) -> bytes:
    """Change a byte of a file, and four others so that its CRC-32 stays the same."""
    changed = bytearray(data)
    changed[offset] ^= 1
    effects = []
    for bit in range(32):
        flipped = bytearray(changed)
        flipped[offset + 1 + bit // 8] ^= 1 << bit % 8
        effects.append((crc32(flipped) ^ crc32(changed), 1 << bit))
    difference, flips = crc32(changed) ^ crc32(data), 0
    for position in range(31, -1, -1):
        pivot = next(e for e in effects if e[0] >> position & 1)
        effects = [(e[0] ^ pivot[0], e[1] ^ pivot[1]) if e[0] >> position & 1 else e for e in effects if e is not pivot]
        if difference >> position & 1:
            difference, flips = difference ^ pivot[0], flips ^ pivot[1]
    for bit in range(32):
        if flips >> bit & 1:
            changed[offset + 1 + bit // 8] ^= 1 << bit % 8
    assert crc32(changed) == crc32(data) and changed != data
    return bytes(changed)


# --- signed state


def test_signed_savepoint_restores_after_move(tmp_path: Path, key: dict[str, str]) -> None:
    location, read = take_savepoint(tmp_path / "savepoints", key)
    moved = shutil.move(location, tmp_path / "moved")
    local = LocalEnvironment(Configuration.from_dict({**key, f"{RECOVERY}.path": str(moved)}))
    sink = sums(local, read + 10, 1e6)
    assert local.execute().records_in == 10
    assert last(sink) == expected(read + 10)
    reported = CliRunner().invoke(cli, ["state", "ls", str(moved), *defined(key)])
    assert reported.exit_code == 0 and "sums" in reported.output
    # The state processor signs what it writes, too.
    changed = Savepoint.load(moved, Configuration.from_dict(key)).write(tmp_path / "changed")
    assert Savepoint.load(changed, Configuration.from_dict(key)).operators()
    # Without a key it is still readable.
    assert Savepoint.load(changed).operators()


def test_signed_checkpoint_is_found_as_latest(tmp_path: Path, key: dict[str, str]) -> None:
    checkpoints = {
        **key,
        "execution.checkpointing.interval": "10 ms",
        "execution.checkpointing.dir": str(tmp_path / "checkpoints"),
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.delay": "1 ms",
    }
    local = LocalEnvironment(Configuration.from_dict(checkpoints))
    failed = tmp_path / "failed"

    def fail_once(value: int) -> int:
        if value == 100 and not failed.exists():
            failed.touch()
            raise ValueError("once")
        return value

    sink = CollectSink()
    numbers = local.from_source(DataGeneratorSource(lambda i: i, 1_000_000, 2_000)).uid("numbers")
    keyed = numbers.map(fail_once).map(lambda x: (x % 2, x)).key_by(lambda t: t[0])
    keyed.reduce(lambda a, b: (a[0], a[1] + b[1])).uid("sums").sink_to(sink).uid("sink")
    client = local.execute_async("job")
    while not any(total > 200 * 50 for _, total in sink.results()):
        # After the failure, the state that slots read again is still signed.
        client.trigger_checkpoint().result()
    client.cancel().result()
    assert failed.exists()
    config = Configuration.from_dict({**checkpoints, f"{RECOVERY}.path": "latest"})
    origin = find_origin(config, "job")
    assert origin is not None
    published = [location for location, _ in reversed(list_checkpoints(os.path.dirname(origin.location)))]
    assert find_published(config, "job", published).location == origin.location
    # Unsigned checkpoints of another job in the directory are ignored; those of this job are rejected.
    unsigned = tmp_path / "checkpoints" / ("ef" * 16)
    shutil.copytree(os.path.dirname(origin.location), unsigned)
    path = unsigned / os.path.basename(origin.location) / NAME
    manifest = open_checkpoint(str(path.parent)).manifest
    for name in ("other", "job"):
        newer = replace(manifest, timestamp=manifest.timestamp + 1, snapshot=replace(manifest.snapshot, job_name=name))
        path.write_bytes(encode_manifest(newer))
        if name == "other":
            assert find_origin(config, "job") is not None
    with pytest.raises(UntrustedStateError, match=f"{path} is not signed, and {SIGNING_KEY_FILE.key} is set"):
        find_origin(config, "job")


# --- unsigned state


def restore(config: Configuration, location: str) -> None:
    config.set_string(f"{RECOVERY}.path", location)
    config.set_string(f"{RECOVERY}.ignore-unclaimed-state", "true")
    local = LocalEnvironment(config)
    local.from_collection([1]).sink_to(CollectSink())
    local.execute()


READERS: dict[str, Callable[[Configuration, str], Any]] = {
    "restore": restore,
    "published": lambda config, location: find_published(config, "job", [location]),
    "load": lambda config, location: Savepoint.load(location, config).operators(),
}


@pytest.mark.parametrize("reader", READERS)
def test_unsigned_state_is_rejected_before_unpickling(tmp_path: Path, key: dict[str, str], reader: str) -> None:
    mark = tmp_path / "attacked"
    location = foreign_savepoint(tmp_path / "foreign", mark)
    with pytest.raises(
        UntrustedStateError, match=f"^{location}/_metadata is not signed, .*`millstream savepoint sign`"
    ):
        READERS[reader](Configuration.from_dict(key), location)
    # Also if it is signed with another key.
    manifest = open_checkpoint(location).manifest
    Path(location, NAME).write_bytes(encode_manifest(manifest, SigningKeys(b"another key, as long")))
    with pytest.raises(UntrustedStateError, match="not signed with a key of millstream.state.signing-key-file"):
        READERS[reader](Configuration.from_dict(key), location)
    assert not mark.exists()
    if reader == "restore":
        restore(Configuration(), location)
        assert mark.exists(), "the attack does not work without the key either"


@pytest.mark.parametrize("words", [["state", "ls"], ["state", "show", "--trust"], ["savepoint", "check"]], ids=" ".join)
def test_state_commands_reject_unsigned_state_with_key(tmp_path: Path, key: dict[str, str], words: list[str]) -> None:
    location = foreign_savepoint(tmp_path / "foreign", tmp_path / "attacked")
    program = tmp_path / "program.py"
    program.write_text("raise SystemExit('the program was run')")
    reported = CliRunner().invoke(cli, [*words, *defined(key), *([str(program)] if "check" in words else []), location])
    assert isinstance(reported.exception, UntrustedStateError), reported.output


def test_signed_manifest_is_rejected_after_any_change() -> None:
    keys = SigningKeys(b"a key that is long enough")
    data = encode_manifest(Manifest("savepoint", 1, 1, Snapshot("id", "job", 1), ""), keys)
    assert decode_manifest("m", data, keys).snapshot.job_name == "job"
    head = data.partition(b"\n")[0]
    signature = head[head.index(b'"signature"') :]
    for kind, name in (("savepoint", "other"), ("checkpoint", "job")):
        forged = encode_manifest(Manifest(kind, 1, 1, Snapshot("id", name, 1), ""))
        with_signature = forged.replace(b"}\n", b", " + signature + b"\n", 1)
        assert decode_manifest("m", with_signature).snapshot.job_name == name
        with pytest.raises(UntrustedStateError):
            decode_manifest("m", with_signature, keys)


def test_signed_savepoint_rejects_forged_file_with_same_crc(tmp_path: Path, key: dict[str, str]) -> None:
    location, _ = take_savepoint(tmp_path / "savepoints", key)
    (part, *_) = Path(location).glob("*.parquet")
    intact = part.read_bytes()
    part.write_bytes(forge(intact, len(intact) // 2))
    with pytest.raises(DamagedStateError, match=f"{part.name} is damaged: it fails its checksum"):
        find_origin(Configuration.from_dict({**key, f"{RECOVERY}.path": location}), "job")


def test_job_with_key_rejects_state_file_replaced_while_running(tmp_path: Path, key: dict[str, str]) -> None:
    shared, mark = tmp_path / "checkpoints", tmp_path / "attacked"
    settings = {
        "execution.checkpointing.interval": "10 ms",
        "execution.checkpointing.dir": str(shared),
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.delay": "1 ms",
        "restart-strategy.fixed-delay.attempts": "1",
    }

    def attack(value: int) -> int:
        files = list(shared.glob("*/shared/*"))
        if value < 100 or not files or mark.with_suffix(".tried").exists():
            return value
        mark.with_suffix(".tried").touch()
        for path in files:
            content = decode(path.name, path.read_bytes())
            section = next(content.sections())
            rows: dict[Any, Any] = {row: Attack(mark) for row in section.rows}
            attacked = [Section(section.table, section.kind, section.address, rows)]
            header = FileHeader("", 0, 1, True, [], path.name)
            path.write_bytes(b"".join(encode(header, attacked)))
        raise ValueError("attacked")

    local = LocalEnvironment(Configuration.from_dict({**settings, **key}))
    numbers = local.from_source(DataGeneratorSource(lambda i: i, 1_000_000, 2_000)).uid("numbers")
    keyed = numbers.map(attack).map(lambda x: (x % 2, x)).key_by(lambda t: t[0])
    keyed.reduce(lambda a, b: (a[0], a[1] + b[1])).uid("sums").sink_to(CollectSink())
    with pytest.raises(JobExecutionError, match="is not the file that this checkpoint wrote"):
        local.execute()
    assert not mark.exists()


# --- keys


def test_savepoint_sign_command_makes_unsigned_savepoint_restorable(tmp_path: Path, key: dict[str, str]) -> None:
    location, read = take_savepoint(tmp_path / "savepoints", {})
    config = Configuration.from_dict({**key, f"{RECOVERY}.path": location})
    with pytest.raises(UntrustedStateError):
        find_origin(config, "job")
    reported = CliRunner().invoke(cli, ["savepoint", "sign", location])
    assert "set millstream.state.signing-key-file" in str(reported.exception)
    reported = CliRunner().invoke(cli, ["savepoint", "sign", location, *defined(key)])
    assert reported.output == f"{location} was signed.\n"
    local = LocalEnvironment(config)
    sink = sums(local, read + 10, 1e6)
    local.execute()
    assert last(sink) == expected(read + 10)


def test_signing_keys_accept_signature_of_earlier_key(tmp_path: Path, key: dict[str, str]) -> None:
    old = signing_keys(Configuration.from_dict(key))
    both = signing_keys(Configuration.from_dict(make_key(tmp_path / "both", "f" * 64 + "\n" + "0123456789abcdef" * 4)))
    assert old is not None and both is not None
    both.check("there", b"text", old.sign(b"text"))
    with pytest.raises(UntrustedStateError):
        old.check("there", b"text", both.sign(b"text"))
    assert "0123456789abcdef" not in repr(old) + str(vars(Configuration.from_dict(key)))


def test_signing_keys_reject_file_without_key_or_readable_by_others(tmp_path: Path, key: dict[str, str]) -> None:
    with pytest.raises(InvalidProgramError, match="16 characters or more: make one with `openssl rand -hex 32`"):
        signing_keys(Configuration.from_dict(make_key(tmp_path / "short", "secret")))
    with pytest.raises(InvalidProgramError, match="which cannot be read"):
        signing_keys(Configuration.from_dict({SIGNING_KEY_FILE.key: str(tmp_path / "none")}))
    (tmp_path / "key").chmod(0o644)
    with pytest.raises(NotPrivateError, match="with mode 600"):
        signing_keys(Configuration.from_dict(key))
