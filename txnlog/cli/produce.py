"""The command that writes rows of a file into a topic."""

from __future__ import annotations

from typing import IO, Any, Final

import click
import pyarrow as pa
import pyarrow.parquet as pq

from txnlog.api.internals import connection_of
from txnlog.cli.commands import duration, json_option
from txnlog.cli.json_rows import BINARY, rows_of
from txnlog.cli.output import Printer
from txnlog.cli.target import Target
from txnlog.client.row_placement import place
from txnlog.common.limits import DEFAULT_TIMEOUT_MS
from txnlog.common.validation import Duration, duration_text, shown
from txnlog.errors import InvalidInputError
from txnlog.results import Committed

_PARQUET: Final = b"PAR1"
"""What every Parquet file begins with, and no JSON does."""


@click.command()
@click.argument("topic_name", metavar="TOPIC")
@click.argument("file", type=click.File("rb"), default="-", metavar="[FILE]")
@click.option("--partition", type=int, help="The partition of all rows; by default the key or the client chooses.")
@click.option("--txn-app-id", help="With --txn-version: a run with the same two, or a lower version, writes nothing.")
@click.option("--txn-version", type=int, help="A number that grows from run to run of --txn-app-id.")
@click.option(
    "--timeout-ms",
    type=duration,
    metavar="DURATION",
    default=duration_text(DEFAULT_TIMEOUT_MS),
    show_default=True,
    help="How long the transaction may take once all rows are read.",
)
@click.option(
    "--binary",
    type=click.Choice(list(BINARY)),
    default="text",
    show_default=True,
    help="What a JSON text in a binary column means.",
)
@json_option
@click.pass_obj
def produce(
    target: Target,
    topic_name: str,
    file: IO[bytes],
    partition: int | None,
    txn_app_id: str | None,
    txn_version: int | None,
    timeout_ms: Duration,
    binary: str,
    *,
    as_json: bool,
) -> None:
    """Write the rows of FILE, or of the standard input, to a topic: all of them in one transaction.

    FILE is JSON Lines (an object a line, in UTF-8) or Parquet; its first bytes say which. All of it is read, and
    compared with the columns of the topic, before anything is written. Times are texts like "2026-11-21T12:00:00Z".
    """
    with target.open(write=True) as ns:
        connection = connection_of(ns)
        schema = ns.topic(topic_name).schema
        rows = _rows(file.read(), schema, binary)
        place(connection, topic_name, rows, partition, None, named=False)  # a transaction reserves numbers in the log
        before = connection.committed_before(txn_app_id, txn_version)
        if before is not None:
            done = Committed(connection.txn_id(before.txn), before.version, {}, skipped=True)
        elif len(rows):
            with ns.begin(timeout_ms=timeout_ms, txn_app_id=txn_app_id, txn_version=txn_version) as txn:
                txn.produce(topic_name, rows, partition)
            assert txn.result is not None, "it was committed"
            done = txn.result
        else:
            done = Committed(None, connection.follower.version, {})  # a transaction without work notes no version
    written = 0 if done.skipped else len(rows)
    record = {"topic": topic_name, "version": done.version, "rows": written, "txn_id": done.txn_id}
    Printer(as_json).record({**record, "skipped": done.skipped})


def _rows(data: bytes, schema: pa.Schema, binary: str) -> Any:
    """What is to be produced of a file: a table of Parquet, else rows. Raises InvalidInputError for a damaged one."""
    if not data.startswith(_PARQUET):
        return rows_of(data, schema, binary)
    try:
        return pq.ParquetFile(pa.BufferReader(data)).read()
    except (pa.ArrowException, OSError) as error:
        raise InvalidInputError(
            f"this Parquet file cannot be read: {shown(str(error))}", advice="write the file again"
        ) from None


__all__ = ["produce"]
