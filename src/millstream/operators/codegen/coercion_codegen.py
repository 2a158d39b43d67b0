"""Writes the lines that coerce a record to its declared type.

The inferred type decides at compile time what must be tested: nothing, if all its values conform. Otherwise one line
tests what is unknown and calls the type's converter only if the test fails.
"""

from __future__ import annotations

from dataclasses import replace

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
from millstream.operators.base import OperatorTraits
from millstream.operators.codegen.code_writer import CodeWriter, Var

# CPython compares smaller ints inline, and others by a call.
_QUICK = (1 << 30) - 1


def coerce(w: CodeWriter, operator: OperatorTraits, type_info: TypeInformation | None, value: Var) -> Var:
    """Write the lines that coerce an emitted value to a type; None accepts any value."""
    convert = type_info.converter() if type_info is not None else None
    if type_info is None or convert is None:
        # Downstream operators cannot use an inferred type with a condition.
        return (
            value if value.condition is None else replace(value, inferred_type=ANYTHING, condition=None, conforms=None)
        )
    expected = type_info.inferred_type()
    known = expected is not None and within(value.inferred_type, expected)
    # Where a condition does not hold, only the converter knows the type.
    inferred_type = (
        expected or ANYTHING if value.condition is not None else _after_coercion(value.inferred_type, expected)
    )
    if type_info in (operator.produced_type, value.coerced_to) or (known and value.condition is None):
        # Values with an inferred type are immutable, so they need no copy either.
        detached = value.detached or (known and type_info.copies)
        return replace(
            value, inferred_type=inferred_type, condition=None, conforms=None, coerced_to=type_info, detached=detached
        )
    out = w.var()
    _write(w, operator, convert, value, expected, out)
    if w.members(out) is None:
        # Members that always conform are unchanged: constants are not sent with the record.
        w.declare_members(out, inferred_type)
    detached = value.detached or type_info.copies
    return Var(out, value.timestamp, detached, inferred_type, coerced_to=type_info)


def _after_coercion(inferred_type: InferredType, expected: InferredType | None) -> InferredType:
    """Return the inferred type after coercion: of each member the one before, or the declared one."""
    if expected is None:
        return ANYTHING
    if not (
        isinstance(inferred_type, Fixed)
        and isinstance(expected, Fixed)
        and len(inferred_type.members) == len(expected.members)
    ):
        return inferred_type if within(inferred_type, expected) else expected
    members = tuple(
        _after_coercion(known, member) for known, member in zip(inferred_type.members, expected.members, strict=True)
    )
    return replace(expected, members=members, null=inferred_type.null and expected.null)


def _write(
    w: CodeWriter, operator: OperatorTraits, convert: Converter, value: Var, expected: InferredType | None, out: str
) -> None:
    name, converter = value.name, w.bind(convert, "fit")
    if isinstance(expected, Fixed) and _write_members(w, operator, value, expected, converter, out):
        return
    if isinstance(expected, Fixed) and isinstance(value.inferred_type, Anything) and expected.members:
        members = [w.var("m") for _ in expected.members]
        tests = _all(w, [(m, s, ANYTHING) for m, s in zip(members, expected.members, strict=True)])
        if tests is not None:
            # Unpacking a tuple is faster than testing its length and each member.
            with w.block("try:"):
                w.line(f"{', '.join(members)}, = {name} if {name}.__class__ is {w.bind(tuple, 'tuple')} else ()")
            with w.block("except ValueError:"):
                w.line(f"{out} = {converter}({name})", operator, name)
            with w.block("else:"):
                w.line(_conditional(out, name, " and ".join(tests), converter), operator, name)
            return
    tests = None if expected is None else _tests(w, name, expected, value.inferred_type)
    if tests is None:
        w.line(f"{out} = {converter}({name})", operator, name)
    else:
        unknown = None if value.condition is None or expected is None else _tests(w, name, expected, ANYTHING)
        w.line(_conditional(out, name, _condition(value, tests, unknown or []), converter), operator, name)


def _write_members(
    w: CodeWriter, operator: OperatorTraits, value: Var, expected: Fixed, converter: str, out: str
) -> bool:
    """Write the lines for a tuple with known members, built only for conversion. Return whether that suffices."""
    members, known = w.members(value.name) or (), value.inferred_type
    known_types: tuple[InferredType, ...] = known.members if isinstance(known, Fixed) else (ANYTHING,) * len(members)
    if not members or not len(members) == len(known_types) == len(expected.members):
        return False
    names = [w.var("m") for _ in members]
    # Members that are variables are tested directly.
    tested = [text if text.isidentifier() else name for name, text in zip(names, members, strict=True)]
    tests = _all(w, list(zip(tested, expected.members, known_types, strict=True)))
    if tests is None:
        return False
    is_conditional = value.condition is not None
    # A constant that conforms is the same after conversion, and need not be sent.
    fixed = [
        not is_conditional and constant(s) is not None and within(s, m)
        for s, m in zip(known_types, expected.members, strict=True)
    ]
    sent = [text if is_fixed else name for name, text, is_fixed in zip(names, members, fixed, strict=True)]
    for name, text in zip(sent, members, strict=True):
        if name != text:
            w.assign_if_read(name, text)
    # As expressions, so that a member that only the rare test reads is not computed for every record.
    unknown = (
        _all(w, [(m, t, ANYTHING) for m, t in zip(members, expected.members, strict=True)]) if is_conditional else []
    )
    with w.block(f"if not ({_condition(value, tests, unknown or [])}):"):
        w.assign_also(names, f"{converter}({value.name})", operator, value.name)
    w.tuple_of(out, tuple(sent))
    return True


