"""Output of commands: tables for users, JSON for scripts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TypeVar

import click

from millstream.common.aliases import Json

T = TypeVar("T")

_MAX_WIDTH = 100


JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def print_result(as_json: bool, text: str, **facts: Json) -> None:
    """Print the result of a command: facts as JSON, or a sentence."""
    if as_json:
        print_json(facts)
    else:
        click.echo(text)


def print_json(value: Json) -> None:
    """Print a value as JSON."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def table(header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str] = (), indent: int = 0) -> str:
    """Format rows under a header, in columns; empty columns are omitted.

    Args:
        header: the names of the columns.
        rows: their cells.
        right: the right-aligned columns.
        indent: the number of leading spaces.

    Example:
        >>> print(table(["STATE", "NOTE", "ROWS"], [["count", "", "12"], ["seen", "", "3"]], right=["ROWS"]))
        STATE  ROWS
        count    12
        seen      3
    """
    used = [i for i, name in enumerate(header) if any(row[i] for row in rows)]
    cells = [[header[i] for i in used], *([shorten(row[i]) for i in used] for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(used))]
    rights = [header[i] in right for i in used]
    return "\n".join(" " * indent + _line(line, widths, rights) for line in cells)


def _line(cells: list[str], widths: list[int], rights: list[bool]) -> str:
    padded = (c.rjust(w) if r else c.ljust(w) for c, w, r in zip(cells, widths, rights, strict=True))
    return "  ".join(padded).rstrip()


def shorten(text: str, max_length: int = _MAX_WIDTH) -> str:
    """Return a text as one line of limited length."""
    line = " ".join(text.splitlines())
    return line if len(line) <= max_length else f"{line[: max_length - 3]}..."


def count(number: int, thing: str) -> str:
    """Format a number of things.

    Example:
        >>> count(1, "row"), count(2, "row")
        ('1 row', '2 rows')
    """
    return f"{number} {thing}{'' if number == 1 else 's'}"


def limited(items: Iterator[T], max_items: int) -> tuple[list[T], bool]:
    """Return the first items, up to a maximum (0: all), and whether there are more."""
    retained: list[T] = []
    for item in items:
        if max_items and len(retained) == max_items:
            return retained, True
        retained.append(item)
    return retained, False
