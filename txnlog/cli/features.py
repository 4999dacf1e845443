"""The command that enables features of the format."""

from __future__ import annotations

import click

from txnlog.api.features import check_known
from txnlog.api.internals import connection_of
from txnlog.cli.commands import json_option
from txnlog.cli.output import Printer
from txnlog.cli.target import Target


@click.command()
@click.argument("feature")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@click.pass_obj
def enable(target: Target, feature: str, *, yes: bool, as_json: bool) -> None:
    """Enable a feature of the format, for ever. "txnlog --version --json" lists those that this txnlog knows.

    Older versions of txnlog cannot read or write the namespace afterwards. "doctor" shows which features it has.
    """
    check_known(feature)  # nobody is asked about one that is not there
    with target.open(write=True) as ns:
        follower = connection_of(ns).follower
        head = follower.look(lambda state: state.head)
        if not yes and feature not in {*head.reader_features, *head.writer_features}:
            click.confirm(
                f"Enable {feature!r} in {ns.name!r}, for ever? Versions of txnlog that do not know it will not work "
                "with the namespace any more",
                abort=True,
            )
        ns.enable(feature)
        head = follower.look(lambda state: state.head)
    Printer(as_json).record({"reader_features": head.reader_features, "writer_features": head.writer_features})


__all__ = ["enable"]
