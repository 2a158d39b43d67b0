"""Writes the generated loop of a chain.

Every operator of a chain adds its lines to one Python function, so that a record passes through the whole chain without
calls other than those to user code. The writer records which operator wrote each line and which variable held its
input: when user code raises, that identifies the operator and the record at no cost in the loop.
"""

from __future__ import annotations

import linecache
import re
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from types import FrameType
from typing import Any

from millstream.common.display_text import printable
from millstream.common.fast_dataclass import fast_dataclass
from millstream.common.inferred_types import ANYTHING, Fixed, InferredType, constant
from millstream.common.typeinfo import TypeInformation
from millstream.operators.codegen.inline import Expression, UserCallable, inline
from millstream.operators.codegen.return_types import elements_of, result_of

# CPython allows 20 nested loops and 100 levels of indentation; a chain is split well before.
MAX_LOOPS = 12
MAX_INDENT = 60
# Operators write their lines recursively, so Python's stack bounds their number.
MAX_OPERATORS = 40

# Maximum characters of an operator's name in the file name of its function.
_SHOWN_NAME = 60
# Serial numbers that make file names of generated functions unique in this process.
_NUMBERS = count(1)

# The global of a generated function that holds the sites of its lines. A table of all functions would keep operators,
# and through them the functions themselves, alive forever.
_SITES = "__millstream_sites__"
_NAME = re.compile(r"[^\W\d]\w*")
# Expressions that are repeated instead of assigned to a variable: variables and int literals.
_SIMPLE = re.compile(r"[^\W\d]\w*|\(-?\d+\)")


@fast_dataclass
class Var:
    """A record inside the generated loop.

    Attributes:
        name: the variable that holds the value.
        timestamp: the variable that holds its timestamp, None in a stream that has none.
        detached: whether no other code can modify the value.
        inferred_type: the inferred type of the value.
        condition: the variable that is true if the inferred type holds, None if it always does.
        conforms: the variable that is true while the value is known to conform to its operator's type, if there is one.
        coerced_to: the type that the value was coerced to and still conforms to, if any.
    """

    name: str
    timestamp: str | None
    detached: bool
    inferred_type: InferredType = ANYTHING
    condition: str | None = None
    conforms: str | None = None
    coerced_to: TypeInformation | None = None

    def renamed(self, name: str, detached: bool, inferred_type: InferredType = ANYTHING) -> Var:
        """Return another variable with the same timestamp."""
        return Var(name, self.timestamp, detached, inferred_type)

    def shared(self) -> Var:
        """Return the same value for one of several consumers that may modify it."""
        return replace(self, detached=False)


@fast_dataclass
class Key:
    """The key of a record inside the generated loop.

    Attributes:
        name: the variable that holds it.
        hashable: whether it is known to be hashable; a key just extracted from a record is not.
    """

    name: str
    hashable: bool


@fast_dataclass
class OperatorInput:
    """The input of an operator in a generated function.

    Attributes:
        timestamp, key: the variables with the record's timestamp and key, None if there are none.
    """

    input_index: int
    timestamp: str | None
    key: str | None


@fast_dataclass
class Site:
    """The origin of a generated line.

    Attributes:
        operator: the operator that wrote it.
        variable: the variable with its input, or the expression that builds it.
        inlined: the user functions inlined in the line, with their argument expressions.
        operator_input: the operator's input; None without input.
    """

    operator: object
    variable: str
    inlined: tuple[tuple[UserCallable, list[str]], ...] = ()
    operator_input: OperatorInput | None = None


