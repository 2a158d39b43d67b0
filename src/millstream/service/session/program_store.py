"""Programs of a cluster: those submitted to a highly available cluster, and uploaded files.

<storageDir>/<cluster-id>/programs/<program id>/submission.json   the submission
<storageDir>/<cluster-id>/programs/<program id>/<file>            the program itself
"""

from __future__ import annotations

import json
import logging
import os
import re
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from email.parser import BytesParser
from email.policy import HTTP

from millstream.checkpoint.storage import Storage
from millstream.common.aliases import Json
from millstream.common.errors import DamagedStateError
from millstream.service.http import RequestError

_TEXTS, _LISTS, _MAPS = ("path", "directory", "module"), ("arguments",), ("settings", "overrides")


@dataclass(frozen=True, kw_only=True)
class Submission:
    """A program to run.

    Attributes:
        path: the program, a .py file or a .zip, on the cluster's machine.
        module: the module of the .zip to run; None for its __main__.py.
        arguments: its arguments, for sys.argv.
        directory: its working directory; None for a new one.
        settings: options that the program can override.
        overrides: options that override the program's.
        pyflink: whether `import pyflink` means millstream.
    """

    path: str
    module: str | None = None
    arguments: list[str] = field(default_factory=list)
    directory: str | None = None
    settings: dict[str, str] = field(default_factory=dict)
    overrides: dict[str, str] = field(default_factory=dict)
    pyflink: bool = False

    def as_dict(self) -> dict[str, Json]:
        return asdict(self)

    @staticmethod
    def read(body: dict[str, Json]) -> Submission:
        """Parse a client's request."""
        checks: dict[str, Callable[[Json], bool]] = {
            **dict.fromkeys(_TEXTS, _is_text),
            **dict.fromkeys(_LISTS, _is_list),
            **dict.fromkeys(_MAPS, _is_map),
            "pyflink": lambda value: isinstance(value, bool),
        }
        for key, value in body.items():
            if key not in checks or not checks[key](value):
                raise RequestError(400, f"{key} is not a field of a submission, or has the wrong type.")
        if not body.get("path"):
            raise RequestError(400, "The submission has no path: set it to the program's file.")
        return Submission(**body)


def _is_text(value: Json) -> bool:
    return value is None or isinstance(value, str)


def _is_list(value: Json) -> bool:
    return isinstance(value, list) and all(isinstance(x, str) for x in value)


def _is_map(value: Json) -> bool:
    return isinstance(value, dict) and all(isinstance(x, str) for x in value.values())


log = logging.getLogger("millstream")

_SUBMISSION = "submission.json"


@dataclass(frozen=True)
class ProgramStore:
    """Submitted programs that have not ended, in storage that all job managers can read."""

    storage: Storage

    def put(self, program_id: str, submission: Submission) -> None:
        """Store a program, before the submission is acknowledged."""
        with open(submission.path, "rb") as file:
            content = file.read()
        self.storage.publish(f"{program_id}/{os.path.basename(submission.path)}", content, private=True)
        # Written last: a program with this file is complete.
        self.storage.publish(f"{program_id}/{_SUBMISSION}", json.dumps(submission.as_dict()).encode(), private=True)

    def all(self, directory: str) -> dict[str, Submission]:
        """Return the programs by id, copied to a local directory."""
        programs = {}
        for program_id in sorted(self.storage.list("")):
            if _SUBMISSION not in self.storage.list(program_id):
                continue
            try:
                programs[program_id] = self._copy(program_id, os.path.join(directory, f"{program_id[:12]}-program"))
            except (DamagedStateError, ValueError, OSError) as e:
                log.warning("Program %s cannot be read: %s", program_id, e)
        return programs

    def _copy(self, program_id: str, directory: str) -> Submission:
        submission = Submission.read(json.loads(bytes(self.storage.read(f"{program_id}/{_SUBMISSION}"))))
        name = os.path.basename(submission.path)
        os.makedirs(directory, mode=0o700, exist_ok=True)
        path = os.path.join(directory, name)
        with open(path, "wb") as file:
            file.write(self.storage.read(f"{program_id}/{name}"))
        working_directory = submission.directory
        return replace(
            submission,
            path=path,
            directory=working_directory if working_directory and os.path.isdir(working_directory) else None,
        )

    def remove(self, program_id: str) -> None:
        """Remove a program that has ended."""
        self.storage.delete(program_id)


_NAME = re.compile(r"[\w.+ -]{1,200}\.(py|zip)", re.ASCII)
_ID = re.compile(r"[0-9a-f-]{36}_[\w.+ -]{1,200}\.(py|zip)", re.ASCII)


@dataclass(frozen=True)
class Upload:
    """An uploaded program.

    Attributes:
        id: its id and file name.
        name: the client's name for it.
        uploaded_ms: when it was uploaded.
    """

    id: str
    name: str
    path: str
    uploaded_ms: int


class Uploads:
    """The uploaded programs."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        os.makedirs(directory, mode=0o700, exist_ok=True)

    def all(self) -> list[Upload]:
        """Return the uploads, newest first."""
        uploads = [self._upload(name) for name in os.listdir(self._directory) if self._is_one(name)]
        return sorted(uploads, key=lambda u: -u.uploaded_ms)

    def find(self, upload_id: str) -> Upload:
        """Return an upload. Only valid ids are looked up in the file system."""
        if not self._is_one(upload_id):
            raise RequestError(404, f"No program with the id {upload_id} was uploaded.")
        return self._upload(upload_id)

    def _is_one(self, name: str) -> bool:
        path = os.path.join(self._directory, name)
        return bool(_ID.fullmatch(name)) and os.path.isfile(path) and not os.path.islink(path)

    def _upload(self, name: str) -> Upload:
        path = os.path.join(self._directory, name)
        return Upload(name, name.partition("_")[2], path, int(os.stat(path).st_mtime * 1000))

    def delete(self, upload_id: str) -> None:
        os.remove(self.find(upload_id).path)

    def take(self, content_type: str, body: bytes) -> Upload:
        """Store the only file of a form."""
        name, data = _file_of(content_type, body)
        if not _NAME.fullmatch(name):
            raise RequestError(400, "The file must be a Python program: a .py file, or a .zip with a __main__.py.")
        upload_id = f"{uuid.uuid4()}_{name}"
        path = os.path.join(self._directory, upload_id)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
        return self._upload(upload_id)


def _file_of(content_type: str, body: bytes) -> tuple[str, bytes]:
    """Return name and content of the only file of a form (multipart/form-data)."""
    head = f"Content-Type: {content_type}\r\n\r\n".encode("latin-1", "replace")
    form = BytesParser(policy=HTTP).parsebytes(head + body)
    parts = [part for part in form.iter_parts() if part.get_filename()] if form.is_multipart() else []
    if len(parts) != 1:
        raise RequestError(400, "The request must be a form (multipart/form-data) with exactly 1 file.")
    # Drop the client's directory.
    name = os.path.basename((parts[0].get_filename() or "").replace("\\", "/"))
    data = parts[0].get_payload(decode=True)
    return name, data if isinstance(data, bytes) else b""
