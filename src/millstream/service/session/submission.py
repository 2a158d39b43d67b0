"""Submissions: a program and how to run it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from millstream.service.http import RequestError

_TEXTS, _LISTS, _MAPS = ("path", "directory", "module"), ("arguments",), ("settings", "last_word")


@dataclass(frozen=True, kw_only=True)
class Submission:
    """A program to run.

    Attributes:
        path: the program, a .py file or a .zip, on the cluster's machine.
        module: the module of the .zip to run; None for its __main__.py.
        arguments: its arguments, for sys.argv.
        directory: its working directory; None for a new one.
        settings: options that the program can override.
        last_word: options that override the program's.
        pyflink: whether `import pyflink` means millstream.
    """

    path: str
    module: str | None = None
    arguments: list[str] = field(default_factory=list)
    directory: str | None = None
    settings: dict[str, str] = field(default_factory=dict)
    last_word: dict[str, str] = field(default_factory=dict)
    pyflink: bool = False

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def read(body: dict[str, Any]) -> Submission:
        """Parse a client's request."""
        checks: dict[str, Callable[[Any], bool]] = {
            **dict.fromkeys(_TEXTS, _is_text),
            **dict.fromkeys(_LISTS, _is_list),
            **dict.fromkeys(_MAPS, _is_map),
            "pyflink": lambda value: isinstance(value, bool),
        }
        for key, value in body.items():
            if key not in checks or not checks[key](value):
                raise RequestError(400, f"{key} is not a field of a submission, or has the wrong type.")
        if not body.get("path"):
            raise RequestError(400, "The submission has no path: set it to the program's file.")
        return Submission(**body)


def _is_text(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(x, str) for x in value)


def _is_map(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(x, str) for x in value.values())
