"""`millstream run -t application`: the program's main runs on the cluster, as its own Spark application."""

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
from millstream.cli.settings import may_use_ha
from millstream.common.configuration import Configuration
from millstream.spark import module_archive
from millstream.spark.gateway import jvm_options, spark_home
from millstream.spark.java import find_java
from millstream.spark.master import hadoop_directories, master_of

# Settings with local files, which are shipped with the program.
_SHIPPED = ("python.files", "python.archives", "python.requirements")
# A standby starts Spark only when it leads: without this, YARN would time out waiting for the Spark context.
_STANDBY = {"spark.yarn.am.waitTime": "3650d"}
_REPORT = re.compile(r"Application report for (\S+) \(state: (\w+)\)")
# Spark reports the application's state only in its log.
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
    """A program with its arguments and settings.

    Attributes:
        program: its file.
        arguments: its sys.argv.
        settings: settings that it can change.
        overrides: settings that override the program's own.
        pyflink: whether `import pyflink` imports millstream.
    """

    program: str
    arguments: list[str]
    settings: dict[str, str]
    overrides: dict[str, str]
    pyflink: bool


def run_on_cluster(application: Application, detached: bool) -> int:
    """Submit a program; return the exit code of the program or, if detached, of its submission."""
    master = master_of(Configuration.from_dict(application.settings))
    if master.startswith(("local", "spark://")):
        raise click.UsageError(
            f"-t application runs the program's main on the cluster, which Spark supports for Python on YARN and "
            f"Kubernetes but not on {master}: use -m yarn or -m k8s://..., or omit -t application."
        )
    with tempfile.TemporaryDirectory(prefix="millstream-application-") as directory:
        command = _command(application, master, directory, detached)
        variables = {**os.environ, "SPARK_HOME": spark_home()}
        pipe = subprocess.PIPE
        submitting = subprocess.Popen(command, stdout=pipe, stderr=subprocess.STDOUT, text=True, env=variables)
        return _watch(submitting, detached)


def _command(application: Application, master: str, directory: str, detached: bool) -> list[str]:
    """Return the spark-submit command of an application.

    Args:
        application: the application.
        master: the Spark master.
        directory: a directory for temporary files of the submission.
        detached: whether to return once the application is running.
    """
    logging = os.path.join(directory, "log4j2.properties")
    with open(logging, "w") as file:
        file.write(_LOGGING)
    spec_path = os.path.join(directory, application_main.SPEC)
    with open(spec_path, "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
        json.dump(asdict(_moved(application)), file)
    conf = {
        **{key: value for key, value in application.settings.items() if key.startswith("spark.")},
        **module_archive.driver_settings(master),
        **(_STANDBY if may_use_ha(application.settings) else {}),
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
        ",".join([spec_path, application.program, *_files(application)]),
    ]
    return [*command, application_main.__file__]


def _files(application: Application) -> Iterable[str]:
    """Yield the local files in an application's settings."""
    for key in _SHIPPED:
        for named in application.settings.get(key, "").split(","):
            if named:
                yield named.partition("#")[0]


def _moved(application: Application) -> Application:
    """Return the application with paths relative to its working directory on the cluster."""
    settings = dict(application.settings)
    for key in _SHIPPED:
        if settings.get(key):
            settings[key] = ",".join(os.path.basename(named) for named in settings[key].split(","))
    return replace(application, program=os.path.basename(application.program), settings=settings)


def _watch(process: subprocess.Popen[str], detached: bool) -> int:
    """Report the state changes of an application until it has ended or, if detached, is running."""
    assert process.stdout is not None
    application_id, state = "", ""
    other_lines: list[str] = []
    for line in process.stdout:
        match = _REPORT.search(line)
        if match is None:
            other_lines.append(line)
        elif match.groups() != (application_id, state):
            application_id, state = match.group(1), match.group(2)
            click.echo(f"millstream: {application_id} is {state.lower()}", err=True)
    code = process.wait()
    if code:
        # The last lines have the cluster's reason; the application's own log is complete.
        sys.stderr.writelines(other_lines[-20:])
        if application_id.startswith("application_"):
            click.echo(f"See the program's log with: yarn logs -applicationId {application_id}", err=True)
    elif detached and application_id:
        click.echo(f"Application has been submitted with id {application_id}")
    return 1 if code else 0
