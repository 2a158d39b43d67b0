"""Files, archives, packages and the interpreter that a program ships to its workers.

They are copied to the job's directory when the job starts, so that later changes do not affect it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import field

from millstream.common.configuration import Configuration
from millstream.common.errors import InvalidProgramError
from millstream.common.fast_dataclass import fast_dataclass

FILES, ARCHIVES, REQUIREMENTS = "python.files", "python.archives", "python.requirements"
EXECUTABLE, PATH = "python.executable", "python.pythonpath"
# The subdirectory of Python files in the job's directory.
FILES_DIRECTORY = "files"
# Flink's separator between a path and its parameter: the directory name of an archive, or a package cache.
MARK = "#"


@fast_dataclass
class Dependencies:
    """Where workers find the dependencies of a program.

    Attributes:
        path: comes first on the workers' import path.
        directory: the workers' working directory with the archives; None leaves it unchanged.
        executable: the workers' interpreter; None for the driver's.
    """

    path: list[str] = field(default_factory=list)
    directory: str | None = None
    executable: str | None = None

    def moved(self, old: str, new: str) -> Dependencies:
        """Return the dependencies with the job's directory moved."""
        return Dependencies(
            [_moved(p, old, new) for p in self.path],
            None if self.directory is None else _moved(self.directory, old, new),
            None if self.executable is None else _moved(self.executable, old, new),
        )


def _moved(path: str, old: str, new: str) -> str:
    return new + path[len(old) :] if path.startswith(old + os.sep) else path


def stage_dependencies(config: Configuration, directory: str) -> Dependencies:
    """Copy, unpack and install the configured dependencies in a job's directory."""
    files = os.path.join(directory, FILES_DIRECTORY)
    path = [_copy_file(f, os.path.join(files, str(i))) for i, f in enumerate(_list(config, FILES))]
    path += [os.path.abspath(p) for p in config.get_string(PATH, "").split(os.pathsep) if p]
    archives = os.path.join(directory, "archives")
    for archive in _list(config, ARCHIVES):
        _unpack(archive, archives)
    working = archives if os.path.isdir(archives) else None
    executable = _executable(config.get_string(EXECUTABLE, ""), working)
    requirements = config.get_string(REQUIREMENTS, "")
    if requirements:
        target = os.path.join(directory, "packages")
        _install(requirements, target, executable or sys.executable)
        path.append(target)
    return Dependencies(path, working, executable)


def _list(config: Configuration, key: str) -> list[str]:
    return [part.strip() for part in config.get_string(key, "").split(",") if part.strip()]


def _copy_file(file: str, target: str) -> str:
    """Copy a module, a package directory or a zip; return its entry for the import path."""
    source = os.path.abspath(file.removeprefix("file://"))
    if not os.path.exists(source):
        raise InvalidProgramError(f"The Python file {file} does not exist: it was given with add_python_file or -pyfs.")
    copy = os.path.join(target, os.path.basename(source))
    os.makedirs(target)
    if os.path.isdir(source):
        shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
        return copy
    shutil.copy(source, copy)
    # The entry of a module is its directory, that of a zip the zip itself.
    return target if copy.endswith(".py") else copy


def _unpack(archive: str, directory: str) -> None:
    """Unpack an archive into a directory with its name, or the name after the separator."""
    file, _, name = archive.partition(MARK)
    source = os.path.abspath(file.removeprefix("file://"))
    if not os.path.exists(source):
        raise InvalidProgramError(
            f"The archive {file} does not exist: it was given with add_python_archive or -pyarch."
        )
    target = os.path.join(directory, name or os.path.basename(source))
    # Zips, jars and wheels have the same format.
    zipped = source.endswith((".zip", ".jar", ".whl", ".egg"))
    try:
        shutil.unpack_archive(source, target, "zip" if zipped else None)
    except (shutil.ReadError, ValueError) as e:
        raise InvalidProgramError(f"The archive {file} cannot be unpacked: {e}. Use zip, tar, tar.gz or tgz.") from None


def _executable(python: str, archives: str | None) -> str | None:
    if not python:
        return None
    # Flink allows it in an archive: venv.zip/venv/bin/python.
    packed = os.path.join(archives, python) if archives is not None else ""
    executable = packed if os.path.exists(packed) else shutil.which(python)
    if executable is None:
        raise InvalidProgramError(f"The Python interpreter {python} does not exist: it was given as {EXECUTABLE}.")
    return executable


def _install(requirements: str, target: str, python: str) -> None:
    file, _, cache = requirements.partition(MARK)
    if not os.path.isfile(file):
        raise InvalidProgramError(f"The requirements file {file} does not exist: it was given as {REQUIREMENTS}.")
    command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", target, "-r", file]
    if cache:
        command += ["--no-index", "--find-links", cache]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        errors = done.stderr.strip().splitlines()
        raise InvalidProgramError(
            f"The packages of {file} cannot be installed: {errors[-1] if errors else 'pip failed'}"
        )
