"""A client of the job service."""

from __future__ import annotations

import json
import os
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from email.message import Message

from millstream.common.aliases import Json
from millstream.common.configuration import Configuration
from millstream.common.errors import MillstreamError
from millstream.leader.cas_cells import Cells
from millstream.leader.election_runner import find_leader
from millstream.leader.options import HaOptions
from millstream.service.run_file import KilledService, RunningService, running_services

_TIMEOUT = 30.0
# Poll interval of operations, in seconds.
_POLL = 0.2
# How long a client searches for a leader, in seconds.
_LEADER_SECONDS = 120.0


class ServiceError(MillstreamError):
    """A job service has refused a request or cannot be reached."""


class ServiceUnreachableError(ServiceError):
    """A job service or leader cannot be reached."""


# Responses of job managers that do not lead.
_NOT_LEADING = (307, 503)


class ServiceClient:
    """Sends requests to one service."""

    def __init__(self, url: str, token: str | None = None) -> None:
        self.url = url.rstrip("/")
        self._token = token

    def ask(
        self, path: str, method: str = "GET", body: dict[str, Json] | None = None, timeout: float = _TIMEOUT
    ) -> Json:
        """Return the service's response, within a timeout."""
        sent = None if body is None else json.dumps(body).encode()
        answered = self._send(path, method, sent, None if body is None else "application/json", timeout)
        return json.loads(answered or b"{}")

    def _send(
        self, path: str, method: str, body: bytes | None, content_type: str | None, timeout: float = _TIMEOUT
    ) -> bytes:
        return self._exchange(path, method, body, content_type, timeout)[0]

    def _exchange(
        self, path: str, method: str, body: bytes | None, content_type: str | None, timeout: float = _TIMEOUT
    ) -> tuple[bytes, Message]:
        request = urllib.request.Request(f"{self.url}/v1{path}", body, method=method)
        if content_type is not None:
            request.add_header("Content-Type", content_type)
        if self._token is not None:
            request.add_header("Authorization", f"Bearer {self._token}")
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return answer.read(), answer.headers
        except urllib.error.HTTPError as e:
            with e:
                kind = ServiceUnreachableError if e.code in _NOT_LEADING else ServiceError
                raise kind(_reason(e)) from None
        except (urllib.error.URLError, OSError) as e:
            reason = getattr(e, "reason", e)
            raise ServiceUnreachableError(f"There is no job service at {self.url}: {reason}.") from None

    def upload(self, path: str) -> str:
        """Upload a program; return its id."""
        boundary = uuid.uuid4().hex
        with open(path, "rb") as file:
            content = file.read()
        head = (
            f'--{boundary}\r\nContent-Disposition: form-data; name="jarfile"; filename="{os.path.basename(path)}"\r\n'
        )
        head += "Content-Type: application/octet-stream\r\n\r\n"
        body = head.encode() + content + f"\r\n--{boundary}--\r\n".encode()
        uploaded = json.loads(self._send("/jars/upload", "POST", body, f"multipart/form-data; boundary={boundary}"))
        return os.path.basename(str(uploaded["filename"]))

    def text(self, path: str) -> str:
        """Return a text response."""
        return self._send(path, "GET", None, None).decode(errors="replace")

    def output(self, program_id: str, stream: str, start: int) -> tuple[bytes, int]:
        """Return a program's output from a byte offset on, and the end offset."""
        text, headers = self._exchange(f"/programs/{program_id}/output/{stream}?from={start}", "GET", None, None)
        return text, int(headers["X-Next"])

    def jobs(self) -> list[dict[str, Json]]:
        """Return all jobs."""
        jobs_found: list[dict[str, Json]] = self.ask("/jobs/overview")["jobs"]
        return jobs_found

    def finished(self, path: str, trigger: str) -> dict[str, Json]:
        """Wait for an operation; return its result."""
        while True:
            polled = self.ask(f"{path}/{trigger}")
            if polled["status"]["id"] == "COMPLETED":
                done: dict[str, Json] = polled.get("operation", {})
                if "failure-cause" in done:
                    raise ServiceError(done["failure-cause"]["stack-trace"])
                return done
            time.sleep(_POLL)


class LeaderClient(ServiceClient):
    """Sends requests to the leader among several job managers, and repeats them if the leader changes."""

    def __init__(self, cells: Cells, token: str | None) -> None:
        super().__init__("")
        self._cells = cells
        self._configured_token = token
        self._find(time.monotonic() + _LEADER_SECONDS)

    def _find(self, deadline: float) -> None:
        """Find the leader."""
        cause: Exception | None = None
        while time.monotonic() < deadline:
            try:
                lease = find_leader(self._cells)
            except Exception as e:
                cause = e
                lease = None
            if lease is not None and lease.address:
                self.url = lease.address
                self._token = self._configured_token or _token_of(self.url)
                return
            time.sleep(_POLL)
        raise ServiceError(f"No job manager has led for {_LEADER_SECONDS:g} s" + (f": {cause}" if cause else "."))

    def _send(
        self, path: str, method: str, body: bytes | None, content_type: str | None, timeout: float = _TIMEOUT
    ) -> bytes:
        deadline = time.monotonic() + _LEADER_SECONDS
        while True:
            try:
                return super()._send(path, method, body, content_type, timeout)
            except ServiceUnreachableError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(_POLL)
            self._find(deadline)


