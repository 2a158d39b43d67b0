"""The workflows call targets that exist, with few permissions; a release has a changelog."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from millstream import __version__
from tests.release.notes import CHANGELOG, section
from tests.support.paths import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
# What a job may write, and why.
WRITES = {
    ("docs", "publish"): {"pages", "id-token"},
    # Signatures name the workflow, whose identity is the token.
    ("release", "attest"): {"id-token", "attestations"},
    ("release", "publish"): {"id-token"},
    ("release", "image"): {"id-token", "attestations", "packages", "artifact-metadata"},
    ("release", "page"): {"contents"},
}


def jobs() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield the workflow, name and content of each job; a job without permissions has the workflow's."""
    for path in WORKFLOWS:
        workflow = yaml.safe_load(path.read_text())
        for name, job in workflow["jobs"].items():
            yield path.stem, name, {"permissions": workflow["permissions"]} | job


def make_targets(job: dict[str, Any]) -> Iterator[str]:
    """Yield the targets of make that a job's steps call, with all values of its matrix."""
    matrix = job.get("strategy", {}).get("matrix", {})
    values = [*matrix.get("target", []), *(include["target"] for include in matrix.get("include", []))]
    for step in job.get("steps", []):
        for called in re.findall(r"^(?:make|\.ci/run) (.*)", step.get("run", ""), re.MULTILINE):
            for value in values if "${{ matrix.target }}" in called else [""]:
                yield from called.replace("${{ matrix.target }}", value).split()


def targets_of_makefile() -> set[str]:
    text = (ROOT / "Makefile").read_text()
    (folders,) = re.findall(r"^FOLDERS := (.*)", text, re.MULTILINE)
    return {*re.findall(r"^([a-z-]+):", text, re.MULTILINE), *folders.split()}


def project() -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return table


def test_workflows_call_targets_of_the_makefile() -> None:
    called = {(workflow, target) for workflow, _, job in jobs() for target in make_targets(job)}
    assert {("ci", "test-spark"), ("nightly", "chaos"), ("release", "dist"), ("docs", "docs")} <= called
    assert {target for _, target in called} <= targets_of_makefile()


def test_ci_runs_every_prerequisite_of_make_test() -> None:
    (called,) = re.findall(r"--jobs 2 (.*)", (ROOT / "Makefile").read_text())
    in_ci = {target for workflow, _, job in jobs() if workflow == "ci" for target in make_targets(job)}
    assert set(called.split()) <= in_ci


def test_ci_and_release_check_cover_the_supported_pythons() -> None:
    supported = [c.rpartition(" ")[2] for c in project()["classifiers"] if re.search(r":: 3\.\d+$", c)]
    assert project()["requires-python"] == f">={supported[0]},<3.{int(supported[-1].partition('.')[2]) + 1}"
    (ci,) = [job for workflow, name, job in jobs() if (workflow, name) == ("ci", "test")]
    assert ci["strategy"]["matrix"]["python"] == supported
    assert f"PYTHONS ?= {' '.join(supported)}\n" in (ROOT / "Makefile").read_text()


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflow_names_actions_by_commit(path: Any) -> None:
    uses = re.findall(r"uses: (.*)", path.read_text())
    named = r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+|\./\.github/workflows/\w+\.yml"
    assert [u for u in uses if not re.fullmatch(named, u)] == []


def test_jobs_write_only_what_they_must() -> None:
    writes = {
        (workflow, name): {scope for scope, access in job["permissions"].items() if access == "write"}
        for workflow, name, job in jobs()
    }
    assert {job: scopes for job, scopes in writes.items() if scopes} == WRITES


@pytest.mark.parametrize("path", sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.md")), ids=lambda path: path.name)
def test_issue_template_has_a_title_and_names_existing_pages(path: Any) -> None:
    _, header, text = path.read_text().split("---\n", 2)
    assert {"name", "about"} <= set(yaml.safe_load(header))
    assert [page for page in re.findall(r"docs/[\w/-]+\.md", text) if not (ROOT / page).exists()] == []


def test_section_ends_before_the_next_version() -> None:
    changelog = "# Changelog\n\n## Unreleased\n\n## 0.2.0 - 2030-01-02\n\n### SQL\n\n* b\n\n## 0.1.0\n\n* a\n"
    assert section(changelog, "0.2.0") == "### SQL\n\n* b"
    assert section(changelog, "0.1.0") == "* a"
    assert section(changelog, "0.1") is None


def test_changelog_has_a_section_of_the_version() -> None:
    expected = "Unreleased" if "dev" in __version__ else __version__
    assert section(CHANGELOG.read_text(), expected)
