"""The documentation: its programs and commands print the documented output. test_site.py checks its links."""

from __future__ import annotations

import ast
import builtins
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.doc_pages import files_of, has_commands, run_page
from tests.support.paths import ROOT

GUIDES = [page for part in ("get-started", "guides") for page in sorted((ROOT / "docs" / part).rglob("*.md"))]


# The index has the interface of sources instead; test_source_contract.py runs its example.
CONNECTORS = [page for page in sorted((ROOT / "docs/reference/connectors").glob("*.md")) if page.stem != "index"]


@pytest.mark.parametrize("page", CONNECTORS, ids=lambda page: page.stem)
def test_connector_pages_have_importable_example(page: Path) -> None:
    """The example imports every name it uses, and every name exists."""
    program = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)[0]
    tree = ast.parse(program)
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom | ast.Import)]
    names: dict[str, object] = {}
    exec(compile(ast.Module(imports, []), str(page), "exec"), names)  # type: ignore[arg-type]
    defined = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    defined |= {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}
    defined |= {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)} | names.keys() | set(dir(builtins))
    defined |= {a.asname or a.name for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) for a in n.names}
    assert {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} <= defined


@pytest.mark.parametrize(
    "page", [page for page in GUIDES if has_commands(page)], ids=lambda page: str(page.relative_to(ROOT / "docs"))
)
def test_page_commands_print_documented_output(page: Path, tmp_path: Path) -> None:
    run_page(page, tmp_path)


@pytest.mark.parametrize(
    ("page", "name", "source", "bounded"),
    [
        ("slow-job.md", "prices.py", "(order)", "(order, 1000)"),
        ("slow-job.md", "faster.py", "(order)", "(order, 1000)"),
        ("standalone.md", "words.py", ", 300, 100)", ", 300)"),
    ],
)
def test_guide_programs_run_if_bounded(page: str, name: str, source: str, bounded: str, tmp_path: Path) -> None:
    text = files_of(ROOT / "docs" / "guides" / page)[name]
    assert source in text
    (tmp_path / name).write_text(text.replace(source, bounded))
    command = [sys.executable, "-m", "millstream.cli.main", "run", "--local", name]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_sql_page_programs_run_in_order(tmp_path: Path) -> None:
    """The programs run one after the other, since each builds on the previous ones."""
    blocks = re.findall(
        r"```(python|sql)\n(.*?)```", (ROOT / "docs" / "reference" / "sql" / "index.md").read_text(), re.DOTALL
    )
    assert len(blocks) == 7
    program = "".join(
        text
        if language == "python"
        else "".join(f"t_env.execute_sql({s!r})\n" for s in re.findall(r"(.*?);\n", text, re.DOTALL))
        for language, text in blocks
    )
    city = tmp_path / "orders" / "city=Berlin"
    city.mkdir(parents=True)
    rows = [
        '{"id": 1, "price": 20.5, "at_time": "2024-01-01 00:00:01"}',
        '{"id": 2, "price": 5, "at_time": "2024-01-01 00:11:00"}',
    ]
    (city / "rows.json").write_text("\n".join(rows))
    (tmp_path / "program.py").write_text(program.replace("/data/orders", str(city.parent)))
    command = [sys.executable, "-m", "millstream.cli.main", "run", "-D", "millstream.engine=local", "program.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    reported = ["+I[Germany, 2024-01-01T00:00, 20.50]", "+I[1970-01-01 00:00:00,2]", "| +I |                    3 |"]
    assert [t for t in reported if t not in done.stdout] == []


def test_files_page_reads_csv_as_documented(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "reference" / "connectors" / "files.md").read_text()
    program = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[1]
    (statement,) = re.findall(r"```sql\n(.*?);\n```", page, re.DOTALL)
    (message,) = re.findall(r"```text\n(.*?)```", page, re.DOTALL)
    for name, content in (
        ("orders/a.csv", "city,price,zip,at\nBerlin,12,01067,2024-01-01 00:00:01\n"),
        ("short/b.csv", "city,price\nBonn,1\nKöln,2.5\n"),
        ("later/a.csv", "city,price\nBonn,1\n"),
        ("later/b.csv", "city,price\nKöln,12.5\n"),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    program += f"""
t_env.execute_sql({statement.replace("/data/orders", f"{tmp_path}/short")!r})
t_env.execute_sql("SELECT SUM(price) FROM orders").print()
t_env.read_csv("later", infer_rows=1).execute().print()
"""
    (tmp_path / "program.py").write_text(program)
    command = [sys.executable, "-m", "millstream.cli.main", "run", "-D", "millstream.engine=local", "program.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert "  `zip` STRING,\n  `at` TIMESTAMP(3)" in done.stdout, done.stderr
    assert "| +I |                         Berlin |                   12 |" in done.stdout
    assert "|                            3.5 |" in done.stdout
    assert " ".join(message.split()) in done.stderr.replace(str(tmp_path / "later"), "/data/orders")
