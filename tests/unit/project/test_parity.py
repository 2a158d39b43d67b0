"""docs/reference/parity.yaml against the code and the generated page."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.common.unsupported import NotSupportedError, is_missing
from tests.pyflink import parity

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

LISTED = parity.read()
ENTRIES = list(parity.entries(LISTED))


def call(entry: parity.Entry) -> Any:
    placeholder = parity.resolve(entry.name)
    assert is_missing(placeholder), f"{entry.name} is marked {entry.status!r} but exists: run parity.py --promote"
    return placeholder()


@pytest.mark.parametrize("module", LISTED["modules"])
def test_parity_entries_marked_working_resolve(module: str) -> None:
    for entry in ENTRIES:
        if entry.module == module and entry.status in ("done", "differs"):
            assert not is_missing(parity.resolve(entry.name)), f"{entry.name} is marked {entry.status!r}"


@pytest.mark.parametrize("module", LISTED["modules"])
def test_parity_entries_marked_missing_raise_their_reason(module: str) -> None:
    for entry in ENTRIES:
        if entry.module != module or entry.status in ("done", "differs"):
            continue
        with pytest.raises(NotSupportedError) as error:
            call(entry)
        # The first missing part is named: a nested class represents its members.
        assert entry.name.removeprefix(f"{module}.").split(".")[0] in str(error.value) or "()" in str(error.value)
        assert "docs/reference/parity.md" in str(error.value)
        assert entry.reason in str(error.value), f"parity.yaml has another reason for {entry.name}"  # type: ignore[operator]


def test_parity_entries_not_done_have_a_reason() -> None:
    assert [e.name for e in ENTRIES if e.status != "done" and not e.reason] == []
    assert [e.name for e in ENTRIES if e.status not in parity.STATUSES] == []


def test_parity_additions_resolve() -> None:
    for name in LISTED["adds"]:
        parity.resolve(name)


def test_parity_signatures_accept_the_arguments_of_pyflink() -> None:
    signatures = parity.recorded_signatures()
    mismatches_by_name = {
        e.name: problems
        for e in ENTRIES
        if e.status in ("done", "differs") and e.name in signatures and "arguments" not in (e.reason or "")
        if (problems := parity.mismatches(e.name, signatures[e.name]))
    }
    assert mismatches_by_name == {}


def test_parity_page_is_up_to_date() -> None:
    assert parity.PAGE.read_text() == parity.page(LISTED), "run `make parity`"
