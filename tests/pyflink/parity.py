"""The list of PyFlink's names with their status: checks docs/reference/parity.yaml and writes parity.md beside it.

    python -m tests.pyflink.parity                 write docs/reference/parity.md (`make parity`)
    python -m tests.pyflink.parity --missing PY    print the names that only PY's apache-flink or only the list has
    python -m tests.pyflink.parity --promote       mark names as done that are "not yet" in the list but exist
    python -m tests.pyflink.parity --signatures PY rewrite signatures.json from PY's apache-flink

A module of the list has classes, and under `names` its functions and constants. A class is done unless `is` says
otherwise; a class that is "not yet" or "never" has its members under `members`, with the same status. PY is a Python
interpreter with apache-flink installed.
"""

from __future__ import annotations

import importlib
import inspect
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
DOCS = HERE.parents[1] / "docs" / "reference"
LIST = DOCS / "parity.yaml"
PAGE = DOCS / "parity.md"
SIGNATURES = HERE / "signatures.json"
STATUSES = ("done", "differs", "not yet", "never")


@dataclass(frozen=True)
class Entry:
    """A PyFlink name, without the leading `pyflink.`."""

    name: str
    module: str
    status: str
    reason: str | None


def read() -> dict[str, Any]:
    parity: dict[str, Any] = yaml.safe_load(LIST.read_text())
    return parity


def entries(parity: dict[str, Any]) -> Iterator[Entry]:
    """Yield every name of the list, modules excepted."""
    for module, things in parity["modules"].items():
        for item, marks in (things or {}).items():
            marks = marks or {}
            prefix = module if item == "names" else f"{module}.{item}"
            status, reason = marks.get("is", "done"), marks.get("why")
            if item != "names":
                yield Entry(prefix, module, status, reason)
            for member in marks.get("members", ()):
                yield Entry(f"{prefix}.{member}", module, status, reason)
            for word in STATUSES:
                names = marks.get(word, ())
                for member in names:
                    yield Entry(f"{prefix}.{member}", module, word, names[member] if isinstance(names, dict) else None)


def resolve(name: str) -> Any:
    """Return the object of this name in millstream; raise AttributeError or ImportError if there is none."""
    parts = f"millstream.{name}".split(".")
    for length in range(len(parts), 0, -1):
        try:
            value: Any = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            value = getattr(value, part)
        return value
    raise ImportError(name)


