"""Writes the one loop of a chain.

Every operator of a chain adds its lines to one Python function, so a record passes through the whole
chain without a call that is not the user's own. The writer remembers which line belongs to
which operator and which variable held its input: when user code raises, that tells operator and record
at no cost in the loop.
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
from millstream.common.fast_dataclass import record
from millstream.common.inferred_types import ANYTHING, Fixed, Shape, constant
from millstream.common.typeinfo import TypeInformation
from millstream.operators.codegen.inline import Expression, inline
from millstream.operators.codegen.return_types import elements_of, result_of

# CPython refuses more than 20 nested loops, and 100 levels of indentation; a chain is cut well before.
MAX_LOOPS = 12
MAX_INDENT = 60
# Operators write their lines inside one another, so that their number is bounded by Python's stack.
MAX_OPERATORS = 40

# So much of an operator's name is in the name of its function's file.
_SHOWN_NAME = 60
# The numbers of generated functions, which make their file names unique in this process.
_NUMBERS = count(1)

# Under this name the globals of a generated function have the sites of its lines. A table of all functions would hold
# operators, and through them the very functions, for ever.
_SITES = "__millstream_sites__"
_NAME = re.compile(r"[^\W\d]\w*")
# Members that are written as they are where they are needed: variables and plain ints.
_SIMPLE = re.compile(r"[^\W\d]\w*|\(-?\d+\)")


@record
class Var:
    """A record inside the generated loop.

    Attributes:
        name: the variable that holds the value.
        timestamp: the variable that holds its timestamp, None in a stream that has none.
        detached: whether nobody else can change the value any more.
        shape: what is known of the value.
        condition: the variable that must be true for the shape to hold, None where it always does.
        sure: the variable that is true while the value is known to fit its operator's type, None where there is none.
        fitted: the type that the value was made to fit and that it still fits, None for none.
    """

    name: str
    timestamp: str | None
    detached: bool
    shape: Shape = ANYTHING
    condition: str | None = None
    sure: str | None = None
    fitted: TypeInformation | None = None

    def renamed(self, name: str, detached: bool, shape: Shape = ANYTHING) -> Var:
        """Return another value with the same timestamp."""
        return Var(name, self.timestamp, detached, shape)

    def shared(self) -> Var:
        """Return the same value for one of several who may change it."""
        return replace(self, detached=False)


@record
class Key:
    """The key of a record inside the generated loop.

    Attributes:
        name: the variable that holds it.
        hashable: whether it has been made fit for a dict. One that was just taken from the record has not.
    """

    name: str
    hashable: bool


@record
class Taken:
    """What an operator takes in a generated function: which of its inputs, and what else belongs to the record.

    Attributes:
        timestamp, key: the variables with the record's timestamp and its key, None where there are none.
    """

    input_index: int
    timestamp: str | None
    key: str | None


@record
class Site:
    """Where a generated line came from.

    Attributes:
        operator: the operator that wrote it.
        variable: the variable with its input, or the text that puts it together.
        inlined: the user's functions whose text stands in the line, and the same of their arguments.
        taken: what belongs to its input; None where the operator takes none here.
    """

    operator: Any
    variable: str
    inlined: tuple[tuple[Callable[..., Any], list[str]], ...] = ()
    taken: Taken | None = None


class CodeWriter:
    """Collects the lines of one generated function.

    A variable may be a tuple of which only the members are there. It is put together by the first line that uses it as
    a whole; most records are only asked for their members and never become one.
    """

    def __init__(self, name: str, many_new_keys: bool = False, inlining: bool = True) -> None:
        # Whether most keys come once an epoch, so that looking for a key in the epoch's changes mostly fails.
        self.many_new_keys = many_new_keys
        # Whether users' functions may be written out.
        self._inlining = inlining
        self._name = name
        self._lines: list[str] = []
        self._indent = 1
        self._loops = 0
        self._operators = 0
        self._taken: dict[int, Taken] = {}
        self._vars = 0
        self._bound: dict[str, Any] = {}
        self._names: dict[int, str] = {}
        self._sites: dict[int, Site] = {}
        self._inlined: list[tuple[Callable[..., Any], list[str]]] = []
        self._before: list[str] = []
        self._after: list[tuple[str, Any]] = []
        self._members: dict[str, tuple[str, ...]] = {}
        # The variables among them that have been put together, in this block and in each around it.
        self._made: list[set[str]] = [set()]
        self._copies: dict[str, str] = {}
        # Lines that only give variables their values, by number: those whose variable nobody reads do nothing.
        self._assigned: dict[int, str | None] = {}

    def bind(self, value: Any, hint: str) -> str:
        """Make an object known to the function under a name; it is a fast local there."""
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

    def tuple_of(self, name: str, members: tuple[str, ...], made: bool = False) -> None:
        """Say that a variable is a tuple of other variables and ints, and whether it has been put together."""
        self._members[name] = members
        if made:
            self._made[-1].add(name)

    def take_apart(self, name: str, shape: Shape) -> None:
        """Say what is known of the members of a variable that holds a tuple, if one of them is a constant."""
        if isinstance(shape, Fixed) and not shape.null and any(constant(m) is not None for m in shape.members):
            texts = [f"{name}[{i}]" if (c := constant(m)) is None else f"({c})" for i, m in enumerate(shape.members)]
            self.tuple_of(name, tuple(texts), made=True)

    def members(self, name: str) -> tuple[str, ...] | None:
        """Return the texts of the members of a variable that is a tuple; None where they are not known."""
        return self._members.get(name)

    def member(self, name: str, place: int) -> str | None:
        """Return the text of one member of a variable that is a tuple; None where it is not known."""
        members = self._members.get(name, ())
        return members[place] if place < len(members) else None

    def written_out(self, name: str) -> str:
        """Return the text that puts a tuple together, for where it is seldom needed; else the variable."""
        if name not in self._members or any(name in made for made in self._made):
            return name
        return f"({', '.join(map(self.written_out, self._members[name]))},)"

    def copy(self, name: str, text: str) -> None:
        """Say that a variable has just been set to a text, which may be another variable."""
        self._copies[name] = text

    def origin(self, name: str | None) -> str | None:
        """Return what a variable is a copy of, else itself."""
        return None if name is None else self._copies.get(name, name)

    def _put_together(self, text: str) -> None:
        """Write the lines that put together the tuples which a text uses as a whole."""
        for name in dict.fromkeys(_NAME.findall(text)):
            whole = self.written_out(name)
            if whole != name:
                assert not text.startswith(("elif ", "else", "except")), f"{name} is not there in {text!r}"
                self._lines.append("    " * self._indent + f"{name} = {whole}")
                self._made[-1].add(name)

    # --- users' functions

    def call(self, function: Callable[..., Any], *arguments: str) -> str:
        """Return the text that applies a user's function to variables; it belongs into the next line written."""
        expression = self._expression(function, *arguments)
        if expression is None:
            return f"{self.bind(function, 'call')}({', '.join(arguments)})"
        self._has_inlined(function, *arguments)
        return expression.text

    def made_of(self, function: Callable[..., Any], *arguments: str) -> tuple[str, ...]:
        """Return the texts of the members of the tuple that a user's function puts together; none if it is called."""
        expression = self._expression(function, *arguments)
        return () if expression is None else expression.members

    def set_member(
        self, out: str, text: str, operator: Any, variable: str, function: Callable[..., Any], *arguments: str
    ) -> None:
        """Write the line that sets a variable to one of these members."""
        self._has_inlined(function, *arguments)
        self.line(f"{out} = {text}", operator, variable)

    def assign(self, out: str, operator: Any, variable: str, function: Callable[..., Any], *arguments: str) -> None:
        """Write the lines that set a variable to what a user's function returns."""
        made_of = self.made_of(function, *arguments)
        if not made_of:
            self.line(f"{out} = {self.call(function, *arguments)}", operator, variable)
            return
        members = []
        for text in made_of:
            member = text if _SIMPLE.fullmatch(text) else self.var("m")
            if member != text:
                self.set_member(member, text, operator, variable, function, *arguments)
            members.append(member)
        self.tuple_of(out, tuple(members))

    def _expression(self, function: Callable[..., Any], *arguments: str) -> Expression | None:
        return inline(function, list(arguments), self.bind, self.member) if self._inlining else None

    def _has_inlined(self, function: Callable[..., Any], *arguments: str) -> None:
        self._inlined.append((function, list(map(self.written_out, arguments))))

    def result(self, function: Callable[..., Any], *arguments: Shape) -> Shape:
        """Return what is known of the results of a user's function, from what is known of its arguments."""
        return result_of(function, list(arguments)) if self._inlining else ANYTHING

    def elements(self, function: Callable[..., Any]) -> Shape:
        """Return what is known of each of the results that a user's function returns together."""
        return elements_of(function) if self._inlining else ANYTHING

    def next_operator(self, operator: Any, input_index: int, value: Var, key: Key | None) -> None:
        """Another operator is about to write its lines, for a record of one of its inputs."""
        self._operators += 1
        self._taken[id(operator)] = Taken(input_index, value.timestamp, None if key is None else key.name)

    def before(self, text: str) -> None:
        """Write a line that runs once, before the loop."""
        self._before.append(f"    {text}")

    def after(self, text: str, operator: Any = None) -> None:
        """Write a line that runs once, after the loop."""
        self._after.append((f"    {text}", operator))

    # --- lines

    def line(self, text: str, operator: Any = None, variable: str = "") -> None:
        if self._members:
            self._put_together(text)
        if operator is not None:
            # Two lines precede the body: the def line is number 1.
            self._sites[len(self._lines) + 2] = Site(
                operator, self.written_out(variable), tuple(self._inlined), self._taken.get(id(operator))
            )
            self._inlined.clear()
        self._lines.append("    " * self._indent + text)

    def assign_if_read(self, name: str, text: str) -> None:
        """Give a variable a value that costs nothing but the time to find it; nothing, if nobody reads the variable."""
        self.line(f"{name} = {text}")
        self._assigned[len(self._lines) - 1] = name

    def assign_also(self, names: Sequence[str], text: str, operator: Any, variable: str) -> None:
        """Give such variables other values, taken out of one."""
        self.line(f"{', '.join(names)}, = {text}", operator, variable)
        self._assigned[len(self._lines) - 1] = None

    def _read_lines(self) -> list[str]:
        """Return the lines, those left empty that give a variable a value which nobody reads."""
        others = [line for i, line in enumerate(self._lines) if i not in self._assigned]
        # What is assigned may be read by another such line.
        others += [line.partition(" = ")[2] for i, line in enumerate(self._lines) if i in self._assigned]
        read = set(_NAME.findall(" ".join([*others, *(text for text, _ in self._after)])))
        unread = {i for i, name in self._assigned.items() if name is not None and name not in read}
        blanks = [line[: len(line) - len(line.lstrip())] for line in self._lines]
        return [f"{blanks[i]}pass" if i in unread else line for i, line in enumerate(self._lines)]

    @contextmanager
    def block(self, text: str, operator: Any = None, variable: str = "") -> Iterator[None]:
        self.line(text, operator, variable)
        loop = text.startswith("for ")
        self._indent += 1
        self._loops += loop
        self._made.append(set())
        start = len(self._lines)
        yield
        if len(self._lines) == start:
            self.line("pass")
        self._made.pop()
        self._indent -= 1
        self._loops -= loop

    @property
    def is_deep(self) -> bool:
        """Whether the nesting is so deep that the rest must go into a function of its own."""
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
        # Taken out, so that a function that nobody has any more goes at once.
        function: Callable[..., None] = namespace.pop("run")
        # Lets tracebacks and debuggers show the generated lines, for as long as the function is there.
        linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
        weakref.finalize(function, linecache.cache.pop, filename, None).atexit = False
        return function

    def _sites_by_line(self, body: int) -> dict[int, Site]:
        """Return the sites by the number of their line, for a body of so many lines."""
        sites = {number + len(self._before): site for number, site in self._sites.items()}
        first = 2 + len(self._before) + body
        sites.update({first + i: Site(o, "") for i, (_, o) in enumerate(self._after) if o is not None})
        return sites


def site_of(frame: FrameType, line: int) -> Site | None:
    """Return what a line of a generated function does, None for any other code."""
    sites: dict[int, Site] = frame.f_globals.get(_SITES, {})
    return sites.get(line)
