"""Change data capture on Spark, with real databases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millstream.common import Types, WatermarkStrategy
from millstream.datastream.connectors.base import BadRecords
from millstream.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaSource
from millstream.datastream.formats.change_json import DebeziumJsonDeserializationSchema
from millstream.testing.servers.databases import PostgresServer
from millstream.testing.servers.kafka import KafkaBroker
from tests.conftest import Env
from tests.support import cdc_replica


def test_cdc_replica_equals_original_after_worker_kills(env: Env, postgres: PostgresServer, tmp_path: Path) -> None:
    psycopg = pytest.importorskip("psycopg")
    source, facts = postgres.new_database(), postgres.new_database()
    with psycopg.connect(source) as database, psycopg.connect(facts) as replica:
        for statement in cdc_replica.POSTGRES_TABLES:
            database.execute(statement)
        replica.execute(cdc_replica.FACTS)
        replica.commit()
        workload = cdc_replica.Workload(database, 11)
        workload.run(300)
        _settings(env, tmp_path / "checkpoints")
        (tmp_path / "flags").mkdir()
        # Once while tables are read, once in the log.
        kills = cdc_replica.Kills(tmp_path / "flags", [60, 200])
        cdc_replica.build(env, cdc_replica.postgres_source(source, "onspark"), cdc_replica.Connect(facts), kills)
        job = env.execute_async()
        try:
            workload.run(150, 3)
            cdc_replica.await_equal(database, replica)
            assert len(list((tmp_path / "flags").iterdir())) == 2
        finally:
            job.cancel().result()


def test_debezium_messages_in_kafka_become_rows(env: Env, kafka: KafkaBroker) -> None:
    row = Types.ROW_NAMED(["id", "name"], [Types.INT(), Types.STRING()])
    update = b'{"before": {"id": 1, "name": "a"}, "after": {"id": 1, "name": "b"}, "op": "u"}'
    kafka.create_topic("debezium")
    kafka.send("debezium", [update, b"not json"])
    builder = KafkaSource.builder().set_bootstrap_servers(kafka.bootstrap).set_topics("debezium")
    builder.set_value_only_deserializer(DebeziumJsonDeserializationSchema(row))
    source = builder.set_bounded(KafkaOffsetsInitializer.latest()).build().on_bad_records(BadRecords.skip())
    rows = list(env.from_source(source, WatermarkStrategy.no_watermarks(), "changes").execute_and_collect())
    assert [(str(r.get_row_kind()), r.id, r.name) for r in rows] == [("-U", 1, "a"), ("+U", 1, "b")]


def _settings(env: Env, checkpoints: Path) -> None:
    config: Any = env.get_configuration()
    for key, value in cdc_replica.settings(str(checkpoints)).items():
        config.set_string(key, value)
