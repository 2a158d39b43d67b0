"""Starts Kafka, PostgreSQL, the generator and the job of the playground on this machine; Ctrl-C ends all.

python playground.py [OPTIONS OF millstream run], such as --local; `make playground` runs it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from millstream.common.errors import MillstreamError
from millstream.testing.servers.databases import PostgresServer
from millstream.testing.servers.kafka import KafkaBroker

HERE = Path(__file__).parent


def job_command(folder: str, kafka: str, postgres: str, checkpoints: str, *options: str) -> list[str]:
    """Return the command of the job, without the interpreter; compose.yaml has the same one."""
    defines = {
        "playground.kafka": kafka,
        "playground.postgres": postgres,
        "execution.checkpointing.dir": checkpoints,
    }
    settings = [word for key, value in defines.items() for word in ("-D", f"{key}={value}")]
    return ["millstream", "run", "--config", f"{folder}/config.yaml", *settings, *options, f"{folder}/job.py"]


def generator_command(folder: str, kafka: str, postgres: str, *options: str) -> list[str]:
    """Return the command of the generator, without the interpreter."""
    return [f"{folder}/generator.py", kafka, postgres, *options]


def main(options: list[str]) -> int:
    print("Starting PostgreSQL and Kafka ...", flush=True)
    os.environ["PGPASSWORD"] = PostgresServer.password
    with PostgresServer() as server, KafkaBroker() as broker, tempfile.TemporaryDirectory() as checkpoints:
        kafka, postgres = broker.bootstrap, f"127.0.0.1:{server.port}"
        generator = generator_command(str(HERE), kafka, postgres)
        subprocess.run([sys.executable, *generator, "--setup"], check=True)
        url = f"postgresql://postgres:{server.password}@{postgres}/shop"
        print(
            f"Kafka:      {kafka}, topic orders\n"
            f"PostgreSQL: {url}\n"
            f"Results:    psql {url} -c 'TABLE revenue' -c 'SELECT * FROM windows ORDER BY 1 DESC LIMIT 8'\n"
            "Ctrl-C ends everything.",
            flush=True,
        )
        job = job_command(str(HERE), kafka, postgres, checkpoints, "-D", "rest.port=auto", *options)
        with subprocess.Popen([sys.executable, *generator]) as orders:
            try:
                with subprocess.Popen([sys.executable, "-m", *job]) as running:
                    return await_end(running)
            finally:
                orders.terminate()


def await_end(process: subprocess.Popen[bytes]) -> int:
    """Return the exit code of the job; Ctrl-C reaches the job as well, which ends in order."""
    try:
        return process.wait()
    except KeyboardInterrupt:
        return process.wait()


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except MillstreamError as e:
        sys.exit(str(e))
    except KeyboardInterrupt:
        sys.exit(130)
