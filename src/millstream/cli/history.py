"""`millstream history`: jobs that have ended, from their archives."""

from __future__ import annotations

import signal
import threading

import click

from millstream.checkpoint.storage import open_storage, storage_options
from millstream.cli.output import JSON, count, print_json
from millstream.cli.settings import DEFINES, as_settings
from millstream.common.configuration import Configuration
from millstream.common.setting import DurationSetting, TextSetting
from millstream.datastream.launch_context import end_signals
from millstream.service.archive import DIRECTORY as WRITTEN_TO
from millstream.service.history import ArchiveDirectory, ArchiveStore, history_app
from millstream.service.options import PORT, ServiceOptions
from millstream.service.server import PublicServer

DIRECTORY = TextSetting("historyserver.archive.fs.dir", None)
REFRESH = DurationSetting("historyserver.archive.fs.refresh-interval", 10_000)
# Flink's port for it, and some more where that is taken.
_PORTS = "8082-8099,auto"


@click.command()
@click.option("-p", "--port", help=f"A port, a range such as 8082-8090, or auto; {_PORTS} when not given.")
@DEFINES
@JSON
@click.argument("directory", required=False)
def history(port: str | None, defines: tuple[str, ...], as_json: bool, directory: str | None) -> None:
    """Show the jobs whose archives are in DIRECTORY, with the pages of jobs that run; ends with Ctrl-C.

    With --json it prints them as `millstream list --json` does, and serves nothing.
    """
    config = Configuration.from_dict(as_settings(defines))
    if port is not None or not PORT.is_set(config):
        PORT.write(config, port or _PORTS)
    place = directory or DIRECTORY.read(config) or WRITTEN_TO.read(config)
    if place is None:
        raise click.UsageError(f"Say where the archives are: the directory that {WRITTEN_TO.key} was set to.")
    options = ServiceOptions.read(config)
    assert options is not None
    archives = ArchiveStore()
    directory_reader = ArchiveDirectory(open_storage(place, storage_options(config)), archives)
    directory_reader.refresh()
    if as_json:
        print_json([{**archive.line, "service": place} for archive in archives.all()])
        return
    app = history_app(archives, config.to_dict(), options.token, options.refresh_ms)
    is_stopped = threading.Event()
    for number in end_signals():
        signal.signal(number, lambda *_: is_stopped.set())
    server = PublicServer(app, options, kind="history")
    server.start()
    click.echo(f"millstream: {count(len(archives.all()), 'ended job')} of {place}, shown at {server.url}", err=True)
    while not is_stopped.wait(REFRESH.read(config) / 1000):
        directory_reader.refresh()
    server.stop()
