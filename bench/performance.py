"""Generate docs/performance.md, its charts and the figures of the README from the results in bench/results/.

    python -m bench.performance        (`make performance`)

A figure in the README stands between two comments: `<!--figure keyed-reduce-vs-pyflink-->202<!---->`. A test fails if
a generated file differs from what this module generates, so no page can show a figure that no stored run measured.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.results import ROOT, stored
from bench.run import AT_ONCE, TITLES

PAGE = ROOT / "docs" / "performance.md"
IMAGES = ROOT / "docs" / "images"
# Pages with figures between comments.
PAGES_WITH_FIGURES = (ROOT / "README.md", ROOT / "docs" / "index.md")
_FIGURE = re.compile(r"(<!--figure ([\w-]+)-->)[^<]*(<!---->)")

# A stored result: its data, and the run that measured it.
Result = dict[str, Any]
Results = dict[str, Result]

SYSTEMS = {
    "millstream": "Millstream",
    "flink java": "Flink in Java",
    "bytewax": "Bytewax",
    "transformWithState": "Spark, transformWithState",
    "pyflink thread": "PyFlink, thread mode",
    "pyflink process": "PyFlink, process mode",
    "bare": "bare Python loop",
}


def number(value: float) -> str:
    """Return a rate or a ratio with three significant digits, but with all digits before the point."""
    if value == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{digits}f}"


def rate(value: float) -> str:
    """Return records per second in words: 8.5 million, 24,300."""
    if value >= 1e6:
        return f"{number(value / 1e6)} million"
    return f"{round(value, -max(0, math.floor(math.log10(value)) - 2)):,.0f}"


def spread(values: Sequence[float]) -> str:
    """Return how much the worst of several rounds is below the best."""
    return "1 run" if len(values) == 1 else f"{1 - min(values) / max(values):.0%} of {len(values)}"


def ratio(result: Result, other: str) -> float:
    """Return the best rate of Millstream as a multiple of another system's."""
    return float(max(result["data"]["millstream"]) / max(result["data"][other]))


