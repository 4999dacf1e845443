"""Commands about subscriptions: where they stand, and how far they are behind."""

from __future__ import annotations

import dataclasses
from typing import Any

import click

from txnlog.api.namespace import Namespace
from txnlog.cli.commands import json_option
from txnlog.cli.output import Printer
from txnlog.cli.target import Target


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


__all__ = ["lag", "subscriptions"]
