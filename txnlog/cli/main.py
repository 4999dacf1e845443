"""Commands over one namespace.

Exit codes: 0 done, 1 warnings, 2 damage or refusal, 3 could not be done (store, network, outcome unknown).
"""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import Any, Final

import click
import pyarrow as pa

from txnlog.api.adoption import adopt_namespace
from txnlog.api.namespace import Namespace
from txnlog.api.opening import open_namespace
from txnlog.api.snapshot import snapshot_at
from txnlog.api.transaction_admin import STATES
from txnlog.cli.output import Printer, StatusLine
from txnlog.cli.versions import print_version
from txnlog.cli.wording import worded
from txnlog.common.limits import DEFAULT_GRACE_MS, DEFAULT_RETAIN_MS, MAINTAIN_BYTES, TARGET_SEGMENT_BYTES
from txnlog.common.names import nearest
from txnlog.common.validation import Duration, duration_text, shown
from txnlog.errors import InvalidInputError, RetriableError, StoreError, TxnLogError
from txnlog.format import schema
from txnlog.format.codec import encode_action
from txnlog.format.delta_mode import DELTA_MODES
from txnlog.results import TopicInfo, Unreadable

_SQL_TYPES: Final = {
    "tinyint": "byte",
    "smallint": "short",
    "int": "integer",
    "bigint": "long",
    "real": "float",
    "dec": "decimal",
    "numeric": "decimal",
}
"""What Spark SQL calls types otherwise than the log."""

DONE, WARNINGS, REFUSED, NOT_DONE = 0, 1, 2, 3


class Target:
    """What every command is about: where the namespace is, and how its store is reached."""

    def __init__(self, path: str, storage_options: dict[str, Any]) -> None:
        self._path = path
        self._storage_options = storage_options

    def open(self, *, write: bool = False) -> Namespace:
        """Open the namespace, for reading unless the command appends."""
        return open_namespace(self._path, mode="rw" if write else "r", storage_options=self._storage_options)

    def adopt(self, *, force: bool) -> tuple[str, int]:
        """Make the log in the folder a namespace of its root; its name and its new coordinator id."""
        return adopt_namespace(self._path, force=force, storage_options=self._storage_options)


def _options(text: str | None) -> dict[str, Any]:
    if not text:
        return {}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        # Not shown: it may hold secrets.
        raise InvalidInputError("the storage options are not a JSON object", advice="pass e.g. '{\"anon\": true}'")
    return found


class _RefusedError(Exception):
    """An error of the library, and the command that it ended."""

    def __init__(self, error: TxnLogError, command: click.Command | None) -> None:
        super().__init__(str(error))
        self.error = error
        self.command = command


class Commands(click.Group):
    """Commands; one that is not there is answered with what may be meant."""

    group_class = type  # groups in it are of this class, too

    def invoke(self, ctx: click.Context) -> Any:
        """Click's own; an error knows by whom it is shown."""
        try:
            return super().invoke(ctx)
        except TxnLogError as error:
            raise _RefusedError(error, self.commands.get(ctx.invoked_subcommand or "")) from error

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Click's own, with advice."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            raise click.UsageError(f"{error.message.removesuffix('.')} ({self._meant(ctx, args[0])})", ctx) from None

    def _meant(self, ctx: click.Context, name: str) -> str:
        if "describe" in self.commands:  # the name of a topic where a command stands
            return f"did you mean '{ctx.info_name} describe {name}'? there are: {', '.join(sorted(self.commands))}"
        groups = [(first, found) for first, found in self.commands.items() if isinstance(found, click.Group)]
        ways = [f"'{first} {name}'" for first, found in groups if name in found.commands]
        return f"did you mean {' or '.join(ways)}?" if ways else nearest(name, self.commands)


def _duration(text: str) -> Duration:
    """A number where the text is one, else the text: what it means is said by ``txnlog.common.validation`` alone."""
    return int(text) if text.isascii() and text.isdecimal() else text


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, one object a line.")


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("namespace", metavar="ROOT/NAMESPACE")
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
    context.obj = Target(namespace, _options(storage_options))


@cli.command()
@json_option
@click.pass_obj
def topics(target: Target, *, as_json: bool) -> None:
    """List the topics."""
    with target.open() as ns:
        snapshot = ns.snapshot()
        ends = {name: snapshot.end_offsets(name) for name in snapshot.topics()}
        rows = [
            {"topic": name, "partitions": len(found), "messages": sum(found.values())} for name, found in ends.items()
        ]
    Printer(as_json).rows(rows)


