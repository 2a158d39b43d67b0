"""An extension of Griffe, which reads the docstrings of the API reference."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from griffe import Class, Docstring, Extension, Function, Module, Object


class Docstrings(Extension):
    """Adds what readers of the site miss: examples as programs, values of enums, and docstrings of overloads."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        """Rename the section `Example:` to `Examples:`, the only name for programs with prompts that Griffe knows."""
        if obj.docstring is not None:
            obj.docstring.value = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)

    def on_class(self, *, cls: Class, **kwargs: Any) -> None:
        """Name the values of an enum, which have no docstrings, in the docstring of the class."""
        values = [name for name, member in cls.members.items() if member.is_attribute and not name.startswith("_")]
        if values and any(str(base) in ("Enum", "IntEnum") for base in cls.bases) and cls.docstring is not None:
            text = cls.docstring.value + f"\n\nValues: {', '.join(f'`{value}`' for value in values)}."
            cls.docstring = Docstring(text, lineno=cls.docstring.lineno, parent=cls)

    def on_package(self, *, pkg: Module, **kwargs: Any) -> None:
        """Give a method that is declared for type checkers the docstring of the method that runs."""
        for cls in _classes(pkg):
            for name, method in cls.members.items():
                if isinstance(method, Function) and method.docstring is None:
                    inherited = ((base, base.members[name]) for base in cls.mro() if name in base.members)
                    running = (m for base, m in inherited if method.overloads or base.name.startswith("_"))
                    method.docstring = next((m.docstring for m in running if m.docstring), None)


def _classes(parent: Module | Class) -> Iterator[Class]:
    """Yield the classes of a module and its modules, without those that it imports."""
    for member in parent.members.values():
        if isinstance(member, Class):
            yield member
        if isinstance(member, Class | Module):
            yield from _classes(member)
