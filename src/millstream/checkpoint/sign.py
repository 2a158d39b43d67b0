"""Signs a savepoint that was taken without a key."""

from __future__ import annotations

from millstream.checkpoint.manifest import NAME, encode_manifest
from millstream.checkpoint.signing import SIGNING_KEY_FILE, signing_keys
from millstream.checkpoint.storage import open_storage, storage_options
from millstream.checkpoint.store import open_checkpoint
from millstream.common.checksums import checksum_of
from millstream.common.configuration import Configuration
from millstream.common.errors import InvalidProgramError
from millstream.state.restored import StoredState
from millstream.state.savepoint_part import check_part


def sign_savepoint(location: str, config: Configuration) -> str:
    """Write a savepoint's manifest anew, with the digests of its files and a signature; return where it is.

    Nothing in it is unpickled.
    """
    keys, options = signing_keys(config), storage_options(config)
    if keys is None:
        raise InvalidProgramError(f"There is no key to sign {location} with: set {SIGNING_KEY_FILE.key}.")
    found = open_checkpoint(location, options)
    if found.manifest.kind != "savepoint":
        raise InvalidProgramError(
            f"{found.location} is a checkpoint, which is its job's: write it as a savepoint with "
            "millstream.state_processor, and sign that."
        )
    storage = open_storage(found.location, options)
    for subtask in (s for v in found.manifest.snapshot.vertices.values() for s in v.subtasks):
        for state_id, part in subtask.parts.items():
            data = storage.read(part.file)
            check_part(part.file, data, part.checksum)
            subtask.parts[state_id] = StoredState(part.file, checksum_of(data, digest=True))
    storage.publish(NAME, encode_manifest(found.manifest, keys))
    return found.location
