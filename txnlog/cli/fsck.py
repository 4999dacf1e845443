"""The command that checks a namespace."""

from __future__ import annotations

import sys
from typing import Final

import click

from txnlog.cli.commands import NOT_DONE, REFUSED, WARNINGS, json_option
from txnlog.cli.output import Printer, StatusLine
from txnlog.cli.rendering import rendered
from txnlog.cli.target import Target
from txnlog.common.validation import printable
from txnlog.maintenance.fsck.check import LEVELS
from txnlog.results import CheckLevel, FsckReport, Severity

CODES: Final[tuple[tuple[Severity, int], ...]] = (
    ("damage", REFUSED),
    ("unchecked", NOT_DONE),
    ("warning", WARNINGS),
)
"""Exit codes by the worst that was found. What is damaged for certain comes before what could not be checked."""

WHEN_INTERRUPTED: Final = "the check is not complete. It changed nothing; run it again."


@click.command()
@click.option(
    "--level",
    type=click.Choice(LEVELS),
    default="quick",
    show_default=True,
    help="How much is read: quick: the newest entries and listings; full: all bytes; deep: all rows.",
)
@json_option
@click.pass_context
def fsck(context: click.Context, level: CheckLevel, *, as_json: bool) -> None:
    """Check the namespace: its log, its checkpoints, its segments. Reads and lists only.

    Also a namespace that cannot be opened, and a copy that was not adopted.

    Exit code 0: clean. 1: warnings only. 2: damage. 3: something could not be checked, or Ctrl-C ended it.
    """
    target: Target = context.obj
    with StatusLine() as status:
        report = target.check(level, lambda kind, done, known: status.show(f"{kind}: {done:,} of {known:,} checked"))
    root = context.find_root().command
    assert isinstance(root, click.Group), "the command line has commands"
    advice = [rendered(item.advice, root, context.command) for item in report.findings]
    _print(report, advice, as_json=as_json)
    sys.exit(next((code for severity, code in CODES if report.of(severity)), 0))


def _print(report: FsckReport, advice: list[str], *, as_json: bool) -> None:
    if as_json:
        findings = [
            {"severity": item.severity, "kind": item.kind, "key": item.key, "message": item.message, "advice": text}
            for item, text in zip(report.findings, advice, strict=True)
        ]
        Printer(as_json=True).record(
            {
                "version": report.version,
                "level": report.level,
                "clean": report.is_clean,
                "checked": report.checked,
                "findings": findings,
            }
        )
        return
    Printer(as_json=False).record({"version": report.version, "level": report.level, **report.checked})
    for item, text in zip(report.findings, advice, strict=True):
        click.echo(printable(f"{item.severity}: {item.message} ({text})"))
    if report.is_clean:
        click.echo("clean")


__all__ = ["CODES", "WHEN_INTERRUPTED", "fsck"]
