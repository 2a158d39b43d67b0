"""PostgreSQL's log, without a server: messages, values, and pieces of transactions."""

from __future__ import annotations

import struct
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.connectors.cdc import changes as ops
from millstream.connectors.cdc.postgres import log as postgres_log
from millstream.connectors.cdc.postgres import pgoutput
from millstream.connectors.cdc.postgres.log import Assembler, Piece, PostgresOffset
from millstream.connectors.cdc.postgres.pgoutput import UNCHANGED, Begin
from millstream.connectors.cdc.postgres.splits import ChunkRange, LogRange, TableDescription, changes_of, rows_of
from millstream.connectors.cdc.postgres.values import PostgresType, converter, copied_row


def row(*fields: Any) -> bytes:
    """A row as it is in the log: text, None, or UNCHANGED."""
    parts = [struct.pack(">H", len(fields))]
    for f in fields:
        parts.append(b"n" if f is None else b"u" if f is UNCHANGED else b"t" + struct.pack(">i", len(f)) + f)
    return b"".join(parts)


def insert(oid: int, *fields: Any) -> bytes:
    return b"I" + struct.pack(">I", oid) + b"N" + row(*fields)


def begin(lsn: int, xid: int = 5) -> bytes:
    return b"B" + struct.pack(">qqI", lsn, 1_000_000, xid)


def commit(lsn: int, end: int) -> bytes:
    return b"C" + struct.pack(">Bqqq", 0, lsn, end, 0)


def relation(identity: str = "d") -> bytes:
    head = b"R" + struct.pack(">I", 7) + b"public\0t\0" + identity.encode() + struct.pack(">H", 2)
    return head + b"\x01id\0" + struct.pack(">Ii", 23, -1) + b"\x00name\0" + struct.pack(">Ii", 25, -1)


TABLE = TableDescription(pgoutput.relation(relation()), (), (0,))


def decoded_changes(*messages: bytes) -> list[tuple[Any, ...]]:
    split_range = LogRange({7: TABLE}, [(Begin(9, 1000, 5), list(messages))])
    return [(c.op, c.before, c.after, c.is_before_complete) for c in changes_of(split_range)]


def test_pgoutput_decodes_relation_and_begin() -> None:
    decoded = pgoutput.relation(relation("f"))
    assert (decoded.table, decoded.identity) == ("public.t", "f")
    assert [(c.name, c.type, c.is_key) for c in decoded.columns] == [("id", 23, True), ("name", 25, False)]
    assert pgoutput.begin(begin(9)) == Begin(9, 946_684_801_000, 5)


def test_pgoutput_changes_have_before_and_after() -> None:
    oid = struct.pack(">I", 7)
    assert decoded_changes(insert(7, b"1", None)) == [(ops.CREATE, None, [1, None], False)]
    # The key is unchanged, so the log has no before image.
    assert decoded_changes(b"U" + oid + b"N" + row(b"1", b"x")) == [(ops.UPDATE, None, [1, "x"], False)]
    whole = b"U" + oid + b"O" + row(b"1", b"big") + b"N" + row(b"1", UNCHANGED)
    assert decoded_changes(whole) == [(ops.UPDATE, [1, "big"], [1, "big"], True)]
    assert decoded_changes(b"U" + oid + b"N" + row(b"1", UNCHANGED)) == [
        (ops.UPDATE, None, [1, ops.UNAVAILABLE], False)
    ]
    assert decoded_changes(b"D" + oid + b"K" + row(b"1", None)) == [(ops.DELETE, [1, None], None, False)]
    assert decoded_changes(b"T" + struct.pack(">IB", 2, 0) + struct.pack(">II", 3, 7)) == [
        (ops.TRUNCATE, None, None, False)
    ]


def test_pgoutput_changed_key_is_another_row() -> None:
    oid = struct.pack(">I", 7)
    message = b"U" + oid + b"K" + row(b"1", None) + b"N" + row(b"2", b"x")
    assert decoded_changes(message) == [(ops.DELETE, [1, None], None, False), (ops.CREATE, None, [2, "x"], False)]
    assert decoded_changes(*pgoutput.split_update(message)) == decoded_changes(message)
    large = b"U" + oid + b"O" + row(b"1", b"big") + b"N" + row(b"2", UNCHANGED)
    assert decoded_changes(*pgoutput.split_update(large)) == decoded_changes(large)
    assert decoded_changes(large)[1] == (ops.CREATE, None, [2, "big"], False)
    assert pgoutput.key_of(pgoutput.images(message), (0,)) == ((b"1",), (b"2",))


