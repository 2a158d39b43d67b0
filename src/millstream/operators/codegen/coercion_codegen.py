"""Writes the lines that coerce a record to its declared type.

The inferred type decides at compile time what must be tested: nothing, if all its values conform. Otherwise one line
tests what is unknown and calls the type's converter only if the test fails.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from millstream.common.coercion import Converter
from millstream.common.inferred_types import (
    ANYTHING,
    Anything,
    Fixed,
    InferredType,
    Real,
    Some,
    Whole,
    constant,
    within,
)
from millstream.common.typeinfo import TypeInformation
from millstream.operators.codegen.code_writer import CodeWriter, Var

# CPython compares smaller ints inline, and others by a call.
_QUICK = (1 << 30) - 1


def made_to_fit(w: CodeWriter, operator: Any, type_info: TypeInformation | None, value: Var) -> Var:
    """Write the lines that coerce an emitted value to a type; None accepts any value."""
    convert = type_info.converter() if type_info is not None else None
    if type_info is None or convert is None:
        # An inferred type with a condition is of no use downstream.
        return value if value.condition is None else replace(value, shape=ANYTHING, condition=None, sure=None)
    wanted = type_info.inferred_type()
    known = wanted is not None and within(value.shape, wanted)
    # Where a condition does not hold, only the converter knows the type.
    shape = wanted or ANYTHING if value.condition is not None else _made_of(value.shape, wanted)
    if type_info in (operator.produced_type, value.fitted) or (known and value.condition is None):
        # Values with an inferred type are immutable, so they need no copy either.
        detached = value.detached or (known and type_info.copies)
        return replace(value, shape=shape, condition=None, sure=None, fitted=type_info, detached=detached)
    out = w.var()
    _write(w, operator, convert, value, wanted, out)
    if w.members(out) is None:
        # Members that always conform are unchanged: constants are not sent with the record.
        w.take_apart(out, shape)
    detached = value.detached or type_info.copies
    return Var(out, value.timestamp, detached, shape, fitted=type_info)


def _made_of(shape: InferredType, wanted: InferredType | None) -> InferredType:
    """Return the inferred type after coercion: of each member the one before, or the declared one."""
    if wanted is None:
        return ANYTHING
    if not (isinstance(shape, Fixed) and isinstance(wanted, Fixed) and len(shape.members) == len(wanted.members)):
        return shape if within(shape, wanted) else wanted
    members = tuple(_made_of(known, member) for known, member in zip(shape.members, wanted.members, strict=True))
    return replace(wanted, members=members, null=shape.null and wanted.null)


def _write(w: CodeWriter, operator: Any, convert: Converter, value: Var, wanted: InferredType | None, out: str) -> None:
    name, fit = value.name, w.bind(convert, "fit")
    if isinstance(wanted, Fixed) and _members_written(w, operator, value, wanted, fit, out):
        return
    if isinstance(wanted, Fixed) and isinstance(value.shape, Anything) and wanted.members:
        members = [w.var("m") for _ in wanted.members]
        tests = _all(w, [(m, s, ANYTHING) for m, s in zip(members, wanted.members, strict=True)])
        if tests is not None:
            # Unpacking a tuple is faster than testing its length and each member.
            with w.block("try:"):
                w.line(f"{', '.join(members)}, = {name} if {name}.__class__ is {w.bind(tuple, 'tuple')} else ()")
            with w.block("except ValueError:"):
                w.line(f"{out} = {fit}({name})", operator, name)
            with w.block("else:"):
                w.line(_chosen(out, name, " and ".join(tests), fit), operator, name)
            return
    tests = None if wanted is None else _tests(w, name, wanted, value.shape)
    if tests is None:
        w.line(f"{out} = {fit}({name})", operator, name)
    else:
        unknown = None if value.condition is None or wanted is None else _tests(w, name, wanted, ANYTHING)
        w.line(_chosen(out, name, _under(value, tests, unknown or []), fit), operator, name)


def _members_written(w: CodeWriter, operator: Any, value: Var, wanted: Fixed, fit: str, out: str) -> bool:
    """Write the lines for a tuple with known members, built only for conversion. Return whether that suffices."""
    members, known = w.members(value.name) or (), value.shape
    shapes: tuple[InferredType, ...] = known.members if isinstance(known, Fixed) else (ANYTHING,) * len(members)
    if not members or not len(members) == len(shapes) == len(wanted.members):
        return False
    made = [w.var("m") for _ in members]
    # Members that are variables are tested directly.
    looked_at = [text if text.isidentifier() else name for name, text in zip(made, members, strict=True)]
    tests = _all(w, list(zip(looked_at, wanted.members, shapes, strict=True)))
    if tests is None:
        return False
    held = value.condition is not None
    # A constant that conforms is the same after conversion, and need not be sent.
    fixed = [not held and constant(s) is not None and within(s, m) for s, m in zip(shapes, wanted.members, strict=True)]
    kept = [text if is_fixed else name for name, text, is_fixed in zip(made, members, fixed, strict=True)]
    for name, text in zip(kept, members, strict=True):
        if name != text:
            w.assign_if_read(name, text)
    # As expressions, so that a member which only the rare test reads is not computed for every record.
    unknown = _all(w, [(m, shape, ANYTHING) for m, shape in zip(members, wanted.members, strict=True)]) if held else []
    with w.block(f"if not ({_under(value, tests, unknown or [])}):"):
        w.assign_also(made, f"{fit}({value.name})", operator, value.name)
    w.tuple_of(out, tuple(kept))
    return True


def _under(value: Var, tests: list[str], unknown: list[str]) -> str:
    """Return an expression that is true if a value conforms; empty if it always does.

    Args:
        value: the value, and the variables that hold what is known of it.
        tests: the remaining tests while its inferred type holds.
        unknown: the tests where it does not hold; none if only the converter can decide.
    """
    if value.condition is None:
        return " and ".join(tests)
    ways = [" and ".join([value.condition, *tests])]
    if value.sure is not None:
        ways.insert(0, value.sure)
    if unknown:
        ways.append(" and ".join(unknown))
    return " or ".join(ways)


def _chosen(out: str, name: str, test: str, fit: str) -> str:
    return f"{out} = {name} if {test} else {fit}({name})" if test else f"{out} = {name}"


def test_of(w: CodeWriter, name: str, shape: InferredType) -> str:
    """Return an expression that is true only if a variable has a type; empty if none can be written."""
    return " and ".join(_tests(w, name, shape, ANYTHING) or [])


def test_of_record(w: CodeWriter, value: Var, shape: InferredType) -> str:
    """Return an expression that is true only if a record has a type; empty if it always has."""
    members = w.members(value.name)
    if members is not None and isinstance(shape, Fixed) and isinstance(value.shape, Fixed):
        tests = _all(w, list(zip(members, shape.members, value.shape.members, strict=True)))
    else:
        tests = _tests(w, value.name, shape, value.shape)
    return " and ".join(tests or [])


def _tests(w: CodeWriter, place: str, wanted: InferredType, known: InferredType) -> list[str] | None:
    """Return expressions that are all true only if a value has the expected type; None if none can decide.

    They may be false for None and for values of subclasses, for which the converter decides.
    """
    if within(known, wanted):
        return []
    if isinstance(wanted, Fixed):
        return _tests_of_tuple(w, place, wanted, known)
    if isinstance(wanted, Whole):
        return _tests_of_int(w, place, wanted, known)
    if isinstance(wanted, Real):
        return None if wanted.single else [f"{place}.__class__ is {w.bind(float, 'float')}"]
    assert isinstance(wanted, Some)
    return [f"{place}.__class__ is {w.bind(wanted.kind, 'kind')}"]


def _tests_of_tuple(w: CodeWriter, place: str, wanted: Fixed, known: InferredType) -> list[str] | None:
    width = len(wanted.members)
    members: tuple[InferredType, ...] = (ANYTHING,) * width
    tests = [f"{place}.__class__ is {w.bind(tuple, 'tuple')}", f"len({place}) == {width}"]
    if isinstance(known, Fixed) and len(known.members) == width:
        members, tests = known.members, tests[:1] if known.null else []
    inner = _all(w, [(f"{place}[{i}]", m, members[i]) for i, m in enumerate(wanted.members)])
    return None if inner is None else tests + inner


def _all(w: CodeWriter, places: list[tuple[str, InferredType, InferredType]]) -> list[str] | None:
    tests: list[str] = []
    for place, wanted, known in places:
        more = _tests(w, place, wanted, known)
        if more is None:
            return None
        tests += more
    return tests


def _tests_of_int(w: CodeWriter, place: str, wanted: Whole, known: InferredType) -> list[str]:
    tests = []
    number = place
    if "[" in place:
        number, place = (held := w.var("m")), f"({held} := {place})"
    if not isinstance(known, Whole) or known.null:
        tests.append(f"{place}.__class__ is {w.bind(int, 'int')}")
        place = number
    bounds = known if isinstance(known, Whole) else Whole()
    low = None if within(bounds, Whole(wanted.low, None, null=True)) else wanted.low
    high = None if within(bounds, Whole(None, wanted.high, null=True)) else wanted.high
    wide = _between(low, number, number, high)
    quick = (None if low is None else -_QUICK), (None if high is None else _QUICK)
    if (low is None or low < -_QUICK) and (high is None or high > _QUICK) and wide:
        tests.append(f"({_between(quick[0], place, number, quick[1])} or {wide})")
    elif wide:
        tests.append(_between(low, place, number, high))
    return tests


def _between(low: int | None, first: str, number: str, high: int | None) -> str:
    """Return the expression that tests bounds; the value is written `first` the first time, then `number`."""
    tests = [] if low is None else [f"{low} <= {first}"]
    if high is not None:
        tests.append(f"{number if tests else first} <= {high}")
    return " and ".join(tests)
