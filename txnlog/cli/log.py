"""Commands about the commit log itself."""

from __future__ import annotations

import click

from txnlog.api.internals import connection_of
from txnlog.api.snapshot import snapshot_at
from txnlog.cli.commands import Commands, json_option
from txnlog.cli.output import Printer
from txnlog.cli.target import Target
from txnlog.common.validation import printable_json
from txnlog.format.codec import encode_action


@click.group(cls=Commands)
def log() -> None:
    """Look at the commit log."""


@log.command("show")
@click.argument("entry", type=int, required=False, metavar="[VERSION]")
@click.option("--limit", type=click.IntRange(min=0), default=20, show_default=True, help="Newest entries to show.")
@click.option("--version", type=int, help="The same as VERSION.")
@json_option
@click.pass_obj
def log_show(target: Target, entry: int | None, limit: int, version: int | None, *, as_json: bool) -> None:
    """Print the actions of the entry VERSION; without it, list the newest entries as history does."""
    if None not in (entry, version):
        raise click.UsageError("give the version once")
    version = entry if version is None else version
    with target.open() as ns:
        if version is None:
            Printer(as_json).answers(ns.history(limit))
            return
        connection = connection_of(ns)
        snapshot_at(connection, version)
        for action in connection.follower.log.entry(version).actions:
            click.echo(printable_json(encode_action(action).decode()))


__all__ = ["log"]