@pytest.mark.parametrize(
    ("oid", "text", "value"),
    [
        (16, b"t", True),
        (20, b"-9223372036854775808", -(2**63)),
        (701, b"-Infinity", float("-inf")),
        (1700, b"12.340", Decimal("12.340")),
        (17, b"\\x00ff", b"\x00\xff"),
        (1082, b"2024-02-29", date(2024, 2, 29)),
        (1082, b"infinity", "infinity"),
        (1082, b"0044-03-15 BC", "0044-03-15 BC"),
        (1083, b"01:02:03.4", time(1, 2, 3, 400_000)),
        (1114, b"2024-01-02 03:04:05.66418", datetime(2024, 1, 2, 3, 4, 5, 664_180)),
        (1184, b"2024-01-02 03:04:05+00", datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)),
        (3802, b'{"a": 1}', '{"a": 1}'),
        (1009, b'{a,"b,\\"c",NULL,"NULL",""}', ["a", 'b,"c', None, "NULL", ""]),
        (1016, b"[0:1]={1,2}", [1, 2]),
        (1007, b"{{1,2},{3,NULL}}", [[1, 2], [3, None]]),
        (1007, b"{}", []),
        (50_001, b"7", 7),
        (50_002, b"{happy,sad}", ["happy", "sad"]),
    ],
)
def test_pgoutput_values_convert_to_python(oid: int, text: bytes, value: Any) -> None:
    own = {50_001: PostgresType(base=23), 50_002: PostgresType(element=50_003), 50_003: PostgresType()}
    assert converter(oid, own)(text) == value


@given(st.lists(st.none() | st.binary(), min_size=1))
def test_pgoutput_copy_rows_round_trip(fields: list[bytes | None]) -> None:
    escapes = {b"\\": b"\\\\", b"\t": b"\\t", b"\n": b"\\n", b"\r": b"\\r", b"\b": b"\\b", b"\f": b"\\f", b"\v": b"\\v"}

    def written(field: bytes | None) -> bytes:
        return b"\\N" if field is None else b"".join(escapes.get(bytes([c]), bytes([c])) for c in field)

    assert copied_row(b"\t".join(map(written, fields))) == fields


def test_pgoutput_chunk_has_snapshot_rows() -> None:
    split_range = ChunkRange(TABLE, b"1\ta\\tb\n2\t\\N\n", 9, 1000)
    assert [(c.op, c.after, c.ms) for c in rows_of(split_range)] == [("r", [1, "a\tb"], 1000), ("r", [2, None], 1000)]


def pieces(assembler: Assembler, messages: list[bytes]) -> list[Piece]:
    return [piece for m in messages if (piece := assembler.message(m)) is not None]


def contents(pieces: list[Piece]) -> list[Any]:
    return [m for piece in pieces for m in piece.messages if isinstance(m, bytes)]


def transaction(n: int, changes: int) -> list[bytes]:
    rows = [insert(7, f"{n}-{i}".encode(), None) for i in range(changes)]
    return [begin(n * 100, n), relation(), *rows, commit(n * 100, n * 100 + 50)]


def test_pgoutput_assembler_resumes_inside_a_large_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_log, "PIECE_CHANGES", 3)
    log = [m for n, changes in ((1, 2), (2, 8), (3, 0), (4, 4)) for m in transaction(n, changes)]
    whole = pieces(Assembler(PostgresOffset(0)), log)
    assert [p.after for p in whole][:4] == [
        PostgresOffset(150),
        PostgresOffset(150, 200, 3),
        PostgresOffset(150, 200, 6),
        PostgresOffset(250),
    ]
    for index, piece in enumerate(whole):
        # The server resends unconfirmed changes from the start of their transaction.
        again = pieces(Assembler(piece.after), log)
        assert contents(whole[: index + 1]) + contents(again) == contents(whole)
        assert again[-1].after == whole[-1].after


def test_pgoutput_assembler_idle_reports_the_log_position() -> None:
    assembler = Assembler(PostgresOffset(100))
    assert assembler.idle(90) is None
    idle = assembler.idle(180)
    assert idle is not None and idle.after == PostgresOffset(180)
    assembler.message(begin(200))
    # Open transactions commit after this position.
    assert assembler.idle(220) is None
