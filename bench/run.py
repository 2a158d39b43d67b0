"""The benchmark: the same programs on millstream, a bare loop, Flink in Java, PyFlink, Bytewax and Spark's own state.

One run on one machine; the ratios matter. The bare loop, millstream and Flink in Java alternate three times, and the
best run of each counts, because other load on the machine only slows a run down; a peer that is tens of times slower
runs once. Each peer has its own venv under a cache folder, created on first use. Prints tables and, unless --quick,
stores the results in bench/results/, from which `make performance` generates docs/performance.md.

    python -m bench.run [--quick] [--only a,b,c,d,e,f,g,h,i,k,l,m,n,o,scaling] [--without flink,pyflink,bytewax,spark]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.results import CORES, store
from bench.venvs import venv

HERE = Path(__file__).parent

# The goals of each program: (peer, minimum ratio).
GOALS: dict[str, list[tuple[str, float]]] = {
    "a": [("bare", 0.75), ("flink java", 1)],
    "b": [("bare", 0.65), ("flink java", 1), ("pyflink thread", 100), ("bytewax", 4), ("transformWithState", 20)],
    "c": [("bare", 0.3), ("flink java", 1)],
    "d": [("flink java", 1)],
    "g": [("bare", 0.4), ("flink java", 1), ("pyflink thread", 50), ("bytewax", 4)],
    "h": [("bare", 0.4), ("flink java", 1), ("pyflink thread", 50), ("bytewax", 4)],
}

TITLES = {
    "a": "map + filter",
    "b": "keyed reduce, 1,000 keys",
    "c": "keyed reduce, 1,000,000 keys",
    "d": "word count (lines)",
    "g": "tumbling windows, 10,000 keys",
    "h": "session windows, 10,000 keys",
}

# Program: arguments, and the number of records of each system; slow systems get fewer.
PROGRAMS: dict[str, tuple[list[str], dict[str, int]]] = {
    "a": (
        ["--program", "map_filter"],
        {"millstream": 120_000_000, "bare": 16_000_000, "flink": 60_000_000, "pyflink": 200_000, "bytewax": 2_000_000},
    ),
    "b": (
        ["--program", "keyed_reduce", "--keys", "1000"],
        {
            "millstream": 80_000_000,
            "bare": 6_000_000,
            "flink": 24_000_000,
            "pyflink": 60_000,
            "bytewax": 600_000,
            "spark": 400_000,
        },
    ),
    "c": (
        ["--program", "keyed_reduce", "--keys", "1000000"],
        {
            "millstream": 30_000_000,
            "bare": 6_000_000,
            "flink": 12_000_000,
            "pyflink": 60_000,
            "bytewax": 600_000,
            "spark": 400_000,
        },
    ),
    "d": (
        ["--program", "word_count"],
        {"millstream": 2_000_000, "bare": 300_000, "flink": 1_000_000, "pyflink": 6_000, "bytewax": 40_000},
    ),
    "g": (
        ["--program", "tumbling", "--keys", "10000"],
        {"millstream": 20_000_000, "bare": 4_000_000, "flink": 8_000_000, "pyflink": 60_000, "bytewax": 200_000},
    ),
    "h": (
        ["--program", "session", "--keys", "10000"],
        {"millstream": 20_000_000, "bare": 4_000_000, "flink": 8_000_000, "pyflink": 60_000, "bytewax": 200_000},
    ),
}


ROUNDS = 3

# The second variant of (f).
AT_ONCE = "millstream, buffer timeout 0"


def run_script(python: Path | str, script: str, arguments: list[str]) -> dict[str, Any]:
    """Run a peer's script and return the JSON of its last output line."""
    environment = {**os.environ, "PATH": f"{Path(python).parent}{os.pathsep}{os.environ['PATH']}"}
    if str(python) == sys.executable:
        environment["PYTHONPATH"] = os.pathsep.join([str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [str(python), str(HERE / "peers" / script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, env=environment)
    if done.returncode != 0:
        raise RuntimeError(f"{script} failed:\n{done.stderr[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def flink_java() -> Path | None:
    """Return the interpreter of the venv with Flink's jars; None if they or javac are unavailable."""
    if shutil.which("javac") is None:
        print("  no javac: without Flink in Java", flush=True)
        return None
    return venv("pyflink")


# Records per second of each round, by system.
Rates = dict[str, list[float]]
# Stores the result of one benchmark under its name.
Keep = Callable[[str, Any], None]


def throughput(only: list[str], without: list[str], scale: float, keep: Keep) -> dict[str, Rates]:
    """Run the chosen programs on all systems; return the rates by program."""
    table: dict[str, Rates] = {}
    systems: list[tuple[str, str, str, list[str]]] = [
        ("pyflink thread", "pyflink", "pyflink_job.py", ["--mode", "thread"]),
        ("pyflink process", "pyflink", "pyflink_job.py", ["--mode", "process"]),
        ("bytewax", "bytewax", "bytewax_flow.py", []),
        ("transformWithState", "spark", "spark_tws.py", []),
    ]
    for program, (arguments, counts) in PROGRAMS.items():
        if program not in only:
            continue
        row: Rates = {}
        table[program] = row

        def measure(name: str, python: Path | str, script: str, more: list[str], row: Rates = row) -> None:
            records = max(int(counts[more[0]] * scale), 1000)  # noqa: B023
            answer = run_script(python, script, [*arguments, "--records", str(records), *more[1:]])  # noqa: B023
            cores = CORES if name == "bare" else 1
            rate = cores * float(answer["records"] / answer["seconds"])
            row.setdefault(name, []).append(rate)
            print(f"  {TITLES[program]:32} {name:20} {rate:>14,.0f} /s", flush=True)  # noqa: B023

        java = None if "flink" in without else flink_java()
        for _ in range(ROUNDS):
            measure("bare", sys.executable, "bare.py", ["bare"])
            measure("millstream", sys.executable, "../millstream_job.py", ["millstream"])
            if java is not None:
                measure("flink java", java, "flink_java.py", ["flink"])
        for name, peer, script, extra in systems:
            if peer in without or peer not in counts:
                continue
            python = venv(peer)
            if python is not None:
                measure(name, python, script, [peer, *extra])
        keep(f"throughput-{program}", row)
    return table


def show_throughput(table: dict[str, Rates]) -> list[str]:
    lines = [f"| program | system | records/s | millstream is |", "|---|---|---:|---:|"]  # noqa: F541
    for program, row in table.items():
        for name, rates in row.items():
            goal = dict(GOALS.get(program, [])).get(name)
            value = max(rates)
            ratio = max(row["millstream"]) / value
            verdict = "" if goal is None else f" (goal {goal:g}: {'reached' if ratio >= goal else 'MISSED'})"
            shown = f"{name} x {CORES} cores" if name == "bare" else name
            times = "" if name == "millstream" else f"{ratio:,.2f} x{verdict}"
            lines.append(f"| ({program}) {TITLES[program]} | {shown} | {value:,.0f} | {times} |")
    return lines


def typed(only: list[str], scale: float) -> dict[str, dict[str, float]]:
    """Run the programs without types and with every type declared, in turn; return records per second."""
    table: dict[str, dict[str, float]] = {}
    for program, (arguments, counts) in PROGRAMS.items():
        if program not in only:
            continue
        row = table[program] = {"untyped": 0.0, "typed": 0.0}
        records = ["--records", str(max(int(counts["millstream"] * scale / 4), 1000))]
        for _ in range(ROUNDS):
            for name, more in (("untyped", []), ("typed", ["--typed"])):
                answer = run_script(sys.executable, "../millstream_job.py", [*arguments, *records, *more])
                row[name] = max(row[name], float(answer["records"] / answer["seconds"]))
        print(f"  {TITLES[program]:32} typed against untyped {row['typed'] / row['untyped']:>10.2f}", flush=True)
    return table


def show_typed(table: dict[str, dict[str, float]]) -> list[str]:
    lines = ["| (l) every type declared | untyped records/s | typed records/s | typed is |", "|---|---:|---:|---:|"]
    for program, row in table.items():
        ratio = row["typed"] / row["untyped"]
        verdict = f"{ratio:.2f} x (goal 0.95: {'reached' if ratio >= 0.95 else 'MISSED'})"
        lines.append(f"| ({program}) {TITLES[program]} | {row['untyped']:,.0f} | {row['typed']:,.0f} | {verdict} |")
    return lines


def show_epochs(answer: dict[str, Any]) -> list[str]:
    lines = ["| empty epoch | millstream ms | bare Spark job ms | ratio |", "|---|---:|---:|---:|"]
    for levels, pair in answer.items():
        ratio = pair["millstream_ms"] / pair["spark_ms"]
        verdict = f"{ratio:.2f} (goal 1: {'reached' if ratio <= 1 else 'MISSED'})"
        lines.append(f"| (e) {levels} level(s) | {pair['millstream_ms']:.0f} | {pair['spark_ms']:.0f} | {verdict} |")
    return lines


def latency(without: list[str], seconds: str) -> dict[str, list[dict[str, float]]]:
    """Return the latencies of each round by system, which alternate; PyFlink runs once."""
    arguments = ["--program", "latency", "--seconds", seconds]
    java = None if "flink" in without else flink_java()
    results: dict[str, list[dict[str, float]]] = {}
    for _ in range(ROUNDS):
        for name, more in (("millstream", []), (AT_ONCE, ["--timeout", "0"])):
            run = run_script(sys.executable, "../millstream_job.py", [*arguments, *more])
            results.setdefault(name, []).append(run)
        if java is not None:
            results.setdefault("flink java", []).append(run_script(java, "flink_java.py", arguments))
    python = None if "pyflink" in without else venv("pyflink")
    if python is not None:
        results["pyflink thread"] = [run_script(python, "pyflink_job.py", [*arguments, "--mode", "thread"])]
    return results


def show_latency(rounds: dict[str, list[dict[str, float]]], two_levels_ms: float | None) -> list[str]:
    answers = {name: min(runs, key=lambda run: run["p99_ms"]) for name, runs in rounds.items()}
    lines = ["| latency, 1,000 records/s | p50 ms | p99 ms |", "|---|---:|---:|"]
    for name, a in answers.items():
        lines.append(f"| (f) {name} | {a['p50_ms']:.1f} | {a['p99_ms']:.1f} |")
    at_once = answers[AT_ONCE]
    verdict = "reached" if at_once["p50_ms"] <= 5 and at_once["p99_ms"] <= 20 else "MISSED"
    lines.append(f"\nWith buffer timeout 0: goal p50 5 ms, p99 20 ms: {verdict}.")
    if "flink java" in answers:
        verdict = "reached" if answers["millstream"]["p99_ms"] < answers["flink java"]["p99_ms"] else "MISSED"
        lines.append(f"\nBoth at their defaults: goal p99 below that of Flink in Java: {verdict}.")
    if two_levels_ms:
        p99 = answers["millstream"]["p99_ms"]
        verdict = "reached" if p99 <= 4 * two_levels_ms else "MISSED"
        lines.append(f"\np99 is {p99 / two_levels_ms:.1f} x the empty two-level epoch (goal 4: {verdict}).")
    return lines


def show_idle(answers: dict[str, dict[str, float]]) -> list[str]:
    lines = ["| (n) an idle job: % of a core | driver | java | slots | all |", "|---|---:|---:|---:|---:|"]
    for name, a in answers.items():
        verdict = f"{a['all']:.2f} (goal 1: {'reached' if a['all'] < 1 else 'MISSED'})"
        lines.append(f"| {name} | {a['driver']:.2f} | {a['java']:.2f} | {a['slots']:.2f} | {verdict} |")
    return lines


def show_polled(a: dict[str, float], flames: dict[str, float]) -> list[str]:
    about = f"{a['clients']:.0f} clients, {a['paths']:.0f} paths every 3 s, {a['answers_per_second']:.0f} answers/s"
    rows = [(about, a, 5), ("flame graph", flames, 2)]
    lines = ["| (o) a monitored job | alone, records/s | monitored | cost | of its CPU time |"]
    lines.append("|---|---:|---:|---:|---:|")
    for name, one, goal in rows:
        verdict = (
            f"{one['cost_percent']:.1f} % (goal {goal} %: {'reached' if one['cost_percent'] < goal else 'MISSED'})"
        )
        work = f"{one['cpu_cost_percent']:.1f} %"
        lines.append(f"| {name} | {one['alone']:,.0f} | {one['polled']:,.0f} | {verdict} | {work} |")
    return lines


def checkpoints(scale: float) -> dict[str, Any]:
    """Checkpoints by size of the state, recovery, and throughput with checkpoints every second and without."""
    script, keys = "../checkpoints.py", [10_000, 100_000, 1_000_000]
    results: dict[str, Any] = {
        "sizes": [run_script(sys.executable, script, ["sizes", "--keys", str(k)]) for k in keys],
        "recovery": [run_script(sys.executable, script, ["recovery", "--keys", str(k)]) for k in keys],
    }
    records = ["--records", str(int(60_000_000 * scale))]
    for k in ("1000", "100000"):
        best = {"with": 0.0, "without": 0.0}
        for _ in range(ROUNDS):
            for name, interval in (("without", "0"), ("with", "1000")):
                answer = run_script(sys.executable, script, ["cost", *records, "--keys", k, "--interval", interval])
                best[name] = max(best[name], answer["per_second"])
        results.setdefault("cost", {})[k] = best
    return results


def show_checkpoints(results: dict[str, Any]) -> list[str]:
    lines = [
        "| (i) keys in state | first checkpoint | 1% changed: bytes | 1% changed: ms | recovery s |",
        "|---:|---:|---:|---:|---:|",
    ]
    for size, recovered in zip(results["sizes"], results["recovery"], strict=True):
        lines.append(
            f"| {size['keys']:,} | {size['first_bytes']:,} bytes, {size['first_ms']:.0f} ms | {size['bytes']:,.0f} "
            f"| {size['ms']:.0f} | {recovered['seconds']:.2f} |"
        )
    lines.append("")
    for k, pair in results["cost"].items():
        ratio = pair["with"] / pair["without"]
        verdict = "reached" if ratio >= 0.9 else "MISSED"
        lines.append(
            f"Keyed reduce, {int(k):,} keys, with checkpoints every second: {pair['with']:,.0f} records/s, "
            f"{ratio:.2f} of without (goal 0.9: {verdict})."
        )
    return lines


def show_install(results: dict[str, dict[str, Any]]) -> list[str]:
    lines = [
        "| (k) installation and first result | own wheel MB | packages | on disk MB | pip install s | first result s |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, a in results.items():
        lines.append(
            f"| {name} | {a['wheel_bytes'] / 1e6:.1f} | {a['packages']} | {a['disk_bytes'] / 1e6:,.0f} "
            f"| {a['install_seconds']:.1f} | {a['first_result_seconds']:.1f} |"
        )
    return lines


def show_short_jobs(results: dict[str, Any]) -> list[str]:
    goals = {"empty": 0.15, "1,000,000 records": 0.8}
    lines = ["| (m) short jobs | seconds |", "|---|---:|"]
    for name, seconds in results["warm"].items():
        lines.append(f"| second job of a process, {name} | {_verdict(seconds, goals.get(name))} |")
    cold = results["cold"]
    lines.append(f"| cold start of the README's program | {_verdict(cold['seconds'], 4.0)} |")
    lines.append(f"| the same with --local | {_verdict(cold['local_seconds'], None)} |")
    return lines


def show_scaling(results: dict[str, list[dict[str, float]]]) -> list[str]:
    lines = [
        f"| (scaling) executors of one core, on {CORES} cores | records/s | bytes per record in the exchange |",
        "|---:|---:|---:|",
    ]
    for a in results["executors"]:
        lines.append(f"| {a['executors']:.0f} | {a['per_second']:,.0f} | {a['bytes_per_record']:.2f} |")
    lines += [
        "",
        "| subtasks | empty epoch ms | cpu ms: driver | slots | start s | MB: driver | Java | slots |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for a in results["subtasks"]:
        lines.append(
            f"| {a['subtasks']:.0f} | {a['epoch_ms']:.1f} | {a['driver_cpu_ms']:.2f} | {a['slots_cpu_ms']:.1f} "
            f"| {a['start_s']:.1f} | {a['driver_mb']:.0f} | {a['java_mb']:.0f} | {a['slots_mb']:.0f} |"
        )
    return lines


def _verdict(seconds: float, goal: float | None) -> str:
    if goal is None:
        return f"{seconds:.2f}"
    return f"{seconds:.2f} (goal {goal:g}: {'reached' if seconds <= goal else 'MISSED'})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the records")
    parser.add_argument("--only", default="a,b,c,d,e,f,g,h,i,k,l,m,n,o,scaling")
    parser.add_argument("--without", default="", help="peers to leave out")
    options = parser.parse_args()
    only, without = options.only.split(","), options.without.split(",")
    scale = 0.1 if options.quick else 1.0

    def keep(name: str, data: Any) -> None:
        if not options.quick:
            store(name, data)

    lines = show_throughput(throughput(only, without, scale, keep))
    two_levels = None
    if "l" in only:
        # Without another program in `only`, all of them.
        declared = typed([p for p in only if p in PROGRAMS] or list(PROGRAMS), scale)
        keep("typed", declared)
        lines += ["", *show_typed(declared)]
    if "e" in only:
        levels = run_script(sys.executable, "../empty_epoch.py", [])
        keep("epochs", levels)
        lines += ["", *show_epochs(levels)]
        two_levels = levels["2"]["millstream_ms"]
    if "f" in only:
        latencies = latency(without, "6" if options.quick else "15")
        keep("latency", latencies)
        lines += ["", *show_latency(latencies, two_levels)]
    if "n" in only:
        idle = {
            "default": run_script(sys.executable, "../idle.py", []),
            "buffer timeout 0": run_script(sys.executable, "../idle.py", ["--timeout", "0"]),
        }
        keep("idle", idle)
        lines += ["", *show_idle(idle)]
    if "o" in only:
        monitored = {
            "polled": run_script(sys.executable, "../polled.py", []),
            "flames": run_script(sys.executable, "../polled.py", ["--flames"]),
        }
        keep("monitored", monitored)
        lines += ["", *show_polled(monitored["polled"], monitored["flames"])]
    if "i" in only:
        cost_of_checkpoints = checkpoints(scale)
        keep("checkpoints", cost_of_checkpoints)
        lines += ["", *show_checkpoints(cost_of_checkpoints)]
    if "k" in only:
        arguments = ["--without", "pyflink"] if "pyflink" in without else []
        installed = run_script(sys.executable, "../install.py", arguments)
        keep("install", installed)
        lines += ["", *show_install(installed)]
    if "m" in only:
        short_jobs = run_script(sys.executable, "../short_jobs.py", [])
        keep("short-jobs", short_jobs)
        lines += ["", *show_short_jobs(short_jobs)]
    if "scaling" in only:
        records = ["--records", str(int(12_000_000 * scale))]
        scaled = run_script(sys.executable, "../scaling.py", records)
        keep("scaling", scaled)
        lines += ["", *show_scaling(scaled)]
    print("\n" + "\n".join(lines))


if __name__ == "__main__":
    main()
