"""`millstream run -t application`: the program's main runs on the cluster, as a Spark application of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace

import click

from millstream.cli import application_main
from millstream.cli.settings import asks_for_leaders
from millstream.common.configuration import Configuration
from millstream.spark import module_archive
from millstream.spark.gateway import jvm_options, spark_home
from millstream.spark.java import find_java
from millstream.spark.master import hadoop_directories, master_of

# Settings that name files of this machine, which travel with the program.
_BROUGHT = ("python.files", "python.archives", "python.requirements")
# A standby has no Spark, for as long as another leads: YARN would take it for a program that does not start.
_STANDBY = {"spark.yarn.am.waitTime": "3650d"}
_REPORT = re.compile(r"Application report for (\S+) \(state: (\w+)\)")
# Spark says how the application is doing in its log, and nowhere else.
_LOGGING = """\
rootLogger.level = error
rootLogger.appenderRef.console.ref = console
logger.client.name = org.apache.spark.deploy
logger.client.level = info
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %m%n
"""


@dataclass(frozen=True)
class Application:
    """A program with all it is run with.

    Attributes:
        program: its file.
        arguments: what it finds in sys.argv.
        settings: settings that it can change.
        last_word: settings that count whatever it sets.
        pyflink: whether `import pyflink` means millstream.
    """

    program: str
    arguments: list[str]
    settings: dict[str, str]
    last_word: dict[str, str]
    pyflink: bool


def run_on_cluster(application: Application, detached: bool) -> int:
    """Submit a program; return the exit code: of the program, or of its submission when it is left alone."""
    master = master_of(Configuration.from_dict(application.settings))
    if master.startswith(("local", "spark://")):
        raise click.UsageError(
            f"-t application runs the program's main on the cluster, which Spark can do on YARN and Kubernetes for "
            f"Python, and not on {master}: give -m yarn or -m k8s://..., or leave -t application out."
        )
    with tempfile.TemporaryDirectory(prefix="millstream-application-") as directory:
        command = _command(application, master, directory, detached)
        variables = {**os.environ, "SPARK_HOME": spark_home()}
        pipe = subprocess.PIPE
        submitting = subprocess.Popen(command, stdout=pipe, stderr=subprocess.STDOUT, text=True, env=variables)
        return _watch(submitting, detached)


def _command(application: Application, master: str, directory: str, detached: bool) -> list[str]:
    """Return how Spark is told to run an application.

    Args:
        application: what to run.
        master: where.
        directory: for files that are needed until it is submitted.
        detached: whether it is left alone when it runs.
    """
    logging = os.path.join(directory, "log4j2.properties")
    with open(logging, "w") as file:
        file.write(_LOGGING)
    told = os.path.join(directory, application_main.TOLD)
    with open(told, "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
        json.dump(asdict(_moved(application)), file)
    conf = {
        **{key: value for key, value in application.settings.items() if key.startswith("spark.")},
        **module_archive.driver_settings(master),
        **(_STANDBY if asks_for_leaders(application.settings) else {}),
        "spark.yarn.submit.waitAppCompletion": str(not detached).lower(),
        "spark.kubernetes.submission.waitAppCompletion": str(not detached).lower(),
    }
    classes = [os.path.join(spark_home(), "jars", "*"), *(hadoop_directories() if master == "yarn" else ())]
    java = find_java()
    command = [java.path, *jvm_options(java), f"-Dlog4j2.configurationFile={logging}"]
    command += ["-cp", os.pathsep.join(classes), "org.apache.spark.deploy.SparkSubmit"]
    command += ["--master", master, "--deploy-mode", "cluster", "--name", os.path.basename(application.program)]
    for key, value in conf.items():
        command += ["--conf", f"{key}={value}"]
    command += [
        "--archives",
        module_archive.archive(),
        "--files",
        ",".join([told, application.program, *_files(application)]),
    ]
    return [*command, application_main.__file__]


def _files(application: Application) -> Iterable[str]:
    """Yield the files of this machine that an application's settings name."""
    for key in _BROUGHT:
        for named in application.settings.get(key, "").split(","):
            if named:
                yield named.partition("#")[0]


def _moved(application: Application) -> Application:
    """Return an application whose files are all in the directory in which it is run."""
    settings = dict(application.settings)
    for key in _BROUGHT:
        if settings.get(key):
            settings[key] = ",".join(os.path.basename(named) for named in settings[key].split(","))
    return replace(application, program=os.path.basename(application.program), settings=settings)


def _watch(process: subprocess.Popen[str], detached: bool) -> int:
    """Say what becomes of an application, each state once, until it has ended or is left alone."""
    assert process.stdout is not None
    told, said = ("", ""), []
    for line in process.stdout:
        found = _REPORT.search(line)
        if found is None:
            said.append(line)
        elif found.groups() != told:
            told = (found.group(1), found.group(2))
            click.echo(f"millstream: {told[0]} is {told[1].lower()}", err=True)
    code = process.wait()
    if code:
        # The cluster's reason is the last it said; all of it is in the application's own log.
        sys.stderr.writelines(said[-20:])
        if told[0].startswith("application_"):
            click.echo(f"The program's own words: yarn logs -applicationId {told[0]}", err=True)
    elif detached and told[0]:
        click.echo(f"Application has been submitted with id {told[0]}")
    return 1 if code else 0
