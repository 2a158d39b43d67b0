"""Pickling of records and state: fast, and safe from objects that two values share."""

from __future__ import annotations

import io
import pickle
from typing import Any

import cloudpickle


def dump(value: Any) -> bytes:
    """Pickle a value: plainly if that does, else with the code of classes that only the driver's script defines.

    Pickle's fast mode remembers nothing, which saves half the work. And it writes an object anew each time it meets
    it: two records never become one object that a later operator could change twice.
    """
    out = io.BytesIO()
    pickler = pickle.Pickler(out, 5)
    pickler.fast = True
    try:
        pickler.dump(value)
        return out.getvalue()
    except (pickle.PicklingError, AttributeError, TypeError, ValueError, RecursionError):
        # Also values that contain themselves, which only full pickling can write.
        data: bytes = cloudpickle.dumps(value, 5)
        return data
