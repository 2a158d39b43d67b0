"""`millstream sql`: parsing of input, views of results, and the prompt on a terminal."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from millstream.cli.prompt.loop import completions
from millstream.cli.prompt.views import ChangelogView, TableView
from millstream.gateway.completion import Vocabulary
from millstream.gateway.script_text import is_blank, is_command, split
from millstream.sql.columns.batch import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE, Batch
from millstream.sql.schema import Field, Fields
from millstream.sql.types import DataTypes
from tests.support.sql_terminal import PROMPT, Terminal, terminal_with

FIELDS = Fields((Field("k", DataTypes.STRING()), Field("n", DataTypes.BIGINT())))


@pytest.mark.parametrize(
    ("text", "statements", "rest"),
    [
        ("", [], ""),
        ("SELECT 1", [], "SELECT 1"),
        ("SELECT 1;", ["SELECT 1"], ""),
        ("SELECT ';', `a;b` -- no; end\n;", ["SELECT ';', `a;b` -- no; end"], ""),
        ("SELECT 'it''s;'; SELECT 2; SEL", ["SELECT 'it''s;'", "SELECT 2"], "SEL"),
        ("/* ; */ SELECT 1;;", ["/* ; */ SELECT 1"], ""),
        ("SELECT 'open;", [], "SELECT 'open;"),
        ("-- nothing;\n;", [], ""),
        (
            "EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT 1; INSERT INTO b SELECT 2; END; SHOW JOBS;",
            ["EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT 1; INSERT INTO b SELECT 2; END", "SHOW JOBS"],
            "",
        ),
        (
            "BEGIN STATEMENT SET; INSERT INTO a SELECT 1; END;",
            ["BEGIN STATEMENT SET", "INSERT INTO a SELECT 1", "END"],
            "",
        ),
    ],
)
def test_split_ends_statement_at_unquoted_semicolon(text: str, statements: list[str], rest: str) -> None:
    assert split(text) == (statements, rest)


def test_is_command_and_is_blank_need_no_semicolon() -> None:
    assert is_command(" quit ") and is_command("HELP;") and not is_command("SELECT 1")
    assert is_blank("  -- so\n /* it */ ") and not is_blank("-- a\nSELECT 1")


def test_completions_complete_last_word_after_other_lines() -> None:
    words = Vocabulary({"orders": ["price"]}, ["power"], "c.d")
    assert completions("SELECT *\nFROM orders", "WHERE pri", 9, words) == ["price"]
    assert completions("SELECT 1;", "SHOW CREATE T", 13, words) == ["TABLE"]
    assert completions("", "sel", 3, words) == ["SELECT"]


def batch(*rows: tuple[int, str, int]) -> Batch:
    kinds, keys, numbers = zip(*rows, strict=True)
    return Batch([pa.array(keys), pa.array(numbers, pa.int64())], np.array(kinds, np.int8))


def test_table_view_shows_current_rows() -> None:
    view = TableView(FIELDS, 30, "UTC", 3)
    view.add(batch((INSERT, "a", 1), (INSERT, "b", 1), (INSERT, "b", 1)))
    view.add(batch((UPDATE_BEFORE, "a", 1), (UPDATE_AFTER, "a", 2), (DELETE, "b", 1)))
    assert view.rows() == [("b", "1"), ("a", "2")] and len(view) == 2
    lines, page = view.page(None, 100, 20, "Finished")
    assert page == 1 and lines[0].endswith("Page 1 of 1  Rows 2")
    assert [line.split() for line in lines[4:6]] == [["|", "b", "|", "1", "|"], ["|", "a", "|", "2", "|"]]
    # The oldest rows are dropped over the limit; a retraction of a dropped row changes nothing.
    view.add(batch((INSERT, "c", 1), (INSERT, "d", 1)))
    assert view.rows() == [("a", "2"), ("c", "1"), ("d", "1")]
    view.add(batch((DELETE, "b", 1)))
    assert len(view) == 3


def test_changelog_view_pages_fit_screen() -> None:
    view = ChangelogView(FIELDS, 30, "UTC", 1000)
    view.add(batch(*((INSERT, "k", i) for i in range(10))))
    last, number = view.page(None, 30, 10, "")
    assert number == 3 and all(len(line) <= 30 for line in last) and len(last) == 2 + _around()
    first, number = view.page(1, 80, 10, "")
    assert number == 1 and len(first) == 10 and first[4].startswith("| +I |")
    assert view.page(99, 80, 10, "")[1] == 3 and view.page(-1, 80, 10, "")[1] == 1


def _around() -> int:
    view = ChangelogView(FIELDS, 30, "UTC", 1000)
    return len(view.page(None, 80, 10, "")[0])


# --- the command


def millstream(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "millstream", "sql", "--local", "-p", "1", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path)


SEQUENCE = (
    "CREATE TABLE t (a INT) WITH ('connector'='datagen','number-of-rows'='3','fields.a.kind'='sequence',"
    "'fields.a.start'='1','fields.a.end'='3');\n"
)


def test_sql_file_stops_at_first_failed_statement(tmp_path: Path) -> None:
    (tmp_path / "init.sql").write_text(SEQUENCE)
    (tmp_path / "file.sql").write_text(
        "SET 'execution.runtime-mode' = 'batch';\nSELECT a, a * 2 AS d FROM t;\nSELECT nope\nFROM t;\nSHOW CATALOGS;\n"
    )
    done = millstream(tmp_path, "-i", "init.sql", "-f", "file.sql")
    assert done.returncode == 1, done.stderr
    assert "| a | d |\n+---+---+\n| 1 | 2 |\n| 2 | 4 |\n| 3 | 6 |\n+---+---+\n3 rows in set (" in done.stdout
    assert (
        "[ERROR] Could not execute SQL statement. Reason:\nValidationException: SQL validation failed. At line 1, "
        "column 8: Column 'nope' not found in any table\n    SELECT nope\n           ^\n"
    ) in done.stdout
    assert "catalog name" not in done.stdout


def test_sql_file_waits_for_its_jobs(tmp_path: Path) -> None:
    (tmp_path / "file.sql").write_text(
        f"{SEQUENCE}CREATE TABLE s (a INT) WITH ('connector'='filesystem','path'='{tmp_path}/out','format'='csv');\n"
        "INSERT INTO s SELECT a FROM t;\n"
    )
    done = millstream(tmp_path, "-f", "file.sql")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search("Job ID: [0-9a-f]{32}", done.stdout)
    written = "".join(p.read_text() for p in (tmp_path / "out").rglob("part-*"))
    assert sorted(written.split()) == ["1", "2", "3"]
    insert = "INSERT INTO b SELECT 1 / CAST(x AS INT) FROM (VALUES ('0')) AS v(x)"
    failing = millstream(tmp_path, "-e", f"CREATE TABLE b (a INT) WITH ('connector'='blackhole'); {insert}")
    assert failing.returncode == 1, failing.stdout


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    with terminal_with(tmp_path, "--local", "-p", "1") as started:
        yield started


@pytest.mark.timeout(240)
def test_sql_prompt_runs_typed_statements(terminal: Terminal, tmp_path: Path) -> None:
    terminal.sees(PROMPT)
    # A statement of several lines with an error; the prompt continues.
    terminal.types("SELECT nope\n")
    terminal.sees("\n> ")
    terminal.types("FROM (VALUES (1)) AS v(a);\n")
    terminal.sees(r"At line 1, column 8: Column 'nope' not found in any table\r\n    SELECT nope\r\n           \^")
    terminal.sees(PROMPT)
    # Ctrl-C discards incomplete input.
    terminal.types("SELECT halfway\n")
    terminal.sees("\n> ")
    terminal.sees(PROMPT, pressing="\x03")
    # Tab completes the names of tables and columns.
    terminal.types("CREATE TABLE endless (number_of BIGINT) WITH ('connector'='datagen','rows-per-second'='1000');\n")
    terminal.sees("Execute statement succeeded.*" + PROMPT)
    terminal.types("DESCRIBE endl\t;\n")
    terminal.sees(r"number_of \| BIGINT.*" + PROMPT)
    # Rows appear as they arrive, until Ctrl-C.
    terminal.types("SET 'sql-client.execution.result-mode' = 'tableau';\n")
    terminal.sees("succeeded.*" + PROMPT)
    terminal.types("SELECT number_of FROM endless;\n")
    terminal.sees(r"\| \+I \|")
    terminal.types("\x03")
    terminal.sees("Query terminated, received a total of [0-9]+ rows?.*" + PROMPT)
    terminal.types("SHOW JOBS;\n")
    terminal.sees(r"collect \| +(CANCELED|CANCELLING).*" + PROMPT)
    terminal.types("QUIT;\n")
    assert terminal.ends() == 0
    assert "DESCRIBE endless;" in (tmp_path / "history").read_text()


@pytest.mark.timeout(240)
def test_sql_prompt_updates_table_in_place_until_q(terminal: Terminal) -> None:
    terminal.sees(PROMPT)
    terminal.types("SELECT a, COUNT(*) AS c FROM (VALUES (1), (1), (2)) AS v(a) GROUP BY a;\n")
    # The count of 1 changed from 1 to 2: the row is redrawn.
    terminal.sees(r"SQL Query Result \(Table\)  Finished  Page 1 of 1  Rows 2")
    terminal.sees(r"\| +1 \| +2 \|\x1b\[K\r\n\| +2 \| +1 \|")
    terminal.types("q")
    terminal.sees(r"\x1b\[\?1049l.*" + PROMPT)
    terminal.types("SET 'sql-client.execution.result-mode' = 'changelog';\n")
    terminal.sees("succeeded.*" + PROMPT)
    terminal.types("SELECT a, COUNT(*) AS c FROM (VALUES (1), (1), (2)) AS v(a) GROUP BY a;\n")
    terminal.sees(r"\(Changelog\)  Finished  Page 1 of 1  Rows 4")
    terminal.sees(r"\| -U \| +1 \| +1 \|")
    terminal.types("q")
    terminal.sees(PROMPT)
    terminal.types("SET 'sql-client.execution.result-mode' = 'wrong';\nSELECT 1;\n")
    terminal.sees("it must be one of TABLE, CHANGELOG and TABLEAU.*" + PROMPT)
    terminal.types("EXIT\n")
    assert terminal.ends() == 0
