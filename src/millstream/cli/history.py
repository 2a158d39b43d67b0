"""`millstream history`: ended jobs, from their archives."""

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
from millstream.service.archive import ArchiveDirectory, ArchiveStore, history_app
from millstream.service.options import PORT, ServiceOptions
from millstream.service.server import PublicServer

DIRECTORY = TextSetting("historyserver.archive.fs.dir", None)
REFRESH = DurationSetting("historyserver.archive.fs.refresh-interval", 10_000)
# Flink's port, and alternatives if it is in use.
_PORTS = "8082-8099,auto"


@click.command()
@click.option("-p", "--port", help=f"A port, a range such as 8082-8090, or auto; default {_PORTS}.")
@DEFINES
@JSON
@click.argument("directory", required=False)
def history(port: str | None, defines: tuple[str, ...], as_json: bool, directory: str | None) -> None:
    """Serve the archived jobs of DIRECTORY with the dashboard's pages until Ctrl-C.

    With --json, print them as `millstream list --json` does.
    """
    config = Configuration.from_dict(as_settings(defines))
    if port is not None or not PORT.is_set(config):
        PORT.write(config, port or _PORTS)
    location = directory or DIRECTORY.read(config) or WRITTEN_TO.read(config)
    if location is None:
        raise click.UsageError(f"No directory of archives is set: name the one of {WRITTEN_TO.key}.")
    options = ServiceOptions.read(config)
    assert options is not None
    archives = ArchiveStore()
    directory_reader = ArchiveDirectory(open_storage(location, storage_options(config)), archives)
    directory_reader.refresh()
    if as_json:
        print_json([{**archive.line, "service": location} for archive in archives.all()])
        return
    app = history_app(archives, config.to_dict(), options.token, options.refresh_ms)
    is_stopped = threading.Event()
    for number in end_signals():
        signal.signal(number, lambda *_: is_stopped.set())
    server = PublicServer(app, options, kind="history")
    server.start()
    click.echo(f"millstream: {count(len(archives.all()), 'ended job')} of {location} served at {server.url}", err=True)
    while not is_stopped.wait(REFRESH.read(config) / 1000):
        directory_reader.refresh()
    server.stop()
