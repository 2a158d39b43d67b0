"""Storage for state files and manifests: a directory, or any URL that fsspec supports (s3://, hdfs://, ...).

A name is relative to the storage's location, or absolute: a path or a URL.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import shutil
import tempfile
import uuid
import weakref
from collections.abc import Iterable, Iterator
from typing import Protocol

from millstream.common.aliases import Json
from millstream.common.configuration import Configuration
from millstream.common.errors import DamagedStateError, InvalidProgramError, MillstreamError
from millstream.common.fast_dataclass import fast_dataclass
from millstream.common.faults import fault_point
from millstream.common.private_files import scratch
from millstream.operating_system import system


class Storage(Protocol):
    """Files by name. A file never changes once it is written."""

    url: str

    def read(self, name: str) -> memoryview: ...

    def write(self, name: str, parts: Iterable[bytes]) -> int:
        """Write a file from its parts; return its size."""
        ...

    def publish(self, name: str, data: bytes, private: bool = False) -> None:
        """Write a file atomically; in a directory, `private` makes it readable only by its owner."""
        ...

    def create(self, name: str, data: bytes) -> bool:
        """Write a file atomically unless it exists; return whether it was written.

        If several processes on any machines do that at once, exactly one succeeds.
        """
        ...

    def delete(self, name: str) -> None:
        """Delete a file, or a directory with its contents; it may not exist."""
        ...

    def list(self, directory: str) -> list[str]:
        """Return the names in a directory; nothing if there is no such directory."""
        ...

    def make_durable(self, names: Iterable[str]) -> None:
        """Make sure that files survive the failure of this machine."""
        ...

    def drop_local_copies(self, names: Iterable[str]) -> None:
        """Drop local copies of these files."""
        ...

    def scratch(self, name: str) -> str:
        """Return a new directory for files that no other process needs."""
        ...


def is_remote(url: str) -> bool:
    """Return whether a URL is not a local directory."""
    return "://" in url and not url.startswith("file://")


def local_path(url: str) -> str:
    """Return the path of a URL that is a local directory.

    Example:
        >>> local_path("file:///tmp/checkpoints")
        '/tmp/checkpoints'
    """
    return os.path.abspath(url.removeprefix("file://") if url.startswith("file://") else os.path.expanduser(url))


def absolute_url(url: str) -> str:
    """Return a URL that does not depend on the working directory: paths become absolute.

    Example:
        >>> absolute_url("s3://bucket/savepoints"), absolute_url("/tmp/../savepoints")
        ('s3://bucket/savepoints', '/savepoints')
    """
    return url if is_remote(url) else local_path(url)


def open_storage(url: str, options: dict[str, Json] | None = None, cache: str | None = None) -> Storage:
    """Open the storage at a URL.

    Args:
        url: a path or a URL.
        options: options of the file system, see `storage_options`.
        cache: a local directory for copies of remote files.
    """
    if is_remote(url):
        return RemoteStorage(url, options or {}, cache)
    return DirectoryStorage(local_path(url), cache, options)


@fast_dataclass
class StateLocation:
    """The location of a job's state files, options of its file system, and a directory for local copies."""

    url: str
    options: dict[str, Json]
    copies: str

    def open(self) -> Storage:
        return open_storage(self.url, self.options, self.copies)


# Error numbers of a full disk.
_FULL = (errno.ENOSPC, errno.EDQUOT)
# Protocols that can create a file conditionally.
_CONDITIONAL = ("s3", "s3a", "memory")


def creates_exclusively(url: str) -> bool:
    """Return whether storage can create a file only if it does not exist."""
    return not is_remote(url) or url.partition("://")[0] in _CONDITIONAL


_S3_KEYS = {"s3.access-key": "key", "s3.secret-key": "secret", "s3.endpoint": "endpoint_url"}


def storage_options(config: Configuration) -> dict[str, Json]:
    """Translate Flink's `s3.*` settings to fsspec options."""
    options = {ours: config.get_string(key, "") for key, ours in _S3_KEYS.items() if config.contains_key(key)}
    return {"s3": options, "s3a": options} if options else {}


@contextlib.contextmanager
def _written_to(directory: str, setting: str = "execution.checkpointing.dir") -> Iterator[None]:
    """Turn write errors into messages that name the directory and the setting."""
    try:
        yield
    except OSError as e:
        text = f"State cannot be written to {directory}: {e.strerror or e}."
        if e.errno in _FULL:
            text += (
                f" Free space there, set '{setting}' to a directory with more, or keep fewer checkpoints "
                "('execution.checkpointing.num-retained')."
            )
        raise MillstreamError(text) from None


