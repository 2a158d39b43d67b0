"""The list of PyFlink's names and what each is here: reads docs/parity.yaml, checks it, writes docs/parity.md.

    python tests/pyflink/parity.py                 write docs/parity.md (`make parity`)
    python tests/pyflink/parity.py --missing PY    say what of the apache-flink of the interpreter PY is not in the list
    python tests/pyflink/parity.py --promote       mark as done what the list calls "not yet" and is there by now

A module of the list has classes, and under `names` its functions and constants. A class is done unless `is` says
otherwise; a class that is "not yet" or "never" has its members under `members`, and they share its fate.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).resolve().parent
DOCS = HERE.parents[1] / "docs"
LIST = DOCS / "parity.yaml"
PAGE = DOCS / "parity.md"
STATUSES = ("done", "differs", "not yet", "never")


@dataclass(frozen=True)
class Entry:
    """One name of PyFlink's, without the leading `pyflink.`."""

    name: str
    module: str
    status: str
    why: str | None


def read() -> dict[str, Any]:
    parity: dict[str, Any] = yaml.safe_load(LIST.read_text())
    return parity


def entries(parity: dict[str, Any]) -> Iterator[Entry]:
    """Yield every name of the list, modules excepted."""
    for module, things in parity["modules"].items():
        for thing, marks in (things or {}).items():
            marks = marks or {}
            prefix = module if thing == "names" else f"{module}.{thing}"
            status, why = marks.get("is", "done"), marks.get("why")
            if thing != "names":
                yield Entry(prefix, module, status, why)
            for member in marks.get("members", ()):
                yield Entry(f"{prefix}.{member}", module, status, why)
            for word in STATUSES:
                found = marks.get(word, ())
                for member in found:
                    yield Entry(f"{prefix}.{member}", module, word, found[member] if isinstance(found, dict) else None)


def resolve(name: str) -> Any:
    """Return the thing of millstream that has a name; AttributeError or ImportError when there is none."""
    parts = f"millstream.{name}".split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            found = getattr(found, part)
        return found
    raise ImportError(name)


def flinks_names(python: str | Path) -> dict[str, str]:
    """Return the names of an installed apache-flink and their kinds, without the leading `pyflink.`."""
    done = subprocess.run(
        [str(python), str(HERE / "names.py")], capture_output=True, text=True, check=True, timeout=100
    )
    found: dict[str, str] = json.loads(done.stdout)
    return {name.removeprefix("pyflink."): kind for name, kind in found.items()}


def missing(parity: dict[str, Any], python: str | Path) -> set[str]:
    """Return what apache-flink has and the list has not, and the other way round."""
    listed = {e.name for e in entries(parity)} | set(parity["modules"])
    return listed ^ flinks_names(python).keys()


def page(parity: dict[str, Any]) -> str:
    """Write the list for readers."""
    everything = list(entries(parity))
    at_servers = {e.name.split(".")[-1] for e in everything if e.module in parity["servers"]}
    own = [
        e
        for e in everything
        if e.module not in parity["servers"]
        and not (e.module == "datastream.connectors" and e.name.split(".")[-1] in at_servers)
    ]
    lines = [
        "# PyFlink's names, and what each is here",
        "",
        "Made by `make parity` from [parity.yaml](parity.yaml); do not edit. Every public class, method, property,",
        "enum member, function and constant of `pyflink.datastream`, `pyflink.common` and `pyflink.metrics`",
        f"{parity['pyflink']}. **Done**: is there and no difference is known; a test sees to it that it is there,",
        "not that every one behaves the same. **Differs**: works, with the difference that is named. **Not yet** and",
        "**never**: it can be imported, and using it raises one sentence that says why.",
        "",
        "| | names | done | differs | not yet | never | done or differs |",
        "|---|---:|---:|---:|---:|---:|---:|",
        _counts("everything", everything),
        _counts("without connectors to servers", own),
        _counts("of those, what does not need Java or PyFlink's inside", [e for e in own if e.status != "never"]),
    ]
    for package in ("common", "datastream", "metrics"):
        lines.append(_counts(f"`{package}`", [e for e in own if e.module.split(".")[0] == package]))
    for module, things in parity["modules"].items():
        lines += _module(module, things or {})
    lines += ["", "## What millstream adds", ""]
    lines += [f"* `{name}`: {what}" for name, what in parity["adds"].items()]
    return "\n".join(lines) + "\n"


def _counts(title: str, of: list[Entry]) -> str:
    counts = Counter(e.status for e in of)
    share = 100 * (counts["done"] + counts["differs"]) / len(of)
    return f"| {title} | {len(of)} | " + " | ".join(str(counts[s]) for s in STATUSES) + f" | {share:.1f} % |"


def _module(module: str, things: dict[str, Any]) -> list[str]:
    lines = ["", f"## {module}", ""]
    for thing, marks in things.items():
        marks = marks or {}
        title = "Functions and constants" if thing == "names" else f"`{thing}`"
        status, why = marks.get("is", "done"), marks.get("why")
        said = f" **{status}**: {why}." if status != "done" else ""
        members = [*marks.get("members", ()), *marks.get("done", ())]
        listed = f" {', '.join(f'`{m}`' for m in members)}" if members else ""
        lines.append(f"* {title}{':' if listed or said else ''}{said}{listed}")
        for word in STATUSES[1:]:
            lines += [f"    * **{word}** `{name}`: {reason}" for name, reason in marks.get(word, {}).items()]
    return lines


def promote(parity: dict[str, Any]) -> list[str]:
    """Mark as done what is there by now; return what was."""
    from millstream.common.missing import is_missing

    changed = []

    def works(name: str) -> bool:
        try:
            return not is_missing(resolve(name))
        except (AttributeError, ImportError):
            return False

    for module, things in parity["modules"].items():
        for thing, marks in (things or {}).items():
            prefix = module if thing == "names" else f"{module}.{thing}"
            if marks and marks.get("is") == "not yet" and works(prefix):
                changed.append(prefix)
                why = marks.pop("why")
                del marks["is"]
                marks["not yet"] = dict.fromkeys(marks.pop("members", ()), why)
            for member in [m for m in (marks or {}).get("not yet", {}) if works(f"{prefix}.{m}")]:
                changed.append(f"{prefix}.{member}")
                del marks["not yet"][member]
                marks.setdefault("done", []).append(member)
            if marks and not marks.get("not yet", True):
                del marks["not yet"]
    return changed


class _Dumper(yaml.SafeDumper):
    """Writes lists in lines and not in columns."""


_Dumper.add_representer(list, lambda d, v: d.represent_sequence("tag:yaml.org,2002:seq", v, flow_style=True))


def write(parity: dict[str, Any]) -> None:
    LIST.write_text(yaml.dump(parity, Dumper=_Dumper, sort_keys=False, width=118, allow_unicode=True))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--missing"]:
        print("\n".join(sorted(missing(read(), sys.argv[2]))))
    elif sys.argv[1:2] == ["--promote"]:
        current = read()
        print("\n".join(promote(current)))
        write(current)
    else:
        PAGE.write_text(page(read()))
