"""Commands that back up a namespace, and restore it."""

from __future__ import annotations

from typing import Any

import click

from txnlog.cli.commands import json_option
from txnlog.cli.output import Printer, StatusLine
from txnlog.cli.target import Target, storage_options_of

_options_option = click.option(
    "--backup-storage-options",
    "options_text",
    envvar="TXNLOG_BACKUP_STORAGE_OPTIONS",
    help="fsspec's options for FOLDER as JSON (or TXNLOG_BACKUP_STORAGE_OPTIONS).",
)


@click.command()
@click.argument("folder")
@click.option("--version", type=int, help="Back up this version, and not the newest.")
@click.option("--verify", is_flag=True, help="Read also what FOLDER has already, and replace what is damaged.")
@_options_option
@json_option
@click.pass_obj
def backup(
    target: Target, folder: str, version: int | None, options_text: str | None, *, verify: bool, as_json: bool
) -> None:
    """Copy the namespace, as it is at one version, into FOLDER, while others write to it.

    The next backup into the same FOLDER copies only what is new. One that was interrupted is run again, and goes on.
    """
    options = storage_options_of(options_text)
    with StatusLine() as status:
        found = target.backup(folder, options, version=version, verify=verify, progress=_shown_by(status))
    Printer(as_json).answer(found)


@click.command()
@click.argument("folder")
@click.option("--version", type=int, help="Restore the backup of this version, and not the newest.")
@click.option("--dry-run", is_flag=True, help="Only read the backup, and compare all of it with its checksums.")
@_options_option
@json_option
@click.pass_obj
def restore(
    target: Target, folder: str, version: int | None, options_text: str | None, *, dry_run: bool, as_json: bool
) -> None:
    """Make ROOT/NAMESPACE out of the backup in FOLDER. Nothing may be there.

    It gets TxnIDs of its own. One that was interrupted is run again, and goes on.
    """
    options = storage_options_of(options_text)
    with StatusLine() as status:
        found = target.restore(folder, options, version=version, dry_run=dry_run, progress=_shown_by(status))
    Printer(as_json).answer(found)


def _shown_by(status: StatusLine) -> Any:
    def show(what: str, done: int, known: int, size_bytes: int) -> None:
        status.show(f"{what}: {done:,} of {known:,}, {size_bytes:,} bytes")

    return show


__all__ = ["backup", "restore"]
