"""What a program brings along for its workers: Python files, archives, required packages, an interpreter.

They are copied into the job's directory when the job starts, so that what is changed afterwards does not reach it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import field

from millstream.common.configuration import Configuration
from millstream.common.errors import InvalidProgramError
from millstream.common.fast_dataclass import record

FILES, ARCHIVES, REQUIREMENTS = "python.files", "python.archives", "python.requirements"
EXECUTABLE, PATH = "python.executable", "python.pythonpath"
# Where Python files are, below the job's directory.
FILES_DIRECTORY = "files"
# Flink's mark between a path and what belongs to it: the name of an archive's directory, a cache of packages.
MARK = "#"


@record
class Dependencies:
    """Where workers find what a program brought along.

    Attributes:
        path: goes before everything else on the workers' import path.
        directory: the workers' working directory, with the archives in it; None leaves it as it is.
        executable: the workers' interpreter; None for the driver's own.
    """

    path: list[str] = field(default_factory=list)
    directory: str | None = None
    executable: str | None = None

    def moved(self, old: str, new: str) -> Dependencies:
        """Return the same where the job's directory is another one."""
        return Dependencies(
            [_moved(p, old, new) for p in self.path],
            None if self.directory is None else _moved(self.directory, old, new),
            None if self.executable is None else _moved(self.executable, old, new),
        )


def _moved(path: str, old: str, new: str) -> str:
    return new + path[len(old) :] if path.startswith(old + os.sep) else path


def stage_dependencies(config: Configuration, directory: str) -> Dependencies:
    """Copy, unpack and install what the settings name, below a job's directory."""
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
    """Copy a module, a package's directory or a zip; return what goes on the import path."""
    source = os.path.abspath(file.removeprefix("file://"))
    if not os.path.exists(source):
        raise InvalidProgramError(f"The Python file {file} does not exist: it was given with add_python_file or -pyfs.")
    copy = os.path.join(target, os.path.basename(source))
    os.makedirs(target)
    if os.path.isdir(source):
        shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
        return copy
    shutil.copy(source, copy)
    # A module is found in its directory, a zip is a directory itself.
    return target if copy.endswith(".py") else copy


def _unpack(archive: str, directory: str) -> None:
    """Unpack an archive into a directory of its own name, or of the name behind the mark."""
    file, _, name = archive.partition(MARK)
    source = os.path.abspath(file.removeprefix("file://"))
    if not os.path.exists(source):
        raise InvalidProgramError(
            f"The archive {file} does not exist: it was given with add_python_archive or -pyarch."
        )
    target = os.path.join(directory, name or os.path.basename(source))
    # A zip, a jar and a wheel are the same to whoever unpacks them.
    zipped = source.endswith((".zip", ".jar", ".whl", ".egg"))
    try:
        shutil.unpack_archive(source, target, "zip" if zipped else None)
    except (shutil.ReadError, ValueError) as e:
        raise InvalidProgramError(f"The archive {file} cannot be unpacked: {e}. Use zip, tar, tar.gz or tgz.") from None


def _executable(python: str, archives: str | None) -> str | None:
    if not python:
        return None
    # Flink lets it be in an archive: venv.zip/venv/bin/python.
    packed = os.path.join(archives, python) if archives is not None else ""
    found = packed if os.path.exists(packed) else shutil.which(python)
    if found is None:
        raise InvalidProgramError(f"The Python interpreter {python} does not exist: it was given as {EXECUTABLE}.")
    return found


def _install(requirements: str, target: str, python: str) -> None:
    file, _, cache = requirements.partition(MARK)
    if not os.path.isfile(file):
        raise InvalidProgramError(f"The requirements file {file} does not exist: it was given as {REQUIREMENTS}.")
    command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", target, "-r", file]
    if cache:
        command += ["--no-index", "--find-links", cache]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()
        raise InvalidProgramError(f"The packages of {file} cannot be installed: {said[-1] if said else 'pip failed'}")
