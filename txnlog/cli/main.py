"""Commands over one namespace.

Exit codes: 0 done, 1 warnings, 2 damage or refusal, 3 could not be done (store, network, outcome unknown).
"""

from __future__ import annotations

import sys
from typing import Final

import click
from click.shell_completion import CompletionItem

from txnlog.cli import (
    apps,
    backups,
    doctor,
    erasure,
    features,
    fsck,
    log,
    maintenance,
    metadata,
    produce,
    repair,
    retention,
    root,
    subscriptions,
    top,
    topics,
    transactions,
)
from txnlog.cli.commands import CAN_BE_REPEATED, NOT_DONE, REFUSED, Commands, RefusedError
from txnlog.cli.rendering import worded
from txnlog.cli.target import Target, storage_options_of
from txnlog.cli.versions import print_version
from txnlog.errors import RetriableError, StoreError


def _folders(_context: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """What a shell completes where the namespace stands: its own folders."""
    return [CompletionItem(incomplete, type="dir")]


class _Place(click.Argument):
    """Where a namespace stands, and before some commands its root: usage lines of these show the root."""

    def get_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Click's own, for a command that the place stands before."""
        return ["ROOT"] if ctx.command is root.namespaces else super().get_usage_pieces(ctx)


class CommandLine(Commands):
    """All commands, behind the place that they are about."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Click's own; who asks for the help of a command need not give a place."""
        is_command = bool(args) and args[0] in self.commands and args[-1] in ctx.help_option_names
        if is_command and args[1] not in self.commands:
            args = [_PLACE, *args]
        return super().parse_args(ctx, args)

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Click's own, with the commands that take a root."""
        first, *others = self.usages(ctx)
        formatter.write_usage(ctx.command_path, first)
        for usage in others:
            formatter.write_usage(ctx.command_path, usage, prefix=" " * len("Usage: "))

    def usages(self, ctx: click.Context) -> list[str]:
        """What may stand behind the name of the program."""
        return [
            " ".join(self.collect_usage_pieces(ctx)),
            "[OPTIONS] ROOT namespaces COMMAND [ARGS]...",
            "--version [--json]",
        ]


_PLACE: Final = "ROOT/NAMESPACE"


@click.group(cls=CommandLine, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("namespace", cls=_Place, metavar=_PLACE, shell_complete=_folders)
@click.option(
    "--storage-options", envvar="TXNLOG_STORAGE_OPTIONS", help="fsspec's options as JSON (or TXNLOG_STORAGE_OPTIONS)."
)
# Eager, so that --version knows of it wherever it stands.
@click.option(
    "--json", "as_json", is_flag=True, is_eager=True, help="With --version: all that a report needs, as JSON."
)
@click.option("--version", is_flag=True, expose_value=False, callback=print_version, help="Show the version and exit.")
@click.pass_context
def cli(context: click.Context, namespace: str, storage_options: str | None, *, as_json: bool) -> None:
    """Look at a namespace of txnlog, and administer it."""
    if as_json:
        raise click.UsageError("--json stands behind the command; before ROOT/NAMESPACE only with --version")
    context.obj = Target(namespace, storage_options_of(storage_options))


for _command in (
    *(topics.topics, topics.topic, subscriptions.subscriptions, subscriptions.lag),
    *(transactions.transactions, transactions.producers, log.log, topics.read),
    *(retention.retention, retention.delete_records),
    *(metadata.history, metadata.table, metadata.metrics),
    *(maintenance.adopt, maintenance.checkpoint, maintenance.vacuum, maintenance.optimize, maintenance.maintain),
    *(maintenance.compact, erasure.erase),
    *(fsck.fsck, repair.repair),
    *(backups.backup, backups.restore),
    *(produce.produce, subscriptions.subscription, apps.apps, root.publish, root.published, root.namespaces),
    *(doctor.doctor, top.top, features.enable),
):
    cli.add_command(_command)
_IN_STEPS: Final = (
    *("adopt", "backup", "checkpoint", "compact", "erase", "maintain"),
    *("optimize", "publish", "repair", "restore", "vacuum"),
)
cli.when_interrupted = {**dict.fromkeys(_IN_STEPS, CAN_BE_REPEATED), "fsck": fsck.WHEN_INTERRUPTED}


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit."""
    try:
        cli.main(args=arguments, prog_name="txnlog", standalone_mode=True)
    except RefusedError as refused:
        click.echo(f"txnlog: {type(refused.error).__name__}: {worded(refused.error, cli, refused.command)}", err=True)
        sys.exit(NOT_DONE if isinstance(refused.error, StoreError | RetriableError) else REFUSED)


__all__ = ["CommandLine", "cli", "main"]
