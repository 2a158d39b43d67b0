"""A simulation of the part of Kubernetes' API that Spark uses: pods are processes, run by the image's script.

It has no containers, networks, watches (Spark polls instead) and access control.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.support.paths import ROOT

ENTRYPOINT = ROOT / "deploy" / "entrypoint.sh"
_KIND = {
    "pods": "Pod",
    "configmaps": "ConfigMap",
    "services": "Service",
    "persistentvolumeclaims": "PersistentVolumeClaim",
}
_PATH = re.compile(r"/api/v1/namespaces/(?P<namespace>[^/]+)/(?P<kind>[^/]+)(?:/(?P<name>[^/]+))?")

Object = dict[str, Any]


class Kubernetes:
    """The API server, and the processes of its pods."""

    def __init__(self) -> None:
        self.pods: dict[str, subprocess.Popen[bytes]] = {}
        self.directory = Path(tempfile.mkdtemp(prefix="millstream-kubernetes-"))
        self._objects: dict[tuple[str, str], Object] = {}
        self._versions = itertools.count(1)
        self._lock = threading.Lock()
        handler = type("Handler", (_Handler,), {"kubernetes": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Kubernetes:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        for name in list(self.pods):
            self._end(name)

    def created(self, kind: str) -> list[Object]:
        """Return all objects of a kind."""
        with self._lock:
            return [self._now(item) for (k, _), item in self._objects.items() if k == kind]

    def create(self, kind: str, body: Object) -> tuple[int, Object]:
        with self._lock:
            name = body["metadata"]["name"]
            if (kind, name) in self._objects:
                return 409, _status(409, "AlreadyExists")
            meta = {**body["metadata"], "namespace": "default", "uid": f"uid-{name}"}
            meta |= {"resourceVersion": str(next(self._versions)), "creationTimestamp": "2026-01-01T00:00:00Z"}
            self._objects[kind, name] = {**body, "kind": _KIND[kind], "apiVersion": "v1", "metadata": meta}
            if kind == "pods":
                self._run(name, body["spec"])
            return 201, self._now(self._objects[kind, name])

    def get(self, kind: str, name: str) -> tuple[int, Object]:
        with self._lock:
            item = self._objects.get((kind, name))
            return (200, self._now(item)) if item is not None else (404, _status(404, "NotFound"))

    def select(self, kind: str, selector: str) -> tuple[int, Object]:
        matching = [item for item in self.created(kind) if _matches(item["metadata"].get("labels", {}), selector)]
        about = {"resourceVersion": str(next(self._versions))}
        return 200, {"kind": f"{_KIND[kind]}List", "apiVersion": "v1", "metadata": about, "items": matching}

    def delete(self, kind: str, name: str) -> tuple[int, Object]:
        with self._lock:
            item = self._objects.pop((kind, name), None)
        if kind == "pods" and name in self.pods:
            self._end(name)
        return (200, item) if item is not None else (404, _status(404, "NotFound"))

    def _run(self, name: str, spec: Object) -> None:
        """Start a pod's container as a process, with the environment of its spec."""
        (container,) = spec["containers"]
        variables = {v["name"]: v.get("value", "") for v in container.get("env", []) if "value" in v}
        referred = [v for v in container.get("env", []) if "valueFrom" in v]
        fields = {"status.podIP": "127.0.0.1", "metadata.name": name}
        variables |= {v["name"]: fields[v["valueFrom"]["fieldRef"]["fieldPath"]] for v in referred}
        home = self.directory / name
        home.mkdir()
        # The image contains this Python.
        base = {"PATH": os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])}
        with open(home / "log", "wb") as log:
            self.pods[name] = subprocess.Popen(
                [str(ENTRYPOINT), *container["args"]],
                env={**base, **variables},
                cwd=home,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _end(self, name: str) -> None:
        process = self.pods[name]
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _now(self, item: Object) -> Object:
        if item["kind"] != "Pod":
            return item
        code = self.pods[item["metadata"]["name"]].poll()
        phase = "Running" if code is None else "Succeeded" if code == 0 else "Failed"
        state = {"running": {}} if code is None else {"terminated": {"exitCode": code}}
        container = {"name": item["spec"]["containers"][0]["name"], "state": state, "ready": code is None}
        return {**item, "status": {"phase": phase, "podIP": "127.0.0.1", "containerStatuses": [container]}}


class _Handler(BaseHTTPRequestHandler):
    kubernetes: Kubernetes
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        kind, name, query = self._parsed_request()
        if name is None:
            self._answer(*self.kubernetes.select(kind, query.get("labelSelector", [""])[0]))
        else:
            self._answer(*self.kubernetes.get(kind, name))

    def do_POST(self) -> None:
        kind, _, _ = self._parsed_request()
        self._answer(*self.kubernetes.create(kind, json.loads(self._body())))

    def do_PATCH(self) -> None:
        kind, name, _ = self._parsed_request()
        self._body()
        self._answer(*self.kubernetes.get(kind, name or ""))

    def do_DELETE(self) -> None:
        kind, name, query = self._parsed_request()
        self._body()
        if name is not None:
            self._answer(*self.kubernetes.delete(kind, name))
            return
        status, selected = self.kubernetes.select(kind, query.get("labelSelector", [""])[0])
        for item in selected["items"]:
            self.kubernetes.delete(kind, item["metadata"]["name"])
        self._answer(status, selected)

    def _parsed_request(self) -> tuple[str, str | None, dict[str, list[str]]]:
        parts = urlsplit(self.path)
        match = _PATH.fullmatch(parts.path)
        assert match is not None, self.path
        return match["kind"], match["name"], parse_qs(parts.query)

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _answer(self, status: int, body: Object) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        with open(self.kubernetes.directory / "requests", "a") as file:
            file.write(f"{self.command} {self.path} {args}\n")


def _matches(labels: dict[str, str], selector: str) -> bool:
    for term in filter(None, re.split(r",(?![^(]*\))", selector)):
        if match := re.fullmatch(r"(\S+)\s*(in|notin)\s*\((.*)\)", term.strip()):
            values = [v.strip() for v in match[3].split(",")]
            if (labels.get(match[1]) in values) != (match[2] == "in"):
                return False
        elif match := re.fullmatch(r"([^!=]+)(==?|!=)(.*)", term.strip()):
            if (labels.get(match[1].strip()) == match[3].strip()) != (match[2] != "!="):
                return False
        elif term.strip().startswith("!"):
            if term.strip()[1:] in labels:
                return False
        elif term.strip() not in labels:
            return False
    return True


def _status(code: int, reason: str) -> Object:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "reason": reason,
        "code": code,
        "message": reason,
    }
