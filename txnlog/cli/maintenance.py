"""Commands that look after a namespace: adopting a copy, checkpoints, merging segments, deleting files."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from typing import Any

import click

from txnlog.api.internals import connection_of
from txnlog.cli.commands import REFUSED, WARNINGS, duration, json_option, size
from txnlog.cli.output import Printer, StatusLine
from txnlog.cli.rendering import rendered
from txnlog.cli.target import Target
from txnlog.common.limits import DEFAULT_GRACE_MS, DEFAULT_RETAIN_MS, MAINTAIN_BYTES, MERGE_TARGET_BYTES
from txnlog.common.validation import Duration, duration_text, time_of
from txnlog.results import Maintained, Unreadable, Vacuumed


@click.command()
@click.option(
    "--force", is_flag=True, help="Also if the root lists it already: for copies of a whole root, and backups put back."
)
@json_option
@click.pass_obj
def adopt(target: Target, *, force: bool, as_json: bool) -> None:
    """Make a copy a namespace of its own in its root; until then writing to it is refused.

    TxnIDs from before keep their meaning; new ones have a coordinator id that the log never had.

    A namespace that was dropped comes back in the same way while its folder is there, with what programs that had it
    open have committed to it since.
    """
    name, coordinator = target.adopt(force=force)
    Printer(as_json).record({"namespace": name, "coordinator": coordinator})


@click.command()
@click.pass_obj
def checkpoint(target: Target) -> None:
    """Make a checkpoint now, and append an entry that names it, by which others find it."""
    with target.open(write=True) as ns:
        made = ns.checkpoint()
        connection_of(ns).session.name_checkpoint(made)
    click.echo(f"checkpoint at version {made}")


_retain_option = click.option(
    "--retain-ms",
    type=duration,
    metavar="DURATION",
    default=duration_text(DEFAULT_RETAIN_MS),
    show_default=True,
    help='Younger versions stay readable: milliseconds, or "7d", "36h", "90m".',
)
_grace_option = click.option(
    "--grace-ms",
    type=duration,
    metavar="DURATION",
    default=duration_text(DEFAULT_GRACE_MS),
    show_default=True,
    help="How long a writer may be silent; what ended or was replaced within this time is kept too.",
)
_short_option = click.option("--allow-short-retention", is_flag=True, help="Accept a --retain-ms below an hour.")


@click.command()
@_retain_option
@_grace_option
@_short_option
@click.option("--dry-run", is_flag=True, help="Only count what would be deleted.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@click.pass_obj
def vacuum(
    target: Target,
    retain_ms: Duration,
    grace_ms: Duration,
    *,
    allow_short_retention: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Delete files that nobody can need: aborted, replaced, of dropped topics, or left behind by writers that died.

    On a terminal it says first which versions become unreadable, and asks. In a job or a pipe it says so, and goes on
    without a question.
    """
    asks = not yes and _is_terminal()
    with target.open(write=not dry_run) as ns, StatusLine() as status:
        found = ns.vacuum(
            retain_ms=retain_ms,
            grace_ms=grace_ms,
            allow_short_retention=allow_short_retention,
            dry_run=dry_run,
            before=lambda unreadable: _announce(unreadable, status, asks=asks),
            progress=lambda topic, seen, deleted: status.show(f"{topic}: {seen:,} files, {deleted:,} deleted"),
        )
    if dry_run and found.unreadable is not None:
        _announce(found.unreadable, status, asks=False)
    Printer(as_json).record(_counted(found, as_json=as_json))
    if not as_json:
        _say_waiting(found)


def _counted(found: Vacuumed, *, as_json: bool) -> dict[str, Any]:
    """What a vacuum did, for people without what they read as sentences: before it and below."""
    record = dataclasses.asdict(found)
    if not as_json:
        for name in ("unreadable", "waiting_files", "waiting_bytes", "waiting_until_ms"):
            del record[name]
    return record


def _say_waiting(found: Vacuumed) -> None:
    """Say what was kept only because of the grace, and when it can go."""
    if found.waiting_until_ms is None:
        return
    one = found.waiting_files == 1
    until = time_of(found.waiting_until_ms).isoformat(timespec="seconds")
    click.echo(
        f"{found.waiting_files:,} {'file' if one else 'files'} with {found.waiting_bytes:,} bytes "
        f"{'is' if one else 'are'} kept only because the grace (--grace-ms) has not passed: a vacuum can delete "
        f"{'it' if one else 'them'} from {until} on, if {'its writer stays' if one else 'their writers stay'} silent"
    )


def _is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _announce(unreadable: Unreadable, status: StatusLine, *, asks: bool) -> None:
    """Say what becomes unreadable, on the error output: the other is the answer. Raises click.Abort where refused."""
    status.clear()
    click.echo(str(unreadable), err=True)
    if asks:
        click.confirm("Delete what only these versions need?", abort=True, err=True)


_DOING = {"optimize": "{:,} of {:,} segments merged", "vacuum": "{:,} files, {:,} deleted"}
"""What a step of maintenance reports of its progress."""

