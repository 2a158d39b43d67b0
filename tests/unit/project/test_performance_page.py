"""docs/performance.md, its chart and the figures of the README are those of stored benchmark results."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from bench.performance import PAGES_WITH_FIGURES, filled, generated
from bench.results import stored

from tests.support.paths import ROOT

# A number with a unit of speed, time or size, in words or as a multiple.
MEASURED = re.compile(r"\b\d[\d,.]*\s*(?:x|times|%|ms|s|seconds|minutes|million|MB|MiB|GB|packages|records|rows)\b")


@pytest.mark.parametrize("path", generated(), ids=lambda path: str(path.relative_to(ROOT)))
def test_generated_file_is_current(path: Path) -> None:
    assert path.read_text() == generated()[path], "run `make performance`"


@pytest.mark.parametrize("page", PAGES_WITH_FIGURES, ids=lambda page: str(page.relative_to(ROOT)))
def test_page_has_no_figure_without_stored_result(page: Path) -> None:
    prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    assert "<!--figure" in prose
    prose = re.sub(r"<!--figure [\w-]+-->[^<]*<!---->(\s*(?:to\s*)?)", r"FIGURE\1", prose)
    assert MEASURED.findall(prose) == []


def test_filled_replaces_figures() -> None:
    text = "in <!--figure local-seconds-->9<!----> s"
    assert filled(text, {"local-seconds": "0.3"}) == "in <!--figure local-seconds-->0.3<!----> s"


def test_filled_rejects_figure_without_result() -> None:
    with pytest.raises(ValueError, match="no stored result has the figure unknown"):
        filled("<!--figure unknown-->1<!---->", {})


def test_stored_results_name_command_commit_date_and_machine() -> None:
    results = stored()
    assert len(results) >= 10
    for name, result in results.items():
        assert result["command"].startswith("python -m bench."), name
        assert re.fullmatch(r"[0-9a-f]{8}", result["commit"]), f"{name} was measured on uncommitted changes"
        assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d", result["date"]), name
        assert result["machine"]["cores"] >= 1, name
