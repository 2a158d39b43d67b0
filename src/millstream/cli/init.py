"""`millstream init`: creates a project from a template."""

from __future__ import annotations

import keyword
import os
import re
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import click

from millstream import __version__
from millstream.cli.output import table

_TEMPLATES = Path(__file__).with_name("templates")
# Python files of templates must not be modules of this package, and a .gitignore must not apply to this repository.
_SUFFIX, _DOT = ".template", "dot-"
# The files of a template that become part of a common file: its place in the text.
_PARTS = {"README.part": "ABOUT_THE_PROGRAM\n", "config.part": "SETTINGS_OF_THE_PROGRAM\n"}
# The name in templates: of the module, of the project.
_MODULE, _PROJECT, _REQUIREMENT = "my_project", "my-project", "MILLSTREAM_REQUIREMENT"


@dataclass(frozen=True)
class Template:
    """A kind of project.

    Attributes:
        about: what its program does.
        extra: the extra of millstream that it needs.
        run: the options and arguments of its first run.
    """

    about: str
    extra: str = ""
    run: str = "--local --config config.yaml"


TEMPLATES = {
    "words": Template("counts the words of text files: sources, functions, keyed state"),
    "kafka": Template("totals per city and minute from topic to topic, exactly once", "kafka"),
    "cdc": Template("joins two PostgreSQL tables and follows their changes into a third", "postgresql"),
    "sql": Template("SQL statements in files, with a function in Python"),
    "fraud": Template("finds event patterns in payments (CEP)"),
    "inference": Template("trains a linear model with numpy and applies it to a stream in batches"),
}


@click.command()
@click.argument("name", required=False)
@click.option("--template", type=click.Choice(list(TEMPLATES)), default="words", show_default=True, help="Its kind.")
@click.option("--list", "is_list", is_flag=True, help="List the templates.")
def init(name: str | None, template: str, is_list: bool) -> None:
    """Create a project in the new folder NAME: a program, its tests and settings."""
    if is_list:
        click.echo(table(["TEMPLATE", "PROGRAM"], [[key, value.about] for key, value in TEMPLATES.items()]))
        return
    if name is None:
        raise click.UsageError("Missing argument 'NAME'.")
    folder = Path(name)
    module = module_name(folder.absolute().name)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise click.UsageError(f"{name} exists and is not an empty folder: choose another name, or remove it.")
    for path, text in rendered(template, module).items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    click.echo(
        f"Created {name} from template {template}. Next, see {os.path.join(name, 'README.md')}, or run:\n\n"
        f"    cd {name}\n"
        f"    millstream run {TEMPLATES[template].run} {module}.py\n"
        '    python -m pip install -e ".[test]" && python -m pytest'
    )


def module_name(name: str) -> str:
    """Return the name of a project's module.

    Example:
        >>> module_name("Late-Orders"), module_name("v2.orders")
        ('late_orders', 'v2_orders')
    """
    if not re.fullmatch(r"[A-Za-z]([A-Za-z0-9._-]*[A-Za-z0-9])?", name):
        raise click.UsageError(
            f"{name!r} is not a name for a project: use letters, digits, hyphens, dots and underscores, and begin with "
            "a letter."
        )
    module = re.sub(r"[.-]", "_", name).lower()
    if keyword.iskeyword(module) or module in ("tests", "data") or _is_installed(module):
        raise click.UsageError(f"{module!r} is a name of Python or of an installed package: choose another name.")
    return module


def _is_installed(module: str) -> bool:
    if module in sys.stdlib_module_names:
        return True
    spec = find_spec(module)
    # A folder is importable as well, as a namespace; it has no origin.
    return spec is not None and spec.origin is not None


def rendered(template: str, module: str) -> dict[str, str]:
    """Return the files of a new project by path.

    Args:
        template: a key of TEMPLATES.
        module: the name of its module.
    """
    own = _texts(_TEMPLATES / template)
    parts = {place: own.pop(name, "") for name, place in _PARTS.items()}
    extra = TEMPLATES[template].extra
    replaced = {
        **parts,
        _REQUIREMENT: f"millstream[{extra}]>={__version__}" if extra else f"millstream>={__version__}",
        _PROJECT: module.replace("_", "-"),
        _MODULE: module,
    }
    files = {}
    for path, text in {**_texts(_TEMPLATES / "common"), **own}.items():
        for old, new in replaced.items():
            text = text.replace(old, new)
        files[path.replace(_MODULE, module)] = text
    return files


def _texts(folder: Path) -> dict[str, str]:
    """Return the texts of a folder by the path that they have in a project."""
    return {
        str(path.relative_to(folder)).removesuffix(_SUFFIX).replace(_DOT, "."): path.read_text()
        for path in sorted(folder.rglob(f"*{_SUFFIX}"))
    }
