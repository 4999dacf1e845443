"""The command that looks for what somebody should do."""

from __future__ import annotations

import dataclasses
import sys

import click

from txnlog.cli.commands import REFUSED, WARNINGS, json_option
from txnlog.cli.output import Printer
from txnlog.cli.rendering import rendered
from txnlog.cli.target import Target


@click.command()
@click.option(
    "--probe",
    is_flag=True,
    help="Also try the rights to write and to delete, and compare the clocks: two small objects, deleted at once.",
)
@json_option
@click.pass_context
def doctor(context: click.Context, *, probe: bool, as_json: bool) -> None:
    """Look at the namespace, its store and this machine, and name what somebody should do. Changes nothing.

    Exit code 0: nothing to do. 1: warnings only. 2: something does not work, or will not.
    """
    target: Target = context.obj
    with target.open(write=probe) as ns:
        report = ns.doctor(probe=probe)
    root = context.find_root().command
    assert isinstance(root, click.Group), "the command line has commands"
    seen = {name: rendered(text, root, context.command) for name, text in report.seen.items()}
    findings = [{**dataclasses.asdict(item), "advice": rendered(item.advice, root, None)} for item in report.findings]
    if as_json:
        record = {"version": report.version, "healthy": report.is_healthy, "seen": seen}
        Printer(as_json=True).record({**record, "findings": findings})
    else:
        Printer(as_json=False).record({"version": report.version, **seen})
        click.echo()
        if report.is_healthy:
            click.echo("healthy")
        else:
            Printer(as_json=False).rows(
                [{name: text for name, text in item.items() if name != "command"} for item in findings]
            )
    if report.findings:
        sys.exit(REFUSED if report.of("problem") else WARNINGS)


__all__ = ["doctor"]
