"""What commands print: tables with aligned columns for people, JSON for machines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import click

_MAX_WIDTH = 100


JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON, for machines.")


def tell(as_json: bool, text: str, **facts: Any) -> None:
    """Print what was done: facts for machines, a sentence for people."""
    if as_json:
        print_json(facts)
    else:
        click.echo(text)


def print_json(value: Any) -> None:
    """Print a value as JSON."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def table(header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str] = (), indent: int = 0) -> str:
    """Return rows under a header, in columns; columns in which there is nothing are left out.

    Args:
        header: the names of the columns.
        rows: their cells.
        right: the columns that are aligned to the right: numbers.
        indent: how far all of it is moved in.

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


def shorten(text: str, most: int = _MAX_WIDTH) -> str:
    """Return a text in one line that is not too long."""
    line = " ".join(text.splitlines())
    return line if len(line) <= most else f"{line[: most - 3]}..."


def count(number: int, thing: str) -> str:
    """Write how many there are.

    Example:
        >>> count(1, "row"), count(2, "row")
        ('1 row', '2 rows')
    """
    return f"{number} {thing}{'' if number == 1 else 's'}"


def limited(items: Iterator[Any], most: int) -> tuple[list[Any], bool]:
    """Return the first so many (0: all), and whether there are more."""
    found: list[Any] = []
    for item in items:
        if most and len(found) == most:
            return found, True
        found.append(item)
    return found, False
