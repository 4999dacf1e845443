"""Commands for those who watch a namespace: metrics, its metadata as tables, and its newest entries."""

from __future__ import annotations

import click
import pyarrow as pa

from txnlog.api.tables import TABLES
from txnlog.cli.commands import json_option
from txnlog.cli.output import Printer
from txnlog.cli.target import Target
from txnlog.data.python_rows import python_rows


@click.command()
@click.option("--partitions", is_flag=True, help="The lag of subscriptions also by partition.")
@click.pass_obj
def metrics(target: Target, *, partitions: bool) -> None:
    """Print metrics as OpenMetrics text, for Prometheus and others.

    Counters of transactions, and those of the handle, begin with each call: for them let one program ask again and
    again, as examples/monitoring does.
    """
    with target.open() as ns:
        click.echo(ns.metrics(partitions=partitions), nl=False)


@click.command()
@click.argument("name", type=click.Choice(list(TABLES)))
@click.option("--limit", type=click.IntRange(min=0), default=20, show_default=True, help="Rows to print.")
@click.option("--version", type=int, help="The history, or the segments, as they were at a version of the namespace.")
@click.option("--timestamp", help='The same at a time with a zone: "2026-11-21T12:00:00Z".')
@json_option
@click.pass_obj
def table(target: Target, name: str, limit: int, version: int | None, timestamp: str | None, *, as_json: bool) -> None:
    """Print one of the tables of the namespace's metadata."""
    with target.open() as ns:
        found = ns.table(name, limit=limit + 1, version=version, timestamp=timestamp)
    rows = python_rows(found.slice(0, limit))
    for column in [field.name for field in found.schema if pa.types.is_map(field.type)]:
        for row in rows:
            row[column] = dict(row[column])
    Printer(as_json).rows(rows)
    if found.num_rows > limit and not as_json:
        click.echo(f"{limit:,} rows, and there are more: --limit N prints the first N.", err=True)


@click.command()
@click.option("--limit", type=click.IntRange(min=0), default=20, show_default=True, help="Newest entries to show.")
@json_option
@click.pass_obj
def history(target: Target, limit: int, *, as_json: bool) -> None:
    """List the newest entries of the log: when, by whom, how many actions of which kind, and rows by topic."""
    with target.open() as ns:
        Printer(as_json).answers(ns.history(limit))


__all__ = ["history", "metrics", "table"]
