"""Where the text of a script is: a file of this machine, a web server, or a place that checkpoints can be in, too."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit
from urllib.request import urlopen

from millstream.checkpoint.storage import storage_options
from millstream.common.configuration import Configuration
from millstream.sql.errors import TableException

_ANSWERS_WITHIN = 30.0


def script_at(uri: str, settings: Mapping[str, str]) -> str:
    """Return the text of a script.

    Args:
        uri: a path, or a URL: `file:`, `http:`, `https:`, or one of a file system.
        settings: have what file systems must be told, `s3.access-key` and others.
    """
    try:
        return _read(uri, settings).decode()
    except (OSError, UnicodeDecodeError, ImportError, ValueError) as e:
        raise TableException(f"The script {uri!r} cannot be read: {e}.") from None


def _read(uri: str, settings: Mapping[str, str]) -> bytes:
    parts = urlsplit(uri)
    if parts.scheme in ("", "file"):
        # A path may have what has a meaning in URLs.
        return Path(unquote(parts.path) if parts.scheme else uri).read_bytes()
    if parts.scheme in ("http", "https"):
        with urlopen(uri, timeout=_ANSWERS_WITHIN) as answer:
            found: bytes = answer.read()
            return found
    import fsspec

    options = storage_options(Configuration.from_dict(dict(settings)))
    with fsspec.open(uri, "rb", **options.get(parts.scheme, {})) as file:
        read: bytes = file.read()
        return read
