"""A group of commands that are imported when they are called: what runs a program needs none of what reads state."""

from __future__ import annotations

from importlib import import_module

import click

# Where a command is, by its name.
_ELSEWHERE = {"savepoint": "millstream.cli.savepoint", "state": "millstream.cli.state"}


class Commands(click.Group):
    """The commands of `millstream`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *_ELSEWHERE])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _ELSEWHERE:
            return super().get_command(ctx, cmd_name)
        command: click.Command = getattr(import_module(_ELSEWHERE[cmd_name]), cmd_name)
        return command
