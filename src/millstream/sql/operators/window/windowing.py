"""Vectorized window assignment; pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import cached_property
from math import gcd

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from millstream.common.fast_dataclass import fast_dataclass
from millstream.sql.columns.numpy_arrays import Ints
from millstream.sql.columns.zones import arrow_zone, is_utc, zone_named
from millstream.sql.plan.specs import WindowKind, WindowSpec

Times = NDArray[np.int64]

_EPOCH = datetime(1970, 1, 1)


@fast_dataclass
class Windowing:
    """Tumbling, hopping or cumulating windows; times are in milliseconds.

    A slice is a span that no window bound splits: a window consists of slices. Windows are identified by their ends.
    """

    kind: WindowKind
    size: int
    step: int
    offset: int = 0

    @staticmethod
    def of(spec: WindowSpec) -> Windowing:
        return Windowing(spec.kind, spec.size, spec.step or spec.size, spec.offset)

    @cached_property
    def slice(self) -> int:
        """The length of a slice."""
        if self.kind is WindowKind.HOP:
            return gcd(self.size, self.step)
        return self.step if self.kind is WindowKind.CUMULATE else self.size

    def slice_ends(self, times: Times) -> Times:
        """Return the ends of the slices of times."""
        # Floor division takes a quarter of the time of numpy's remainder.
        return ((times - self.offset) // self.slice + 1) * self.slice + self.offset

    def first_ends(self, slices: Times) -> Times:
        """Return the end of the first window of each slice, by the slice's end."""
        if self.kind is not WindowKind.HOP:
            return slices
        # Windows end at offset + size + n * step.
        remainder = np.mod(slices - self.offset - self.size, self.step)
        return np.where(remainder == 0, slices, slices - remainder + self.step)

    def last_ends(self, slices: Times) -> Times:
        """Return the end of the last window of each slice, by the slice's end."""
        if self.kind is WindowKind.CUMULATE:
            return slices - np.mod(slices - self.slice - self.offset, self.size) - self.slice + self.size
        if self.kind is WindowKind.HOP:
            # The last window begins at or before the slice's start.
            starts = slices - self.slice
            return starts - np.mod(starts - self.offset, self.step) + self.size
        return slices

    def starts(self, ends: Times) -> Times:
        """Return the starts of windows, by their ends."""
        if self.kind is WindowKind.CUMULATE:
            return ends - 1 - np.mod(ends - 1 - self.offset, self.size)
        return ends - self.size

    @property
    def has_one_window(self) -> bool:
        """Whether every time is in exactly one window."""
        return self.kind is WindowKind.TUMBLE or (self.kind is WindowKind.HOP and self.size == self.step)

    def all_ends(self, times: Times) -> tuple[Ints, Times]:
        """Return the position and window end of each time, once per window.

        Windows are in Flink's order: hopping windows from last to first, cumulating ones from first to last.
        """
        slices = self.slice_ends(times)
        if self.has_one_window:
            return np.arange(len(times)), slices
        first, last = self.first_ends(slices), self.last_ends(slices)
        counts = np.maximum((last - first) // self.step + 1, 0)
        rows = np.repeat(np.arange(len(times)), counts)
        number = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        if self.kind is WindowKind.HOP:
            return rows, first[rows] + (counts[rows] - 1 - number) * self.step
        return rows, first[rows] + number * self.step


def local_times(column: pa.Array, zone: str) -> Times:
    """Return times in milliseconds; instants as local times of a zone."""
    kind = column.type
    if kind.tz is not None:
        if is_utc(zone):
            column = column.view(pa.timestamp(kind.unit))
        else:
            column = pc.local_timestamp(column.cast(pa.timestamp(kind.unit, arrow_zone(zone))))
    return column.cast(pa.timestamp("ms"), safe=False).view(pa.int64()).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def points(times: Times, zone: str) -> Times:
    """Return the instants of local times: the first of two at an overlap, the next after a gap."""
    if is_utc(zone):
        return times
    distinct, inverse = np.unique(times, return_inverse=True)
    return np.array([_point(t, zone) for t in distinct.tolist()], np.int64)[inverse]


def _point(time: int, zone: str) -> int:
    local = _EPOCH + timedelta(milliseconds=time)
    zoned = local.replace(tzinfo=zone_named(zone))
    offset = zoned.utcoffset()
    assert offset is not None
    return time - round(offset.total_seconds() * 1000)
