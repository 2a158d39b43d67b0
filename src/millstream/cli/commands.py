"""The command group of `millstream`, which imports commands lazily."""

from __future__ import annotations

from importlib import import_module

import click
from click.shell_completion import get_completion_class

from millstream.common.display_text import closest

# Module and function of a command, by name.
_LAZY_COMMANDS = {
    "cancel": ("millstream.cli.job_commands", "cancel"),
    "checkpoint": ("millstream.cli.job_commands", "checkpoint"),
    "cluster": ("millstream.cli.cluster", "cluster"),
    "completion": ("millstream.cli.commands", "completion"),
    "explain": ("millstream.cli.explain_and_logs", "explain"),
    "history": ("millstream.cli.history", "history"),
    "list": ("millstream.cli.job_commands", "list_jobs"),
    "logs": ("millstream.cli.explain_and_logs", "logs"),
    "replay": ("millstream.cli.replay", "replay"),
    "rescale": ("millstream.cli.job_commands", "rescale"),
    "savepoint": ("millstream.cli.savepoint", "savepoint"),
    "sql": ("millstream.cli.sql", "sql"),
    "sql-gateway": ("millstream.cli.sql", "sql_gateway"),
    "state": ("millstream.cli.state", "state"),
    "stop": ("millstream.cli.job_commands", "stop"),
    "top": ("millstream.cli.top", "top"),
}


class Commands(click.Group):
    """The commands of `millstream`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *_LAZY_COMMANDS])

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
        if cmd_name not in _LAZY_COMMANDS:
            return super().get_command(ctx, cmd_name)
        module, name = _LAZY_COMMANDS[cmd_name]
        command: click.Command = getattr(import_module(module), name)
        return command


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script for SHELL: put `eval "$(millstream completion bash)"` in ~/.bashrc."""
    completion_class = get_completion_class(shell)
    assert completion_class is not None
    click.echo(completion_class(ctx.find_root().command, {}, "millstream", "_MILLSTREAM_COMPLETE").source())