class DirectoryStorage:
    """Files in a directory that all workers of a job share."""

    def __init__(self, directory: str, scratch: str | None = None, options: dict[str, Json] | None = None) -> None:
        self.url = directory
        self._scratch = scratch or os.path.join(directory, "scratch")
        self._options = options or {}

    def _elsewhere(self, url: str) -> RemoteStorage:
        """Return the storage of a remote file: a savepoint may be anywhere."""
        return RemoteStorage(url.rpartition("/")[0], self._options, os.path.join(self._scratch, "copies"))

    def _path(self, name: str) -> str:
        return os.path.join(self.url, name.removeprefix("file://"))

    def read(self, name: str) -> memoryview:
        """Return a file's bytes, memory-mapped: a large file takes no memory of its own."""
        if is_remote(name):
            return self._elsewhere(name).read(name)
        path = self._path(name)
        try:
            with open(path, "rb") as f:
                return memoryview(mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ))
        except FileNotFoundError:
            raise DamagedStateError(f"The file {path} is missing.") from None
        except ValueError:
            raise DamagedStateError(f"The file {path} is damaged: it is empty.") from None
        except OSError as e:
            raise DamagedStateError(f"The file {path} cannot be read: {e.strerror}.") from e

    def write(self, name: str, parts: Iterable[bytes]) -> int:
        if is_remote(name):
            return self._elsewhere(name).write(name, parts)
        path = self._path(name)
        if not os.path.isdir(os.path.dirname(path)):
            self._make(os.path.dirname(path))
        with _written_to(os.path.dirname(path)), open(path, "wb") as f:
            for part in parts:
                f.write(part)
            return f.tell()

    def _make(self, directory: str) -> None:
        try:
            os.makedirs(directory, exist_ok=True)
        except OSError as e:
            raise MillstreamError(
                f"State cannot be written: the directory {directory} cannot be created on this worker ({e.strerror}). "
                "Set "
                "'execution.checkpointing.dir' to a directory that the driver and all workers share."
            ) from None

    def publish(self, name: str, data: bytes, private: bool = False) -> None:
        path = self._path(name)
        unfinished = self._unfinished(path, data, private)
        fault_point("driver.in-manifest")
        os.replace(unfinished, path)
        self._sync(os.path.dirname(path))

    def _unfinished(self, path: str, data: bytes, private: bool = False) -> str:
        """Write a file under a temporary name, and return that name."""
        self._make(os.path.dirname(path))
        unfinished = f"{path}.{uuid.uuid4().hex[:8]}.inprogress"
        mode = 0o600 if private else 0o666
        with _written_to(os.path.dirname(path)):
            descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
            with os.fdopen(descriptor, "wb") as f:
                f.write(data)
                f.flush()
                os.fsync(f.fileno())
        return unfinished

    def create(self, name: str, data: bytes) -> bool:
        path = self._path(name)
        unfinished = self._unfinished(path, data)
        try:
            # A rename would replace an existing file; a link fails.
            os.link(unfinished, path)
        except FileExistsError:
            # Over NFS the link may exist although the answer was lost.
            if os.stat(unfinished).st_nlink != 2:
                return False
        finally:
            os.unlink(unfinished)
        self._sync(os.path.dirname(path))
        return True

    def delete(self, name: str) -> None:
        path = self._path(name)
        with contextlib.suppress(FileNotFoundError):
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path)
            else:
                os.unlink(path)

    def list(self, directory: str) -> list[str]:
        try:
            return os.listdir(self._path(directory))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def make_durable(self, names: Iterable[str]) -> None:
        for name in names:
            self._sync(self._path(name), keep_cached=False)
        self._sync(self.url)

    def _sync(self, path: str, keep_cached: bool = True) -> None:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            if not keep_cached:
                # State files are only read after a failure. Otherwise their page cache would displace that of the
                # next file.
                system.drop_cached(descriptor)
        finally:
            os.close(descriptor)

    def drop_local_copies(self, names: Iterable[str]) -> None:
        """Do nothing: there are no copies."""

    def scratch(self, name: str) -> str:
        path = os.path.join(self._scratch, f"{name}-{uuid.uuid4().hex[:8]}")
        os.makedirs(path)
        return path


