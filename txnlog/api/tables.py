"""What a namespace consists of as Arrow tables: transactions, segments, subscriptions, producers, history, files."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import pyarrow as pa

from txnlog.api import transaction_admin
from txnlog.api.history import history
from txnlog.api.lag import lag_of, readable_offsets, redelivered_of
from txnlog.api.snapshot import snapshot_of
from txnlog.client.arrow_start import start_arrow
from txnlog.common.format_limits import MAX_NUMBER
from txnlog.common.names import nearest
from txnlog.common.validation import shown, whole_number
from txnlog.errors import InvalidInputError
from txnlog.fold import garbage
from txnlog.fold.state import Cursor, SegmentRecord, State, SubscriptionRecord, TopicRecord
from txnlog.format import keys
from txnlog.store.base import ObjectInfo

if TYPE_CHECKING:
    from txnlog.client.connection import Connection
    from txnlog.log.segment_summary import RecentSegments

Row = dict[str, Any]

HISTORY_ROWS: Final = 1_000
"""Entries that the table of the history has where nobody says how many: each one is a request."""

_TIME: Final = pa.timestamp("us", "UTC")


_SLICE: Final = pa.struct(
    [pa.field("partition", pa.int32(), False), pa.field("offset", pa.int64()), pa.field("rows", pa.int64(), False)]
)


def table(
    connection: Connection,
    name: str,
    limit: int | None,
    version: int | None = None,
    timestamp: datetime.datetime | str | int | None = None,
) -> pa.Table:
    """A table by its name; see ``Namespace.table``."""
    chosen = table_named(name)
    if limit is not None:
        limit = whole_number("limit", limit, 0, MAX_NUMBER)
    start_arrow()
    if version is None and timestamp is None:
        connection.follower.refresh()
    else:
        check_has_versions(name)
        version = snapshot_of(connection, version, timestamp).version
    found = list(islice(chosen.rows(connection, limit, version), limit))
    return pa.Table.from_pylist(found, chosen.schema)


def table_named(name: object) -> Table:
    """A table by its name. Raises InvalidInputError with the nearest name where there is none."""
    chosen = TABLES.get(name) if isinstance(name, str) else None
    if chosen is None:
        raise InvalidInputError(f"a namespace has no table {shown(name)}", advice=nearest(str(name), TABLES))
    return chosen


def check_has_versions(name: str) -> None:
    """Raise InvalidInputError for a table that shows how things stand now, and is asked for a version."""
    if not table_named(name).has_versions:
        others = " and ".join(repr(other) for other, item in TABLES.items() if item.has_versions)
        raise InvalidInputError(
            f"the table {name!r} shows what is there now, and has no versions",
            advice=f"leave out the version, or the time; {others} have versions",
        )


def _us(time_ms: int | None) -> int | None:
    return None if time_ms is None else time_ms * 1_000


def _transactions(connection: Connection, _limit: int | None, _version: int | None) -> Iterator[Row]:
    for item in transaction_admin.transactions(connection, None, None):
        yield {
            "txn_id": str(item.txn_id),
            "state": item.state,
            "version": item.version,
            "timestamp": _us(item.timestamp_ms),
            "reason": item.reason,
            "producer": item.producer,
            "age_ms": item.age_ms,
            "deadline": _us(item.deadline_ms),
            "client": item.client,
        }


def _segments(connection: Connection, _limit: int | None, version: int | None) -> Iterator[Row]:
    for topic in _topics(connection, version):
        records, removals = connection.follower.segments(topic.id)
        for record in sorted(records, key=lambda item: item.number):
            replaced = removals.get(record.number)
            if version is not None:
                if record.logged_version > version:
                    continue
                record = _before_its_end(record, version)  # noqa: PLW2901
                replaced = None if replaced is None or replaced > version else replaced
            yield {
                "topic": topic.name,
                "segment": record.number,
                "state": record.state if replaced is None else "replaced",
                "rows": record.rows,
                "size_bytes": record.size_bytes,
                "slices": [
                    {"partition": item.partition, "offset": item.offset, "rows": item.rows} for item in record.slices
                ],
                "merged": record.compacted,
                "logged_version": record.logged_version,
                "ended_version": record.ended_version,
                "timestamp": _us(record.timestamp_ms),
                "replaced_version": replaced,
                "txn_id": None if record.txn is None else str(connection.txn_id(record.txn)),
                "key": keys.segment_key(topic.folder, record.number, record.file),
                "checksum": record.checksum,
            }


def _topics(connection: Connection, version: int | None) -> list[TopicRecord]:
    """The topics that there are, or that there were at a version."""
    if version is None:
        return connection.live_topics()
    found = [item for item in connection.follower.topics() if item.exists_at(version)]
    return sorted(found, key=lambda item: item.name)


def _before_its_end(record: SegmentRecord, version: int) -> SegmentRecord:
    """A segment as it stood at a version: pending, and without offsets, where its transaction ended later."""
    if record.ended_version is None or record.ended_version <= version:
        return record
    slices = tuple(msgspec.structs.replace(item, offset=None) for item in record.slices)
    return msgspec.structs.replace(record, slices=slices, state="pending", ended_version=None, timestamp_ms=None)


_Partition = tuple[TopicRecord, SubscriptionRecord, int, Cursor, range]


def _subscriptions(connection: Connection, _limit: int | None, _version: int | None) -> Iterator[Row]:
    rows: list[Row] = connection.follower.over_checkpoints(partial(_positions, connection))
    yield from rows


def _positions(connection: Connection) -> list[Row]:
    summaries = connection.session.segment_summaries

    def look(state: State) -> tuple[list[_Partition], RecentSegments]:
        found: list[_Partition] = []
        for record in state.subscriptions.values():
            topic = state.topics[record.topic]
            for partition, there in enumerate(readable_offsets(state, topic)):
                found.append((topic, record, partition, state.cursors[record.id, partition], there))
        return found, summaries.recent(state)

    now_ms = connection.log_now_ms()
    found, recent = connection.follower.look(look)
    summary = summaries.of(recent)
    rows: list[Row] = []
    for topic, record, partition, cursor, there in sorted(
        found, key=lambda item: (item[0].name, item[1].name, item[2])
    ):
        lag = lag_of(topic.id, partition, cursor, there, now_ms, summary)
        rows.append(
            {
                "topic": topic.name,
                "subscription": record.name,
                "type": record.type,
                "partition": partition,
                "cursor": lag.cursor,
                "end_offset": there.stop,
                "lag_messages": lag.behind_messages,
                "lag_ms": lag.behind_ms,
                "pending": lag.pending,
                "leased": lag.leased,
                "redelivered": redelivered_of(cursor, there.start),
                "epoch": record.epoch,
                "consumer": record.consumer,
                "query": record.stream,
                "dead_letter_topic": record.dead_letter_topic,
            }
        )
    return rows


def _producers(connection: Connection, _limit: int | None, _version: int | None) -> Iterator[Row]:
    known = connection.follower.look(lambda state: list(state.producers.values()))
    for item in sorted(known, key=lambda item: item.name):
        yield {
            "producer": item.name,
            "epoch": item.epoch,
            "open_transactions": len(item.open),
            "fenced_by": item.fenced_by,
        }


def _history(connection: Connection, limit: int | None, version: int | None) -> Iterator[Row]:
    for item in history(connection, HISTORY_ROWS if limit is None else limit, version):
        yield {
            "version": item.version,
            "timestamp": _us(item.timestamp_ms),
            "writer": item.writer,
            "actions": list(item.actions.items()),
            "transactions_committed": item.transactions_committed,
            "size_bytes": item.size_bytes,
            "rows": list(item.rows.items()),
            "client": item.client,
        }


def _files(connection: Connection, limit: int | None, _version: int | None) -> Iterator[Row]:
    # Listed first: what is named by the time of the look behind it is no file that nothing names.
    listed = list(islice(connection.store.list(""), limit))
    connection.follower.refresh()
    references = _References(connection)
    for info in listed:
        yield {
            "key": info.key,
            "kind": keys.kind_of(f"{connection.name}/{info.key}"),
            "size_bytes": info.size_bytes,
            "modified": _us(info.modified_ms),
            "referenced": references.has(info),
        }


class _References:
    """Which objects the log needs: for what a version that can be read shows, or may yet show."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        follower = connection.follower

        def look(state: State) -> tuple[int, dict[str, TopicRecord], dict[int, int]]:
            return (
                state.head.oldest_readable,
                {item.folder: item for item in state.topics.values()},
                {item.id: item.epoch for item in state.subscriptions.values()},
            )

        self._oldest, self._topics, self._epochs = follower.look(look)
        base = follower.base
        self._checkpoint = None if base is None else base.version
        self._parts = frozenset(() if base is None else (part.unique for part in base.parts))
        self._segments: dict[str, tuple[dict[int, SegmentRecord], dict[int, int]]] = {}

    def has(self, info: ObjectInfo) -> bool | None:
        """Whether the log needs an object; None where the log does not say."""
        key = keys.parse_key(info.key)
        if isinstance(key, keys.SegmentKey):
            return self._has_segment(key)
        if isinstance(key, keys.ManifestKey):
            return key.version == self._checkpoint
        if isinstance(key, keys.PartKey):
            return key.unique in self._parts
        if isinstance(key, keys.HeartbeatKey):
            return self._epochs.get(key.subscription) == key.epoch
        if isinstance(key, keys.MailboxKey | keys.DeltaKey | keys.TableFileKey):
            return None
        return not isinstance(key, keys.ReplacedKey | None)

    def _has_segment(self, key: keys.SegmentKey) -> bool:
        topic = self._topics.get(key.folder)
        if topic is None:
            return False
        if key.folder not in self._segments:
            records, removals = self._connection.follower.segments(topic.id)
            self._segments = {key.folder: ({item.number: item for item in records}, removals)}  # keys come in order
        known, removals = self._segments[key.folder]
        record = known.get(key.segment)
        return garbage.reason_of(topic, record, key.file, removals, self._oldest, closed=True) is None


