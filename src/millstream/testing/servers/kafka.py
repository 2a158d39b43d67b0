"""A real Kafka broker for tests: one node on loopback, started in some seconds, deleted at the end."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from millstream.common.aliases import Value
from millstream.common.errors import MillstreamError
from millstream.spark.jars import fetch_jars
from millstream.spark.java import find_java
from millstream.spark.processes import ends_with_this_process
from millstream.testing.servers.databases import free_ports

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

_VERSION = "4.1.0"
_CLUSTER = "bWlsbHN0cmVhbS10ZXN0cw"
_START_SECONDS = 100.0
# The user of the secured listener.
_USER, _PASSWORD = "ann", "secret"


class KafkaBroker:
    """Apache Kafka in KRaft mode, in its own process.

    Example:
        with KafkaBroker() as broker:
            broker.create_topic("words", partitions=2)
            source = KafkaSource.builder().set_bootstrap_servers(broker.bootstrap)...
    """

    def __init__(self, secure: bool = False, quick_start: bool = True, **settings: object) -> None:
        """Set broker settings, with `_` instead of dots in their names.

        Args:
            secure: whether it also listens at `secure_bootstrap`, for clients with TLS and a password.
            quick_start: whether to start fast, at the cost of throughput.
            **settings: any of Kafka's.
        """
        self._settings = {name.replace("_", "."): value for name, value in settings.items()}
        self._directory = tempfile.mkdtemp(prefix="millstream-kafka-")
        self._port, self._controller, secure_port = free_ports(3)
        self._is_secure = secure
        self._java = ["-Xmx384m", "-XX:TieredStopAtLevel=1"] if quick_start else ["-Xmx1g"]
        self._process: subprocess.Popen[bytes] | None = None
        self.bootstrap = f"127.0.0.1:{self._port}"
        self.secure_bootstrap = f"127.0.0.1:{secure_port}"

    def __enter__(self) -> KafkaBroker:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def security(self, mechanism: str = "PLAIN", password: str = _PASSWORD) -> dict[str, str]:
        """Return client settings for `secure_bootstrap`; the mechanism is PLAIN or SCRAM-SHA-256."""
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": self._file("certificate.pem"),
            "sasl.mechanism": mechanism,
            "sasl.username": _USER,
            "sasl.password": password,
        }

    def _secure(self) -> dict[str, str]:
        """Return the settings of the listener with TLS and a password."""
        key, certificate, both = map(self._file, ("key.pem", "certificate.pem", "keys.pem"))
        command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 30 -subj /CN=kafka"
        command += f" -addext subjectAltName=IP:127.0.0.1 -keyout {key} -out {certificate}"
        subprocess.run(command.split(), check=True, capture_output=True)
        with open(both, "w") as file, open(key) as first, open(certificate) as second:
            file.write(first.read() + second.read())
        module = "org.apache.kafka.common.security.{}LoginModule required"
        users = f'user_{_USER}="{_PASSWORD}"'
        return {
            "listeners": f"{self._listeners()},SECURE://{self.secure_bootstrap}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap},SECURE://{self.secure_bootstrap}",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL",
            "listener.name.secure.ssl.keystore.type": "PEM",
            "listener.name.secure.ssl.keystore.location": both,
            "listener.name.secure.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
            "listener.name.secure.plain.sasl.jaas.config": f"{module.format('plain.Plain')} {users};",
            "listener.name.secure.scram-sha-256.sasl.jaas.config": f"{module.format('scram.Scram')};",
        }

    def _file(self, name: str) -> str:
        return os.path.join(self._directory, name)

    def _listeners(self) -> str:
        return f"PLAINTEXT://{self.bootstrap},CONTROLLER://127.0.0.1:{self._controller}"

    @property
    def _configuration(self) -> str:
        return os.path.join(self._directory, "server.properties")

    def _classpath(self) -> str:
        cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        return ":".join(
            fetch_jars("org.apache.kafka", "kafka_2.13", _VERSION, os.path.join(cache, "millstream", "jars"))
        )

    def start(self) -> None:
        """Start the broker, or start it again with the data it has, and wait until it answers."""
        if not os.path.exists(self._configuration):
            self._format()
        command = [find_java().path, *self._java, "-cp", self._classpath(), "kafka.Kafka"]
        with open(os.path.join(self._directory, "log"), "ab") as log:
            self._process = subprocess.Popen(
                [*command, self._configuration], stdout=log, stderr=log, preexec_fn=ends_with_this_process()
            )
        self._await()

    def _format(self) -> None:
        settings = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller}",
            "listeners": self._listeners(),
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": os.path.join(self._directory, "data"),
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 1,
            "group.initial.rebalance.delay.ms": 0,
            "num.network.threads": 2,
            "num.io.threads": 2,
            "log.cleaner.enable": "false",
            # Tests may write records of any time.
            "log.retention.ms": -1,
            "auto.create.topics.enable": "false",
            **(self._secure() if self._is_secure else {}),
            **self._settings,
        }
        with open(self._configuration, "w") as file:
            file.writelines(f"{name}={value}\n" for name, value in settings.items())
        command = [find_java().path, "-cp", self._classpath(), "kafka.tools.StorageTool", "format"]
        command += ["-t", _CLUSTER, "-c", self._configuration]
        if self._is_secure:
            command += ["--add-scram", f"SCRAM-SHA-256=[name={_USER},password={_PASSWORD}]"]
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode:
            raise MillstreamError(f"Kafka's directory cannot be formatted: {result.stderr[-500:]}")

    def _await(self) -> None:
        from confluent_kafka import KafkaException

        end = time.monotonic() + _START_SECONDS
        while True:
            assert self._process is not None
            if self._process.poll() is not None or time.monotonic() > end:
                raise MillstreamError(f"Kafka did not start: {self._log()}")
            try:
                with socket.create_connection(("127.0.0.1", self._port), 1):
                    pass
                self._admin().list_topics(timeout=5)
                return
            except (OSError, KafkaException):
                time.sleep(0.05)

    def _log(self) -> str:
        with open(os.path.join(self._directory, "log"), errors="replace") as file:
            return file.read()[-1000:]

    def _admin(self) -> AdminClient:
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def create_topic(self, name: str, partitions: int = 1, **settings: object) -> None:
        """Create a topic; topic settings with `_` instead of dots."""
        from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

        config = {key.replace("_", "."): str(value) for key, value in settings.items()}
        admin = self._admin()
        admin.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result(30)

    def add_partitions(self, name: str, total: int) -> None:
        """Increase the partitions of a topic to a number."""
        from confluent_kafka.admin import NewPartitions  # type: ignore[attr-defined]

        admin = self._admin()
        admin.create_partitions([NewPartitions(name, total)])[name].result(30)

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Delete the records of a partition before an offset, as retention would."""
        from confluent_kafka import TopicPartition

        target, admin = TopicPartition(topic, partition, before), self._admin()
        admin.delete_records([target])[target].result(30)

    def send(
        self, topic: str, values: Iterable[bytes | str], partition: int | None = None, key: bytes | None = None
    ) -> None:
        """Write values (bytes or str) to a topic, and wait for the acknowledgements."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.bootstrap, "log_level": 0})
        for value in values:
            while True:
                try:
                    producer.produce(topic, value, key, -1 if partition is None else partition)
                    break
                except BufferError:
                    producer.poll(0.1)
        if left := producer.flush(60):
            raise MillstreamError(f"Kafka has not accepted {left} records for topic {topic} in a minute.")

    def read(self, topic: str, committed: bool = True) -> list[bytes]:
        """Return the values of all partitions of a topic, one after the other, read by an independent client."""
        from confluent_kafka import Consumer, TopicPartition

        level = "read_committed" if committed else "read_uncommitted"
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "test-reader",
                "isolation.level": level,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "log_level": 0,
            }
        )
        values: list[Value] = []
        try:
            for partition in sorted(consumer.list_topics(topic, timeout=30).topics[topic].partitions):
                consumer.assign([TopicPartition(topic, partition, 0)])
                while True:
                    message = consumer.poll(30)
                    if message is None:
                        raise MillstreamError(f"Partition {partition} of {topic} has no end: a transaction is open.")
                    if message.error() is not None:
                        break
                    values.append(message.value())
        finally:
            consumer.close()
        return values

    def committed(self, group: str, topic: str) -> int:
        """Return the number of records of a topic that a group has committed."""
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group, "log_level": 0})
        try:
            partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
            offsets = consumer.committed([TopicPartition(topic, p) for p in partitions], timeout=30)
            return sum(max(p.offset, 0) for p in offsets)
        finally:
            consumer.close()

    @property
    def pid(self) -> int:
        """The broker's process."""
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the broker process is running."""
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """Kill the broker as a power failure would."""
        self._stop(signal.SIGKILL)

    def stop(self) -> None:
        """Stop the broker in order."""
        self._stop(signal.SIGTERM)

    def _stop(self, signal_number: int) -> None:
        if self._process is not None:
            self._process.send_signal(signal_number)
            self._process.wait(60)
            self._process = None

    def close(self) -> None:
        """Stop the broker and delete its data."""
        self.kill()
        shutil.rmtree(self._directory, ignore_errors=True)
