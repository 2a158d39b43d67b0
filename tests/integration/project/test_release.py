"""The files of a release are the same bytes on each machine, and contain what they should."""

from __future__ import annotations

import os
import subprocess
import tarfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.venvs import existing_venv

from tests.release.dist import build, checksums, described
from tests.support.paths import ROOT


@pytest.fixture(scope="module")
def tools() -> Path:
    python = existing_venv("release")
    if python is None:
        pytest.skip("the tools of a release are not installed: make dist")
    return python


@pytest.fixture(scope="module")
def built(tools: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return build(tools, "HEAD", tmp_path_factory.mktemp("dist"))


@pytest.fixture
def other_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Changes what differs between machines: the time zone, the umask, the temporary directory, the order of sets."""
    for name, value in {"TZ": "Asia/Kolkata", "PYTHONHASHSEED": "7", "TMPDIR": str(tmp_path), "LC_ALL": "C"}.items():
        monkeypatch.setenv(name, value)
    umask = os.umask(0o077)
    yield
    os.umask(umask)


@pytest.mark.usefixtures("other_machine")
def test_builds_of_a_commit_are_identical(tools: Path, built: tuple[Path, Path], tmp_path: Path) -> None:
    again = build(tools, "HEAD", tmp_path / "dist")
    assert [file.name for file in again] == [file.name for file in built]
    assert [file.read_bytes() for file in again] == [file.read_bytes() for file in built]


def test_files_have_the_time_of_the_commit(built: tuple[Path, Path]) -> None:
    command = ["git", "-C", str(ROOT), "show", "--no-patch", "--format=%cd", "--date=format-local:%Y%m%d%H%M", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | {"TZ": "UTC"})
    sdist, wheel = built
    with zipfile.ZipFile(wheel) as contents:
        times = {"{:04}{:02}{:02}{:02}{:02}".format(*file.date_time) for file in contents.infolist()}
    with tarfile.open(sdist) as archive:
        times |= {time.strftime("%Y%m%d%H%M", time.gmtime(member.mtime)) for member in archive}
    assert times == {done.stdout.strip()}


def test_sdist_contains_what_the_wheel_is_built_from_and_nothing_else(built: tuple[Path, Path]) -> None:
    sdist, wheel = built
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    with zipfile.ZipFile(wheel) as contents:
        packaged = {f"src/{name}" for name in contents.namelist() if name.startswith("millstream/")}
    others = {"pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE", "PKG-INFO", ".gitignore"}
    assert names == packaged | others


def test_checksums_are_read_by_sha256sum(built: tuple[Path, Path], tmp_path: Path) -> None:
    for file in built:
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "SHA256SUMS").write_text(checksums(list(built)))
    check = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
    assert subprocess.run(check, cwd=tmp_path, capture_output=True).returncode == 0
    (tmp_path / built[1].name).write_bytes(b"another file")
    assert subprocess.run(check, cwd=tmp_path, capture_output=True).returncode == 1


def test_sbom_describes_the_wheel_and_its_dependencies(tmp_path: Path) -> None:
    wheel = tmp_path / "millstream-1.0-py3-none-any.whl"
    wheel.write_bytes(b"wheel")
    own = {"name": "millstream", "version": "1.0", "externalReferences": [{"url": f"file://{wheel}"}]}
    sbom = described({"metadata": {}, "components": [{"name": "click"}, own]}, wheel)
    assert sbom["components"] == [{"name": "click"}]
    subject = sbom["metadata"]["component"]
    assert subject["purl"] == "pkg:pypi/millstream@1.0"
    (checksum,) = checksums([wheel]).splitlines()
    assert checksum == f"{subject['hashes'][0]['content']}  {wheel.name}"
    assert "file://" not in str(sbom)
