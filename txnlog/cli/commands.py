"""What all commands have in common: their groups, options and exit codes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import click

from txnlog.cli.rendering import rendered
from txnlog.common.format_limits import MAX_NUMBER
from txnlog.common.names import nearest
from txnlog.common.validation import Duration, size_bytes
from txnlog.errors import TxnLogError
from txnlog.replies import notes_of

DONE, WARNINGS, REFUSED, NOT_DONE = 0, 1, 2, 3

CAN_BE_REPEATED: Final = "what was done stays. Run the same command again to go on."
"""Of a command that works in steps, and goes on where an earlier run of it was interrupted."""


class RefusedError(Exception):
    """An error of the library, and the command that it ended."""

    def __init__(self, error: TxnLogError, command: click.Command | None) -> None:
        super().__init__(str(error))
        self.error = error
        self.command = command


class Commands(click.Group):
    """Commands; one that is not there is answered with what may be meant.

    Attributes:
        when_interrupted: by name what Ctrl-C leaves of those of which that is known.
    """

    when_interrupted: Mapping[str, str] = MappingProxyType({})

    def invoke(self, ctx: click.Context) -> Any:
        """Click's own; an error knows by whom it is shown, and Ctrl-C says what became of the work."""
        first = ctx.params.get("namespace")
        if first in self.commands and not ctx._protected_args and not ctx.args:
            raise click.UsageError(_order(f"txnlog ROOT/NAMESPACE {first}", f"{first!r} is a command"), ctx)
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            root, command = ctx.find_root().command, self.commands.get(ctx.invoked_subcommand or "")
            assert isinstance(root, click.Group), "the command line has commands"
            # Click says "Aborted!", which would be the opposite of a commit that the library finishes.
            notes = [rendered(note, root, command) for note in notes_of(interrupt)]
            if command is not None and (left := self.when_interrupted.get(command.name or "")):
                notes.append(left)
            if not notes:
                raise
            click.echo("\n" + "\n".join(f"Interrupted: {note.removeprefix('txnlog: ')}" for note in notes), err=True)
            raise click.exceptions.Exit(NOT_DONE) from None
        except TxnLogError as error:
            raise RefusedError(error, self.commands.get(ctx.invoked_subcommand or "")) from error

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Click's own, with advice."""
        first, name = ctx.params.get("namespace"), args[0]  # before click's own, which changes both
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            meant = self._meant(ctx, first, name)
            raise click.UsageError(f"{error.message.removesuffix('.')} ({meant})", ctx) from None

    def _meant(self, ctx: click.Context, first: str | None, name: str) -> str:
        if name.startswith("-"):
            return f"options stand behind their command: txnlog ROOT/NAMESPACE COMMAND {name}"
        if first in self.commands:
            return _order(f"txnlog {name} {first}", f"{first!r} is a command")
        plural = f"{ctx.info_name}s"
        if name == "list" and isinstance(ctx.parent, click.Context) and plural in _names(ctx.parent.command):
            return f"did you mean '{plural}'? there are: {', '.join(sorted(self.commands))}"
        if (own := _OWN_NAMES.get(name)) in self.commands:
            return f"did you mean '{ctx.info_name} {own}'?"
        if "describe" in self.commands:  # the name of a topic where a command stands
            return f"did you mean '{ctx.info_name} describe {name}'? there are: {', '.join(sorted(self.commands))}"
        groups = [(first, found) for first, found in self.commands.items() if isinstance(found, click.Group)]
        ways = [f"'{first} {name}'" for first, found in groups if name in found.commands]
        if ways:
            return f"did you mean {' or '.join(ways)}?"
        near = nearest(name, self.commands)
        return f"'{ctx.command_path} --help' lists them" if near.endswith("...") else near


_OWN_NAMES: Final = {"add": "create", "delete": "drop", "remove": "drop", "reset": "seek", "show": "describe"}
"""By the names that the commands of others have what they are called here."""


def _order(meant: str, why: str) -> str:
    return f"{why}, and the namespace stands before it: {meant}"


def _names(command: click.Command) -> frozenset[str]:
    return frozenset(command.commands) if isinstance(command, click.Group) else frozenset()


def duration(text: str) -> Duration:
    """A number where the text is one, else the text: what it means is said by ``txnlog.common.validation`` alone."""
    return int(text) if text.isascii() and text.removeprefix("-").isdecimal() else text


def size(_context: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """Of an option: a number of bytes, also with a unit. What that means is said by ``txnlog.common.validation``."""
    if value is None:
        return None
    assert param.name is not None, "an option has a name"
    return size_bytes(param.name, duration(value), 0, MAX_NUMBER)


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, one object a line.")


__all__ = [
    "CAN_BE_REPEATED",
    "DONE",
    "NOT_DONE",
    "REFUSED",
    "WARNINGS",
    "Commands",
    "RefusedError",
    "duration",
    "json_option",
    "size",
]
