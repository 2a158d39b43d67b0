"""Cells in Kubernetes: Lease objects (coordination.k8s.io/v1), written with their resourceVersion.

An annotation holds the contents of a cell. Holder and renew time of the election lease are also in the fields that
`kubectl get lease` shows. Needs a service account that may get, create and update leases in its namespace.
"""

from __future__ import annotations

import base64
import json
import math
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from datetime import UTC, datetime

from millstream.common.aliases import Json
from millstream.common.errors import InvalidProgramError, MillstreamError
from millstream.leader.cas_cells import OvertakenError

_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
_DATA = "millstream/data"


@dataclass(frozen=True)
class Access:
    """Access to the API server.

    Attributes:
        server: its URL.
        namespace: the namespace of the objects.
        token_file: the bearer token; read for each request, since it is rotated.
        ca_file: the trusted certificates; None for those of this machine.
    """

    server: str
    namespace: str
    token_file: str | None
    ca_file: str | None

    @staticmethod
    def find(
        server: str | None, namespace: str | None, token_file: str | None, ca_file: str | None, account: str = _ACCOUNT
    ) -> Access:
        """Return the configured access; the default is that of a pod."""
        if server is None:
            host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
            if host is None:
                raise InvalidProgramError(
                    "high-availability.type is KUBERNETES, and this process does not run in a pod: set "
                    "millstream.high-availability.kubernetes.server to the API server's URL."
                )
            server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        if namespace is None:
            namespace = _text(f"{account}/namespace") or "default"
        files = (token_file or f"{account}/token", ca_file or f"{account}/ca.crt")
        token, ca = (path if os.path.exists(path) else None for path in files)
        return Access(server.rstrip("/"), namespace, token, ca)


def _text(path: str) -> str | None:
    if not os.path.exists(path):
        return None
    with open(path) as file:
        return file.read().strip()


class KubernetesCells:
    """The cells of a cluster."""

    def __init__(self, access: Access, cluster_id: str, request_timeout: float) -> None:
        self._access = access
        self._prefix = cluster_id.lower().replace("_", "-").replace(".", "-")
        # Timeout of a request in seconds.
        self._request_timeout = request_timeout
        context = ssl.create_default_context(cafile=access.ca_file) if access.server.startswith("https") else None
        # A proxy of the environment is not for the API server.
        handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
        self._opener = urllib.request.build_opener(
            *handlers, *([urllib.request.HTTPSHandler(context=context)] if context else [])
        )

    def cell(self, name: str) -> KubernetesCell:
        return KubernetesCell(self, f"{self._prefix}-{name}")

    def watch(self, on_lost: Callable[[str], None]) -> None:
        """Do nothing: there is no session."""

    def close(self) -> None:
        """Do nothing: nothing is open."""

    @property
    def namespace(self) -> str:
        return self._access.namespace

    def ask(self, method: str, name: str | None = None, body: dict[str, Json] | None = None) -> dict[str, Json] | None:
        """Send a request and return the answer; None if the object does not exist, OvertakenError on a conflict."""
        path = f"/apis/coordination.k8s.io/v1/namespaces/{self._access.namespace}/leases"
        url = f"{self._access.server}{path}{'' if name is None else f'/{name}'}"
        request = urllib.request.Request(url, None if body is None else json.dumps(body).encode(), method=method)
        request.add_header("Content-Type", "application/json")
        token = None if self._access.token_file is None else _text(self._access.token_file)
        if token:
            request.add_header("Authorization", f"Bearer {token}")
        try:
            with self._opener.open(request, timeout=self._request_timeout) as response:
                resource: dict[str, Json] = json.load(response)
                return resource
        except urllib.error.HTTPError as e:
            with e:
                if e.code == 404 and method != "POST":
                    return None
                if e.code == 409:
                    raise OvertakenError(f"The lease {name} of Kubernetes was written by another process.") from None
                error_text = e.read().decode(errors="replace")[:500]
            raise MillstreamError(f"Kubernetes refuses {method} {url} ({e.code}): {error_text}") from None
        except (urllib.error.URLError, OSError) as e:
            raise MillstreamError(f"Kubernetes at {self._access.server} cannot be reached: {e}") from None


class KubernetesCell:
    """One Lease object."""

    def __init__(self, cells: KubernetesCells, name: str) -> None:
        self._cells = cells
        self._name = name

    def read(self) -> tuple[bytes | None, Hashable]:
        resource = self._cells.ask("GET", self._name)
        if resource is None:
            return None, 0
        data = resource["metadata"].get("annotations", {}).get(_DATA)
        if data is None:
            raise MillstreamError(
                f"The lease {self._name} of Kubernetes belongs to another program: it has no {_DATA}."
            )
        return base64.b64decode(data), resource["metadata"]["resourceVersion"]

    def write(self, data: bytes, version: Hashable) -> Hashable:
        metadata = {
            "name": self._name,
            "namespace": self._cells.namespace,
            "annotations": {_DATA: base64.b64encode(data).decode()},
        }
        lease: dict[str, Json] = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": _spec(data)}
        if version == 0:
            done = self._cells.ask("POST", None, {**lease, "metadata": metadata})
        else:
            done = self._cells.ask("PUT", self._name, {**lease, "metadata": {**metadata, "resourceVersion": version}})
        if done is None:
            raise OvertakenError(f"The lease {self._name} of Kubernetes was deleted.")
        resource_version: str = done["metadata"]["resourceVersion"]
        return resource_version


def _spec(data: bytes) -> dict[str, Json]:
    """Return the fields of the election lease that kubectl shows; nothing for other cells."""
    read = json.loads(data)
    if "holder" not in read:
        return {}
    return {
        "holderIdentity": "" if read["is_released"] else read["holder"],
        "leaseDurationSeconds": max(math.ceil(read["duration"]), 1),
        "leaseTransitions": read["term"] - 1,
        "renewTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
    }
