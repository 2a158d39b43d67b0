"""Downloads Java libraries by their Maven coordinates, with the Ivy that Spark includes."""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
import sys
import tempfile

import pyspark

from millstream.common.errors import MillstreamError
from millstream.spark.java import find_java


def fetch_jars(organisation: str, module: str, version: str, directory: str) -> list[str]:
    """Return the jars of a library and its dependencies, cached in a directory.

    Args:
        organisation: Maven's group id, such as `org.apache.kafka`.
        module: such as `kafka_2.13`.
        version: such as `4.1.0`.
        directory: the cache.
    """
    return sorted(glob.glob(os.path.join(_fetched(organisation, module, version, directory, "jar"), "*.jar")))


def fetch_archive(organisation: str, module: str, version: str, directory: str) -> str:
    """Return the path of a program's archive, cached in a directory."""
    return os.path.join(_fetched(organisation, module, version, directory, "zip"), f"{module}-{version}.zip")


def _fetched(organisation: str, module: str, version: str, directory: str, kind: str) -> str:
    home = os.path.join(directory, f"{module}-{version}")
    if not os.path.isdir(home):
        os.makedirs(directory, exist_ok=True)
        print(
            f"millstream: fetching {module} {version} to {directory}, once; this takes a minute or so", file=sys.stderr
        )
        # Under a temporary name, so that a partial download is never used.
        partial = tempfile.mkdtemp(prefix=f".{module}-", dir=directory)
        _fetch(organisation, module, version, directory, partial, kind)
        try:
            os.rename(partial, home)
        except OSError:
            # Another process was first.
            shutil.rmtree(partial)
    return home


def _fetch(organisation: str, module: str, version: str, directory: str, into: str, kind: str) -> None:
    (ivy,) = glob.glob(os.path.join(os.path.dirname(pyspark.__file__), "jars", "ivy-*.jar"))
    command = [find_java().path, "-jar", ivy, "-dependency", organisation, module, version, "-confs", "default"]
    command += ["-cache", os.path.join(directory, ".ivy"), "-retrieve", f"{into}/[artifact]-[revision].[ext]"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode or not os.path.exists(os.path.join(into, f"{module}-{version}.{kind}")):
        output = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
        raise MillstreamError(f"{organisation}:{module}:{version} cannot be fetched:\n{output}")
