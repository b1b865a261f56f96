"""The `hymcache` command: a group whose subcommands come from the distributions that are installed."""

from __future__ import annotations

from importlib.metadata import entry_points

import click

COMMANDS_GROUP = "hymcache.commands"


class Installed(click.Group):
    """A click group that finds its commands by entry point, so that a node image carries only what it needs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of the installed commands."""
        return sorted(entry.name for entry in entry_points(group=COMMANDS_GROUP))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, or None."""
        for entry in entry_points(group=COMMANDS_GROUP, name=cmd_name):
            command = entry.load()
            assert isinstance(command, click.Command), f"entry point {entry.value} is not a click command"
            return command
        return None


@click.group(cls=Installed, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="hymcache-cli")
def main() -> None:
    """HyMCache: CXL memory regions for Kubernetes and vLLM."""
