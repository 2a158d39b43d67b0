"""The programs and tests of guides with servers, with names and addresses of the servers of this run."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from millstream.testing.servers.databases import PostgresServer
from millstream.testing.servers.kafka import KafkaBroker
from tests.support.doc_pages import files_of
from tests.support.paths import DOCS

Import = Callable[[str, str, dict[str, str]], ModuleType]


@pytest.fixture
def import_from(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Import:
    """Save the files of a guide and import one of them."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def imported(page: str, module: str, replaced: dict[str, str]) -> ModuleType:
        for name, text in files_of(DOCS / "guides" / page).items():
            for old, new in replaced.items():
                text = text.replace(old, new)
            (tmp_path / name).write_text(text)
            # Of no other page, and not later.
            monkeypatch.setitem(sys.modules, Path(name).stem, None)
            del sys.modules[Path(name).stem]
        return importlib.import_module(module)

    return imported


def test_kafka_guide_writes_once_despite_failure(import_from: Import, kafka: KafkaBroker) -> None:
    topics = {'"orders"': '"guide-orders"', '"totals"': '"guide-totals"'}
    page = import_from("kafka-to-kafka.md", "test_pipeline", topics)
    page.test_totals_are_written_once_despite_a_failure(kafka)


def test_lake_guide_follows_changes_of_table(import_from: Import, postgres: PostgresServer, tmp_path: Path) -> None:
    import psycopg

    page = import_from("cdc-to-lake.md", "test_lake", {"'slot.name' = 'lake'": "'slot.name' = 'guide_lake'"})
    page.test_changes_reach_the_lake_and_the_totals(postgres, tmp_path)
    with psycopg.connect(postgres.conninfo(), autocommit=True) as connection:
        connection.execute("SELECT pg_drop_replication_slot('guide_lake')")
