"""Blocks: what a layout carries comes out as it was put in, whole, in parts, encoded, and through a generated loop."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.operators.blocks import IDLE, WATERMARK, Block, Layout, Record
from millstream.operators.codegen import CodeWriter
from millstream.operators.inbox import Queue

LAYOUTS = [Layout(key, timestamp) for key in (False, True) for timestamp in (False, True)]
RECORDS: list[Record] = [("a", (1, "x"), 10), ("b", None, 20), ("a", [3], 30)]


def carried(layout: Layout, records: list[Record]) -> list[Record]:
    """What a layout leaves of records."""
    return [(k if layout.has_key else None, v, t if layout.has_timestamp else None) for k, v, t in records]


def parts(layout: Layout, block: Block) -> list[tuple[list[Record], Any]]:
    """Take a block apart as a receiver does."""
    queue, found = Queue(layout, [block.encode()] * (not block.is_empty)), list[tuple[list[Record], Any]]()
    while not queue.is_empty:
        inside, at, end = queue.records()
        records = list(inside.part(at, end).records())
        queue.took(end)
        found.append((records, queue.take_control()))
    return found


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_block_gives_back_what_its_layout_carries(layout: Layout) -> None:
    block = layout.block_of(RECORDS)
    assert len(block) == 3
    assert list(block.records()) == carried(layout, RECORDS)
    keys, values, timestamps = block.columns()
    assert values == [(1, "x"), None, [3]]
    assert keys == (["a", "b", "a"] if layout.has_key else [None] * 3)
    assert timestamps == ([10, 20, 30] if layout.has_timestamp else [None] * 3)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_loop_takes_apart_what_its_lines_put_together(layout: Layout) -> None:
    bucket, w = layout.new_block(), CodeWriter("copy")
    with layout.loop(w) as (key, value):
        layout.append_code(w, w.bind(bucket.append, "append"), key and key.name, value)
    w.build("batch")(layout.block_of(RECORDS).content)
    assert list(bucket.records()) == carried(layout, RECORDS)


@given(
    st.sampled_from(LAYOUTS),
    st.lists(st.one_of(st.tuples(st.text(), st.integers(), st.integers()), st.sampled_from([WATERMARK, IDLE]))),
)
def test_a_block_is_cut_where_control_elements_stand(layout: Layout, elements: list[Any]) -> None:
    bucket = layout.new_block()
    expected: list[tuple[list[Record], Any]] = [([], None)]
    for element in elements:
        if isinstance(element, tuple):
            for item in layout.block_of([element]).content:
                bucket.append(item)
            expected[-1][0].extend(carried(layout, [element]))
        else:
            bucket.add_control(element, 7)
            before = sum(len(records) for records, _ in expected)
            expected[-1] = (expected[-1][0], (before, element, 7))
            expected.append(([], None))
    if len(expected) > 1 and not expected[-1][0]:
        expected.pop()
    assert bucket.is_empty == (not elements)
    assert parts(layout, bucket) == ([] if bucket.is_empty else expected)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_cleared_block_is_filled_anew_by_who_had_it_before(layout: Layout) -> None:
    bucket = layout.block_of(RECORDS)
    append = bucket.append
    bucket.add_control(WATERMARK, 5)
    bucket.clear()
    assert bucket.is_empty
    for item in layout.block_of(RECORDS[:1]).content:
        append(item)
    assert parts(layout, bucket) == [(carried(layout, RECORDS[:1]), None)]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_blocks_are_full_by_their_records(layout: Layout) -> None:
    blocks = [layout.block_of(RECORDS[:n]) for n in (3, 1, 2, 0)]
    assert [layout.full(blocks, n) for n in (1, 2, 3, 4)] == [[0, 1, 2], [0, 2], [0], []]


def test_what_is_not_pickled_plainly_travels_too() -> None:
    loop: list[Any] = []
    loop.append(loop)
    layout = Layout(True, True)
    ((_, value, _),) = layout.decode(memoryview(layout.block_of([("k", loop, 1)]).encode())).records()
    assert value[0] is value
