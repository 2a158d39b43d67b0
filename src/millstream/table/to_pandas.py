"""The rows of a result as Arrow and pandas have them: the final ones, where rows were changed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.sql.columns.arrow import arrow_type
from millstream.sql.columns.batch import DELETE, UPDATE_BEFORE, Batch
from millstream.sql.schema import Fields


def arrow_table(fields: Fields, batches: Iterator[Batch], zone: str) -> pa.Table:
    """Return all rows as a pyarrow.Table."""
    found = [b for b in batches if len(b)]
    schema = pa.schema([pa.field(f.name, arrow_type(f.type), f.type.is_nullable) for f in fields.fields])
    if not found:
        return schema.empty_table()
    whole = Batch.concatenated(found)
    if whole.kinds is not None:
        whole = whole.take(_kept(whole))
    return pa.Table.from_arrays(list(whole.columns), schema=schema)


def _kept(changes: Batch) -> Any:
    """Return the places of rows that nobody has taken back."""
    rows = list(zip(*(c.to_pylist() for c in changes.columns), strict=True))
    kept: dict[int, None] = {}
    places: dict[Any, list[int]] = {}
    for place, (row, kind) in enumerate(zip(rows, changes.all_kinds().tolist(), strict=True)):
        known = places.setdefault(repr(row), [])
        if kind in (UPDATE_BEFORE, DELETE):
            if known:
                del kept[known.pop()]
        else:
            known.append(place)
            kept[place] = None
    return np.array(list(kept), np.int64)


def as_pandas(table: pa.Table) -> Any:
    """Return a pyarrow.Table as a pandas.DataFrame."""
    import pandas as pd

    frame = table.to_pandas()
    assert isinstance(frame, pd.DataFrame)
    return frame
