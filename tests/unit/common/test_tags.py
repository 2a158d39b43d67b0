"""Millstream's objects are pickled under stable tags: files name no module, class or attribute."""

from __future__ import annotations

import base64
import copy
import io
import json
import pickle
import pickletools
from typing import Any

import pytest
from golden.tags import FILE, samples

from millstream.common.errors import DamagedStateError
from millstream.common.pickles import dump
from millstream.common.restricted_pickles import load_restricted
from millstream.common.tags import MODULES, NAMESPACE, reads, registered, tagged
from millstream.operators.windows.windows import TimeWindow

GOLDEN: dict[str, str] = json.loads(FILE.read_text())
SAMPLES = samples()


def named(data: bytes) -> set[str]:
    """Return the modules that a pickle names."""
    module_names: set[str] = set()

    class Reader(pickle.Unpickler):
        def find_class(self, module_name: str, global_name: str, /) -> Any:
            module_names.add(module_name)
            return super().find_class(module_name, global_name)

    Reader(io.BytesIO(data)).load()
    return module_names


def test_tags_all_have_a_golden_pickle() -> None:
    assert sorted(GOLDEN) == registered(), "python -m tests.golden.tags writes the pickles of new tags"
    assert {name.partition(":")[0] for name in GOLDEN} == set(MODULES)


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_tag_writes_the_golden_bytes(name: str) -> None:
    assert dump(SAMPLES[name]).hex() == base64.b64decode(GOLDEN[name]).hex()


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_tag_reads_the_golden_bytes(name: str) -> None:
    written = base64.b64decode(GOLDEN[name])
    assert dump(pickle.loads(written)) == written
    # Without trust, user functions become stand-ins.
    for read in (pickle.loads(written), load_restricted(written)):
        assert type(read) is type(SAMPLES[name])


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_tag_pickle_names_no_other_millstream_module(name: str) -> None:
    modules = {m for m in named(dump(SAMPLES[name])) if m.startswith("millstream")}
    assert modules == {NAMESPACE}


def test_tag_is_written_by_plain_pickle_too() -> None:
    data = pickle.dumps([TimeWindow(1, 2)], 5)
    assert "time-window:1" in {argument for _, argument, _ in pickletools.genops(data)}
    assert pickle.loads(data) == [TimeWindow(1, 2)]


def test_tag_preserves_a_subclass() -> None:
    read = pickle.loads(dump(_Named(1, 2)))
    assert type(read) is _Named and read == TimeWindow(1, 2)


class _Named(TimeWindow):
    pass


def test_tag_object_can_be_deep_copied() -> None:
    assert copy.deepcopy(SAMPLES["cep-runs:1"]).count == SAMPLES["cep-runs:1"].count


def test_tag_of_a_newer_version_is_rejected() -> None:
    data = dump(TimeWindow(1, 2)).replace(b"time-window:1", b"time-window:2")
    with pytest.raises(
        DamagedStateError, match="State holds a 'time-window' of version 2, which this version of millstream does"
    ):
        pickle.loads(data)


def test_tag_registration_rejects_unknown_and_duplicate_names() -> None:
    with pytest.raises(ValueError, match="'other:1' is not in MODULES"):
        tagged("other")(int)
    with pytest.raises(ValueError, match="'row:1' is not in MODULES, or it is registered twice"):
        reads("row", 1)(print)
