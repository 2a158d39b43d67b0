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
from typing import Any

from millstream.common.errors import DamagedStateError
from millstream.common.pickles import stand_in_for
from millstream.common.tags import NAMESPACE, reader_of

_PLAIN: dict[tuple[str, str], Any] = {
    (kind.__module__, kind.__qualname__): kind
    for kind in (
        *(set, frozenset, bytearray, complex, range, slice, object, int, float, str, bytes, bool, list, tuple, dict),
        *(datetime.date, datetime.time, datetime.datetime, datetime.timedelta, datetime.timezone),
        *(decimal.Decimal, fractions.Fraction, uuid.UUID, uuid.SafeUUID),
        *(collections.OrderedDict, collections.deque, collections.defaultdict, collections.Counter),
    )
} | {("copyreg", "_reconstructor"): getattr(copyreg, "_reconstructor")}  # noqa: B009
_NUMPY = ("numpy.core.", "numpy._core.")


def load_restricted(data: Any) -> Any:
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
    def find_class(self, module_name: str, global_name: str, /) -> Any:
        if module_name == NAMESPACE:
            return reader_of(global_name)
        plain = _PLAIN.get((module_name, global_name))
        if plain is None and (module_name == "numpy" or module_name.startswith(_NUMPY)):
            plain = _of_numpy(global_name)
        return stand_in_for(module_name, global_name) if plain is None else plain


def _of_numpy(name: str) -> Any:
    import numpy as np

    if name in ("ndarray", "dtype"):
        return getattr(np, name)
    if name == "_frombuffer":
        return _array_from_buffer
    if name == "_reconstruct":
        return _empty_array
    return _numpy_scalar if name == "scalar" else None


def _array_from_buffer(buffer: Any, dtype: Any, shape: Any, order: Any, axis_order: Any = None) -> Any:
    import numpy as np

    array = np.frombuffer(buffer, dtype=dtype)
    if order == "K" and axis_order is not None:
        return array.reshape(shape, order="C").transpose(axis_order)
    return array.reshape(shape, order=order)


def _empty_array(_: Any, shape: Any, __: Any) -> Any:
    """Return the empty array of numpy's `_reconstruct`, of no subclass; `__setstate__` fills it."""
    import numpy as np

    return np.ndarray(shape, "b")


def _numpy_scalar(dtype: Any, data: Any = b"") -> Any:
    """Return a scalar; numpy's own function would unpickle object scalars."""
    import numpy as np

    if dtype.hasobject:
        return stand_in_for("numpy", "scalar")(dtype, data)
    return np.frombuffer(data, dtype=dtype)[0]