class CodeWriter:
    """Collects the lines of one generated function.

    A variable may be a tuple of which only the members exist as variables. The first line that uses the whole tuple
    builds it; for most records only members are used, and the tuple is never built.
    """

    def __init__(self, name: str, many_new_keys: bool = False, inlining: bool = True) -> None:
        # Whether most keys occur once per epoch, so that lookups in the epoch's changes mostly fail.
        self.many_new_keys = many_new_keys
        # Whether user functions may be inlined.
        self._inlining = inlining
        self._name = name
        self._lines: list[str] = []
        self._indent = 1
        self._loops = 0
        self._operators = 0
        self._inputs: dict[int, OperatorInput] = {}
        self._vars = 0
        self._bound: dict[str, object] = {}
        self._names: dict[int, str] = {}
        self._sites: dict[int, Site] = {}
        self._inlined: list[tuple[UserCallable, list[str]]] = []
        self._before: list[str] = []
        self._after: list[tuple[str, object]] = []
        self._members: dict[str, tuple[str, ...]] = {}
        # The tuples that have been built, in this block and in each enclosing one.
        self._built: list[set[str]] = [set()]
        self._copies: dict[str, str] = {}
        # Line numbers of pure assignments; those whose variable is never read are removed.
        self._assigned: dict[int, str | None] = {}

    def bind(self, value: object, hint: str) -> str:
        """Bind an object to a name; it is a fast local of the function."""
        name = self._names.get(id(value))
        if name is None:
            name = f"{hint}_{len(self._bound)}"
            self._bound[name] = value
            self._names[id(value)] = name
        return name

    def var(self, hint: str = "v") -> str:
        self._vars += 1
        return f"{hint}{self._vars}"

    # --- tuples

    def tuple_of(self, name: str, members: tuple[str, ...], is_built: bool = False) -> None:
        """Declare that a variable is a tuple of other variables and ints, and whether it has been built."""
        self._members[name] = members
        if is_built:
            self._built[-1].add(name)

    def declare_members(self, name: str, inferred_type: InferredType) -> None:
        """Declare the members of a tuple variable if one of them is a constant."""
        if (
            isinstance(inferred_type, Fixed)
            and not inferred_type.null
            and any(constant(m) is not None for m in inferred_type.members)
        ):
            texts = [
                f"{name}[{i}]" if (c := constant(m)) is None else f"({c})" for i, m in enumerate(inferred_type.members)
            ]
            self.tuple_of(name, tuple(texts), is_built=True)

    def members(self, name: str) -> tuple[str, ...] | None:
        """Return the expressions of the members of a tuple variable; None if unknown."""
        return self._members.get(name)

    def member(self, name: str, index: int) -> str | None:
        """Return the expression of one member of a tuple variable; None if unknown."""
        members = self._members.get(name, ())
        return members[index] if index < len(members) else None

    def expression_of(self, name: str) -> str:
        """Return the expression that builds a tuple, for rare uses; else the variable."""
        if name not in self._members or any(name in built for built in self._built):
            return name
        return f"({', '.join(map(self.expression_of, self._members[name]))},)"

    def copy(self, name: str, text: str) -> None:
        """Declare that a variable equals an expression, which may be another variable."""
        self._copies[name] = text

    def origin(self, name: str | None) -> str | None:
        """Return what a variable is a copy of, else itself."""
        return None if name is None else self._copies.get(name, name)

    def _build_tuples(self, text: str) -> None:
        """Write the lines that build the tuples which an expression uses as a whole."""
        for name in dict.fromkeys(_NAME.findall(text)):
            whole = self.expression_of(name)
            if whole != name:
                assert not text.startswith(("elif ", "else", "except")), f"{name} is not built before {text!r}"
                self._lines.append("    " * self._indent + f"{name} = {whole}")
                self._built[-1].add(name)

    # --- user functions

    def call(self, function: UserCallable, *arguments: str) -> str:
        """Return the expression that applies a user function; it must be part of the next line written."""
        expression = self._expression(function, *arguments)
        if expression is None:
            return f"{self.bind(function, 'call')}({', '.join(arguments)})"
        self._has_inlined(function, *arguments)
        return expression.text

    def member_expressions(self, function: UserCallable, *arguments: str) -> tuple[str, ...]:
        """Return the member expressions of the tuple that an inlined function builds; none if it is called."""
        expression = self._expression(function, *arguments)
        return () if expression is None else expression.members

    def set_member(
        self, out: str, text: str, operator: object, variable: str, function: UserCallable, *arguments: str
    ) -> None:
        """Write the line that sets a variable to one of these members."""
        self._has_inlined(function, *arguments)
        self.line(f"{out} = {text}", operator, variable)

    def assign(self, out: str, operator: object, variable: str, function: UserCallable, *arguments: str) -> None:
        """Write the lines that set a variable to the result of a user function."""
        expressions = self.member_expressions(function, *arguments)
        if not expressions:
            self.line(f"{out} = {self.call(function, *arguments)}", operator, variable)
            return
        members = []
        for text in expressions:
            member = text if _SIMPLE.fullmatch(text) else self.var("m")
            if member != text:
                self.set_member(member, text, operator, variable, function, *arguments)
            members.append(member)
        self.tuple_of(out, tuple(members))

    def _expression(self, function: UserCallable, *arguments: str) -> Expression | None:
        return inline(function, list(arguments), self.bind, self.member) if self._inlining else None

    def _has_inlined(self, function: UserCallable, *arguments: str) -> None:
        self._inlined.append((function, list(map(self.expression_of, arguments))))

    def result(self, function: UserCallable, *arguments: InferredType) -> InferredType:
        """Return the inferred result type of a user function for argument types."""
        return result_of(function, list(arguments)) if self._inlining else ANYTHING

    def elements(self, function: UserCallable) -> InferredType:
        """Return the inferred type of the elements that a user function returns."""
        return elements_of(function) if self._inlining else ANYTHING

    def next_operator(self, operator: object, input_index: int, value: Var, key: Key | None) -> None:
        """Start the lines of the next operator, for a record of one of its inputs."""
        self._operators += 1
        self._inputs[id(operator)] = OperatorInput(input_index, value.timestamp, None if key is None else key.name)

    def before(self, text: str) -> None:
        """Write a line that runs once, before the loop."""
        self._before.append(f"    {text}")

    def after(self, text: str, operator: object | None = None) -> None:
        """Write a line that runs once, after the loop."""
        self._after.append((f"    {text}", operator))

    # --- lines

    def line(self, text: str, operator: object | None = None, variable: str = "") -> None:
        if self._members:
            self._build_tuples(text)
        if operator is not None:
            # The def line is line 1, so the body starts at line 2.
            self._sites[len(self._lines) + 2] = Site(
                operator, self.expression_of(variable), tuple(self._inlined), self._inputs.get(id(operator))
            )
            self._inlined.clear()
        self._lines.append("    " * self._indent + text)

    def assign_if_read(self, name: str, text: str) -> None:
        """Write an assignment without side effects; it is removed if the variable is never read."""
        self.line(f"{name} = {text}")
        self._assigned[len(self._lines) - 1] = name

    def assign_also(self, names: Sequence[str], text: str, operator: object, variable: str) -> None:
        """Assign other values to such variables, unpacked from one."""
        self.line(f"{', '.join(names)}, = {text}", operator, variable)
        self._assigned[len(self._lines) - 1] = None

    def _read_lines(self) -> list[str]:
        """Return the lines, with assignments to unread variables replaced by pass."""
        others = [line for i, line in enumerate(self._lines) if i not in self._assigned]
        # An assigned variable may be read by another such line.
        others += [line.partition(" = ")[2] for i, line in enumerate(self._lines) if i in self._assigned]
        read = set(_NAME.findall(" ".join([*others, *(text for text, _ in self._after)])))
        unused = {i for i, name in self._assigned.items() if name is not None and name not in read}
        blanks = [line[: len(line) - len(line.lstrip())] for line in self._lines]
        return [f"{blanks[i]}pass" if i in unused else line for i, line in enumerate(self._lines)]

    @contextmanager
    def block(self, text: str, operator: object | None = None, variable: str = "") -> Iterator[None]:
        self.line(text, operator, variable)
        loop = text.startswith("for ")
        self._indent += 1
        self._loops += loop
        self._built.append(set())
        start = len(self._lines)
        yield
        if len(self._lines) == start:
            self.line("pass")
        self._built.pop()
        self._indent -= 1
        self._loops -= loop

    @property
    def is_deep(self) -> bool:
        """Whether the nesting is so deep that the rest must become another function."""
        return self._loops >= MAX_LOOPS or self._indent >= MAX_INDENT or self._operators >= MAX_OPERATORS

    def build(self, parameters: str) -> Callable[..., None]:
        """Compile the function."""
        bound = "".join(f", {n}={n}" for n in self._bound)
        body = self._read_lines() or ["    pass"]
        after = [text for text, _ in self._after]
        source = "\n".join([f"def run({parameters}{bound}):", *self._before, *body, *after]) + "\n"
        filename = f"<millstream {printable(self._name, _SHOWN_NAME)} {next(_NUMBERS)}>"
        namespace: dict[str, Any] = {**self._bound, _SITES: self._sites_by_line(len(body))}
        exec(compile(source, filename, "exec"), namespace)
        # Removed from its globals, so that an unused function is freed at once.
        function: Callable[..., None] = namespace.pop("run")
        # Lets tracebacks and debuggers show the generated lines while the function exists.
        linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
        weakref.finalize(function, linecache.cache.pop, filename, None).atexit = False
        return function

    def _sites_by_line(self, body: int) -> dict[int, Site]:
        """Return the sites by line number, for a body of this many lines."""
        sites = {number + len(self._before): site for number, site in self._sites.items()}
        first = 2 + len(self._before) + body
        sites.update({first + i: Site(o, "") for i, (_, o) in enumerate(self._after) if o is not None})
        return sites


def site_of(frame: FrameType, line: int) -> Site | None:
    """Return the site of a line of a generated function, None for any other code."""
    sites: dict[int, Site] = frame.f_globals.get(_SITES, {})
    return sites.get(line)
