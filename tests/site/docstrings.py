"""An extension of Griffe, which reads the docstrings of the API reference."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from griffe import Class, Docstring, Extension, Module, Object


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
        """Give overloads of an inherited method, which are for type checkers, its docstring."""
        for cls in _classes(pkg):
            for name, member in cls.members.items():
                if member.is_function and member.overloads and member.docstring is None:
                    inherited = (base.members[name] for base in cls.mro() if name in base.members)
                    member.docstring = next((method.docstring for method in inherited if method.docstring), None)


def _classes(parent: Module | Class) -> Iterator[Class]:
    """Yield the classes of a module and its modules, without those that it imports."""
    for member in parent.members.values():
        if isinstance(member, Class):
            yield member
        if isinstance(member, Class | Module):
            yield from _classes(member)
