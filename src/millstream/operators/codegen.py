"""Writes the one loop of a chain.

Every operator of a chain adds its lines to one Python function, so a record passes through the whole
chain without a call that is not the user's own. The writer remembers which line belongs to
which operator and which variable held its input: when user code raises, that tells operator and record
at no cost in the loop.
"""

from __future__ import annotations

import linecache
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from types import FrameType
from typing import Any

from millstream.common.names import printable
from millstream.common.shapes import ANYTHING, Shape
from millstream.common.typeinfo import TypeInformation
from millstream.operators.inference import elements_of, result_of
from millstream.operators.inline import inline

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


@dataclass(frozen=True)
class Var:
    """A record inside the generated loop.

    Attributes:
        name: the variable that holds the value.
        timestamp: the variable that holds its timestamp, None in a stream that has none.
        detached: whether nobody else can change the value any more.
        shape: what is known of the value.
        condition: the variable that must be true for the shape to hold, None where it always does.
        fitted: the type that the value was made to fit and that it still fits, None for none.
    """

    name: str
    timestamp: str | None
    detached: bool
    shape: Shape = ANYTHING
    condition: str | None = None
    fitted: TypeInformation | None = None

    def renamed(self, name: str, detached: bool, shape: Shape = ANYTHING) -> Var:
        """Return another value with the same timestamp."""
        return Var(name, self.timestamp, detached, shape)

    def shared(self) -> Var:
        """Return the same value for one of several who may change it."""
        return replace(self, detached=False)


@dataclass(frozen=True)
class Key:
    """The key of a record inside the generated loop.

    Attributes:
        name: the variable that holds it.
        hashable: whether it has been made fit for a dict. One that was just taken from the record has not.
    """

    name: str
    hashable: bool


@dataclass(frozen=True)
class Site:
    """Where a generated line came from.

    Attributes:
        operator: the operator that wrote it.
        variable: the variable with its input.
        inlined: the user's functions whose text stands in the line, and the variables that are their arguments.
    """

    operator: Any
    variable: str
    inlined: tuple[tuple[Callable[..., Any], list[str]], ...] = ()


class CodeWriter:
    """Collects the lines of one generated function."""

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
        self._vars = 0
        self._bound: dict[str, Any] = {}
        self._names: dict[int, str] = {}
        self._sites: dict[int, Site] = {}
        self._inlined: list[tuple[Callable[..., Any], list[str]]] = []
        self._before: list[str] = []
        self._after: list[tuple[str, Any]] = []

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

    def call(self, function: Callable[..., Any], *arguments: str) -> str:
        """Return the text that applies a user's function to variables; it belongs into the next line written."""
        text = inline(function, list(arguments), self.bind) if self._inlining else None
        if text is None:
            return f"{self.bind(function, 'call')}({', '.join(arguments)})"
        self._inlined.append((function, list(arguments)))
        return text

    def result(self, function: Callable[..., Any], *arguments: Shape) -> Shape:
        """Return what is known of the results of a user's function, from what is known of its arguments."""
        return result_of(function, list(arguments)) if self._inlining else ANYTHING

    def elements(self, function: Callable[..., Any]) -> Shape:
        """Return what is known of each of the results that a user's function returns together."""
        return elements_of(function) if self._inlining else ANYTHING

    def next_operator(self) -> None:
        """Another operator is about to write its lines."""
        self._operators += 1

    def before(self, text: str) -> None:
        """Write a line that runs once, before the loop."""
        self._before.append(f"    {text}")

    def after(self, text: str, operator: Any = None) -> None:
        """Write a line that runs once, after the loop."""
        self._after.append((f"    {text}", operator))

    def line(self, text: str, operator: Any = None, variable: str = "") -> None:
        if operator is not None:
            # Two lines precede the body: the def line is number 1.
            self._sites[len(self._lines) + 2] = Site(operator, variable, tuple(self._inlined))
            self._inlined.clear()
        self._lines.append("    " * self._indent + text)

    @contextmanager
    def block(self, text: str, operator: Any = None, variable: str = "") -> Iterator[None]:
        self.line(text, operator, variable)
        loop = text.startswith("for ")
        self._indent += 1
        self._loops += loop
        start = len(self._lines)
        yield
        if len(self._lines) == start:
            self.line("pass")
        self._indent -= 1
        self._loops -= loop

    @property
    def is_deep(self) -> bool:
        """Whether the nesting is so deep that the rest must go into a function of its own."""
        return self._loops >= MAX_LOOPS or self._indent >= MAX_INDENT or self._operators >= MAX_OPERATORS

    def build(self, parameters: str) -> Callable[..., None]:
        """Compile the function."""
        bound = "".join(f", {n}={n}" for n in self._bound)
        body = self._lines or ["    pass"]
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