@cli.group()
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
        ends = ns.snapshot().end_offsets(name)
    _print_topic(info, as_json=as_json, end_offsets=ends)


def _print_topic(info: TopicInfo, *, as_json: bool, **more: Any) -> None:
    columns = {field.name: str(field.type) for field in info.schema}
    record = {"topic": info.name, "id": info.id, "key": info.key, "columns": columns, **more}
    Printer(as_json).record({**record, "properties": dict(info.properties)})


@topic.command("create")
@click.argument("name")
@click.option("--partitions", default=1, show_default=True, help="Number of partitions.")
@click.option("--if-not-exists", is_flag=True, help="One that is there, with as many partitions, is fine.")
@click.pass_obj
def topic_create(target: Target, name: str, partitions: int, *, if_not_exists: bool) -> None:
    """Create a topic of key, value and headers; one with columns of its own is made in Python."""
    with target.open(write=True) as ns:
        made = ns.create_topic(name, partitions=partitions, if_not_exists=if_not_exists)
    click.echo(f"topic {made.name} with {made.partitions} partition{'s' if made.partitions > 1 else ''}")


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
    "--property", "settings", multiple=True, metavar="NAME=VALUE", help="A label, user.NAME; NAME= takes it away."
)
@click.option("--delta", type=click.Choice(DELTA_MODES), help="Whether the topic is a Delta table too.")
@json_option
@click.pass_obj
def topic_alter(
    target: Target,
    name: str,
    add_columns: tuple[str, ...],
    widen: tuple[str, ...],
    settings: tuple[str, ...],
    delta: str | None,
    *,
    as_json: bool,
) -> None:
    """Add columns, widen others, or change settings; what is so already is fine.

    Types are Spark's: string, binary, boolean, byte (tinyint), short (smallint), integer (int), long (bigint), float
    (real), double, date, timestamp, timestamp_ntz, decimal(10,2). Nested ones are added in Python.
    """
    properties = {key: value or None for key, value in (_pair(item, "=") for item in settings)}
    with target.open(write=True) as ns:
        info = ns.alter_topic(
            name, _columns(add_columns), widen=dict(_columns(widen)), properties=properties, delta=delta
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
    return [(name, schema.type_to_arrow(_type_name(kind))) for name, kind in (_pair(text, ":") for text in texts)]


def _type_name(text: str) -> str:
    """A type as the log names it, of what Spark SQL calls it: in any case, and with blanks."""
    head, bracket, digits = text.lower().partition("(")
    head = head.strip()
    return f"{_SQL_TYPES.get(head, head)}{bracket}{''.join(digits.split())}"


@topic.command("drop")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def topic_drop(target: Target, name: str, *, yes: bool) -> None:
    """Drop a topic and its subscriptions; older versions still show it."""
    with target.open(write=True) as ns:
        ns.topic(name)  # nobody is asked about one that is not there
        if not yes:
            click.confirm("Drop the topic and its subscriptions?", abort=True)
        ns.drop_topic(name)


@cli.command()
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


@cli.command()
@click.argument("topic_name", metavar="[TOPIC]", required=False)
@click.argument("subscription", required=False)
@json_option
@click.pass_obj
def lag(target: Target, topic_name: str | None, subscription: str | None, *, as_json: bool) -> None:
    """How far a subscription is behind, by partition; without a name those of the topic, or of all topics."""
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


@cli.group()
def transactions() -> None:
    """List, describe, abort or complete transactions."""


@transactions.command("list")
@click.option("--state", type=click.Choice(STATES, case_sensitive=False), help="Only these.")
@click.option(
    "--min-age-ms", type=_duration, metavar="DURATION", help='Only open ones of at least this age: "90s", "15m".'
)
@json_option
@click.pass_obj
def transactions_list(target: Target, state: str | None, min_age_ms: Duration | None, *, as_json: bool) -> None:
    """Open transactions that the log shows, and those that ended since the newest checkpoint."""
    with target.open() as ns:
        found = ns.transactions(state, min_age_ms)
    Printer(as_json).dataclasses(found)


@transactions.command("describe")
@click.argument("txn_id")
@json_option
@click.pass_obj
def transactions_describe(target: Target, txn_id: str, *, as_json: bool) -> None:
    """What the log shows of a transaction (UNKNOWN is no negative answer)."""
    with target.open() as ns:
        found = ns.transaction(txn_id)
    Printer(as_json).dataclasses([found])


@transactions.command("abort")
@click.argument("txn_id")
@click.option("--why", help="Kept in the log.")
@click.option("--force", is_flag=True, help="Also a prepared one.")
@json_option
@click.pass_obj
def transactions_abort(target: Target, txn_id: str, why: str | None, *, force: bool, as_json: bool) -> None:
    """Make a transaction's outcome definite: aborted for ever, or what it truly was."""
    with target.open(write=True) as ns:
        found = ns.abort(txn_id, by="command line", why=why, force=force)
    Printer(as_json).dataclasses([found])
    if found.state == "COMMITTED":
        sys.exit(WARNINGS)


@transactions.command("complete")
@click.argument("token")
@click.option("--commit", is_flag=True, help="The outside system committed.")
@click.option("--abort", is_flag=True, help="The outside system aborted.")
@click.pass_obj
def transactions_complete(target: Target, token: str, *, commit: bool, abort: bool) -> None:
    """Carry out the outside decision about a prepared transaction; its token is its TxnID."""
    if commit == abort:
        raise click.UsageError("give --commit or --abort, one of them: how the outside system decided")
    with target.open(write=True) as ns:
        done = ns.complete(token, commit=commit)
    click.echo("aborted" if done is None else f"committed at version {done.version}")


@cli.group()
def producers() -> None:
    """List or fence named producers."""


@producers.command("list")
@json_option
@click.pass_obj
def producers_list(target: Target, *, as_json: bool) -> None:
    """Named producers with their epochs and open transactions."""
    with target.open() as ns, ns._connection.follower.lock:
        rows = [
            {"producer": item.name, "epoch": item.epoch, "open": len(item.open), "fenced_by": item.fenced_by}
            for item in sorted(ns._connection.follower.state.producers.values(), key=lambda item: item.name)
        ]
    Printer(as_json).rows(rows)


@producers.command("fence")
@click.argument("name")
@click.pass_obj
def producers_fence(target: Target, name: str) -> None:
    """Fence a producer: its open transactions are aborted, its handle is refused from now on."""
    with target.open(write=True) as ns:
        epoch = ns.fence(name, by="command line")
    click.echo(f"{name} has epoch {epoch}, which nobody owns")


@cli.group()
def log() -> None:
    """Look at the commit log."""


@log.command("show")
@click.argument("entry", type=int, required=False, metavar="[VERSION]")
@click.option("--limit", type=click.IntRange(min=0), default=20, show_default=True, help="Newest entries to show.")
@click.option("--version", type=int, help="The same as VERSION.")
@json_option
@click.pass_obj
def log_show(target: Target, entry: int | None, limit: int, version: int | None, *, as_json: bool) -> None:
    """The newest entries, or the actions of the one of a VERSION."""
    if None not in (entry, version):
        raise click.UsageError("give the version once")
    version = entry if version is None else version
    with target.open() as ns:
        newest = ns._connection.follower.version
        if version is not None:
            snapshot_at(ns._connection, version)
            for action in ns._connection.follower.log.entry(version).actions:
                click.echo(encode_action(action))
            return
        rows: list[dict[str, Any]] = []
        for number in range(newest, max(-1, newest - limit), -1):
            found = ns._connection.follower.log.entry(number)
            kinds = [type(action).__name__ for action in found.actions]
            counted = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
            rows.append(
                {
                    "version": number,
                    "timestamp_ms": found.header.timestamp_ms,
                    "writer": found.header.writer,
                    "bytes": found.size_bytes,
                    "actions": counted,
                }
            )
    Printer(as_json).rows(rows)


@cli.command()
@click.argument("topic_name", metavar="TOPIC")
@click.option("--version", type=int, help="Of the namespace; the newest by default.")
@click.option("--timestamp", help='The version at a time with a zone: "2026-11-21T12:00:00Z".')
@click.option("--limit", type=click.IntRange(min=0), default=20, show_default=True, help="Rows to print.")
@click.option("--isolation-level", default="read_committed", show_default=True)
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
    with target.open() as ns:
        scan = ns.snapshot(version=version, timestamp=timestamp).scan(
            topic_name, isolation_level=isolation_level, include_metadata=True
        )
        for batch in scan:
            rows.extend(batch.slice(0, limit - len(rows)).to_pylist())
            if len(rows) >= limit:
                break
    Printer(as_json).rows(rows)


@cli.command()
@click.option("--force", is_flag=True, help="Also where its root lists it: of a copy of a whole root.")
@json_option
@click.pass_obj
def adopt(target: Target, *, force: bool, as_json: bool) -> None:
    """Make a copy of a namespace one of its own in its root: writing to it is refused before.

    TxnIDs from before keep their meaning; new ones have a coordinator id that the log never had.
    """
    name, coordinator = target.adopt(force=force)
    Printer(as_json).record({"namespace": name, "coordinator": coordinator})


@cli.command()
@click.pass_obj
def checkpoint(target: Target) -> None:
    """Make a checkpoint now."""
    with target.open(write=True) as ns:
        click.echo(f"checkpoint at version {ns.checkpoint()}")


_retain_option = click.option(
    "--retain-ms",
    type=_duration,
    metavar="DURATION",
    default=duration_text(DEFAULT_RETAIN_MS),
    show_default=True,
    help='Younger versions stay readable: milliseconds, or "7d", "36h", "90m".',
)
_grace_option = click.option(
    "--grace-ms",
    type=_duration,
    metavar="DURATION",
    default=duration_text(DEFAULT_GRACE_MS),
    show_default=True,
    help="How long a writer may be silent.",
)
_short_option = click.option("--allow-short-retention", is_flag=True, help="A --retain-ms below an hour is meant.")


@cli.command()
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

    Says first which versions cannot be read any more, and asks on a terminal. Where nobody can be asked, in a job or
    a pipe, it goes on.
    """
    asks = not yes and _is_terminal()
    with target.open(write=not dry_run) as ns, StatusLine() as status:
        found = ns.vacuum(
            retain_ms=retain_ms,
            grace_ms=grace_ms,
            allow_short_retention=allow_short_retention,
            dry_run=dry_run,
            before=lambda unreadable: _announce(unreadable, asks=asks),
            progress=lambda topic, seen, deleted: status.show(f"{topic}: {seen:,} files, {deleted:,} deleted"),
        )
    if dry_run and found.unreadable is not None:
        _announce(found.unreadable, asks=False)
    record = dataclasses.asdict(found)
    if not as_json:
        del record["unreadable"]  # people read it above
    Printer(as_json).record(record)


def _is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _announce(unreadable: Unreadable, *, asks: bool) -> None:
    """Say what becomes unreadable, on the error output: the other is the answer. Raises click.Abort where refused."""
    click.echo(str(unreadable), err=True)
    if asks:
        click.confirm("Delete what only these versions need?", abort=True, err=True)


_DOING = {"optimize": "{:,} of {:,} segments merged", "vacuum": "{:,} files, {:,} deleted"}
"""What a step of maintenance reports of its progress."""

_target_option = click.option(
    "--target-size-bytes", default=TARGET_SEGMENT_BYTES, show_default=True, help="About the size of a file at most."
)


@cli.command()
@click.argument("topic_name", metavar="TOPIC")
@_target_option
@click.option("--max-bytes", type=int, help="Read no more than this; the next call goes on.")
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
        Printer(as_json).record(dataclasses.asdict(found))
    if not found.finished and not dry_run:
        sys.exit(WARNINGS)


@cli.command()
@_target_option
@click.option("--max-bytes", default=MAINTAIN_BYTES, show_default=True, help="Read no more than this to merge it.")
@_retain_option
@_grace_option
@_short_option
@json_option
@click.pass_obj
def maintain(
    target: Target,
    target_size_bytes: int,
    max_bytes: int,
    retain_ms: Duration,
    grace_ms: Duration,
    *,
    allow_short_retention: bool,
    as_json: bool,
) -> None:
    """Make a checkpoint, merge small segments, bring Delta tables up to date, and vacuum.

    Only topics with delta "auto" have their Delta tables brought up to date.

    Exit code 1: call it again. Exit code 2: ``failures`` says why some of it failed; the rest was done.
    """
    with target.open(write=True) as ns, StatusLine() as status:
        found = ns.maintain(
            target_size_bytes=target_size_bytes,
            max_bytes=max_bytes,
            retain_ms=retain_ms,
            grace_ms=grace_ms,
            allow_short_retention=allow_short_retention,
            before=lambda unreadable: _announce(unreadable, asks=False),
            progress=lambda step, topic, one, other: status.show(f"{topic}: {_DOING[step].format(one, other)}"),
        )
    Printer(as_json).record(dataclasses.asdict(found))
    if found.failures:
        sys.exit(REFUSED)
    if not found.finished:
        sys.exit(WARNINGS)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit."""
    try:
        cli.main(args=arguments, prog_name="txnlog", standalone_mode=True)
    except _RefusedError as refused:
        click.echo(f"txnlog: {type(refused.error).__name__}: {worded(refused.error, cli, refused.command)}", err=True)
        sys.exit(NOT_DONE if isinstance(refused.error, StoreError | RetriableError) else REFUSED)


__all__ = ["cli", "main"]