class RemoteStorage:
    """Files that fsspec reaches. Files that this host has written or read are cached locally."""

    def __init__(self, url: str, options: dict[str, Json], cache: str | None) -> None:
        import fsspec

        self.url = url.rstrip("/")
        self._protocol = protocol = url.partition("://")[0]
        try:
            self._fs: Json = fsspec.filesystem(protocol, **options.get(protocol, {}))
        except (ImportError, ValueError) as e:
            raise InvalidProgramError(f"Storage at {url} needs a package that is not installed: {e}") from None
        # An object store shows only complete objects; other file systems need a rename.
        self._renames = protocol not in ("s3", "s3a", "gs", "gcs", "abfs", "az", "memory")
        if cache is None:
            cache = tempfile.mkdtemp(prefix="millstream-cache-", dir=scratch())
            weakref.finalize(self, shutil.rmtree, cache, ignore_errors=True)
        self._cache = cache
        os.makedirs(self._cache, exist_ok=True)

    def _url(self, name: str) -> str:
        return name if "://" in name else f"{self.url}/{name}"

    def _copy(self, name: str) -> str:
        return os.path.join(self._cache, self._url(name).removeprefix(self.url).strip("/").replace("/", "%"))

    def read(self, name: str) -> memoryview:
        if name.startswith("/"):
            return DirectoryStorage("/").read(name)
        copy = self._copy(name)
        if not os.path.exists(copy):
            unfinished = f"{copy}.{uuid.uuid4().hex[:8]}"
            try:
                self._fs.get_file(self._url(name), unfinished)
            except FileNotFoundError:
                raise DamagedStateError(f"The file {self._url(name)} is missing.") from None
            os.replace(unfinished, copy)
        with open(copy, "rb") as f:
            try:
                return memoryview(mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ))
            except ValueError:
                raise DamagedStateError(f"The file {self._url(name)} is damaged: it is empty.") from None

    def write(self, name: str, parts: Iterable[bytes]) -> int:
        if name.startswith("/"):
            return DirectoryStorage("/").write(name, parts)
        copy = self._copy(name)
        with _written_to(self._cache, "io.tmp.dirs"), open(copy, "wb") as f:
            for part in parts:
                f.write(part)
            size = f.tell()
        self._upload(copy, self._url(name))
        return size

    def _upload(self, path: str, url: str) -> None:
        if self._renames:
            self._fs.makedirs(url.rpartition("/")[0], exist_ok=True)
            unfinished = f"{url}.{uuid.uuid4().hex[:8]}.inprogress"
            self._fs.put_file(path, unfinished)
            self._fs.mv(unfinished, url)
        else:
            self._fs.put_file(path, url)

    def publish(self, name: str, data: bytes, private: bool = False) -> None:
        self.write(name, [data])
        # Readers of a manifest need the actual contents of the storage.
        os.unlink(self._copy(name))

    def create(self, name: str, data: bytes) -> bool:
        if self._protocol not in _CONDITIONAL:
            raise InvalidProgramError(
                f"{self.url} cannot create a file only if it does not exist, which high availability requires: use a "
                "directory that the machines share, S3, ZooKeeper or Kubernetes for it."
            )
        try:
            # S3: If-None-Match.
            self._fs.pipe_file(self._url(name), data, mode="create")
        except FileExistsError:
            return False
        except OSError as e:
            if "PreconditionFailed" in str(e) or "ConditionalRequestConflict" in str(e):
                return False
            raise
        return True

    def delete(self, name: str) -> None:
        if name:
            self.drop_local_copies([name])
        with contextlib.suppress(FileNotFoundError):
            self._fs.rm(self._url(name), recursive=True)

    def list(self, directory: str) -> list[str]:
        self._fs.invalidate_cache()
        try:
            paths = self._fs.ls(self._url(directory).rstrip("/"), detail=False)
        except FileNotFoundError:
            return []
        return [path.rstrip("/").rpartition("/")[2] for path in paths]

    def make_durable(self, names: Iterable[str]) -> None:
        """Do nothing: an object store is durable."""

    def drop_local_copies(self, names: Iterable[str]) -> None:
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._copy(name))

    def scratch(self, name: str) -> str:
        path = os.path.join(self._cache, f"scratch-{name}-{uuid.uuid4().hex[:8]}")
        os.makedirs(path)
        return path
