"""Failure reports, one file each, for `millstream replay`.

A report is JSON: the failure, the operator, and its input (`operators/diagnostics/failure_capture.py`). Its pickles are
read only by that command. Only the user can read the file, and `read` rejects files that others could have written.
"""

from __future__ import annotations

import base64
import json
import os
import stat
import sys
import tempfile
from contextlib import suppress
from dataclasses import asdict, replace

import cloudpickle

from millstream.common import pyflink_names
from millstream.common.aliases import Json
from millstream.common.configuration import Configuration
from millstream.common.errors import MillstreamError
from millstream.common.fast_dataclass import fast_dataclass
from millstream.common.masking import masked
from millstream.common.private_files import write_private
from millstream.common.setting import TextSetting
from millstream.operators.diagnostics.failures import Failure
from millstream.operators.runtime.chain import ChainNode, ChainOutput, is_encoded
from millstream.operators.runtime.messages import JobPlan
from millstream.operators.runtime.vertex import Vertex

DIRECTORY = TextSetting("millstream.failures.dir", None)

_MARK, _VERSION = "millstream-failure", 1
# Fields of Failure whose keys in the file differ.
_KEYS = {"unrecoverable": "incurable", "replay_input": "kept"}
_FIELDS = {key: name for name, key in _KEYS.items()}
# Maximum number of reports per job, and of all jobs; the newest are retained.
_MAX_REPORTS_PER_JOB, _MAX_REPORTS = 16, 100


def default_directory() -> str:
    """Return this user's default directory on this machine."""
    return os.path.join(tempfile.gettempdir(), f"millstream-failures-{os.getuid()}")


def directory_of(config: Configuration) -> str:
    """Return the directory of a job's failure reports."""
    return DIRECTORY.read(config) or default_directory()


def file_name(job_id: str, number: int) -> str:
    """Return the file name of a failure report; numbers start at 1."""
    return f"{job_id}.failure-{number}"


@fast_dataclass
class FailureReport:
    """A failure report.

    Attributes:
        number: the number of the failure in its job, from 1.
        at: its time, in seconds since 1970.
        about: the fields of `operators.diagnostics.failures.Failure`, by their keys in the file.
        node: the pickled operator, in base64.
        settings: the job settings that functions see.
        path: the program's import path.
        as_pyflink: whether it imports millstream as pyflink.
    """

    job_id: str
    job_name: str
    number: int
    at: float
    about: dict[str, Json]
    node: str
    settings: dict[str, Json]
    path: list[str]
    as_pyflink: bool

    @property
    def failure(self) -> Failure:
        return Failure(**{_FIELDS.get(key, key): value for key, value in self.about.items()})

    def to_bytes(self) -> bytes:
        return json.dumps({_MARK: _VERSION, **asdict(self)}).encode()


def write_report(directory: str, plan: JobPlan, number: int, time: float, failure: Failure) -> str:
    """Write a failure report; return its path."""
    vertex, node = _find(plan, failure.operator_id)
    settings = plan.settings
    report = FailureReport(
        job_id=settings.job_id,
        job_name=settings.job_name,
        number=number,
        at=time,
        about={_KEYS.get(name, name): value for name, value in asdict(failure).items()},
        node=base64.b64encode(cloudpickle.dumps(_alone(vertex, node), 5)).decode(),
        settings={
            "attempt": settings.attempt,
            "batch": settings.batch,
            "parameters": masked(settings.job_parameters),
            "max_parallelism": 1 if vertex.non_parallel else vertex.max_parallelism,
        },
        path=[os.path.abspath(p) for p in sys.path],
        as_pyflink=pyflink_names.is_installed(),
    )
    _check_private_directory(directory)
    path = os.path.join(directory, file_name(settings.job_id, number))
    write_private(path, report.to_bytes())
    _delete_oldest(directory, f"{settings.job_id}.", _MAX_REPORTS_PER_JOB)
    _delete_oldest(directory, "", _MAX_REPORTS)
    return path


def _find(plan: JobPlan, operator_id: str) -> tuple[Vertex, ChainNode]:
    return next((v, n) for v in plan.vertices for n in v.nodes if n.id == operator_id)


def _alone(vertex: Vertex, node: ChainNode) -> ChainNode:
    """Return an operator without its chain; its results keep their type if they had one in the chain."""
    consumers = [None if o.node is None else vertex.nodes[o.node] for o in node.outputs if o.tag is None]
    typed = is_encoded(node, consumers)
    tags = {o.tag: o.tag_type for o in node.outputs}
    # Also if the main output has no consumer.
    outputs = [ChainOutput(tag, kind, None, i) for i, (tag, kind) in enumerate({None: None, **tags}.items())]
    return replace(node, outputs=outputs, type_info=node.type_info if typed else None)


def _check_private_directory(directory: str) -> None:
    """Create a directory that only this user can write, or check that it is one."""
    os.makedirs(directory, mode=0o700, exist_ok=True)
    about = os.stat(directory)
    if about.st_uid != os.getuid() or about.st_mode & 0o022:
        raise MillstreamError(f"others can write to {directory}: set {DIRECTORY.key} to a directory of your own")


def _delete_oldest(directory: str, prefix: str, limit: int) -> None:
    """Delete the oldest reports beyond the maximum."""
    files = [e for e in os.scandir(directory) if e.name.startswith(prefix) and ".failure-" in e.name]
    for old in sorted(files, key=lambda e: e.stat().st_mtime)[:-limit]:
        with suppress(FileNotFoundError):
            os.unlink(old.path)


def read(path: str) -> FailureReport:
    """Read a failure report.

    Raises:
        MillstreamError: the file is no report, or others could have written it.
    """
    with open(path, "rb") as file:
        about = os.fstat(file.fileno())
        if about.st_uid != os.getuid() or about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise MillstreamError(
                f"Other users can write to {path}, and a replay runs the code in it: use a file that you own and that "
                "only you can write to."
            )
        data = file.read()
    try:
        fields = json.loads(data)
        version = fields.pop(_MARK)
        if version != _VERSION:
            raise MillstreamError(f"{path} has format {version}; this version of millstream reads {_VERSION}.")
        return FailureReport(**fields)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise MillstreamError(f"{path} is not a failure report of millstream.") from None


def files_of(directory: str, job: str) -> list[str]:
    """Return the reports of a job, oldest first; the job is given by its id, a prefix of it, or its name."""
    if not os.path.isdir(directory):
        return []
    names = [n for n in os.listdir(directory) if ".failure-" in n]
    matches = [n for n in names if n.startswith(job)]
    if not matches:
        matches = [n for n in names if read(os.path.join(directory, n)).job_name == job]
    return [os.path.join(directory, n) for n in sorted(matches, key=lambda n: (n[:32], int(n.rpartition("-")[2])))]