def _condition(value: Var, tests: list[str], unknown: list[str]) -> str:
    """Return an expression that is true if a value conforms; empty if it always does.

    Args:
        value: the value, and the variables with the conditions that it meets.
        tests: the remaining tests while its inferred type holds.
        unknown: the tests where it does not hold; none if only the converter can decide.
    """
    if value.condition is None:
        return " and ".join(tests)
    alternatives = [" and ".join([value.condition, *tests])]
    if value.conforms is not None:
        alternatives.insert(0, value.conforms)
    if unknown:
        alternatives.append(" and ".join(unknown))
    return " or ".join(alternatives)


def _conditional(out: str, name: str, test: str, converter: str) -> str:
    return f"{out} = {name} if {test} else {converter}({name})" if test else f"{out} = {name}"


def test_of(w: CodeWriter, name: str, inferred_type: InferredType) -> str:
    """Return an expression that is true only if a variable has a type; empty if none can be written."""
    return " and ".join(_tests(w, name, inferred_type, ANYTHING) or [])


def test_of_record(w: CodeWriter, value: Var, inferred_type: InferredType) -> str:
    """Return an expression that is true only if a record has a type; empty if it always has."""
    members = w.members(value.name)
    if members is not None and isinstance(inferred_type, Fixed) and isinstance(value.inferred_type, Fixed):
        tests = _all(w, list(zip(members, inferred_type.members, value.inferred_type.members, strict=True)))
    else:
        tests = _tests(w, value.name, inferred_type, value.inferred_type)
    return " and ".join(tests or [])


def _tests(w: CodeWriter, expression: str, expected: InferredType, known: InferredType) -> list[str] | None:
    """Return expressions that are all true only if a value has the expected type; None if none can decide.

    They may be false for None and for values of subclasses, for which the converter decides.
    """
    if within(known, expected):
        return []
    if isinstance(expected, Fixed):
        return _tests_of_tuple(w, expression, expected, known)
    if isinstance(expected, Whole):
        return _tests_of_int(w, expression, expected, known)
    if isinstance(expected, Real):
        return None if expected.single else [f"{expression}.__class__ is {w.bind(float, 'float')}"]
    assert isinstance(expected, Some)
    return [f"{expression}.__class__ is {w.bind(expected.kind, 'kind')}"]


def _tests_of_tuple(w: CodeWriter, expression: str, expected: Fixed, known: InferredType) -> list[str] | None:
    width = len(expected.members)
    members: tuple[InferredType, ...] = (ANYTHING,) * width
    tests = [f"{expression}.__class__ is {w.bind(tuple, 'tuple')}", f"len({expression}) == {width}"]
    if isinstance(known, Fixed) and len(known.members) == width:
        members, tests = known.members, tests[:1] if known.null else []
    inner = _all(w, [(f"{expression}[{i}]", m, members[i]) for i, m in enumerate(expected.members)])
    return None if inner is None else tests + inner


def _all(w: CodeWriter, expressions: list[tuple[str, InferredType, InferredType]]) -> list[str] | None:
    tests: list[str] = []
    for expression, expected, known in expressions:
        more = _tests(w, expression, expected, known)
        if more is None:
            return None
        tests += more
    return tests


def _tests_of_int(w: CodeWriter, expression: str, expected: Whole, known: InferredType) -> list[str]:
    tests = []
    number = expression
    if "[" in expression:
        number, expression = (held := w.var("m")), f"({held} := {expression})"
    if not isinstance(known, Whole) or known.null:
        tests.append(f"{expression}.__class__ is {w.bind(int, 'int')}")
        expression = number
    bounds = known if isinstance(known, Whole) else Whole()
    low = None if within(bounds, Whole(expected.low, None, null=True)) else expected.low
    high = None if within(bounds, Whole(None, expected.high, null=True)) else expected.high
    wide = _between(low, number, number, high)
    quick = (None if low is None else -_QUICK), (None if high is None else _QUICK)
    if (low is None or low < -_QUICK) and (high is None or high > _QUICK) and wide:
        tests.append(f"({_between(quick[0], expression, number, quick[1])} or {wide})")
    elif wide:
        tests.append(_between(low, expression, number, high))
    return tests


def _between(low: int | None, first: str, number: str, high: int | None) -> str:
    """Return the expression that tests bounds; the value is written `first` the first time, then `number`."""
    tests = [] if low is None else [f"{low} <= {first}"]
    if high is not None:
        tests.append(f"{number if tests else first} <= {high}")
    return " and ".join(tests)
