"""Groups of commands; those of a `LazyGroup` are imported when they are needed."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import click


class Group(click.Group):
    """A group that lists its commands in the order in which they were given."""

    def __init__(
        self, *args: Any, other_names: Mapping[str, str] = MappingProxyType({}), **kwargs: Any
    ) -> None:
        """Take names that other tools have for commands, each with the command line of Kinetic."""
        super().__init__(*args, **kwargs)
        self.other_names = other_names

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the commands in that order."""
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; if there is none, raise an error with similar names."""
        name = args[0]
        if (
            name in (verbs := self.list_commands(ctx))
            or name.startswith("-")
            or ctx.resilient_parsing
        ):
            return super().resolve_command(ctx, args)
        if ours := self.other_names.get(name):
            raise click.UsageError(f"No such command {name!r}. In Kinetic: {ours}", ctx)
        import difflib

        near = difflib.get_close_matches(name, verbs)
        meant = f" Did you mean {' or '.join(near)}?" if near else ""
        raise click.UsageError(f"No such command {name!r}.{meant}", ctx)


class LazyGroup(Group):
    """A group that imports each command from a module of the same name, as its `command`."""

    def __init__(self, *args: Any, package: str, verbs: tuple[str, ...], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.package = package
        self.verbs = verbs

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the commands in the order in which they were given."""
        return list(self.verbs)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import the command *cmd_name*."""
        if cmd_name not in self.verbs:
            return None
        command = importlib.import_module(f"{self.package}.{cmd_name.replace('-', '_')}").command
        assert isinstance(command, click.Command)
        return command
