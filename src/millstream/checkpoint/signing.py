"""Signatures of manifests: with a key, only state signed with it is accepted.

A manifest holds the digests of all state files, so its signature covers everything in a checkpoint or savepoint. The
location is not signed: it can be moved. Only the driver and tools that read state need the key.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator

from millstream.common.checksums import Checksum, is_digest
from millstream.common.configuration import Configuration
from millstream.common.errors import InvalidProgramError, UntrustedStateError
from millstream.common.private_files import read_private
from millstream.common.setting import TextSetting

SIGNING_KEY_FILE = TextSetting("millstream.state.signing-key-file", None)

# A shorter key can be guessed.
_MIN_KEY = 16


class SigningKeys:
    """Signing keys: the first one signs, and signatures of any of them are accepted, so that keys can be rotated.

    Example:
        >>> old, new = SigningKeys(b"an old key"), SigningKeys(b"a new key", b"an old key")
        >>> new.check("there", b"text", old.sign(b"text"))
        >>> old.check("there", b"text", new.sign(b"text"))
        Traceback (most recent call last):
        ...
        millstream.common.errors.UntrustedStateError: there is not signed with a key of ...
    """

    def __init__(self, *keys: bytes) -> None:
        self._keys = keys

    def sign(self, text: bytes) -> str:
        """Return the signature of a text."""
        return _signature(self._keys[0], text)

    def check(self, name: str, text: bytes, signature: object) -> None:
        """Check the signature of a text.

        Args:
            name: the name of the text in the error.
            text: the text.
            signature: its signature; None if it has none.

        Raises:
            UntrustedStateError: the signature is not of one of these keys.
        """
        if signature is None:
            raise UntrustedStateError(
                f"{name} is not signed, and {SIGNING_KEY_FILE.key} is set: take state only from jobs that have the "
                "key, or sign what you trust with `millstream savepoint sign`."
            )
        provided = str(signature).encode()
        if not any(hmac.compare_digest(_signature(key, text).encode(), provided) for key in self._keys):
            raise UntrustedStateError(
                f"{name} is not signed with a key of {SIGNING_KEY_FILE.key}: it was modified, or signed with another "
                "key."
            )


def signing_keys(config: Configuration) -> SigningKeys | None:
    """Read the keys that sign a job's state; None if it is not signed."""
    path = SIGNING_KEY_FILE.read(config)
    if path is None:
        return None
    try:
        keys = read_private(path).split()
    except OSError as e:
        raise InvalidProgramError(f"{SIGNING_KEY_FILE.key} is {path}, which cannot be read: {e.strerror}.") from None
    if not keys or any(len(key) < _MIN_KEY for key in keys):
        raise InvalidProgramError(
            f"{SIGNING_KEY_FILE.key} is {path}, which must have one key a line, of {_MIN_KEY} characters or more: "
            "make one with `openssl rand -hex 32`."
        )
    return SigningKeys(*keys)


def check_digests(name: str, checksums: Iterator[Checksum | None]) -> None:
    """Check that all files are named with digests: the signature covers nothing else."""
    if not all(is_digest(c) for c in checksums):
        raise UntrustedStateError(
            f"{name} names a state file without its digest, so its signature does not cover that file: take "
            f"a new one with {SIGNING_KEY_FILE.key} set from the start of the job."
        )


def _signature(key: bytes, text: bytes) -> str:
    return hmac.new(key, b"millstream manifest\n" + text, hashlib.sha256).hexdigest()
