"""Commands about the numbers that jobs commit under: ``txn_app_id`` and ``txn_version``."""

from __future__ import annotations

import click

from txnlog.api.internals import connection_of
from txnlog.cli.commands import Commands, json_option
from txnlog.cli.output import Printer
from txnlog.cli.target import Target


@click.group(cls=Commands)
def apps() -> None:
    """List the values of txn_app_id, or forget one."""


@apps.command("list")
@json_option
@click.pass_obj
def apps_list(target: Target, *, as_json: bool) -> None:
    """List the values of txn_app_id with their last txn_version, and the version that shows it."""
    with target.open() as ns:
        known = connection_of(ns).follower.look(lambda state: list(state.apps.values()))
    rows = [
        {"txn_app_id": item.app_id, "txn_version": item.app_version, "version": item.version}
        for item in sorted(known, key=lambda item: item.app_id)
    ]
    Printer(as_json).rows(rows)


@apps.command("forget")
@click.argument("txn_app_id")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def apps_forget(target: Target, txn_app_id: str, *, yes: bool) -> None:
    """Forget the last txn_version of a txn_app_id: the next transaction may bring any, also one that was done."""
    with target.open(write=True) as ns:
        last = ns.last_txn_version(txn_app_id)
        if last is not None and not yes:
            click.confirm(f"Forget that {txn_app_id!r} of {ns.name!r} has committed up to {last:,}?", abort=True)
        ns.forget_app(txn_app_id)


__all__ = ["apps"]
