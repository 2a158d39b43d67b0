"""Words that the glossary replaces do not return; Flink's own texts, recorded for comparison, are not checked."""

from __future__ import annotations

import re

from tests.support.paths import ROOT

FOLDERS = ("src", "docs", "tests", "bench", "examples")
SUFFIXES = {".py", ".md", ".js", ".html", ".java"}
RECORDED = ("tests/sql/flink", "tests/pyflink/programs", "tests/pyflink/examples", "tests/pyflink/table_examples")
REPLACED = {
    r"\b_?(re)?told\b": "emitted, fired or reported",
    r"\bdeal(s|ing|t)? out\b|\bdealt\b|\bdealing\b": "assign",
    r"\bso many\b": "n, or a maximum",
    r"\bslots? that stays?\b|\bslots_stay\b": "resident slot",
    r"\b(go(es|ing|ne)?|went) on from\b": "restore",
    r"\bta(ke|kes|ken|king) back\b": "retract",
    r"\bwhat (stands|is said|was changed)\b": "the thing itself",
    r"\brows that only come\b|\bonly comes?\b": "append-only",
    r"\bby vectors\b": "vectorized",
    r"\b(new|old) hal(f|ves)\b": "UPDATE_AFTER or UPDATE_BEFORE",
    r"\bhearsay\b|\bHangUps\b|\bKeptFailure\b|\bUnfinished\b|\bis_there\b|\bnobody_listens\b": "see the glossary",
    r"\bwho(m)?ever\b": "the subject",
}


def replaced_words(text: str) -> list[str]:
    """Return each line with a replaced word, and what to write instead."""
    return [
        f"{number}: {line.strip()[:80]}: write {instead}"
        for number, line in enumerate(text.splitlines(), 1)
        for word, instead in REPLACED.items()
        if re.search(word, line)
    ]


def test_project_uses_the_words_of_the_glossary() -> None:
    lines = [
        f"{path.relative_to(ROOT)}:{line}"
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*")
        if path.suffix in SUFFIXES and path.name != "test_words.py"
        if not str(path.relative_to(ROOT)).startswith(RECORDED)
        for line in replaced_words(path.read_text())
    ]
    assert not lines, "\n".join(lines)


def test_replaced_words_names_the_line_and_the_word() -> None:
    assert replaced_words("one\nA window that was told early.") == [
        "2: A window that was told early.: write emitted, fired or reported"
    ]