_target_option = click.option(
    "--target-size-bytes",
    type=str,
    callback=size,
    metavar="SIZE",
    default=MERGE_TARGET_BYTES,
    show_default=True,
    help='About the size of a file at most: bytes, or "64MiB".',
)


@click.command()
@click.argument("topic_name", metavar="TOPIC")
@_target_option
@click.option(
    "--max-bytes", type=str, callback=size, metavar="SIZE", help="Read no more than this; the next call goes on."
)
@click.option("--dry-run", is_flag=True, help="Only say what it would begin with.")
@json_option
@click.pass_obj
def optimize(
    target: Target, topic_name: str, target_size_bytes: int, max_bytes: int | None, *, dry_run: bool, as_json: bool
) -> None:
    """Merge small segments of a topic into big ones; no row changes."""
    with target.open(write=not dry_run) as ns, StatusLine() as status:
        found = ns.optimize(
            topic_name,
            target_size_bytes,
            max_bytes=max_bytes,
            dry_run=dry_run,
            progress=lambda topic, done, known: status.show(f"{topic}: {done:,} of {known:,} segments merged"),
        )
    if found.finished and not found.merged_segments and not as_json:
        click.echo(f"nothing to do: {found.topic} has no small segments to merge")
    else:
        Printer(as_json).answer(found)
    if not found.finished and not dry_run:
        sys.exit(WARNINGS)


@click.command()
@click.argument("topic_name", metavar="TOPIC")
@click.option(
    "--max-bytes", type=str, callback=size, metavar="SIZE", help="Read about this much; the next call goes on."
)
@click.option("--dry-run", is_flag=True, help="Only say what would go first.")
@json_option
@click.pass_obj
def compact(target: Target, topic_name: str, max_bytes: int | None, *, dry_run: bool, as_json: bool) -> None:
    """Leave of each key of a topic the newest message; the topic has cleanup_policy "compact"."""
    with target.open(write=not dry_run) as ns:
        found = ns.compact(topic_name, max_bytes=max_bytes, dry_run=dry_run)
    if found.finished and not found.removed_messages and not as_json:
        click.echo(f"nothing to do: no message of {found.topic} that may go has a newer one of its key")
    else:
        Printer(as_json).answer(found)
    if not found.finished and not dry_run:
        sys.exit(WARNINGS)


@click.command()
@_target_option
@click.option(
    "--max-bytes",
    type=str,
    callback=size,
    metavar="SIZE",
    default=MAINTAIN_BYTES,
    show_default=True,
    help="Read no more than this to merge it.",
)
@_retain_option
@_grace_option
@_short_option
@json_option
@click.pass_context
def maintain(
    context: click.Context,
    target_size_bytes: int,
    max_bytes: int,
    retain_ms: Duration,
    grace_ms: Duration,
    *,
    allow_short_retention: bool,
    as_json: bool,
) -> None:
    """Make a checkpoint, delete messages, compact topics, merge segments, update Delta tables, and vacuum.

    Messages are deleted, or expire, only in topics with a setting for it, such as "retention_ms".

    Only topics with delta "auto" have their Delta tables brought up to date.

    Exit code 1: call it again. Exit code 2: ``failures`` says why some of it failed; the rest was done.
    """
    target: Target = context.obj
    with target.open(write=True) as ns, StatusLine() as status:
        found = ns.maintain(
            target_size_bytes=target_size_bytes,
            max_bytes=max_bytes,
            retain_ms=retain_ms,
            grace_ms=grace_ms,
            allow_short_retention=allow_short_retention,
            before=lambda unreadable: _announce(unreadable, status, asks=False),
            progress=lambda step, topic, one, other: status.show(f"{topic}: {_DOING[step].format(one, other)}"),
        )
    root = context.find_root().command
    assert isinstance(root, click.Group), "the command line has commands"
    failures = {name: rendered(text, root, context.command) for name, text in found.failures.items()}
    if as_json:
        Printer(as_json=True).record({**dataclasses.asdict(found), "failures": failures})
    else:
        _say_maintained(found, failures)
    if found.failures:
        sys.exit(REFUSED)
    if not found.finished:
        sys.exit(WARNINGS)


def _say_maintained(found: Maintained, failures: Mapping[str, str]) -> None:
    """Say what was done, a paragraph for each part of it; what had nothing to do has none."""
    printer = Printer(as_json=False)
    printer.record(
        {"checkpoint": found.checkpoint, "published": ", ".join(found.published), "finished": found.finished}
    )
    parts = {"retained": found.retained, "compacted": found.compacted, "optimized": found.optimized}
    for name, answers in parts.items():
        if answers:
            click.echo(f"\n{name}:")
            printer.answers(answers)
    click.echo("\nvacuumed:")
    printer.record(_counted(found.vacuumed, as_json=False))
    _say_waiting(found.vacuumed)
    if failures:
        click.echo("\nfailures:")
        for name, text in failures.items():
            click.echo(f"{name}: {text}")


__all__ = ["adopt", "checkpoint", "compact", "maintain", "optimize", "vacuum"]
