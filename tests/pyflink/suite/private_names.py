"""Private functions of PyFlink that its tests import, mapped to their counterparts in Millstream."""

from __future__ import annotations

import array
import ctypes
from collections.abc import Callable
from typing import Any


def install() -> None:
    """Add them to the modules from which the tests import them."""
    from pyflink.java_gateway import NeedsJava

    from millstream.common import typeinfo
    from millstream.datastream import state_backend
    from millstream.sql.columns import value_conversion as values
    from millstream.table import in_memory_tables, types, verification

    def needs_java(name: str) -> Callable[..., Any]:
        def raise_error(*args: Any, **kwargs: Any) -> Any:
            raise NeedsJava(name)

        return raise_error

    signed = {"b": ctypes.c_byte, "h": ctypes.c_short, "i": ctypes.c_int, "l": ctypes.c_long, "q": ctypes.c_longlong}
    unsigned = {"B": ctypes.c_ubyte, "H": ctypes.c_ushort, "I": ctypes.c_uint, "L": ctypes.c_ulong}
    inferred = {}
    for code in array.typecodes:
        try:
            inferred[code] = values.inferred_type(array.array(code, "a" if code == "u" else [1]))
        except TypeError:
            continue
    functions: dict[str, Any] = {
        "_infer_schema_from_data": lambda data, names=None: in_memory_tables.row_type_of(data, names),
        "_infer_type": values.inferred_type,
        "_merge_type": lambda a, b: values.merged_types([a, b]),
        "_create_type_verifier": verification.verifier,
        "_array_signed_int_typecode_ctype_mappings": signed,
        "_array_unsigned_int_typecode_ctype_mappings": unsigned,
        "_array_type_mappings": inferred,
        "_from_java_data_type": needs_java("types of Java's"),
        "_to_java_data_type": needs_java("types of Java's"),
    }
    for name, value in functions.items():
        setattr(types, name, value)
    state_backend._from_j_state_backend = needs_java("state backends of Java's")  # type: ignore[attr-defined]
    typeinfo._from_java_type = needs_java("types of Java's")  # type: ignore[attr-defined]
