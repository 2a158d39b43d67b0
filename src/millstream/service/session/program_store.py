"""The programs of a highly available cluster, where every job manager finds them.

<storageDir>/<cluster-id>/programs/<program id>/submission.json   how it is to be run
<storageDir>/<cluster-id>/programs/<program id>/<file>            the program itself
"""

from __future__ import annotations

import json
import logging
import os
from dataclasses import dataclass, replace

from millstream.checkpoint.storage import Storage
from millstream.common.errors import DamagedStateError
from millstream.service.session.submission import Submission

log = logging.getLogger("millstream")

_SUBMISSION = "submission.json"


@dataclass(frozen=True)
class Library:
    """Programs that were submitted and have not ended."""

    storage: Storage

    def put(self, program_id: str, submission: Submission) -> None:
        """Keep a program, before anybody is told that it was taken."""
        with open(submission.path, "rb") as file:
            content = file.read()
        self.storage.publish(f"{program_id}/{os.path.basename(submission.path)}", content, private=True)
        # Last: what has this is complete.
        self.storage.publish(f"{program_id}/{_SUBMISSION}", json.dumps(submission.as_dict()).encode(), private=True)

    def all(self, directory: str) -> dict[str, Submission]:
        """Return the programs by their ids, copied into a directory of this machine."""
        found = {}
        for program_id in sorted(self.storage.list("")):
            if _SUBMISSION not in self.storage.list(program_id):
                continue
            try:
                found[program_id] = self._take(program_id, os.path.join(directory, f"{program_id[:12]}-program"))
            except (DamagedStateError, ValueError, OSError) as e:
                log.warning("Program %s cannot be read: %s", program_id, e)
        return found

    def _take(self, program_id: str, directory: str) -> Submission:
        submission = Submission.read(json.loads(bytes(self.storage.read(f"{program_id}/{_SUBMISSION}"))))
        name = os.path.basename(submission.path)
        os.makedirs(directory, mode=0o700, exist_ok=True)
        path = os.path.join(directory, name)
        with open(path, "wb") as file:
            file.write(self.storage.read(f"{program_id}/{name}"))
        where = submission.directory
        return replace(submission, path=path, directory=where if where and os.path.isdir(where) else None)

    def remove(self, program_id: str) -> None:
        """Forget a program that has ended."""
        self.storage.delete(program_id)
