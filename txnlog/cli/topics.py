"""Commands about topics: what there is, what is in one, and changing it."""

from __future__ import annotations

from collections.abc import Callable
from typing import IO, Any, Final, TypeVar

import click
import pyarrow as pa
import pyarrow.parquet as pq

from txnlog.api.snapshot import Snapshot
from txnlog.cli.commands import Commands, duration, json_option
from txnlog.cli.output import Printer
from txnlog.cli.target import Target
from txnlog.common.validation import shown
from txnlog.data.python_rows import python_rows
from txnlog.errors import InvalidInputError
from txnlog.format import schema as schema_types
from txnlog.format.column_text import SPARK_SQL_NAMES, type_text
from txnlog.format.compaction import CLEANUP_POLICY
from txnlog.format.delta_mode import DELTA
from txnlog.format.kept_statistics import STATISTICS
from txnlog.format.merge_mode import MERGE
from txnlog.results import TopicInfo

_SQL_TYPES: Final = {
    **{str(schema_types.type_to_arrow(kind)).lower(): kind for kind in schema_types.PRIMITIVES},
    **{name: kind for kind, name in SPARK_SQL_NAMES.items()},
    "real": "float",
    "dec": "decimal",
    "numeric": "decimal",
}
"""What Arrow calls types otherwise than the log, as ``topic describe`` shows them, and what Spark SQL does."""

_Command = TypeVar("_Command", bound=Callable[..., Any])

_SETTINGS: Final = (
    click.option("--delta", type=click.Choice(DELTA.modes), help="Whether the topic is a Delta table too."),
    click.option("--merge", type=click.Choice(MERGE.modes), help="Whether those who commit merge small segments."),
    click.option(
        "--retention-ms",
        type=duration,
        metavar="DURATION",
        help='How long messages are kept: milliseconds, or "7d", "36h"; -1: for ever.',
    ),
    click.option(
        "--retention-bytes",
        type=duration,
        metavar="SIZE",
        help='How many bytes of segments are kept: a number, or "500MB", "10GiB"; -1: all.',
    ),
    click.option(
        "--retain-unacknowledged/--no-retain-unacknowledged",
        default=None,
        help="Whether retention keeps what a subscription has not acknowledged.",
    ),
    click.option(
        "--message-ttl-ms",
        type=duration,
        metavar="DURATION",
        help="When a message counts as acknowledged on every subscription; -1: never.",
    ),
    click.option(
        "--cleanup-policy",
        type=click.Choice(CLEANUP_POLICY.modes),
        help="compact: of each key only the newest message stays. Needs a key, and the feature holes.",
    ),
    click.option(
        "--delete-retention-ms",
        type=duration,
        metavar="DURATION",
        help="With compact: how long a message without a value stays; a day by default.",
    ),
    click.option(
        "--min-compaction-lag-ms",
        type=duration,
        metavar="DURATION",
        help="With compact: how long every message stays at least.",
    ),
    click.option(
        "--compact-unacknowledged/--no-compact-unacknowledged",
        default=None,
        help="With compact: whether messages may go that a subscription has not acknowledged.",
    ),
    click.option(
        "--statistics",
        type=click.Choice(STATISTICS.modes),
        help="Whether entries hold the least and the greatest values of columns, for ever.",
    ),
)


@click.command()
@json_option
@click.pass_obj
def topics(target: Target, *, as_json: bool) -> None:
    """List the topics, and how many messages each has; those that were erased, compacted or replaced count as well."""
    with target.open() as ns:
        snapshot = ns.snapshot()
        rows = [
            {"topic": name, "partitions": len(snapshot.end_offsets(name)), "messages": _readable(snapshot, name)}
            for name in snapshot.topics()
        ]
    Printer(as_json).rows(rows)


@click.group(cls=Commands)
def topic() -> None:
    """Create, describe, alter or drop a topic."""


@topic.command("describe")
@click.argument("name")
@json_option
@click.pass_obj
def topic_describe(target: Target, name: str, *, as_json: bool) -> None:
    """Columns, key and offsets of a topic."""
    with target.open() as ns:
        info = ns.topic(name)
        snapshot = ns.snapshot()
        offsets = {"start_offsets": snapshot.start_offsets(name), "end_offsets": snapshot.end_offsets(name)}
    _print_topic(info, as_json=as_json, **offsets)


