"""A group of commands that are imported when they are called: what runs a program needs none of what reads state."""

from __future__ import annotations

from importlib import import_module

import click

from millstream.common.display_text import closest

# Where a command is, by its name.
_ELSEWHERE = {
    "cancel": ("millstream.cli.job_commands", "cancel"),
    "checkpoint": ("millstream.cli.job_commands", "checkpoint"),
    "cluster": ("millstream.cli.cluster", "cluster"),
    "completion": ("millstream.cli.completion", "completion"),
    "explain": ("millstream.cli.explain_and_logs", "explain"),
    "history": ("millstream.cli.history", "history"),
    "list": ("millstream.cli.job_commands", "list_jobs"),
    "logs": ("millstream.cli.explain_and_logs", "logs"),
    "replay": ("millstream.cli.replay", "replay"),
    "rescale": ("millstream.cli.job_commands", "rescale"),
    "savepoint": ("millstream.cli.savepoint", "savepoint"),
    "sql": ("millstream.cli.sql", "sql"),
    "sql-gateway": ("millstream.cli.sql_gateway", "sql_gateway"),
    "state": ("millstream.cli.state", "state"),
    "stop": ("millstream.cli.job_commands", "stop"),
    "top": ("millstream.cli.top", "top"),
}


class Commands(click.Group):
    """The commands of `millstream`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *_ELSEWHERE])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as e:
            match = closest(args[0], self.list_commands(ctx), 0.6)
            hint = f" Did you mean '{match}'?" if match and "Did you mean" not in e.message else ""
            raise click.UsageError(e.message + hint, ctx) from None

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _ELSEWHERE:
            return super().get_command(ctx, cmd_name)
        module, name = _ELSEWHERE[cmd_name]
        command: click.Command = getattr(import_module(module), name)
        return command
