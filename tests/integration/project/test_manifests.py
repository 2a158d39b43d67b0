"""The files of deploy/: Kubernetes accepts them, and their commands can be parsed."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from bench.venvs import existing_venv

from millstream.cli.main import cli
from tests.support.paths import ROOT

MANIFESTS = sorted((ROOT / "deploy" / "kubernetes").glob("*.yaml"))


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text()))


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_manifests_pass_kubernetes_validation(path: Path) -> None:
    python = existing_venv("kubernetes-validate")
    if python is None:
        pytest.skip("kubernetes-validate is not installed: make test-cluster")
    command = [str(python.parent / "kubernetes-validate"), "--strict", str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and "ERROR" not in done.stdout, done.stdout + done.stderr


def test_manifests_reference_existing_objects() -> None:
    existing = {(d["kind"], d["metadata"]["name"]) for path in MANIFESTS for d in documents(path)}
    for deployment in (d for path in MANIFESTS for d in documents(path) if d["kind"] == "Deployment"):
        pod = deployment["spec"]["template"]["spec"]
        assert ("ServiceAccount", pod["serviceAccountName"]) in existing
        assert {("PersistentVolumeClaim", v["persistentVolumeClaim"]["claimName"]) for v in pod["volumes"]} <= existing
        settings = dict(a.removeprefix("-D").split("=", 1) for a in pod["containers"][0]["args"] if a.startswith("-D"))
        # The name under which executors look for the driver, and its ports.
        service = next(
            d
            for path in MANIFESTS
            for d in documents(path)
            if (d["kind"], d["metadata"]["name"]) == ("Service", settings["spark.driver.host"])
        )
        assert service["spec"]["selector"] == deployment["spec"]["template"]["metadata"]["labels"]
        ports = {str(port["port"]) for port in service["spec"]["ports"]}
        assert ports == {settings["spark.driver.port"], settings["spark.driver.blockManager.port"]}


def test_manifests_commands_parse(tmp_path: Path) -> None:
    (tmp_path / "words.py").touch()
    for deployment in (d for path in MANIFESTS for d in documents(path) if d["kind"] == "Deployment"):
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        first, *arguments = [a.replace("/work/", f"{tmp_path}/") for a in container["args"]]
        assert first == "millstream"
        command, context = cli, click.Context(cli)
        # Parse the options of the last command without running it.
        while isinstance(command, click.Group):
            name, subcommand, arguments = command.resolve_command(context, arguments)
            assert subcommand is not None
            command = subcommand  # type: ignore[assignment]
        parsed = command.make_context(name, arguments, resilient_parsing=False)
        assert parsed.params["master"] == "k8s://https://kubernetes.default.svc"


def test_entrypoint_is_valid_shell_script() -> None:
    assert subprocess.run(["sh", "-n", str(ROOT / "deploy" / "entrypoint.sh")]).returncode == 0
    result = subprocess.run([str(ROOT / "deploy" / "entrypoint.sh"), "echo", "a b"], capture_output=True, text=True)
    assert result.stdout == "a b\n"
