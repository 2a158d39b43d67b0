"""The files of deploy/ and the workflows pass their checkers, and commands can be parsed (make test-deploy)."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from bench.venvs import existing_venv

from millstream.cli.main import cli
from tests.support.go_tools import go_tool
from tests.support.paths import ROOT

DEPLOY = ROOT / "deploy"
OVERLAYS = ("session", "application", "ha")


def tool(name: str) -> Path:
    """Return a tool's path, or skip the test."""
    python = existing_venv("deploy")
    path = go_tool(name) if python is None else go_tool(name) or python.parent / name
    if path is None or not path.exists():
        pytest.skip(f"{name} is not installed: make test-deploy")
    return path


@pytest.fixture(scope="module", params=OVERLAYS)
def rendered(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The manifests of an overlay, as `kubectl apply -k` sends them."""
    command = [str(tool("kustomize")), "build", str(DEPLOY / "kubernetes" / request.param)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, done.stderr
    path = tmp_path_factory.mktemp("rendered") / f"{request.param}.yaml"
    path.write_text(done.stdout)
    return path


@pytest.fixture
def objects(rendered: Path) -> dict[tuple[str, str], dict[str, Any]]:
    documents = list(yaml.safe_load_all(rendered.read_text()))
    return {(document["kind"], document["metadata"]["name"]): document for document in documents}


@pytest.fixture
def deployment(objects: dict[tuple[str, str], dict[str, Any]]) -> dict[str, Any]:
    (only,) = [document for (kind, _), document in objects.items() if kind == "Deployment"]
    spec: dict[str, Any] = only["spec"]
    return spec


def command_of(deployment: dict[str, Any]) -> list[str]:
    """Return the command of the container; Kubernetes replaces $(NAME) by the variable's value."""
    (container,) = deployment["template"]["spec"]["containers"]
    arguments = "\n".join(container["args"])
    for variable in container["env"]:
        arguments = arguments.replace(f"$({variable['name']})", variable.get("value", variable["name"].lower()))
    assert "$(" not in arguments, arguments
    return arguments.splitlines()


def settings_of(deployment: dict[str, Any]) -> dict[str, str]:
    return dict(a.removeprefix("-D").split("=", 1) for a in command_of(deployment) if a.startswith("-D"))


def test_manifests_pass_kubernetes_validation(rendered: Path) -> None:
    done = subprocess.run([tool("kubernetes-validate"), "--strict", rendered], capture_output=True, text=True)
    assert done.returncode == 0 and "ERROR" not in done.stdout, done.stdout + done.stderr


def test_deployment_references_existing_objects(
    objects: dict[tuple[str, str], dict[str, Any]], deployment: dict[str, Any]
) -> None:
    pod, settings = deployment["template"]["spec"], settings_of(deployment)
    assert ("ServiceAccount", pod["serviceAccountName"]) in objects
    assert {("PersistentVolumeClaim", v["persistentVolumeClaim"]["claimName"]) for v in pod["volumes"]} <= set(objects)
    assert settings["spark.kubernetes.container.image"] == pod["containers"][0]["image"] == "millstream:latest"
    (driver_host,) = [v for v in pod["containers"][0]["env"] if v["name"] == "DRIVER_HOST"]
    if deployment["replicas"] == 1:
        # The name under which executors look for the driver, and its ports.
        service = objects["Service", driver_host["value"]]
        assert service["spec"]["selector"] == deployment["template"]["metadata"]["labels"]
        ports = {str(port["port"]) for port in service["spec"]["ports"]}
        assert ports == {settings["spark.driver.port"], settings["spark.driver.blockManager.port"]}
    else:
        # A name would be that of the leader and the standby.
        assert driver_host["valueFrom"] == {"fieldRef": {"fieldPath": "status.podIP"}}
        assert ("Service", "words-driver") not in objects
        assert settings["high-availability.type"] == "KUBERNETES"


def test_deployment_command_parses(deployment: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "words.py").touch()
    first, *arguments = [a.replace("/work/", f"{tmp_path}/") for a in command_of(deployment)]
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
    assert subprocess.run(["sh", "-n", str(DEPLOY / "entrypoint.sh")]).returncode == 0
    result = subprocess.run([str(DEPLOY / "entrypoint.sh"), "echo", "a b"], capture_output=True, text=True)
    assert result.stdout == "a b\n"


def test_dockerfile_passes_hadolint() -> None:
    # Versions are not pinned: those of Debian (DL3008) and of dependencies (DL3013) get the fixes of each build.
    ignored = ("--ignore", "DL3008", "--ignore", "DL3013")
    command = [str(tool("hadolint")), *ignored, str(DEPLOY / "Dockerfile")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_workflows_pass_actionlint_and_zizmor() -> None:
    done = subprocess.run([tool("actionlint"), "-no-color"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    command = [str(tool("zizmor")), "--offline", "--no-progress", "--min-severity", "medium", ".github"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
