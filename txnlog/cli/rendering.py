"""Errors of the library in the words of the command line: options in place of arguments, commands in place of calls."""

from __future__ import annotations

from typing import Final

import click

from txnlog.errors import TxnLogError
from txnlog.replies import reworded
from txnlog.sentences import Argument, Call, Words

CALLS: Final = {
    "abort": "transactions abort",
    "alter_topic": "topic alter",
    "checkpoint": "checkpoint",
    "compact": "compact",
    "complete": "transactions complete",
    "create_subscription": "subscription create",
    "create_topic": "topic create",
    "delete_records": "delete-records",
    "doctor": "doctor",
    "drop_subscription": "subscription drop",
    "drop_topic": "topic drop",
    "enable": "enable",
    "erase": "erase",
    "fence": "producers fence",
    "forget_app": "apps forget",
    "fsck": "fsck",
    "history": "history",
    "lag": "lag",
    "maintain": "maintain",
    "metrics": "metrics",
    "optimize": "optimize",
    "produce": "produce",
    "repair": "repair",
    "retention": "retention",
    "subscription": "subscription describe",
    "subscriptions": "subscriptions",
    "table": "table",
    "topic": "topic describe",
    "topics": "topics",
    "transaction": "transactions describe",
    "transactions": "transactions list",
    "vacuum": "vacuum",
}
"""By the name of a call of the handle the command that makes it."""

_OPPOSITES: Final = {"commit": ["--abort"]}
"""By the name of a flag the one that says the opposite, where that is an option of its own: a command that is given
both refuses them, and of one option with two names the last would count."""


def command_at(root: click.Group, path: str) -> click.Command:
    """The command that the words of a path lead to."""
    found: click.Command = root
    for name in path.split():
        assert isinstance(found, click.Group), "a command has no commands"
        found = found.commands[name]
    return found


def worded(error: TxnLogError, root: click.Group, command: click.Command | None) -> TxnLogError:
    """The error of a command, in the words of the command line.

    Args:
        error: what the library raised.
        root: the group of all commands.
        command: the one that ended with the error, whose options are named.
    """
    message, advice = (rendered(text, root, command) for text in (error.message, error.advice))
    return reworded(error, message=message, advice=advice)


def rendered(text: str, root: click.Group, command: click.Command | None) -> str:
    """A text of the library in the words of the command line; the arguments are those of ``worded``."""

    def called(call: Call) -> str:
        return _called(call, root)

    return text.rendered(lambda item: _option(item, command), called) if isinstance(text, Words) else text


def _option(argument: Argument, command: click.Command | None) -> str:
    """An argument as an option of a command, or as Python where it has none."""
    param = _param(argument, command)
    if command is None or param is None:
        return str(argument) if argument.value is None else f"{argument}, in Python"
    if argument.value is None or (param.is_flag and argument.value is True):
        return param.opts[0]
    opposites = param.secondary_opts or _OPPOSITES.get(argument.name)
    if param.is_flag and opposites:
        return f"{param.opts[0]}|{opposites[0]}" if argument.value is ... else opposites[0]
    return f"{param.opts[0]} {param.make_metavar(click.Context(command)) if argument.value is ... else argument.value}"


def _param(argument: Argument, command: click.Command | None) -> click.Option | None:
    """The option of a command that stands for an argument; None where there is none."""
    options = [item for item in command.params if isinstance(item, click.Option)] if command else []
    return next((item for item in options if item.name == argument.name), None)


def _called(call: Call, root: click.Group) -> str:
    """A call as a command, or as Python where there is none."""
    path = CALLS.get(call.name) if call.of == "ns" else None
    command = None if path is None else command_at(root, path)
    arguments = [item for item in call.arguments if isinstance(item, Argument)]
    if path is None or command is None or not all(_param(item, command) for item in arguments):
        return f"{call}, in Python"
    words = [path, *(param.make_metavar(click.Context(command)) for param in _positional(command))]
    words += [_option(item, command) for item in arguments]
    return f"'{' '.join(words)}'"


def _positional(command: click.Command) -> list[click.Argument]:
    return [item for item in command.params if isinstance(item, click.Argument)]


__all__ = ["CALLS", "command_at", "rendered", "worded"]
