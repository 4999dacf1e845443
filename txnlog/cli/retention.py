"""Commands that delete messages, and that show what retention will delete."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import click

from txnlog.api.namespace import Namespace
from txnlog.cli.commands import json_option
from txnlog.cli.output import Printer
from txnlog.cli.positions import OFFSETS, TIME, position_of
from txnlog.cli.target import Target
from txnlog.common import ranges
from txnlog.common.validation import duration_text
from txnlog.results import RetentionInfo


@click.command("delete-records")
@click.argument("topic")
@click.option(
    "--before",
    multiple=True,
    required=True,
    metavar="POSITION",
    help=f"{OFFSETS}, {TIME}, or latest: all.",
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
    """Delete the messages of a topic before a position, for ever and at every version.

    "unacknowledged" says which subscriptions had not acknowledged how many of them.
    """
    position = position_of(before)
    with target.open(write=not dry_run) as ns:
        lost: Mapping[str, int] = {}
        if allow_unacknowledged or not (dry_run or yes):
            found = ns.delete_records(topic, position, allow_unacknowledged=allow_unacknowledged, dry_run=True)
            lost = _unacknowledged(ns, topic, found.start_offsets) if allow_unacknowledged and found.messages else {}
            if found.messages and not (dry_run or yes):
                click.confirm(_question(found.messages, topic, ns.name, lost), abort=True)
            position = dict(found.start_offsets)  # no more than what was asked about, whatever came meanwhile
        done = ns.delete_records(topic, position, allow_unacknowledged=allow_unacknowledged, dry_run=dry_run)
    record = dataclasses.asdict(done)
    del record["expired_messages"]  # that is of retention
    Printer(as_json).record({**record, "unacknowledged": lost if as_json else _named(lost)})


def _unacknowledged(ns: Namespace, topic: str, ends: Mapping[int, int]) -> dict[str, int]:
    """By subscription the messages below these offsets that can be read, and that it has not acknowledged."""
    starts = ns.snapshot().start_offsets(topic)
    counts: dict[str, int] = {}
    for name in ns.subscriptions(topic):
        for cursor in ns.subscription(topic, name).cursors:
            first, end = max(cursor.cursor, starts[cursor.partition]), ends[cursor.partition]
            left = ranges.subtract(((first, end),), cursor.acknowledged) if first < end else ranges.EMPTY
            counts[name] = counts.get(name, 0) + ranges.size(left)
    return {name: count for name, count in counts.items() if count}


def _question(messages: int, topic: str, namespace: str, lost: Mapping[str, int]) -> str:
    unread = f" (not acknowledged: {_named(lost)})" if lost else ""
    return f"Delete {messages:,} messages of {topic!r} of {namespace!r}{unread}, for ever?"


def _named(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())


@click.command()
@click.argument("topic", required=False)
@json_option
@click.pass_obj
def retention(target: Target, topic: str | None, *, as_json: bool) -> None:
    """What the next maintain deletes of each topic, and for which subscriptions messages are kept."""
    with target.open() as ns:
        found = ns.retention(topic)
    Printer(as_json).answers(
        found,
        retention_ms=lambda info: _duration(info.retention_ms),
        message_ttl_ms=lambda info: _duration(info.message_ttl_ms),
        kept_for=_kept_for,
    )


def _duration(milliseconds: int | None) -> str:
    return "" if milliseconds is None else duration_text(milliseconds)


def _kept_for(info: RetentionInfo) -> str:
    return _named({held.subscription: held.messages for held in info.kept_for})


__all__ = ["delete_records", "retention"]
