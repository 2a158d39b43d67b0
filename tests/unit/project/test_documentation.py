"""Generated parts of the documentation are current."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from tests.documentation.diagrams import DIAGRAMS, IMAGES


@pytest.mark.parametrize("name", DIAGRAMS)
def test_diagram_file_is_up_to_date(name: str) -> None:
    assert (IMAGES / f"{name}.svg").read_text() == DIAGRAMS[name]().svg(), "run `make diagrams`"


def test_diagram_files_are_all_generated() -> None:
    # The chart of the speed is of bench.performance.
    assert sorted(path.stem for path in IMAGES.glob("*.svg")) == sorted([*DIAGRAMS, "speed"])


@pytest.mark.parametrize("name", DIAGRAMS)
def test_diagram_has_title_and_description_and_loads_nothing(name: str) -> None:
    text = DIAGRAMS[name]().svg()
    root = ElementTree.fromstring(text)
    space = "{http://www.w3.org/2000/svg}"
    assert all(root.findtext(f"{space}{tag}") for tag in ("title", "desc"))
    assert "prefers-color-scheme: dark" in text and "url(" not in text and text.count("http") == 1
