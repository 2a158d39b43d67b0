"""The format `raw`: a message is the value of the only column."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from millstream.common.aliases import Value
from millstream.formats.base import Decoded, Malformed, MessageFormat
from millstream.formats.options import Options
from millstream.sql import types as t
from millstream.sql.columns.batch import Batch
from millstream.sql.columns.value_conversion import to_column, to_python
from millstream.sql.errors import ValidationException
from millstream.sql.schema import Field

_PACKED: dict[type[t.DataType], str] = {
    t.BooleanType: "?",
    t.TinyIntType: "b",
    t.SmallIntType: "h",
    t.IntType: "i",
    t.BigIntType: "q",
    t.FloatType: "f",
    t.DoubleType: "d",
}


class RawFormat(MessageFormat):
    """One column: text, bytes, or a number as its bytes."""

    identifier = "raw"
    optional = frozenset(["charset", "endianness"])

    def __init__(self, options: Options, zone: str) -> None:
        super().__init__(options, zone)
        self._charset = options.text("charset", "UTF-8")
        order = options.text("endianness", "big-endian")
        if order not in ("big-endian", "little-endian"):
            raise ValidationException(f"Unsupported endianness name: {order}. Supported: big-endian, little-endian.")
        self._order = ">" if order == "big-endian" else "<"

    def _single_field(self, fields: Sequence[Field]) -> Field:
        if len(fields) != 1:
            names = ", ".join(f.name for f in fields)
            raise ValidationException(
                f"The 'raw' format only supports single physical column. However the defined schema contains multiple "
                f"physical columns: [{names}]"
            )
        return fields[0]

    def decoded(self, messages: Sequence[bytes], fields: Sequence[Field]) -> Batch:
        # Lines of a file may end in \r\n.
        return self.read_all([m.rstrip(b"\r") for m in messages], fields).batch

    def read_all(self, messages: Sequence[bytes | None], fields: Sequence[Field]) -> Decoded:
        field = self._single_field(fields)
        values = [None if m is None else self._read(m, i, field.type) for i, m in enumerate(messages)]
        return Decoded(Batch([to_column(values, field.type, self.zone)], None, len(values)))

    def _read(self, message: bytes, index: int, kind: t.DataType) -> Value:
        if isinstance(kind, (t.CharType, t.VarCharType)):
            return message.decode(self._charset, "replace")
        if isinstance(kind, (t.BinaryType, t.VarBinaryType)):
            return message
        try:
            return struct.unpack(self._order + self._code(kind), message)[0]
        except struct.error as e:
            raise Malformed(index, f"{message!r} is not of type {kind} ({e})") from None

    def _code(self, kind: t.DataType) -> str:
        code = _PACKED.get(type(kind))
        if code is None:
            raise ValidationException(f"The 'raw' format doesn't supports '{kind}' as column type.")
        return code

    def encoded(self, batch: Batch, fields: Sequence[Field]) -> list[bytes]:
        kind = self._single_field(fields).type
        values = to_python(batch.columns[0], kind, self.zone)
        if isinstance(kind, (t.CharType, t.VarCharType)):
            return [b"" if v is None else v.encode(self._charset) for v in values]
        if isinstance(kind, (t.BinaryType, t.VarBinaryType)):
            return [v or b"" for v in values]
        return [b"" if v is None else struct.pack(self._order + self._code(kind), v) for v in values]