def mean(ratios: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def throughput(results: Results) -> dict[str, Result]:
    """Return the results of the DataStream programs by letter."""
    return {name.removeprefix("throughput-"): r for name, r in results.items() if name.startswith("throughput-")}


def _source(result: Result) -> str:
    return f"*{result['date']}, commit {result['commit']}: `{result['command']}`*"


def _paragraph(text: str) -> list[str]:
    """Return an empty line and the lines of a paragraph."""
    return ["", *textwrap.wrap(text, 120, break_long_words=False, break_on_hyphens=False)]


# Sections of the page: each yields lines, from the results that it needs.


def _programs(results: Results) -> Iterator[str]:
    for letter, result in throughput(results).items():
        data = result["data"]
        yield from ("", f"### {TITLES[letter]}", "", _source(result), "")
        yield from ("| system | records per second | spread | Millstream is |", "|---|---:|---:|---:|")
        for system, title in SYSTEMS.items():
            if system in data:
                times = "" if system == "millstream" else f"{number(ratio(result, system))} x"
                cores = f" x {result['machine']['cores']} cores" if system == "bare" else ""
                yield f"| {title}{cores} | {rate(max(data[system]))} | {spread(data[system])} | {times} |"


def _sql(results: Results) -> Iterator[str]:
    result = results["sql"]
    yield from (_source(result), "")
    yield "| rows per second | Millstream | Flink's Java SQL (PyFlink for UDFs) | ratio | Spark SQL, final rows only |"
    yield "|---|---:|---:|---:|---:|"
    for query, rates in result["data"].items():
        ours, flink = max(rates["millstream"]), max(rates["flink"], default=0.0)
        other = f"{rate(flink)} | {number(ours / flink)}" if flink else "- | -"
        spark = rate(max(rates["spark sql"])) if rates["spark sql"] else "-"
        yield f"| {query} | {rate(ours)} | {other} | {spark} |"


def _nexmark(results: Results) -> Iterator[str]:
    result = results["nexmark"]
    yield from (_source(result), "", "| query | Millstream, events per second | Flink's Java SQL | ratio |")
    yield "|---|---:|---:|---:|"
    for query, rates in result["data"].items():
        ours, flink = rates["millstream"], rates.get("flink")
        other = f"{rate(flink)} | {number(ours / flink)}" if flink else "- | -"
        yield f"| {query} | {rate(ours)} | {other} |"
    ratios = nexmark_ratios(result)
    yield from _paragraph(f"The geometric mean of {len(ratios)} ratios is {mean(ratios):.2f}. Flink rejects q6.")


def nexmark_ratios(result: Result) -> list[float]:
    return [r["millstream"] / r["flink"] for r in result["data"].values() if "flink" in r]


def _latency(results: Results) -> Iterator[str]:
    result = results["latency"]
    titles = {**SYSTEMS, AT_ONCE: "Millstream, buffer timeout 0", "millstream": "Millstream, default settings"}
    yield from (_source(result), "")
    yield from ("| 1,000 records per second, 100 keys | p50 ms | p99 ms | runs |", "|---|---:|---:|---:|")
    for system, runs in result["data"].items():
        best = min(runs, key=lambda run: run["p99_ms"])
        yield f"| {titles[system]} | {best['p50_ms']:.1f} | {best['p99_ms']:.1f} | {len(runs)} |"


def _epochs(results: Results) -> Iterator[str]:
    result = results["epochs"]
    yield from (_source(result), "")
    yield from ("| levels | Millstream as Spark jobs, ms | bare Spark job, ms |", "|---:|---:|---:|")
    for levels, pair in result["data"].items():
        yield f"| {levels} | {pair['millstream_ms']:.1f} | {pair['spark_ms']:.1f} |"


def _checkpoints(results: Results) -> Iterator[str]:
    result = results["checkpoints"]
    data = result["data"]
    yield from (_source(result), "")
    yield "| keys in state | first checkpoint | a checkpoint after 1% changed | first result after a killed worker |"
    yield "|---:|---:|---:|---:|"
    for size, recovered in zip(data["sizes"], data["recovery"], strict=True):
        first = f"{size['first_bytes'] / 1e6:.1f} MB, {size['first_ms']:.0f} ms"
        changed = f"{size['bytes'] / 1e3:.0f} KB, {size['ms']:.0f} ms"
        yield f"| {size['keys']:,} | {first} | {changed} | {recovered['seconds']:.2f} s |"
    for keys, pair in data["cost"].items():
        share = pair["with"] / pair["without"]
        yield from _paragraph(
            f"With a checkpoint every second, the keyed reduce of {int(keys):,} keys reaches {share:.2f} of its "
            f"throughput without checkpoints ({rate(pair['with'])} records per second)."
        )


def _short_jobs(results: Results) -> Iterator[str]:
    result = results["short-jobs"]
    cold, warm = result["data"]["cold"], result["data"]["warm"]
    yield from (_source(result), "", "| start to end of a program | seconds |", "|---|---:|")
    yield f"| the README's program on Spark | {cold['seconds']:.1f} |"
    yield f"| the same, first on a machine (writes an archive of Spark's classes) | {cold['first_seconds']:.1f} |"
    yield f"| the same with `--local` | {cold['local_seconds']:.2f} |"
    for name, seconds in warm.items():
        yield f"| second job of a process, {name} | {seconds:.2f} |"


def _install(results: Results) -> Iterator[str]:
    result = results["install"]
    yield from (_source(result), "")
    yield "| | own wheel | packages | on disk | `pip install` | first result |"
    yield "|---|---:|---:|---:|---:|---:|"
    for system, one in result["data"].items():
        sizes = f"{one['wheel_bytes'] / 1e6:.1f} MB | {one['packages']} | {one['disk_bytes'] / 1e6:,.0f} MB"
        title = {"millstream": "Millstream", "pyflink": "PyFlink"}[system]
        yield f"| {title} | {sizes} | {one['install_seconds']:.0f} s | {one['first_result_seconds']:.0f} s |"


CONNECTORS = {
    "pass": "Kafka to Kafka, exactly once, one worker",
    "pass2": "Kafka to Kafka, exactly once, two workers",
    "count": "counts per key from Kafka",
    "csv": "CSV files to rows",
    "parquet": "Parquet files to rows",
    "cdc": "PostgreSQL's changes",
}


def _connectors(results: Results) -> Iterator[str]:
    for part, title in CONNECTORS.items():
        result = results.get(f"connectors-{part}")
        if result is not None:
            yield from ("", f"### {title}", "", _source(result), "")
            yield from ("| system | records per second | Millstream is |", "|---|---:|---:|")
            for system, value in result["data"].items():
                ours = result["data"]["millstream"]
                times = "" if system == "millstream" else f"{number(ours / value)} x"
                name = "bare client" if system == "bare" else SYSTEMS.get(system, system)
                yield f"| {name} | {rate(value)} | {times} |"


def _tpch(results: Results) -> Iterator[str]:
    result = results["tpch"]
    ours, spark = (result["data"]["seconds"][system] for system in ("millstream", "spark"))
    slowest = max(ours, key=lambda query: ours[query] / spark[query])
    yield _source(result)
    yield from _paragraph(
        f"Scale {result['data']['scale']}: {len(ours)} queries take {sum(ours.values()):.0f} s, and "
        f"{sum(spark.values()):.0f} s in Spark SQL. The largest ratio is {ours[slowest] / spark[slowest]:.2f} "
        f"(q{slowest}). DuckDB returns the same rows. The largest worker uses "
        f"{result['data']['max_worker_bytes'] / 2**20:.0f} MiB."
    )


def _tpcds(results: Results) -> Iterator[str]:
    result = results["tpcds"]
    seconds = result["data"]["seconds"]
    yield _source(result)
    yield from _paragraph(
        f"Scale {result['data']['scale']}: {result['data']['equal']} of {len(seconds)} queries return DuckDB's rows, "
        f"in {sum(seconds.values()):.0f} s."
    )


@dataclass(frozen=True)
class Section:
    """A section of the page: appears if its results are stored."""

    title: str
    about: str
    needs: str
    lines: Callable[[Results], Iterator[str]]


SECTIONS = [
    Section(
        "DataStream programs",
        "Each program reads a number sequence, so that no source is measured. The bare loop is plain Python on each "
        "core, without state that survives or time. Millstream, Flink in Java (one warm JVM) and the bare loop "
        "alternate; slower systems run once. Spread: how far the worst round is below the best.",
        "throughput-a",
        _programs,
    ),
    Section("SQL", "From a number sequence into `blackhole`, in turns, the best round of each.", "sql", _sql),
    Section("Nexmark", "The same generated events and the same SQL in both systems, in turns.", "nexmark", _nexmark),
    Section("Latency", "From the arrival of a record to its output, through a keyed reduce.", "latency", _latency),
    Section(
        "Empty epochs",
        "The overhead of an epoch that processes nothing, if each epoch is a Spark job (`millstream.exchange: spark`).",
        "epochs",
        _epochs,
    ),
    Section(
        "Checkpoints and recovery", "A keyed reduce with state of up to a million keys.", "checkpoints", _checkpoints
    ),
    Section("Start", "The best of five runs each.", "short-jobs", _short_jobs),
    Section("Installation", "Into an empty venv, with packages in pip's cache.", "install", _install),
    Section("Connectors", "Compared with the library below each connector.", "connectors-csv", _connectors),
    Section("TPC-H", "In batch mode, alternating with Spark SQL on the same Parquet files.", "tpch", _tpch),
    Section("TPC-DS", "In batch mode with `--local`, one after the other.", "tpcds", _tpcds),
]


def page(results: Results) -> str:
    """Return docs/performance.md."""
    newest = max(results.values(), key=lambda result: str(result["date"]))
    machine = newest["machine"]
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items() if version)
    lines = [
        "# Performance",
        *_paragraph(
            "This page is generated from the results that benchmarks have stored in `bench/results/` "
            "(`make performance`). Each section names the run that measured it. Absolute figures depend on the "
            "machine; ratios within one run hold on other machines better. Other load on the machine only slows a run "
            "down, so the best of several rounds counts."
        ),
        *_paragraph(
            f"Machine: {machine['cores']} cores ({machine['cpu']}), {machine['memory_gib']} GiB, {machine['os']}, "
            f"Python {machine['python']}, Java {machine['java']}. Compared packages: {packages}."
        ),
        "",
        "![Throughput of five systems](images/speed.svg)",
    ]
    for section in SECTIONS:
        if section.needs in results:
            lines += ["", f"## {section.title}", *_paragraph(section.about), "", *section.lines(results)]
    return "\n".join(lines) + "\n"


