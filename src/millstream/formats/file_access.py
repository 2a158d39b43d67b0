"""Files on any storage, as a source sees them: found under a path, opened, decompressed."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, cast
from urllib.parse import unquote, urlsplit

from millstream.common.errors import InvalidProgramError, MillstreamError
from millstream.common.fast_dataclass import fast_dataclass

_HIDDEN = (".", "_")


@fast_dataclass
class FoundFile:
    """A file as it was when it was found.

    Attributes:
        path: a path, or a URL.
        size: in bytes.
        modified: in seconds since 1970, 0 where the storage does not know.
    """

    path: str
    size: int
    modified: float


@fast_dataclass
class FileAccess:
    """Reaches local paths, file: URLs and whatever fsspec reaches.

    Attributes:
        options: what a file system needs to know, by protocol.
    """

    options: dict[str, dict[str, Any]]

    def find(self, path: str) -> Iterator[FoundFile]:
        """Yield a file, or all files below a directory; hidden ones (`.name`, `_name`) are left out.

        Raises FileNotFoundError when there is nothing of that name.
        """
        if "://" in path:
            yield from self._find_remote(path)
        elif os.path.isdir(path):
            yield from _walk(path)
        else:
            status = os.stat(path)
            yield FoundFile(path, status.st_size, status.st_mtime)

    def _find_remote(self, url: str) -> Iterator[FoundFile]:
        fs, root = self._remote(url)
        fs.invalidate_cache()
        found = fs.find(root, detail=True)
        if not found and not fs.exists(root):
            raise FileNotFoundError(url)
        for path, about in found.items():
            below = path[len(root) :].strip("/")
            if not any(part.startswith(_HIDDEN) for part in below.split("/")):
                yield FoundFile(fs.unstrip_protocol(path), about["size"], _modified(about))

    def open(self, path: str) -> BinaryIO:
        """Open a file to read its bytes."""
        try:
            if "://" not in path:
                return open(path, "rb")
            fs, name = self._remote(path)
            return cast(BinaryIO, fs.open(name, "rb"))
        except FileNotFoundError:
            raise MillstreamError(
                f"FileSource: {path} is gone, but it was found before; files must stay until they have been read."
            ) from None

    def _remote(self, url: str) -> tuple[Any, str]:
        import fsspec

        protocol = url.partition("://")[0]
        try:
            fs, path = fsspec.core.url_to_fs(url, **self.options.get(protocol, {}))
        except (ImportError, ValueError) as e:
            raise InvalidProgramError(f"FileSource: {url} needs a package that is not installed: {e}") from None
        return fs, path


def _walk(directory: str) -> Iterator[FoundFile]:
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.startswith(_HIDDEN):
                continue
            try:
                if entry.is_dir():
                    yield from _walk(entry.path)
                else:
                    status = entry.stat()
                    yield FoundFile(entry.path, status.st_size, status.st_mtime)
            except FileNotFoundError:
                # Moved away while we looked.
                continue


def _modified(about: dict[str, Any]) -> float:
    for name in ("mtime", "LastModified", "last_modified", "modified", "created"):
        when = about.get(name)
        if when is not None:
            return float(when.timestamp() if hasattr(when, "timestamp") else when)
    return 0.0


def clean_path(path: str | os.PathLike[str]) -> str:
    """Return a path or URL in the form in which it is remembered: local ones absolute, without file://."""
    text = os.fspath(path)
    if text.startswith("file:"):
        url = urlsplit(text)
        if url.netloc not in ("", "localhost"):
            raise InvalidProgramError(f"FileSource: {text!r} names the host {url.netloc!r}; write file:///path.")
        text = unquote(url.path)
    elif "://" in text:
        return text.rstrip("/")
    if not text:
        raise InvalidProgramError("FileSource: a path is empty.")
    return os.path.abspath(text)


class _Inflated:
    """A stream of zlib data; the standard library has no file object for it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._inflate = zlib.decompressobj()

    def read(self, size: int) -> bytes:
        while not self._inflate.eof:
            data = self._inflate.unconsumed_tail or self._file.read(size)
            out = self._inflate.decompress(data, size)
            if out or not data:
                return out
        return b""


def _zstd(file: BinaryIO) -> BinaryIO:
    import pyarrow

    return cast(BinaryIO, pyarrow.CompressedInputStream(pyarrow.PythonFile(file, mode="r"), "zstd"))


_DECOMPRESSORS: dict[str, Callable[[BinaryIO], Any]] = {
    ".gz": lambda file: gzip.GzipFile(fileobj=file),
    ".gzip": lambda file: gzip.GzipFile(fileobj=file),
    ".bz2": bz2.BZ2File,
    ".xz": lzma.LZMAFile,
    ".deflate": _Inflated,
    ".zst": _zstd,
}


def is_compressed(path: str) -> bool:
    """Tell by its name whether a file is compressed, so that it can only be read from its beginning."""
    return os.path.splitext(path)[1].lower() in _DECOMPRESSORS


def decompressed(path: str, file: BinaryIO) -> BinaryIO:
    """Return a file's contents as they were before it was compressed; the file itself when it was not."""
    decompress = _DECOMPRESSORS.get(os.path.splitext(path)[1].lower())
    return file if decompress is None else cast(BinaryIO, decompress(file))
