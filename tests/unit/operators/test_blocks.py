"""Blocks return the records they encode: whole, in parts, encoded, and through a generated loop."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.common.inferred_types import ANYTHING, TEXT, Fixed, InferredType, inferred_type_of
from millstream.operators.codegen.code_writer import CodeWriter
from millstream.operators.runtime.blocks import IDLE, WATERMARK, Block, Layout, Pieces, Record
from millstream.operators.runtime.input_gate import Queue

LAYOUTS = [Layout(key, timestamp) for key in (False, True) for timestamp in (False, True)]
RECORDS: list[Record] = [("a", (1, "x"), 10), ("b", None, 20), ("a", [3], 30)]


def projected(layout: Layout, records: list[Record]) -> list[Record]:
    """Return the records with only the fields of a layout."""
    return [(k if layout.has_key else None, v, t if layout.has_timestamp else None) for k, v, t in records]


def parts(block: Block) -> list[tuple[list[Record], Any]]:
    """Return the records and controls of a block, as a receiver reads them."""
    queue, results = Queue(block.layout, [block.encode()] * (not block.is_empty)), list[tuple[list[Record], Any]]()
    while not queue.is_empty:
        inside, start, end = queue.records()
        records = list(inside.part(start, end).records())
        queue.advance(end)
        results.append((records, queue.take_control()))
    return results


@pytest.mark.parametrize("layout", LAYOUTS)
def test_block_round_trips_records_of_its_layout(layout: Layout) -> None:
    block = layout.block_of(RECORDS)
    assert len(block) == 3
    assert list(block.records()) == projected(layout, RECORDS)
    keys, values, timestamps = block.columns()
    assert values == [(1, "x"), None, [3]]
    assert keys == (["a", "b", "a"] if layout.has_key else [None] * 3)
    assert timestamps == ([10, 20, 30] if layout.has_timestamp else [None] * 3)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_block_generated_loop_round_trips_records(layout: Layout) -> None:
    bucket, w = layout.new_block(), CodeWriter("copy")
    with layout.loop(w) as (key, value):
        layout.append_code(w, w.bind(bucket.append, "append"), key.name if key else None, value)
    w.build("batch")(layout.block_of(RECORDS).content)
    assert list(bucket.records()) == projected(layout, RECORDS)


@given(
    st.sampled_from(LAYOUTS),
    st.lists(st.one_of(st.tuples(st.text(), st.integers(), st.integers()), st.sampled_from([WATERMARK, IDLE]))),
)
def test_block_is_split_at_control_elements(layout: Layout, elements: list[Any]) -> None:
    bucket = layout.new_block()
    expected: list[tuple[list[Record], Any]] = [([], None)]
    for element in elements:
        if isinstance(element, tuple):
            for item in layout.block_of([element]).content:
                bucket.append(item)
            expected[-1][0].extend(projected(layout, [element]))
        else:
            bucket.add_control(element, 7)
            before = sum(len(records) for records, _ in expected)
            expected[-1] = (expected[-1][0], (before, element, 7))
            expected.append(([], None))
    if len(expected) > 1 and not expected[-1][0]:
        expected.pop()
    assert bucket.is_empty == (not elements)
    assert parts(bucket) == ([] if bucket.is_empty else expected)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_block_can_be_refilled_after_clear(layout: Layout) -> None:
    bucket = layout.block_of(RECORDS)
    append = bucket.append
    bucket.add_control(WATERMARK, 5)
    bucket.clear()
    assert bucket.is_empty
    for item in layout.block_of(RECORDS[:1]).content:
        append(item)
    assert parts(bucket) == [(projected(layout, RECORDS[:1]), None)]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layout_full_selects_blocks_by_record_count(layout: Layout) -> None:
    blocks = [layout.block_of(RECORDS[:n]) for n in (3, 1, 2, 0)]
    assert [layout.full(blocks, n) for n in (1, 2, 3, 4)] == [[0, 1, 2], [0, 2], [0], []]


def test_block_encodes_recursive_values() -> None:
    loop: list[Any] = []
    loop.append(loop)
    layout = Layout(True, True)
    ((_, value, _),) = layout.decode(memoryview(layout.block_of([("k", loop, 1)]).encode())).records()
    assert value[0] is value


# Tuples whose constant last member is 1, with the timestamp among their members.
PAIRS: list[Record] = [("a", ("a", 10, 1), 10), ("b", ("b", None, 1), None), ("a", ([2], 30, 1), 30)]
PIECES = [Pieces((None, None, None)), Pieces((None, None, 1)), Pieces((None, None, 1), timestamp=1)]
TAKEN_APART = [Layout(layout.has_key, layout.has_timestamp, pieces) for layout in LAYOUTS for pieces in PIECES]


@pytest.mark.parametrize("layout", TAKEN_APART)
def test_block_with_tuple_members_round_trips(layout: Layout) -> None:
    block = layout.block_of(PAIRS)
    block.add_control(WATERMARK, 5)
    sent = Layout(layout.has_key, layout.has_timestamp).decode(block.encode())
    assert sent.layout == layout
    assert len(sent) == 3
    assert parts(sent) == [(projected(layout, PAIRS), (3, WATERMARK, 5))]
    assert list(zip(*sent.columns(), strict=True)) == projected(layout, PAIRS)
    assert layout.full([sent, layout.block_of(PAIRS[:2])], 3) == [0]


@pytest.mark.parametrize("layout", TAKEN_APART)
@pytest.mark.parametrize("whole", [False, True])
def test_block_generated_loop_rebuilds_tuples_from_members(layout: Layout, whole: bool) -> None:
    target = Layout(layout.has_key, layout.has_timestamp) if whole else layout
    bucket, w = target.new_block(), CodeWriter("copy")
    with layout.loop(w) as (key, value):
        target.append_code(w, w.bind(bucket.append, "append"), key.name if key else None, value)
    w.build("batch")(layout.block_of(PAIRS).content)
    assert list(bucket.records()) == projected(layout, PAIRS)


@pytest.mark.parametrize(
    ("inferred", "constants"),
    [
        (ANYTHING, None),
        (TEXT, None),
        (Fixed(()), None),
        (Fixed((TEXT,) * 9), None),
        (Fixed((TEXT, TEXT), null=True), None),
        (Fixed((TEXT, inferred_type_of(1))), (None, 1)),
        (inferred_type_of((1, 2)), (None, 2)),
        (Fixed((TEXT, inferred_type_of(True), inferred_type_of(1.5))), (None, None, None)),
    ],
)
def test_pieces_split_inferred_tuples(inferred: InferredType, constants: tuple[int | None, ...] | None) -> None:
    pieces = Pieces.of(inferred, None)
    assert (pieces and pieces.constants) == constants


@given(st.lists(st.tuples(st.text(), st.one_of(st.integers(), st.none(), st.lists(st.integers())))))
def test_block_with_tuple_members_round_trips_any_value(values: list[Any]) -> None:
    layout = Layout(False, False, Pieces((None, None)))
    block = layout.block_of((None, value, None) for value in values)
    assert [v for _, v, _ in Layout(False, False).decode(block.encode()).records()] == values


@given(st.sampled_from(LAYOUTS), st.lists(st.one_of(st.none(), st.integers(0, 99)), max_size=9))
def test_block_halves_equal_the_block(layout: Layout, elements: list[int | None]) -> None:
    block = layout.new_block()
    for element in elements:
        if element is None:
            block.add_control(WATERMARK, len(block))
        else:
            for item in layout.block_of([("k", element, 7)]).content:
                block.append(item)
    first, second = block.halves()
    assert list(first.records()) + list(second.records()) == list(block.records())
    assert abs(len(first) - len(second)) <= 1

    def emissions(blocks: list[Block]) -> list[Any]:
        emitted: list[Any] = []
        for records, control in (p for b in blocks for p in parts(b)):
            emitted += [*records, *([] if control is None else [control[1:]])]
        return emitted

    assert emissions([first, second]) == emissions([block])
