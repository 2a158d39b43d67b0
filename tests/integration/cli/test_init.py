"""`millstream init`: the projects run, and so do their tests."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from click.testing import CliRunner

from millstream.cli.init import TEMPLATES, rendered
from millstream.cli.main import cli
from tests.unit.project.test_words import replaced_words

MILLSTREAM = [sys.executable, "-m", "millstream"]
# A line that each program prints, and the number of its lines; programs that need servers run in tests/servers.
LINES = {
    "words": ("('to', 4)", 39),
    "sql": ("+I[France, 2026-05-01T08:20, 1, 5.00]", 5),
    "fraud": ("account 37: 900.00 was paid 39 s after 0.50", 11),
    "inference": ("delivery 99: 36.2 minutes", 100),
}
ARGUMENTS = {"inference": ["100"]}


def output(*command: str, folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def create(folder: Path, template: str) -> Path:
    project = folder / f"{template}-project"
    done = CliRunner().invoke(cli, ["init", str(project), "--template", template])
    assert done.exit_code == 0, done.output
    return project


def checked(project: Path) -> str:
    """Run the checks and tests of a project."""
    # The project's own settings apply, so its imports are sorted as in a user's checkout.
    for check in (["check"], ["format", "--check"]):
        output(sys.executable, "-m", "ruff", *check, "--no-cache", ".", folder=project)
    return output(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:repeat", folder=project)


def printed(project: Path) -> list[str]:
    """Run the program of a project as its README says."""
    module = project.name.replace("-", "_")
    arguments = ARGUMENTS.get(project.name.removesuffix("-project"), [])
    options = ["--local", "--config", "config.yaml", "-p", "1"]
    return output(*MILLSTREAM, "run", *options, f"{module}.py", *arguments, folder=project).splitlines()


Runs = dict[str, tuple[Path, Future[str], Future[list[str]] | None]]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Runs]:
    """Create the selected projects and start their tests and programs, two at a time."""
    folder = tmp_path_factory.mktemp("projects")
    names = {i.callspec.params.get("template") for i in request.session.items if hasattr(i, "callspec")}
    with ThreadPoolExecutor(2) as pool:
        projects = {name: create(folder, name) for name in TEMPLATES if name in names}
        yield {
            name: (project, pool.submit(checked, project), pool.submit(printed, project) if name in LINES else None)
            for name, project in projects.items()
        }


@pytest.mark.parametrize("template", TEMPLATES)
def test_project_passes_its_own_checks_and_tests(template: str, runs: Runs) -> None:
    assert " passed" in runs[template][1].result()


@pytest.mark.parametrize("template", LINES)
def test_project_program_runs_on_bounded_input(template: str, runs: Runs) -> None:
    program = runs[template][2]
    assert program is not None
    line, count = LINES[template]
    assert (line in program.result(), len(program.result())) == (True, count)
    # Of the settings file, whose paths begin at its folder.
    assert (runs[template][0] / "checkpoints").is_dir()


def test_inference_model_is_the_one_that_training_writes(tmp_path: Path) -> None:
    project = create(tmp_path, "inference")
    model = (project / "model.json").read_text()
    (project / "model.json").unlink()
    assert output(sys.executable, "train.py", folder=project).startswith("model.json: 2000 deliveries")
    weights = [[round(float(word), 6) for word in text[13:-2].split(",")] for text in (model, _text(project))]
    assert weights[0] == weights[1]


def _text(project: Path) -> str:
    return (project / "model.json").read_text()


@pytest.mark.parametrize("template", TEMPLATES)
def test_rendered_project_has_no_placeholder_and_uses_the_glossary(template: str) -> None:
    files = rendered(template, "late_orders")
    assert {"README.md", "Dockerfile", ".gitignore", ".github/workflows/ci.yml", "late_orders.py"} <= files.keys()
    for name, text in files.items():
        assert not {w for w in ("my_project", "my-project", "MILLSTREAM_", "_PROGRAM") if w in text}, name
        assert replaced_words(text) == [], name
        assert max(map(len, text.splitlines())) <= 120, name


def test_init_prints_next_commands(tmp_path: Path) -> None:
    text = output(*MILLSTREAM, "init", "Late-Orders", folder=tmp_path)
    assert text.splitlines()[-3:] == [
        "    cd Late-Orders",
        "    millstream run --local --config config.yaml late_orders.py",
        '    python -m pip install -e ".[test]" && python -m pytest',
    ]
    assert 'name = "late-orders"' in (tmp_path / "Late-Orders" / "pyproject.toml").read_text()


def test_init_lists_templates() -> None:
    lines = CliRunner().invoke(cli, ["init", "--list"]).output.splitlines()
    assert [line.split()[0] for line in lines[1:]] == list(TEMPLATES)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("1st", "'1st' is not a name for a project: use letters"),
        ("my orders", "'my orders' is not a name for a project: use letters"),
        ("class", "'class' is a name of Python or of an installed package: choose another name."),
        ("queue", "'queue' is a name of Python or of an installed package"),
        ("Millstream", "'millstream' is a name of Python or of an installed package"),
        ("tests", "'tests' is a name of Python or of an installed package"),
    ],
)
def test_init_rejects_name_that_python_cannot_import(tmp_path: Path, name: str, message: str) -> None:
    done = CliRunner().invoke(cli, ["init", str(tmp_path / name)])
    assert done.exit_code == 2
    assert message in done.output
    assert not (tmp_path / name).exists()


def test_init_refuses_folder_with_files(tmp_path: Path) -> None:
    (tmp_path / "orders").mkdir()
    assert CliRunner().invoke(cli, ["init", str(tmp_path / "orders")]).exit_code == 0
    (tmp_path / "orders" / "orders.py").write_text("changed")
    done = CliRunner().invoke(cli, ["init", str(tmp_path / "orders")])
    assert done.exit_code == 2
    assert "exists and is not an empty folder: choose another name, or remove it." in done.output
    assert (tmp_path / "orders" / "orders.py").read_text() == "changed"
