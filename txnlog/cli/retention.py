"""Commands that delete messages, and that show what retention will delete."""

from __future__ import annotations

import dataclasses

import click

from txnlog.cli.commands import json_option
from txnlog.cli.output import Printer
from txnlog.cli.target import Target
from txnlog.client.positions import Position
from txnlog.common.validation import shown
from txnlog.errors import InvalidInputError
from txnlog.results import RetentionInfo


@click.command("delete-records")
@click.argument("topic")
@click.option(
    "--before",
    multiple=True,
    required=True,
    metavar="POSITION",
    help='PARTITION:OFFSET (any number of them), a time with a zone ("2026-11-21T12:00:00Z"), or latest: all.',
)
@click.option("--allow-unacknowledged", is_flag=True, help="Also what a subscription has not acknowledged.")
@click.option("--dry-run", is_flag=True, help="Only count.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@click.pass_obj
def delete_records(
    target: Target,
    topic: str,
    before: tuple[str, ...],
    *,
    allow_unacknowledged: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Delete the messages of a topic before a position, for ever and at every version."""
    position = _position(before)
    with target.open(write=not dry_run) as ns:
        if not (dry_run or yes):
            found = ns.delete_records(topic, position, allow_unacknowledged=allow_unacknowledged, dry_run=True)
            if found.messages:
                click.confirm(f"Delete {found.messages:,} messages of {topic!r} of {ns.name!r}, for ever?", abort=True)
            position = dict(found.start_offsets)  # no more than what was asked about, whatever came meanwhile
        done = ns.delete_records(topic, position, allow_unacknowledged=allow_unacknowledged, dry_run=dry_run)
    record = dataclasses.asdict(done)
    del record["expired_messages"]  # that is of retention
    Printer(as_json).record(record)


def _position(texts: tuple[str, ...]) -> Position:
    """A position by name or time, or offsets by partition."""
    if len(texts) == 1 and not texts[0].partition(":")[0].isdecimal():
        return texts[0]
    found: dict[int, int] = {}
    for text in texts:
        partition, separator, offset = text.partition(":")
        if not (separator and partition.isdecimal() and offset.isdecimal()):
            raise InvalidInputError(
                f"{shown(text)} is not of the form PARTITION:OFFSET", advice="put the partition, a colon, the offset"
            )
        found[int(partition)] = int(offset)
    return found


@click.command()
@click.argument("topic", required=False)
@json_option
@click.pass_obj
def retention(target: Target, topic: str | None, *, as_json: bool) -> None:
    """What the next maintain deletes of each topic, and for which subscriptions messages are kept."""
    with target.open() as ns:
        found = ns.retention(topic)
    Printer(as_json).answers(found, kept_for=_kept_for)


def _kept_for(info: RetentionInfo) -> str:
    return ", ".join(f"{held.subscription} {held.messages:,}" for held in info.kept_for)


__all__ = ["delete_records", "retention"]