def _readable(snapshot: Snapshot, name: str) -> int:
    """The messages of a topic that can be read: those that were not deleted."""
    return sum(snapshot.end_offsets(name).values()) - sum(snapshot.start_offsets(name).values())


def _print_topic(info: TopicInfo, *, as_json: bool, **more: Any) -> None:
    columns = {
        field.name: type_text(field.type, nullable=field.nullable)
        for field in schema_types.from_arrow(info.schema).fields
    }
    record = {"topic": info.name, "id": info.id, "key": info.key, "columns": columns, **more}
    Printer(as_json).record({**record, "properties": dict(info.properties)})


def _with_settings(command: _Command) -> _Command:
    """A command with an option for each setting of a topic."""
    for option in reversed(_SETTINGS):
        command = option(command)
    return command


@topic.command("create")
@click.argument("name")
@click.option("--partitions", default=1, show_default=True, help="Number of partitions.")
@click.option(
    "--column", "columns", multiple=True, metavar="COLUMN:TYPE", help="A column; any number of them, in order."
)
@click.option(
    "--columns-of", type=click.File("rb"), metavar="FILE", help="All columns of a Parquet file, also nested ones."
)
@click.option("--key", metavar="COLUMN", help="The column whose hash chooses the partition of a row.")
@click.option("--property", "labels", multiple=True, metavar="NAME=VALUE", help="A label, user.NAME.")
@click.option(
    "--if-not-exists",
    is_flag=True,
    help="A topic that exists, with the same columns, partitions and key, is no error.",
)
@_with_settings
@click.pass_obj
def topic_create(
    target: Target,
    /,
    name: str,
    partitions: int,
    columns: tuple[str, ...],
    columns_of: IO[bytes] | None,
    key: str | None,
    labels: tuple[str, ...],
    *,
    if_not_exists: bool,
    **settings: Any,
) -> None:
    """Create a topic with columns, or, without --column and --columns-of, of key, value and headers.

    Types are those of "topic alter"; "not null" behind one refuses null: --column "id:long not null".
    """
    if columns and columns_of is not None:
        raise click.UsageError("give --column or --columns-of, one of them")
    schema = _schema_of(columns_of) if columns_of is not None else _schema(columns)
    properties = dict(_pair(item, "=") for item in labels) or None
    with target.open(write=True) as ns:
        made = ns.create_topic(
            name, schema, partitions, key, if_not_exists=if_not_exists, properties=properties, **settings
        )
    click.echo(f"topic {made.name} with {made.partitions} partition{'s' if made.partitions > 1 else ''}")


def _schema(columns: tuple[str, ...]) -> pa.Schema | None:
    """The columns that were typed, None where there are none."""
    if not columns:
        return None
    fields: list[pa.Field] = []
    for text in columns:
        name, kind = _pair(text, ":")
        words = kind.split()
        nullable = [word.lower() for word in words[-2:]] != ["not", "null"]
        fields.append(pa.field(name, _type(kind if nullable else " ".join(words[:-2])), nullable))
    return pa.schema(fields)


def _schema_of(file: IO[bytes]) -> pa.Schema:
    """The columns of a Parquet file. Raises InvalidInputError where it is none."""
    try:
        return pq.read_schema(pa.BufferReader(file.read())).remove_metadata()
    except (pa.ArrowException, OSError) as error:
        raise InvalidInputError(
            f"the columns of this Parquet file cannot be read: {shown(str(error))}", advice="give another file"
        ) from None


