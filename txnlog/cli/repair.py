"""The command that repairs a namespace."""

from __future__ import annotations

import sys
from typing import Any

import click

from txnlog.cli.commands import json_option
from txnlog.cli.fsck import CODES
from txnlog.cli.output import Printer, StatusLine
from txnlog.cli.rendering import rendered
from txnlog.cli.target import Target, storage_options_of
from txnlog.common.validation import printable
from txnlog.results import Repaired


@click.command()
@click.option("--source", metavar="FOLDER", help="A backup, or another copy, to take entries and segments from.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done, and what would be left.")
@click.option(
    "--source-storage-options",
    "options_text",
    envvar="TXNLOG_SOURCE_STORAGE_OPTIONS",
    help="fsspec's options for FOLDER as JSON (or TXNLOG_SOURCE_STORAGE_OPTIONS).",
)
@json_option
@click.pass_context
def repair(
    context: click.Context, source: str | None, options_text: str | None, *, dry_run: bool, as_json: bool
) -> None:
    """Put back what is missing or damaged, where it is certain what was there.

    Checkpoints and Delta tables are made again from the log. With --source, entries and segments come back from a
    copy, if they are proven to be those that were there. Also for a namespace that cannot be opened.

    Exit code 0: nothing is left. 1: warnings are left, or a dry run found something to repair. 2: damage is left. 3:
    something could not be done or checked.
    """
    target: Target = context.obj
    options = storage_options_of(options_text)
    with StatusLine() as status:

        def progress(kind: str, done: int, known: int) -> None:
            status.show(f"{kind}: {done:,} of {known:,} looked at")

        found = target.repair(source, options, dry_run=dry_run, progress=progress)
    root = context.find_root().command
    assert isinstance(root, click.Group), "the command line has commands"
    _print(found, [rendered(item.advice, root, context.command) for item in found.objects], as_json=as_json)
    foreseen = 1 if dry_run and any(item.done for item in found.objects) else 0
    sys.exit(next((code for severity, code in CODES if found.of(severity)), foreseen))


def _print(found: Repaired, advice: list[str], *, as_json: bool) -> None:
    if as_json:
        objects = [
            {
                "kind": item.kind,
                "key": item.key,
                "done": item.done,
                "left": item.left,
                "severity": item.severity,
                "advice": text,
            }
            for item, text in zip(found.objects, advice, strict=True)
        ]
        record: dict[str, Any] = {"version": found.version, "dry_run": found.dry_run, "clean": found.is_clean}
        Printer(as_json=True).record({**record, "objects": objects})
        return
    Printer(as_json=False).record({"version": found.version, "dry_run": found.dry_run})
    for item, text in zip(found.objects, advice, strict=True):
        if item.done:
            click.echo(printable(f"{'would be ' if found.dry_run else ''}repaired: {item.key}: {item.done}"))
        if item.left:
            click.echo(printable(f"{item.severity}: {item.left} ({text})"))
    if found.is_clean:
        would_be = found.dry_run and any(item.done for item in found.objects)
        click.echo("would be clean" if would_be else "clean")


__all__ = ["repair"]
