"""Commands about transactions, and about the producers that begin them."""

from __future__ import annotations

import sys
from typing import Final

import click

from txnlog.api.transaction_admin import STATES
from txnlog.cli.commands import WARNINGS, Commands, duration, json_option
from txnlog.cli.output import Printer
from txnlog.cli.target import Target
from txnlog.common.validation import Duration
from txnlog.data.python_rows import python_rows

_ENDED: Final = ("COMMITTED", "ABORTED")


@click.group(cls=Commands)
def transactions() -> None:
    """List, describe, abort or complete transactions."""


@transactions.command("list")
@click.option("--state", type=click.Choice(STATES, case_sensitive=False), help="Only these.")
@click.option(
    "--min-age-ms", type=duration, metavar="DURATION", help='Only open ones of at least this age: "90s", "15m".'
)
@click.option(
    "--limit", type=click.IntRange(min=0), default=20, show_default=True, help="Newest ended transactions to list."
)
@json_option
@click.pass_obj
def transactions_list(
    target: Target, state: str | None, min_age_ms: Duration | None, limit: int, *, as_json: bool
) -> None:
    """List all open and prepared transactions, and the newest of those that ended.

    Of the ended ones, the log still names those that ended after the log checkpoint that is used to open.
    """
    with target.open() as ns:
        found = ns.transactions(state, min_age_ms)
    ended = [item for item in found if item.state in _ENDED]
    Printer(as_json).answers([*(item for item in found if item.state not in _ENDED), *ended[:limit]])
    if len(ended) > limit and not as_json:
        click.echo(f"{limit:,} of {len(ended):,} ended transactions: --limit N lists the newest N.", err=True)


@transactions.command("describe")
@click.argument("txn_id")
@json_option
@click.pass_obj
def transactions_describe(target: Target, txn_id: str, *, as_json: bool) -> None:
    """Show a transaction as the log has it. UNKNOWN says neither committed nor aborted: it may not be there yet."""
    with target.open() as ns:
        found = ns.transaction(txn_id)
    Printer(as_json).answers([found])


@transactions.command("abort")
@click.argument("txn_id")
@click.option("--why", help="Kept in the log.")
@click.option("--force", is_flag=True, help="Also a prepared one.")
@json_option
@click.pass_obj
def transactions_abort(target: Target, txn_id: str, why: str | None, *, force: bool, as_json: bool) -> None:
    """Make a transaction's outcome definite: aborted for ever, or what it truly was."""
    with target.open(write=True) as ns:
        found = ns.abort(txn_id, by="command line", why=why, force=force)
    Printer(as_json).answers([found])
    if found.state == "COMMITTED":
        sys.exit(WARNINGS)


@transactions.command("complete")
@click.argument("token")
@click.option("--commit", is_flag=True, help="The outside system committed.")
@click.option("--abort", is_flag=True, help="The outside system aborted.")
@click.pass_obj
def transactions_complete(target: Target, token: str, *, commit: bool, abort: bool) -> None:
    """Carry out the outside decision about a prepared transaction; its token is its TxnID."""
    if commit == abort:
        raise click.UsageError("give --commit or --abort, one of them: how the outside system decided")
    with target.open(write=True) as ns:
        done = ns.complete(token, commit=commit)
    click.echo("aborted" if done is None else f"committed at version {done.version}")


@click.group(cls=Commands)
def producers() -> None:
    """List or fence named producers."""


@producers.command("list")
@json_option
@click.pass_obj
def producers_list(target: Target, *, as_json: bool) -> None:
    """Named producers with their epochs and open transactions."""
    with target.open() as ns:
        found = ns.table("producers")
    Printer(as_json).rows(python_rows(found))


@producers.command("fence")
@click.argument("name")
@click.pass_obj
def producers_fence(target: Target, name: str) -> None:
    """Fence a producer: abort its open transactions, and refuse the process that has it from now on."""
    with target.open(write=True) as ns:
        epoch = ns.fence(name, by="command line")
    click.echo(f"{name} has epoch {epoch}, which nobody owns")


__all__ = ["producers", "transactions"]
