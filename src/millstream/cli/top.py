"""`millstream top`: a live table of jobs, or of one job's vertices."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime

import click

from millstream.cli.job_commands import at_service
from millstream.cli.output import JSON, print_json, shorten, table
from millstream.common.aliases import Json
from millstream.common.display_text import in_bytes
from millstream.common.watermark_strategy import MAX_WATERMARK, MIN_WATERMARK
from millstream.service.client import NO_SERVICE, ServiceClient, service_of, services

_METRICS = (
    "busyTimeMsPerSecond,backPressuredTimeMsPerSecond,idleTimeMsPerSecond,numRecordsInPerSecond,numRecordsOutPerSecond,"
    "stateSize"
)
_CLEAR = "\x1b[H\x1b[2J"
# Shares of time from which a vertex is coloured.
_FULL, _HIGH = 0.9, 0.5
# The minimum share of a subtask's records for a key to be shown.
_HOT = 0.1


@click.command()
@click.argument("job", required=False)
@click.option("-n", "--times", type=click.IntRange(min=0), default=0, help="Number of updates; 0 for no limit.")
@click.option("--every", type=click.FloatRange(min=0.1), default=2.0, show_default=True, help="Update interval.")
@JSON
@at_service
def top(job: str | None, times: int, every: float, as_json: bool, address: str | None, token: str | None) -> None:
    """Show the running jobs or the vertices of JOB: load, throughput and watermarks."""
    is_live = sys.stdout.isatty() and not as_json
    max_updates = times or (0 if is_live else 1)
    number = 0
    while True:
        number += 1
        shown = _vertices(job, address, token) if job else _jobs(address, token)
        if as_json:
            print_json(shown)
        else:
            click.echo((_CLEAR if is_live else "") + (_vertex_table(shown, is_live) if job else _job_table(shown)))
        if max_updates and number >= max_updates:
            return
        time.sleep(every)


def _jobs(address: str | None, token: str | None) -> list[dict[str, Json]]:
    jobs = []
    for client in services(address, token):
        for job in client.jobs():
            if job["end-time"] == -1:
                vertices = _measured(client, job["jid"])
                rate = sum(v["in"] for v in vertices if v["source"])
                busiest = max(vertices, key=lambda v: v["busy"], default=None)
                about = {"job": job["jid"], "name": job["name"], "state": job["state"], "in": rate}
                slowest = {"busiest": None, "busy": 0.0}
                if busiest is not None:
                    slowest = {"busiest": busiest["name"], "busy": busiest["busy"]}
                jobs.append(about | slowest)
    return jobs


def _job_table(jobs: list[dict[str, Json]]) -> str:
    if not jobs:
        return f"No jobs are running. {NO_SERVICE}"
    rows = [
        [j["job"][:8], j["name"], j["state"], f"{j['in']:,.0f}", f"{j['busy']:.0%}", j["busiest"] or ""] for j in jobs
    ]
    return table(["JOB", "NAME", "STATE", "IN/S", "BUSY", "BUSIEST"], rows, right=["IN/S", "BUSY"])


def _vertices(job: str, address: str | None, token: str | None) -> list[dict[str, Json]]:
    client, job_id = service_of(job, address, token)
    return _measured(client, job_id)


def _measured(client: ServiceClient, job_id: str) -> list[dict[str, Json]]:
    details = client.ask(f"/jobs/{job_id}")
    inputs = {n["id"] for n in details["plan"]["nodes"] if "inputs" in n}
    vertices = []
    for vertex in details["vertices"]:
        path = f"/jobs/{job_id}/vertices/{vertex['id']}"
        measured = {m["id"]: m for m in client.ask(f"{path}/subtasks/metrics?get={_METRICS}")}
        marks = [int(m["value"]) for m in client.ask(f"{path}/watermarks")]
        subtasks = client.ask(f"{path}/diagnostics")["subtasks"]
        hottest = max((key for s in subtasks for key in s["hottest-keys"]), key=lambda k: k["share"], default=None)
        vertices.append(
            {
                "name": vertex["name"],
                "parallelism": vertex["parallelism"],
                "state": vertex["status"],
                "source": vertex["id"] not in inputs,
                "busy": _max(measured, "busyTimeMsPerSecond") / 1000,
                "back_pressured": _max(measured, "backPressuredTimeMsPerSecond") / 1000,
                "in": _sum(measured, "numRecordsInPerSecond"),
                "out": _sum(measured, "numRecordsOutPerSecond"),
                "watermark": min(marks, default=None),
                "state_bytes": int(_sum(measured, "stateSize")),
                "hottest_key": hottest,
            }
        )
    return vertices


def _max(measured: dict[str, Json], name: str) -> float:
    return float(measured[name]["max"]) if name in measured else 0.0


def _sum(measured: dict[str, Json], name: str) -> float:
    return float(measured[name]["sum"]) if name in measured else 0.0


def _vertex_table(vertices: list[dict[str, Json]], colours: bool) -> str:
    rows = [
        [
            v["name"],
            str(v["parallelism"]),
            v["state"],
            f"{v['busy']:.0%}",
            f"{v['back_pressured']:.0%}",
            f"{v['in']:,.0f}",
            f"{v['out']:,.0f}",
            _lag(v["watermark"]),
            in_bytes(v["state_bytes"]) if v["state_bytes"] else "",
            _hot(v["hottest_key"]),
        ]
        for v in vertices
    ]
    header = ["VERTEX", "P", "STATE", "BUSY", "BACK PRESSURE", "IN/S", "OUT/S", "WATERMARK", "STATE", "HOT KEY"]
    lines = table(header, rows, right=["P", "BUSY", "BACK PRESSURE", "IN/S", "OUT/S", "STATE"]).split("\n")
    if not colours:
        return "\n".join(lines)
    return "\n".join([lines[0], *(_coloured(line, v) for line, v in zip(lines[1:], vertices, strict=True))])


def _coloured(line: str, vertex: dict[str, Json]) -> str:
    share = max(vertex["busy"], vertex["back_pressured"])
    return click.style(line, fg="red" if share > _FULL else "yellow" if share > _HIGH else None)


def _hot(key: dict[str, Json] | None) -> str:
    """Format the hottest key of a subtask, if its share is large enough."""
    return "" if key is None or key["share"] < _HOT else f"{shorten(key['key'], 30)} {key['share']:.0%}"


def _lag(watermark: int | None) -> str:
    """Format the lag of event time behind the clock.

    Example:
        >>> _lag(None), _lag(2**63 - 1)
        ('', 'end')
    """
    if watermark is None or watermark <= MIN_WATERMARK:
        return ""
    if watermark >= MAX_WATERMARK:
        return "end"
    lag = time.time() - watermark / 1000
    if 0 <= lag < 86_400:
        return f"{lag:,.1f} s behind"
    return datetime.fromtimestamp(watermark / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