# Figures of the README.


def figures(results: Results) -> dict[str, str]:
    """Return the figures that pages may show, by name."""
    programs = throughput(results)
    named: dict[str, str] = {}
    if programs:
        vs_java = [ratio(r, "flink java") for r in programs.values() if "flink java" in r["data"]]
        vs_pyflink = [ratio(r, "pyflink thread") for r in programs.values() if "pyflink thread" in r["data"]]
        if vs_java:
            named["programs-vs-flink-java"] = f"{mean(vs_java):.1f}"
            named["programs-vs-flink-java-range"] = f"{min(vs_java):.1f} to {max(vs_java):.1f}"
        if vs_pyflink:
            low, high = (f"{math.floor(x / 10) * 10:,}" for x in (min(vs_pyflink), max(vs_pyflink)))
            named["programs-vs-pyflink"] = f"{low} to {high}"
        named["programs-date"] = str(max(r["date"] for r in programs.values()))[:10]
    if "nexmark" in results:
        named["nexmark-vs-flink-java"] = f"{mean(nexmark_ratios(results['nexmark'])):.1f}"
    if "checkpoints" in results:
        million = results["checkpoints"]["data"]["recovery"][-1]
        named["recovery-seconds"] = f"{million['seconds']:.1f}"
    if "latency" in results:
        at_once = min(run["p50_ms"] for run in results["latency"]["data"][AT_ONCE])
        named["latency-ms"] = f"{at_once:.1f}"
    if "short-jobs" in results:
        named["local-seconds"] = f"{results['short-jobs']['data']['cold']['local_seconds']:.1f}"
        named["spark-seconds"] = f"{results['short-jobs']['data']['cold']['seconds']:.1f}"
    if "install" in results:
        named["packages"] = str(results["install"]["data"]["millstream"]["packages"])
    return named


