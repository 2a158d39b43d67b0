"""Lists, opens and decompresses the files of sources, on any storage."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import zlib
from collections.abc import Callable, Iterator
from glob import iglob
from typing import TYPE_CHECKING, BinaryIO, cast
from urllib.parse import unquote, urlsplit

from millstream.common.aliases import Value
from millstream.common.errors import InvalidProgramError, MillstreamError
from millstream.common.fast_dataclass import fast_dataclass

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

_HIDDEN = (".", "_")


@fast_dataclass
class FileStatus:
    """A file as it was when it was listed.

    Attributes:
        path: a path or a URL.
        size: in bytes.
        modified: in seconds since 1970; 0 if the storage does not provide it.
    """

    path: str
    size: int
    modified: float


@fast_dataclass
class FileAccess:
    """Accesses local paths, file: URLs and the file systems of fsspec.

    Attributes:
        options: the options of file systems, by protocol.
    """

    options: dict[str, dict[str, Value]]

    def find(self, path: str) -> Iterator[FileStatus]:
        """Yield a file, or all files below a directory except hidden ones (`.name`, `_name`).

        A path with the wildcards `*`, `?`, `[..]` or `**` that does not exist itself is a pattern of such paths.

        Raises FileNotFoundError if the path, or the directory before the first wildcard, does not exist.
        """
        if "://" in path:
            yield from self._find_remote(path)
        elif os.path.isdir(path):
            yield from _walk(path)
        elif has_wildcards(path) and not os.path.exists(path):
            yield from _matches(path)
        else:
            status = os.stat(path)
            yield FileStatus(path, status.st_size, status.st_mtime)

    def _find_remote(self, url: str) -> Iterator[FileStatus]:
        fs, root = self._remote(url)
        fs.invalidate_cache()
        if has_wildcards(root) and not fs.exists(root):
            base = without_wildcards(root)
            if not fs.exists(base):
                raise FileNotFoundError(base)
            infos: dict[str, dict[str, Value]] = {}
            for path, info in fs.glob(root, detail=True).items():
                infos.update(fs.find(path, detail=True) if info["type"] == "directory" else {path: info})
        else:
            base, infos = root, fs.find(root, detail=True)
            if not infos and not fs.exists(root):
                raise FileNotFoundError(url)
        for path, info in sorted(infos.items()):
            if not _is_hidden(path[len(base) :]):
                yield FileStatus(fs.unstrip_protocol(path), info["size"], _modified(info))

    def open(self, path: str) -> BinaryIO:
        """Open a file for reading."""
        try:
            if "://" not in path:
                return open(path, "rb")
            fs, name = self._remote(path)
            return cast(BinaryIO, fs.open(name, "rb"))
        except FileNotFoundError:
            raise MillstreamError(
                f"FileSource: {path} was deleted before it was read; retain files until the job has read them."
            ) from None

    def _remote(self, url: str) -> tuple[AbstractFileSystem, str]:
        import fsspec

        protocol = url.partition("://")[0]
        try:
            fs, path = fsspec.core.url_to_fs(url, **self.options.get(protocol, {}))
        except (ImportError, ValueError) as e:
            raise InvalidProgramError(f"FileSource: {url} needs a package that is not installed: {e}") from None
        return fs, path


def has_wildcards(path: str) -> bool:
    """Return whether a path may be a pattern of paths."""
    return any(c in path for c in "*?[")


def without_wildcards(path: str) -> str:
    """Return the directory before the first wildcard of a pattern, or the path if it has none.

    Example:
        >>> without_wildcards("/data/2024-*/a.csv"), without_wildcards("s3://bucket/data/*.csv")
        ('/data', 's3://bucket/data')
    """
    start = min((path.index(c) for c in "*?[" if c in path), default=None)
    return path if start is None else path[: max(path.rfind("/", 0, start), 0)] or "/"


def _is_hidden(relative: str) -> bool:
    return any(part.startswith(_HIDDEN) for part in relative.split("/"))


def _matches(pattern: str) -> Iterator[FileStatus]:
    base = without_wildcards(pattern)
    if not os.path.isdir(base):
        raise FileNotFoundError(base)
    found: dict[str, FileStatus] = {}
    for path in iglob(pattern, recursive=True):
        if _is_hidden(path[len(base) :]):
            continue
        try:
            status = os.stat(path)
            # `**` matches directories and also the files in them.
            files = _walk(path) if os.path.isdir(path) else [FileStatus(path, status.st_size, status.st_mtime)]
            found.update((os.path.normpath(file.path), file) for file in files)
        except FileNotFoundError:
            # Removed during the listing.
            continue
    yield from found.values()


def _walk(directory: str) -> Iterator[FileStatus]:
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.startswith(_HIDDEN):
                continue
            try:
                if entry.is_dir():
                    yield from _walk(entry.path)
                else:
                    status = entry.stat()
                    yield FileStatus(entry.path, status.st_size, status.st_mtime)
            except FileNotFoundError:
                # Removed during the listing.
                continue


def _modified(info: dict[str, Value]) -> float:
    for name in ("mtime", "LastModified", "last_modified", "modified", "created"):
        time = info.get(name)
        if time is not None:
            return float(time.timestamp() if hasattr(time, "timestamp") else time)
    return 0.0


def clean_path(path: str | os.PathLike[str]) -> str:
    """Return the normal form of a path or URL: local paths are absolute, without file://."""
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
    """Decompresses a zlib stream; the standard library has no file object for it."""

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


# Each returns an object with a `read` method.
_DECOMPRESSORS: dict[str, Callable[[BinaryIO], object]] = {
    ".gz": lambda file: gzip.GzipFile(fileobj=file),
    ".gzip": lambda file: gzip.GzipFile(fileobj=file),
    ".bz2": bz2.BZ2File,
    ".xz": lzma.LZMAFile,
    ".deflate": _Inflated,
    ".zst": _zstd,
}


def is_compressed(path: str) -> bool:
    """Return whether a file's name is that of a compressed file, which must be read from its beginning."""
    return os.path.splitext(path)[1].lower() in _DECOMPRESSORS


def decompressed(path: str, file: BinaryIO) -> BinaryIO:
    """Return a file that yields the decompressed contents; the file itself if it is not compressed."""
    decompress = _DECOMPRESSORS.get(os.path.splitext(path)[1].lower())
    return file if decompress is None else cast(BinaryIO, decompress(file))