class Table(NamedTuple):
    """A table: its columns, and the call that gives its rows, with the number that is wanted at most, and the version.

    ``has_versions``: whether the log still says how the table was at a version that can be read.
    """

    schema: pa.Schema
    rows: Callable[[Connection, int | None, int | None], Iterable[Row]]
    has_versions: bool = False


def _present(name: str, kind: pa.DataType) -> pa.Field:
    """A column without nulls."""
    return pa.field(name, kind, nullable=False)


TABLES: Final[dict[str, Table]] = {
    "transactions": Table(
        pa.schema(
            [
                _present("txn_id", pa.string()),
                _present("state", pa.string()),
                pa.field("version", pa.int64()),
                pa.field("timestamp", _TIME),
                pa.field("reason", pa.string()),
                pa.field("producer", pa.string()),
                pa.field("age_ms", pa.int64()),
                pa.field("deadline", _TIME),
                pa.field("client", pa.string()),
            ]
        ),
        _transactions,
    ),
    "segments": Table(
        pa.schema(
            [
                _present("topic", pa.string()),
                _present("segment", pa.int64()),
                _present("state", pa.string()),
                _present("rows", pa.int64()),
                _present("size_bytes", pa.int64()),
                _present("slices", pa.list_(pa.field("element", _SLICE, False))),
                _present("merged", pa.bool_()),
                _present("logged_version", pa.int64()),
                pa.field("ended_version", pa.int64()),
                pa.field("timestamp", _TIME),
                pa.field("replaced_version", pa.int64()),
                pa.field("txn_id", pa.string()),
                _present("key", pa.string()),
                _present("checksum", pa.string()),
            ]
        ),
        _segments,
        has_versions=True,
    ),
    "subscriptions": Table(
        pa.schema(
            [
                _present("topic", pa.string()),
                _present("subscription", pa.string()),
                _present("type", pa.string()),
                _present("partition", pa.int32()),
                _present("cursor", pa.int64()),
                _present("end_offset", pa.int64()),
                _present("lag_messages", pa.int64()),
                pa.field("lag_ms", pa.int64()),
                _present("pending", pa.int64()),
                _present("leased", pa.int64()),
                _present("redelivered", pa.int64()),
                _present("epoch", pa.int64()),
                pa.field("consumer", pa.string()),
                pa.field("query", pa.string()),
                pa.field("dead_letter_topic", pa.string()),
            ]
        ),
        _subscriptions,
    ),
    "producers": Table(
        pa.schema(
            [
                _present("producer", pa.string()),
                _present("epoch", pa.int64()),
                _present("open_transactions", pa.int64()),
                pa.field("fenced_by", pa.string()),
            ]
        ),
        _producers,
    ),
    "history": Table(
        pa.schema(
            [
                _present("version", pa.int64()),
                _present("timestamp", _TIME),
                _present("writer", pa.string()),
                _present("actions", pa.map_(pa.string(), pa.int64())),
                _present("transactions_committed", pa.int64()),
                _present("size_bytes", pa.int64()),
                _present("rows", pa.map_(pa.string(), pa.int64())),
                pa.field("client", pa.string()),
            ]
        ),
        _history,
        has_versions=True,
    ),
    "files": Table(
        pa.schema(
            [
                _present("key", pa.string()),
                _present("kind", pa.string()),
                _present("size_bytes", pa.int64()),
                _present("modified", _TIME),
                pa.field("referenced", pa.bool_()),
            ]
        ),
        _files,
    ),
}
"""By the name of a table what it is. Columns are added behind the others, and none is changed."""

__all__ = ["HISTORY_ROWS", "TABLES", "Table", "check_has_versions", "table", "table_named"]