def filled(text: str, named: dict[str, str]) -> str:
    """Return the text of a page with its figures; a figure without a stored result is an error."""

    def figure(match: re.Match[str]) -> str:
        if match[2] not in named:
            raise ValueError(f"no stored result has the figure {match[2]}: run its benchmark or remove the figure")
        return match[1] + named[match[2]] + match[3]

    return _FIGURE.sub(figure, text)


# The chart.

_CHARTED = {"b": "keyed reduce, 1,000 keys", "g": "tumbling windows", "h": "session windows"}
_BARS = ("millstream", "flink java", "bytewax", "transformWithState", "pyflink thread")
_WIDTH, _LABEL, _BAR, _GAP = 760, 190, 18, 5
# GitHub and the documentation site show an image in the colours that the reader's system prefers.
_STYLE = """<style>
text { font: 13px system-ui, sans-serif; fill: #1f2328 } .muted { fill: #59636e } .title { font-weight: 600 }
rect { fill: #94a3b8 } .ours { fill: #2563eb }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .muted { fill: #9198a1 } rect { fill: #64748b } .ours { fill: #60a5fa }
}
</style>"""


def chart(results: Results) -> str:
    """Return an SVG with a bar for each system, in one group for each program."""
    parts: list[str] = []
    y = 0
    for letter, title in _CHARTED.items():
        data = results[f"throughput-{letter}"]["data"]
        best = {system: max(data[system]) for system in _BARS if system in data}
        y += 24
        parts.append(f'<text class="title" x="0" y="{y}">{title}</text>')
        y += 10
        for system, value in best.items():
            length = max(value / max(best.values()) * (_WIDTH - _LABEL - 100), 1)
            kind = ' class="ours"' if system == "millstream" else ""
            middle = y + _BAR - 5
            parts.append(f'<text x="{_LABEL - 8}" y="{middle}" text-anchor="end">{SYSTEMS[system]}</text>')
            parts.append(f'<rect{kind} x="{_LABEL}" y="{y}" width="{length:.1f}" height="{_BAR}" rx="2"/>')
            parts.append(f'<text class="muted" x="{_LABEL + length + 6:.1f}" y="{middle}">{rate(value)}</text>')
            y += _BAR + _GAP
        y += 6
    result = results["throughput-b"]
    y += 16
    footer = f"records per second, {result['machine']['cores']} cores, {result['date'][:10]}"
    parts.append(f'<text class="muted" x="{_LABEL}" y="{y}">{footer}</text>')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {y + 8}" role="img">'
    return "\n".join([head, "<title>Records per second of each system</title>", _STYLE, *parts, "</svg>", ""])


def generated() -> dict[Path, str]:
    """Return the text of each generated file."""
    results = stored()
    named = figures(results)
    files = {PAGE: page(results), IMAGES / "speed.svg": chart(results)}
    files |= {path: filled(path.read_text(), named) for path in PAGES_WITH_FIGURES if path.exists()}
    return files


def main() -> None:
    for path, text in generated().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
