"""The archive of Spark's classes: when it is used, created and replaced; a failure of it never prevents Spark's start.

Java is a small script here that handles archives like Java; tests/spark/test_programs.py has the real one.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from millstream.common.errors import MillstreamError
from millstream.spark.gateway import Gateway, JvmSettings
from millstream.spark.java import Java
from millstream.spark.jvm_class_archive import ClassArchive, find_archive

# Ends at once if it has an archive and REFUSES is set; prints its address unless NEVER is set; writes the requested
# archive at the end of its input.
SCRIPT = """#!/bin/sh
for a in "$@"; do case "$a" in
    -XX:SharedArchiveFile=*) [ -n "$REFUSES" ] && exit 1; base="${a#*=}";;
    -XX:ArchiveClassesAtExit=*) [ -n "$REFUSES" ] && exit 1; archive="${a#*=}";;
    -Xshare:dump) dump=1;;
esac; done
if [ -n "$dump" ]; then echo base > "$base"; exit; fi
[ -n "$NEVER" ] && exec sleep 60
printf '\\0\\0\\0\\001\\0\\0\\0\\001s' > "$_PYSPARK_DRIVER_CONN_INFO_PATH.new"
mv "$_PYSPARK_DRIVER_CONN_INFO_PATH.new" "$_PYSPARK_DRIVER_CONN_INFO_PATH"
cat > /dev/null
[ -n "$archive" ] && [ -z "$FAILS" ] && echo classes > "$archive"
exit 0
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "millstream" / "java"


@pytest.fixture
def java(tmp_path: Path) -> Java:
    return make_java(tmp_path / "jdk", with_archive=True)


@pytest.fixture
def jars(tmp_path: Path) -> Path:
    jars = tmp_path / "jars"
    jars.mkdir()
    (jars / "spark-core.jar").write_text("classes")
    return jars


def make_java(home: Path, with_archive: bool) -> Java:
    (home / "bin").mkdir(parents=True)
    (home / "lib" / "server").mkdir(parents=True)
    path = home / "bin" / "java"
    path.write_text(SCRIPT)
    path.chmod(0o755)
    if with_archive:
        (home / "lib" / "server" / "classes.jsa").write_text("base")
    return Java(str(path), 17, "PATH", 'openjdk version "17.0.1"')


def find(java: Java, jars: Path, own: list[str] | None = None) -> ClassArchive | None:
    return find_archive(java, str(jars), ["-Xmx1g"], own or [])


def create_archive(java: Java, jars: Path) -> ClassArchive:
    """Create an archive like a JVM that exits normally."""
    archive = find(java, jars)
    assert archive is not None and archive.is_being_written
    Path(archive.options[-1].partition("=")[2]).write_text("classes")
    archive.keep()
    return archive


def test_class_archive_is_created_once_and_reused(cache: Path, java: Java, jars: Path) -> None:
    archive = create_archive(java, jars)
    reused = find(java, jars)
    assert reused is not None and not reused.is_being_written
    assert reused.options[-1] == f"-XX:SharedArchiveFile={archive.path}"
    assert Path(reused.path).parent == cache
    assert not list(cache.glob("*.tmp"))


def test_class_archive_is_created_by_one_process(cache: Path, java: Java, jars: Path) -> None:
    first = find(java, jars)
    assert first is not None and first.is_being_written
    assert find(java, jars) is None
    first.drop()
    again = find(java, jars)
    assert again is not None and again.is_being_written
    again.drop()


def test_class_archive_is_separate_per_jars_and_java(cache: Path, java: Java, jars: Path) -> None:
    paths = {create_archive(java, jars).path}
    os.utime(jars / "spark-core.jar", (1, 1))
    paths.add(create_archive(java, jars).path)
    (jars / "other.jar").write_text("")
    paths.add(create_archive(java, jars).path)
    paths.add(create_archive(Java(java.path, 17, "PATH", 'openjdk version "17.0.2"'), jars).path)
    assert len(paths) == 4
    # The three used last are retained.
    assert len(list(cache.glob("*.jsa"))) == 3


def test_class_archive_is_skipped_without_cache_directory(
    tmp_path: Path, java: Java, jars: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert find(java, jars) is None


def test_class_archive_ignores_directory_writable_by_others(cache: Path, java: Java, jars: Path) -> None:
    create_archive(java, jars)
    cache.chmod(0o777)
    assert find(java, jars) is None


def test_class_archive_respects_user_options(cache: Path, java: Java, jars: Path) -> None:
    assert find(java, jars, ["-Xshare:off"]) is None
    assert find(java, jars, ["-XX:SharedArchiveFile=/mine"]) is None


def test_class_archive_failure_is_not_retried_by_every_program(cache: Path, java: Java, jars: Path) -> None:
    archive = find(java, jars)
    assert archive is not None
    # The JVM has ended, and no archive exists.
    archive.keep()
    assert find(java, jars) is None
    failed = next(cache.glob("*.failed"))
    long_ago = time.time() - 8 * 86_400
    os.utime(failed, (long_ago, long_ago))
    again = find(java, jars)
    assert again is not None and again.is_being_written
    again.drop()


def test_class_archive_adds_base_archive_when_java_has_none(cache: Path, tmp_path: Path, jars: Path) -> None:
    java = make_java(tmp_path / "jlinked", with_archive=False)
    create_archive(java, jars)
    archive = find(java, jars)
    assert archive is not None and archive.base is not None
    assert Path(archive.base).read_text() == "base\n"
    assert archive.options[-1] == f"-XX:SharedArchiveFile={archive.base}:{archive.path}"


# --- the JVM


def start(java: Java, **environment: str) -> Gateway:
    settings = JvmSettings(memory="1g", options=(), log_level="off", archive=True, quiet=True)
    return Gateway(java, settings, {**os.environ, **environment})


def test_jvm_writes_class_archive_on_exit(cache: Path, java: Java) -> None:
    jvm = start(java)
    assert jvm.connect() == {"PYSPARK_GATEWAY_PORT": "1", "PYSPARK_GATEWAY_SECRET": "s"}
    jvm.stop()
    assert [p.read_text() for p in cache.glob("*.jsa")] == ["classes\n"]


def test_unused_jvm_is_ended_at_once(cache: Path, java: Java) -> None:
    jvm = start(java, NEVER="1")
    jvm.stop()
    assert jvm.is_dead
    assert not list(cache.glob("*.jsa")) and not list(cache.glob("*.failed"))


def test_jvm_starts_without_class_archive_when_it_fails(cache: Path, java: Java) -> None:
    first = start(java)
    first.connect()
    first.stop()
    jvm = start(java, REFUSES="1")
    assert jvm.connect()["PYSPARK_GATEWAY_PORT"] == "1"
    jvm.stop()
    assert not list(cache.glob("*.jsa"))


def test_jvm_that_does_not_start_is_reported(cache: Path, java: Java) -> None:
    Path(java.path).write_text("#!/bin/sh\nexit 3\n")
    jvm = start(java)
    with pytest.raises(MillstreamError, match="ended with code 3 while starting"):
        jvm.connect()
    jvm.stop()


def test_class_archive_write_failure_is_recorded(cache: Path, java: Java) -> None:
    jvm = start(java, FAILS="1")
    jvm.connect()
    jvm.stop()
    assert not list(cache.glob("*.jsa")) and len(list(cache.glob("*.failed"))) == 1
