"""Responses of a standby job manager, and how clients find the leader."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.testclient import TestClient

from millstream.checkpoint.storage import open_storage
from millstream.leader.cas_cells import Cells, FileCells
from millstream.leader.election import Lease
from millstream.leader.election_runner import LEADER
from millstream.service.client import LeaderClient, cluster_of, use_leader
from millstream.service.standby import Standby


@pytest.fixture
def cells(tmp_path: Path) -> Cells:
    return FileCells(open_storage(str(tmp_path / "ha" / "default")))


def leads(cells: Cells, address: str, term: int) -> None:
    cell = cells.cell(LEADER)
    cell.write(json.dumps(asdict(Lease("x", term, address, 15.0))).encode(), cell.read()[1])


def test_standby_redirects_to_leader_until_it_leads(cells: Cells) -> None:
    standby = Standby(cells)
    client = TestClient(standby)
    response = client.get("/jobs")
    assert response.status_code == 503
    assert "there is none now" in response.json()["errors"][0]
    leads(cells, "http://elsewhere:8081", 1)
    reported = client.get("/v1/jobs?get=all", follow_redirects=False)
    assert reported.status_code == 307
    assert reported.headers["location"] == "http://elsewhere:8081/v1/jobs?get=all"
    assert reported.json() == {
        "errors": ["This job manager is not the leader: the leader is at http://elsewhere:8081."]
    }

    async def own(_: Request) -> Response:
        return PlainTextResponse("mine")

    is_leader = [True]
    standby.lead(Starlette(routes=[Route("/jobs", own)]), lambda: is_leader[0])
    assert client.get("/jobs").text == "mine"
    is_leader[0] = False
    assert client.get("/jobs", follow_redirects=False).status_code == 307


@contextmanager
def service(name: str) -> Iterator[HTTPServer]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"name": name}).encode())

        def log_message(self, *_: object) -> None:
            """Suppress the request log."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def test_client_follows_leader_change(tmp_path: Path, cells: Cells) -> None:
    use_leader({"high-availability.type": "filesystem", "high-availability.storageDir": str(tmp_path / "ha")})
    try:
        with service("second") as second:
            with service("first") as first:
                leads(cells, f"http://127.0.0.1:{first.server_address[1]}", 1)
                client = cluster_of(None, None)
                assert isinstance(client, LeaderClient)
                assert client.ask("/overview") == {"name": "first"}
            # The first has ended, and for a moment there is no leader.
            threading.Timer(0.5, leads, (cells, f"http://127.0.0.1:{second.server_address[1]}", 2)).start()
            assert client.ask("/overview") == {"name": "second"}
    finally:
        use_leader({})