def _reason(error: urllib.error.HTTPError) -> str:
    try:
        return "; ".join(json.loads(error.read())["errors"])
    except (ValueError, KeyError, TypeError):
        return f"The service answers with status {error.code}."


# The high-availability options of the command line, if any.
_leader: list[HaOptions] = []


def use_leader(settings: dict[str, str]) -> None:
    """Address the leader from now on, if settings name a high-availability service."""
    options = HaOptions.read(Configuration.from_dict(settings))
    _leader[:] = [] if options is None else [options]


def services(
    address: str | None, token: str | None, killed: list[KilledService] | None = None
) -> Iterator[ServiceClient]:
    """Yield the addressed services: the one at an address, the leader, else all of this user's processes.

    Args:
        address: of the service.
        token: required by the service.
        killed: receives services whose processes were killed.
    """
    if address is None and _leader:
        yield LeaderClient(_leader[0].open(), token)
        return
    if address is not None:
        url = address if "://" in address else f"http://{address}"
        own = _own(url)
        # A host name may resolve to another machine: send the token only to the address of the run file.
        yield ServiceClient(url if own is None else own.url, token or (None if own is None else own.token))
        return
    for service in (s for s in running_services(killed) if s.kind != "standby"):
        yield ServiceClient(service.url, service.token)


def _token_of(url: str) -> str | None:
    """Return the token of this user's service at a URL, if it is one."""
    own = _own(url)
    return None if own is None else own.token


def _own(url: str) -> RunningService | None:
    """Return this user's service at a URL; localhost is 127.0.0.1."""
    same_address = url.rstrip("/").replace("://localhost:", "://127.0.0.1:", 1)
    return next((f for f in running_services() if f.url in (url.rstrip("/"), same_address)), None)


def cluster_of(address: str | None, token: str | None) -> ServiceClient:
    """Return the addressed cluster: the one at an address, the leader's, else this user's."""
    if address is not None or _leader:
        return next(services(address, token))
    killed: list[KilledService] = []
    clusters = [service for service in running_services(killed) if service.kind == "cluster"]
    if not clusters:
        killed_clusters = [str(service) for service in killed if service.kind == "cluster"]
        sentence = "You have no cluster on this machine: `millstream cluster start -d` starts one."
        raise ServiceError(" ".join([*killed_clusters, sentence]))
    if len(clusters) > 1:
        addresses = ", ".join(service.url.partition("://")[2] for service in clusters)
        raise ServiceError(f"You have several clusters: choose one with -m ({addresses}).")
    return ServiceClient(clusters[0].url, token or clusters[0].token)


def is_local_service(client: ServiceClient) -> bool:
    """Return whether a service runs on this machine as this user."""
    return any(service.url == client.url for service in running_services())


def service_of(job: str, address: str | None, token: str | None) -> tuple[ServiceClient, str]:
    """Return the service of a job and the job's full id, by a prefix of its id or by its name."""
    matches: list[tuple[ServiceClient, dict[str, Json]]] = []
    service_count = 0
    for client in services(address, token):
        service_count += 1
        matches += [(client, j) for j in client.jobs() if j["jid"].startswith(job) or j["name"] == job]
    if not service_count:
        raise ServiceError(NO_SERVICE)
    if not matches:
        raise ServiceError(f"There is no job {job}: `millstream list -a` lists the jobs.")
    running = [f for f in matches if f[1]["end-time"] == -1]
    chosen = running if len(matches) > 1 and running else matches
    if len(chosen) > 1:
        ids = ", ".join(j["jid"] for _, j in chosen)
        raise ServiceError(f"Several jobs match {job}: {ids}. Give more of the id.")
    return chosen[0][0], chosen[0][1]["jid"]


NO_SERVICE = (
    "You have no job service on this machine: start the job with -D rest.port=auto, or give the address of the "
    "service with -m host:port."
)

# Number of renewals per lease duration.
_RENEWALS = 4


@contextmanager
def leased_checkpoint(client: ServiceClient, job_id: str) -> Iterator[str]:
    """Return where the last complete checkpoint of a job is, which the job does not delete until the end of the block.

    Args:
        client: the service that has the job.
        job_id: the job.

    Raises:
        ServiceError: the job has no complete checkpoint, or has ended.
    """
    lease = client.ask(f"/jobs/{job_id}/state-leases", "POST", {})
    path, is_released = f"/jobs/{job_id}/state-leases/{lease['lease']}", threading.Event()

    def renew() -> None:
        # When the job has ended, its checkpoint may be deleted; reading it shows that.
        with suppress(ServiceError):
            while not is_released.wait(lease["seconds"] / _RENEWALS):
                client.ask(path, "PUT", {})

    threading.Thread(target=renew, name="millstream-lease", daemon=True).start()
    try:
        yield str(lease["location"])
    finally:
        is_released.set()
        # A lease that is not released expires.
        with suppress(ServiceError):
            client.ask(path, "DELETE")