@topic.command("alter")
@click.argument("name")
@click.option(
    "--add",
    "add_columns",
    multiple=True,
    metavar="COLUMN:TYPE",
    help="A new column, which may be null; any number of them.",
)
@click.option("--widen", multiple=True, metavar="COLUMN:TYPE", help="A column and its wider type.")
@click.option(
    "--property", "labels", multiple=True, metavar="NAME=VALUE", help="A label, user.NAME; NAME= takes it away."
)
@_with_settings
@json_option
@click.pass_obj
def topic_alter(
    target: Target,
    /,
    name: str,
    add_columns: tuple[str, ...],
    widen: tuple[str, ...],
    labels: tuple[str, ...],
    *,
    as_json: bool,
    **settings: Any,
) -> None:
    """Add columns, widen others, or change settings; a change that was made already is no error.

    Types are Spark's: string, binary, boolean, byte (tinyint), short (smallint), integer (int), long (bigint), float
    (real), double, date, timestamp, timestamp_ntz, decimal(10,2); or as "topic describe" shows them, such as int64.
    Nested ones are added in Python.
    """
    properties = {key: value or None for key, value in (_pair(item, "=") for item in labels)}
    with target.open(write=True) as ns:
        info = ns.alter_topic(
            name, _columns(add_columns), widen=dict(_columns(widen)), properties=properties, **settings
        )
    _print_topic(info, as_json=as_json)


def _pair(text: str, separator: str) -> tuple[str, str]:
    name, found, value = text.rpartition(separator) if separator == ":" else text.partition(separator)
    if not found or not name:
        raise InvalidInputError(
            f"{shown(text)} is not of the form NAME{separator}VALUE", advice=f"put a name, then {separator!r}"
        )
    return name, value


def _columns(texts: tuple[str, ...]) -> list[tuple[str, pa.DataType]]:
    return [(name, _type(kind)) for name, kind in (_pair(text, ":") for text in texts)]


def _type(text: str) -> pa.DataType:
    """The type that Spark SQL, or the log, calls so: in any case, and with blanks."""
    head, bracket, digits = text.lower().partition("(")
    head = head.strip()
    return schema_types.type_to_arrow(f"{_SQL_TYPES.get(head, head)}{bracket}{''.join(digits.split())}")


@topic.command("drop")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def topic_drop(target: Target, name: str, *, yes: bool) -> None:
    """Drop a topic and its subscriptions; older versions still show it."""
    with target.open(write=True) as ns:
        ns.topic(name)  # nobody is asked about one that is not there
        before = ns.snapshot()
        if not yes:
            messages = sum(before.end_offsets(name).values())
            readers = ns.subscriptions(name)
            click.confirm(
                f"Drop the topic {name!r} of {ns.name!r} ({messages:,} messages were written to it) and its "
                f"subscriptions ({', '.join(readers) or 'none'})?",
                abort=True,
            )
        ns.drop_topic(name)
        click.echo(
            f"The topic {name!r} was dropped. Version {before.version} shows it until a vacuum makes that unreadable: "
            f"txnlog ROOT/NAMESPACE read {name} --version {before.version}",
            err=True,
        )


@click.command()
@click.argument("topic_name", metavar="TOPIC")
@click.option("--version", type=int, help="Of the namespace; the newest by default.")
@click.option("--timestamp", help='The version at a time with a zone: "2026-11-21T12:00:00Z".')
@click.option("--limit", type=click.IntRange(min=0), default=20, show_default=True, help="Rows to print.")
@click.option(
    "--isolation-level",
    default="read_committed",
    show_default=True,
    help="Or read_uncommitted: rows of open, prepared and aborted transactions too.",
)
@json_option
@click.pass_obj
def read(
    target: Target,
    topic_name: str,
    version: int | None,
    timestamp: str | None,
    limit: int,
    isolation_level: str,
    *,
    as_json: bool,
) -> None:
    """Print rows of a topic with their metadata."""
    rows: list[dict[str, Any]] = []
    left_out = False
    with target.open() as ns:
        snapshot = ns.snapshot(version=version, timestamp=timestamp)
        for batch in snapshot.scan(topic_name, isolation_level=isolation_level, include_metadata=True):
            fitting = limit - len(rows)
            rows.extend(python_rows(batch.slice(0, fitting)))
            left_out = batch.num_rows > fitting
            if left_out:
                break
        committed = _readable(snapshot, topic_name)
    Printer(as_json).messages(rows)
    if left_out and not as_json:
        of = f"of {committed:,} rows" if isolation_level == "read_committed" else "rows, and there are more"
        click.echo(f"{len(rows):,} {of}: --limit N prints the first N.", err=True)


__all__ = ["read", "topic", "topics"]
