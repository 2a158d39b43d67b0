"""deploy/compose/compose.yaml: it runs the playground's programs with the playground's settings."""

from __future__ import annotations

import runpy
import tomllib
from typing import Any

import yaml

from millstream.cli.settings import as_settings
from millstream.common.known_keys import check_keys
from tests.support.paths import ROOT

COMPOSE = ROOT / "deploy" / "compose" / "compose.yaml"
PLAYGROUND = ROOT / "examples" / "playground"


def services() -> dict[str, dict[str, Any]]:
    loaded: dict[str, dict[str, Any]] = yaml.safe_load(COMPOSE.read_text())["services"]
    return loaded


def test_compose_runs_commands_of_playground() -> None:
    names = runpy.run_path(str(PLAYGROUND / "playground.py"))
    addresses = "/playground", "kafka:9092", "postgres:5432"
    page = {"rest.port": "8081", "rest.bind-address": "0.0.0.0", "millstream.rest.token": "playground"}
    options = [word for key, value in page.items() for word in ("-D", f"{key}={value}")]
    found = services()
    assert found["job"]["command"] == names["job_command"](*addresses, "/work/checkpoints", *options)
    assert found["generator"]["command"] == ["python", *names["generator_command"](*addresses)]
    assert found["setup"]["command"] == ["python", *names["generator_command"](*addresses, "--setup")]
    assert found["job"]["ports"] == ["127.0.0.1:8081:8081"]
    check_keys(as_settings((), config_file=PLAYGROUND / "config.yaml").keys())


def test_compose_services_have_their_files_and_dependencies() -> None:
    found = services()
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    build = found["setup"]["build"]
    assert (COMPOSE.parent / build["context"]).resolve() == ROOT
    assert (ROOT / build["dockerfile"]).exists()
    assert {"kafka", "postgresql"} <= set(build["args"]["EXTRAS"].split(",")) <= set(extras)
    for name in ("setup", "generator", "job"):
        source, target, mode = found[name]["volumes"][0].split(":")
        assert ((COMPOSE.parent / source).resolve(), target, mode) == (PLAYGROUND, "/playground", "ro")
        assert found[name]["environment"]["PGPASSWORD"] == found["postgres"]["environment"]["POSTGRES_PASSWORD"]
        for needed, condition in found[name]["depends_on"].items():
            if condition["condition"] == "service_healthy":
                assert "healthcheck" in found[needed]
            else:
                assert (needed, condition["condition"]) == ("setup", "service_completed_successfully")
    # Change data capture needs it.
    assert "wal_level=logical" in found["postgres"]["command"]