def _run_names(python: str | Path, *arguments: str) -> dict[str, Any]:
    """Run names.py on an installed apache-flink; return its output by name, without the leading `pyflink.`."""
    command = [str(python), str(HERE / "names.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100)
    return {name.removeprefix("pyflink."): value for name, value in json.loads(done.stdout).items()}


def flink_names(python: str | Path) -> dict[str, str]:
    """Return the names of an installed apache-flink and their kinds."""
    return _run_names(python)


def flink_signatures(python: str | Path) -> dict[str, list[str]]:
    """Return the parameters of the callables of an installed apache-flink; optional ones end in "="."""
    return _run_names(python, "--signatures")


def recorded_signatures() -> dict[str, list[str]]:
    signatures: dict[str, list[str]] = json.loads(SIGNATURES.read_text())
    return signatures


def _parameters(item: Any) -> list[inspect.Parameter]:
    parameters = list(inspect.signature(item.__init__ if inspect.isclass(item) else item).parameters.values())
    return parameters[1:] if parameters and parameters[0].name in ("self", "cls") else parameters


def mismatches(name: str, theirs: list[str]) -> list[str]:
    """Return how a callable rejects calls that PyFlink accepts: by position, by name, or with an argument omitted."""
    ours = _parameters(resolve(name))
    kinds = {p.kind for p in ours}
    names = [p.name for p in ours if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    expected = [t.rstrip("=") for t in theirs if not t.startswith("*")]
    optional = {t.rstrip("=") for t in theirs if t.endswith("=")}
    problems = []
    for index, parameter in enumerate(expected):
        if parameter not in names:
            if inspect.Parameter.VAR_KEYWORD not in kinds:
                problems.append(f"no parameter {parameter}")
        elif names.index(parameter) != index:
            problems.append(f"{parameter} is parameter {names.index(parameter)}, not {index}")
    for p in ours:
        needed = p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        if needed and (p.name not in expected or p.name in optional):
            problems.append(f"{p.name} is required")
    return problems


def missing(parity: dict[str, Any], python: str | Path) -> set[str]:
    """Return the names that only apache-flink or only the list has."""
    listed = {e.name for e in entries(parity)} | set(parity["modules"])
    return listed ^ flink_names(python).keys()


def page(parity: dict[str, Any]) -> str:
    """Return the text of docs/reference/parity.md."""
    everything = list(entries(parity))
    at_servers = {e.name.split(".")[-1] for e in everything if e.module in parity["servers"]}
    own = [
        e
        for e in everything
        if e.module not in parity["servers"]
        and not (e.module == "datastream.connectors" and e.name.split(".")[-1] in at_servers)
    ]
    lines = [
        "# PyFlink's names and their status",
        "",
        "Generated by `make parity` from [parity.yaml](parity.yaml); do not edit. It lists every public class,",
        "method, property, enum member, function and constant of `pyflink.datastream`, `pyflink.common`,",
        f"`pyflink.metrics` and `pyflink.table` {parity['pyflink']}. **Done**: exists, with no known difference; a",
        "test checks that it exists and takes PyFlink's arguments by position and name, not that all behave the same.",
        "**Differs**: works, with the difference that is named. **Not yet** and **never**: can be imported; using it",
        "raises an error with the reason.",
        "",
        "| | names | done | differs | not yet | never | done | done or differs |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
        _counts("everything", everything),
        _counts("without connectors to servers", own),
        _counts("of those, without Java and PyFlink's internals", [e for e in own if e.status != "never"]),
    ]
    for package in ("common", "datastream", "metrics", "table"):
        lines.append(_counts(f"`{package}`", [e for e in own if e.module.split(".")[0] == package]))
    for module, things in parity["modules"].items():
        lines += _module(module, things or {})
    lines += ["", "## Names that Millstream adds", ""]
    lines += [f"* `{name}`: {description}" for name, description in parity["adds"].items()]
    return "\n".join(lines) + "\n"


def _counts(title: str, entries_: list[Entry]) -> str:
    counts = Counter(e.status for e in entries_)
    done, differs = counts["done"] / len(entries_), counts["differs"] / len(entries_)
    shares = f"{100 * done:.1f} % | {100 * (done + differs):.1f} %"
    return f"| {title} | {len(entries_)} | {' | '.join(str(counts[s]) for s in STATUSES)} | {shares} |"


def _module(module: str, things: dict[str, Any]) -> list[str]:
    lines = ["", f"## {module}", ""]
    for item, marks in things.items():
        marks = marks or {}
        title = "Functions and constants" if item == "names" else f"`{item}`"
        status, reason = marks.get("is", "done"), marks.get("why")
        note = f" **{status}**: {reason}." if status != "done" else ""
        members = [*marks.get("members", ()), *marks.get("done", ())]
        listed = f" {', '.join(f'`{m}`' for m in members)}" if members else ""
        lines.append(f"* {title}{':' if listed or note else ''}{note}{listed}")
        for word in STATUSES[1:]:
            lines += [f"    * **{word}** `{name}`: {reason}" for name, reason in marks.get(word, {}).items()]
    return lines


def promote(parity: dict[str, Any]) -> list[str]:
    """Mark "not yet" names that exist as done; return them."""
    from millstream.common.unsupported import is_missing

    changed = []

    def is_implemented(name: str) -> bool:
        try:
            return not is_missing(resolve(name))
        except (AttributeError, ImportError):
            return False

    for module, things in parity["modules"].items():
        for item, marks in (things or {}).items():
            prefix = module if item == "names" else f"{module}.{item}"
            if marks and marks.get("is") == "not yet" and is_implemented(prefix):
                changed.append(prefix)
                reason = marks.pop("why")
                del marks["is"]
                marks["not yet"] = dict.fromkeys(marks.pop("members", ()), reason)
            for member in [m for m in (marks or {}).get("not yet", {}) if is_implemented(f"{prefix}.{m}")]:
                changed.append(f"{prefix}.{member}")
                del marks["not yet"][member]
                marks.setdefault("done", []).append(member)
            if marks and not marks.get("not yet", True):
                del marks["not yet"]
    return changed


class _Dumper(yaml.SafeDumper):
    """Writes lists in flow style."""


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
    elif sys.argv[1:2] == ["--signatures"]:
        rows = [
            f"{json.dumps(name)}: {json.dumps(signature)}" for name, signature in flink_signatures(sys.argv[2]).items()
        ]
        SIGNATURES.write_text("{\n" + ",\n".join(sorted(rows)) + "\n}\n")
    else:
        PAGE.write_text(page(read()))
