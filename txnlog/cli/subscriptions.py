"""Commands about subscriptions: where they stand, how far they are behind, and creating, moving and dropping them."""

from __future__ import annotations

import dataclasses
from typing import Any, get_args

import click

from txnlog.api.internals import connection_of
from txnlog.api.namespace import Namespace
from txnlog.cli.commands import Commands, duration, json_option
from txnlog.cli.output import Printer
from txnlog.cli.positions import POSITION, position_of
from txnlog.cli.target import Target
from txnlog.client.positions import check_reachable
from txnlog.common.limits import DEFAULT_LEASE_MS
from txnlog.common.validation import duration_text
from txnlog.format.actions import SubscriptionType, Takeover
from txnlog.results import SubscriptionInfo


@click.command()
@click.argument("topic_name", metavar="[TOPIC]", required=False)
@json_option
@click.pass_obj
def subscriptions(target: Target, topic_name: str | None, *, as_json: bool) -> None:
    """List the subscriptions of a topic, or of all: cursors, active consumer, what is pending, leased, redelivered."""
    rows: list[dict[str, Any]] = []
    with target.open() as ns:
        for topic, name in _subscriptions(ns, topic_name):
            info = ns.subscription(topic, name)
            rows.append(
                {
                    "topic": topic,
                    "subscription": name,
                    "type": info.type,
                    "consumer": info.consumer,
                    "query": info.query,
                    "query_since": info.query_since,
                    "cursors": {item.partition: item.cursor for item in info.cursors},
                    "pending": info.pending,
                    "leased": info.leased,
                    "redelivered": info.redelivered,
                    "dead_letter_topic": info.dead_letter_topic,
                }
            )
    Printer(as_json).rows(rows)


def _subscriptions(ns: Namespace, topic_name: str | None) -> list[tuple[str, str]]:
    """The subscriptions of a topic, or of all topics, each with its topic."""
    names = ns.topics() if topic_name is None else (topic_name,)
    return [(topic, name) for topic in names for name in ns.subscriptions(topic)]


@click.command()
@click.argument("topic_name", metavar="[TOPIC]", required=False)
@click.argument("subscription", required=False)
@json_option
@click.pass_obj
def lag(target: Target, topic_name: str | None, subscription: str | None, *, as_json: bool) -> None:
    """Show by partition how far a subscription is behind; without its name, all of the topic, or of all topics."""
    rows: list[dict[str, Any]] = []
    with target.open() as ns:
        if topic_name is not None and subscription is not None:
            chosen = [(topic_name, subscription)]
        else:
            chosen = _subscriptions(ns, topic_name)
        for topic, name in chosen:
            of_whom = {"topic": topic, "subscription": name}
            rows += [{**of_whom, **dataclasses.asdict(item)} for item in ns.lag(topic, name)]
    Printer(as_json).rows(rows)


@click.group(cls=Commands)
def subscription() -> None:
    """Create, describe, move or drop a subscription."""


@subscription.command("create")
@click.argument("topic_name", metavar="TOPIC")
@click.argument("name")
@click.option(
    "--type",
    type=click.Choice(get_args(SubscriptionType)),
    default="exclusive",
    show_default=True,
    help="Whether one consumer reads, one at a time, or several together.",
)
@click.option("--start", multiple=True, metavar="POSITION", default=("earliest",), help=f"Where it begins: {POSITION}.")
@click.option(
    "--lease-ms",
    type=duration,
    metavar="DURATION",
    default=duration_text(DEFAULT_LEASE_MS),
    show_default=True,
    help="How long a consumer that is silent keeps its place, or its messages.",
)
@click.option(
    "--takeover",
    type=click.Choice(get_args(Takeover)),
    default="any",
    show_default=True,
    help="Who may take over from the consumer.",
)
@click.option("--max-redeliveries", type=int, help="A message that came back more often goes to the dead-letter topic.")
@click.option("--dead-letter-topic", metavar="TOPIC", help="Where to; it is created where there is none.")
@click.option("--if-not-exists", is_flag=True, help="A subscription that exists, with the same settings, is no error.")
@click.option("--allow-short-lease", is_flag=True, help="Accept a --lease-ms below a second.")
@json_option
@click.pass_obj
def subscription_create(
    target: Target, /, topic_name: str, name: str, start: tuple[str, ...], *, as_json: bool, **settings: Any
) -> None:
    """Create a subscription of a topic."""
    position = position_of(start)
    with target.open(write=True) as ns:
        made = ns.create_subscription(topic_name, name, start=position, **settings)
    _print_subscription(made, as_json=as_json)


@subscription.command("describe")
@click.argument("topic_name", metavar="TOPIC")
@click.argument("name")
@json_option
@click.pass_obj
def subscription_describe(target: Target, topic_name: str, name: str, *, as_json: bool) -> None:
    """Settings of a subscription, its consumer, and its cursor in each partition."""
    with target.open() as ns:
        found = ns.subscription(topic_name, name)
    _print_subscription(found, as_json=as_json)


def _print_subscription(info: SubscriptionInfo, *, as_json: bool) -> None:
    record = {field.name: getattr(info, field.name) for field in dataclasses.fields(info)}
    cursors = {item.partition: item.cursor for item in info.cursors}
    counts = {"pending": info.pending, "leased": info.leased, "redelivered": info.redelivered}
    Printer(as_json).record({**record, "cursors": cursors, **counts})


@subscription.command("seek")
@click.argument("topic_name", metavar="TOPIC")
@click.argument("name")
@click.argument("position", nargs=-1, required=True, metavar="POSITION...")
@click.option("--takeover", is_flag=True, help="Also if it belongs to a streaming query, which this ends.")
@json_option
@click.pass_obj
def subscription_seek(
    target: Target, topic_name: str, name: str, position: tuple[str, ...], *, takeover: bool, as_json: bool
) -> None:
    """Move a subscription: to earliest, latest, a time with a zone, or offsets such as 0=5 1=7.

    This is the consumer's "seek", so it opens one: an older consumer of an exclusive subscription is fenced. What was
    received before cannot be acknowledged any more. Partitions that are not named stay where they are.
    """
    wanted = position_of(position)
    with target.open(write=True) as ns:
        ns.subscription(topic_name, name)  # a consumer would create one that is not there
        check_reachable(connection_of(ns), topic_name, wanted)  # before a consumer fences another one
        with ns.consumer(topic_name, name, name="command line", takeover=takeover) as consumer:
            consumer.seek(wanted)
        found = ns.subscription(topic_name, name)
    _print_subscription(found, as_json=as_json)


@subscription.command("drop")
@click.argument("topic_name", metavar="TOPIC")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def subscription_drop(target: Target, topic_name: str, name: str, *, yes: bool) -> None:
    """Drop a subscription. Its position is lost; no message is."""
    with target.open(write=True) as ns:
        ns.subscription(topic_name, name)  # nobody is asked about one that is not there
        if not yes:
            behind = sum(item.behind_messages for item in ns.lag(topic_name, name))
            click.confirm(
                f"Drop the subscription {name!r} of {topic_name!r} of {ns.name!r} ({behind:,} messages are not "
                "acknowledged)?",
                abort=True,
            )
        ns.drop_subscription(topic_name, name)


__all__ = ["lag", "subscription", "subscriptions"]
