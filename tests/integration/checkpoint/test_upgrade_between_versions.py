"""A job started by an older version of the package is finished by this one; `make test-upgrade` is the long form."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.upgrade.commits import FIRST, ROOT, exists, extract
from tests.upgrade.upgrades import Package, Upgrade

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(not exists(FIRST), reason="a shallow clone has no older version"),
]


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Package]:
    source = extract(FIRST, tmp_path_factory.mktemp("older") / "source")
    yield Package("older", sys.executable, {"PYTHONPATH": str(source / "src")})


@pytest.mark.parametrize("method", ["by_savepoint", "by_checkpoint"])
def test_job_restores_state_of_older_package_version(method: str, older: Package, tmp_path: Path) -> None:
    newer = Package("newer", sys.executable, {"PYTHONPATH": str(ROOT / "src")})
    getattr(Upgrade(tmp_path, older, newer, records=1400, options=("--local",)), method)(parallelism=3)
