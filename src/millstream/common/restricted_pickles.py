"""Reading pickles that somebody else may have written: data comes out, and nothing runs.

A pickle names what it calls. Here it gets plain data of Python's and numpy's, and what millstream reads by tags; any
other name, of a class of the user's program or of `os.system`, is a stand-in, and no module is imported for it.
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
    """Read a pickle without running anything that it names; an object of another class is a stand-in.

    Example:
        >>> class Attack:
        ...     def __reduce__(self): return print, ("attacked",)
        >>> load_restricted(pickle.dumps([1, Attack()]))
        [1, builtins.print('attacked')]
    """
    try:
        return _Restricted(io.BytesIO(data)).load()
    except Exception as e:
        # Whatever it has a stand-in do that this cannot.
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
    """Return what numpy's own `_reconstruct` makes, of no subclass; its content comes with `__setstate__`."""
    import numpy as np

    return np.ndarray(shape, "b")


def _numpy_scalar(dtype: Any, data: Any = b"") -> Any:
    """Return a scalar; numpy's own would unpickle one that is an object."""
    import numpy as np

    if dtype.hasobject:
        return stand_in_for("numpy", "scalar")(dtype, data)
    return np.frombuffer(data, dtype=dtype)[0]
