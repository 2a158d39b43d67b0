"""Reads untrusted pickles without running code.

Only plain data of Python and numpy, and millstream's tagged objects, are created. Any other global, a user class or
`os.system`, becomes a stand-in; its module is not imported.
"""

from __future__ import annotations

import collections
import copyreg
import datetime
import decimal
import fractions
import io
import pickle
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from millstream.common.aliases import Value
from millstream.common.errors import DamagedStateError
from millstream.common.pickles import stand_in_for
from millstream.common.tags import NAMESPACE, reader_of

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer
    from numpy import dtype, generic, ndarray

    _Dtype = dtype[generic]
    _Array = ndarray[tuple[int, ...], _Dtype]

_Global = Callable[..., object]

_PLAIN: dict[tuple[str, str], _Global] = {
    (kind.__module__, kind.__qualname__): kind
    for kind in (
        *(set, frozenset, bytearray, complex, range, slice, object, int, float, str, bytes, bool, list, tuple, dict),
        *(datetime.date, datetime.time, datetime.datetime, datetime.timedelta, datetime.timezone),
        *(decimal.Decimal, fractions.Fraction, uuid.UUID, uuid.SafeUUID),
        *(collections.OrderedDict, collections.deque, collections.defaultdict, collections.Counter),
    )
} | {("copyreg", "_reconstructor"): getattr(copyreg, "_reconstructor")}  # noqa: B009
_NUMPY = ("numpy.core.", "numpy._core.")


def load_restricted(data: ReadableBuffer) -> Value:
    """Read a pickle without running what it names; objects of other classes become stand-ins.

    Example:
        >>> class Attack:
        ...     def __reduce__(self): return print, ("attacked",)
        >>> load_restricted(pickle.dumps([1, Attack()]))
        [1, builtins.print('attacked')]
    """
    try:
        return _Restricted(io.BytesIO(data)).load()
    except Exception as e:
        # The pickle does something with a stand-in that it does not support.
        raise DamagedStateError(
            f"A pickle cannot be read without running what it names ({e}): if you trust its writer, read it with "
            "--trust."
        ) from None


class _Restricted(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> _Global:
        if module_name == NAMESPACE:
            return reader_of(global_name)
        plain = _PLAIN.get((module_name, global_name))
        if plain is None and (module_name == "numpy" or module_name.startswith(_NUMPY)):
            plain = _of_numpy(global_name)
        return stand_in_for(module_name, global_name) if plain is None else plain


def _of_numpy(name: str) -> _Global | None:
    import numpy as np

    if name in ("ndarray", "dtype"):
        return np.ndarray if name == "ndarray" else np.dtype
    if name == "_frombuffer":
        return _array_from_buffer
    if name == "_reconstruct":
        return _empty_array
    return _numpy_scalar if name == "scalar" else None


def _array_from_buffer(
    buffer: bytes | bytearray,
    dtype: _Dtype,
    shape: tuple[int, ...],
    order: Literal["K", "A", "C", "F"],
    axis_order: tuple[int, ...] | None = None,
) -> _Array:
    import numpy as np

    array: _Array = np.frombuffer(buffer, dtype=dtype)
    if order == "K" and axis_order is not None:
        array = array.reshape(shape, order="C").transpose(axis_order)
    else:
        array = array.reshape(shape, order=order)  # type: ignore[arg-type]
    return array


def _empty_array(_: object, shape: tuple[int, ...], __: object) -> _Array:
    """Return the empty array of numpy's `_reconstruct`, of no subclass; `__setstate__` fills it."""
    import numpy as np

    return np.ndarray(shape, "b")


def _numpy_scalar(dtype: _Dtype, data: bytes | bytearray = b"") -> Value:
    """Return a scalar; numpy's own function would unpickle object scalars."""
    import numpy as np

    if dtype.hasobject:
        return stand_in_for("numpy", "scalar")(dtype, data)
    return np.frombuffer(data, dtype=dtype)[0]
