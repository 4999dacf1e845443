"""A client's connection to a namespace: store, fold, writer, what its handles share. Namespace is its public face."""

from __future__ import annotations

import datetime
import os
import threading
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from txnlog import keys, schema
from txnlog.actions import Acknowledgement, AnyAction, Header, Reserve
from txnlog.actions import Namespace as NamespaceAction
from txnlog.actions import Protocol as ProtocolAction
from txnlog.appender import Appender
from txnlog.apply import check_writable
from txnlog.commands import Answer, CommitResult, Duplicate, Simple, Skipped, overdue
from txnlog.errors import (
    ClockSkew,
    InvalidInputError,
    InvalidTransactionState,
    NamespaceNotFound,
    ReadOnly,
    TopicNotFound,
    VersionNotAvailable,
)
from txnlog.follower import Follower
from txnlog.ids import TxnId
from txnlog.limits import FORMAT_VERSION, MAX_CLOCK_AHEAD_MS
from txnlog.log import Log
from txnlog.maintenance.checkpointer import Checkpointer
from txnlog.names import folded, nearest, parse_namespace_name, parse_topic_name
from txnlog.numbers import CHUNK
from txnlog.reader import SegmentReader
from txnlog.results import Committed
from txnlog.root import Root, create_log
from txnlog.runtime import Clock, Runtime
from txnlog.segment_builder import SharedSegmentBuilder
from txnlog.snapshot import Snapshot
from txnlog.state import Draft, TopicRecord
from txnlog.store.base import Store
from txnlog.store.open import open_store
from txnlog.store.wrappers import CountingStore, PrefixStore, ReadOnlyStore

Mode = Literal["r", "rw"]
Position = str | Mapping[int, int] | datetime.datetime

_open_connections: weakref.WeakSet[Connection] = weakref.WeakSet()


class TopicHandle:
    """What producing to a topic needs, derived once from its record."""

    __slots__ = ("id", "key", "name", "partitions", "record", "schema")

    def __init__(self, record: TopicRecord) -> None:
        self.record = record
        self.id = record.id
        self.name = record.name
        self.key = record.key
        self.partitions = record.partitions
        self.schema = schema.to_arrow(record.schema)


class Connection:
    """A client's connection to one namespace: its store, its fold, its one writer. Bound to its process."""

    def __init__(
        self,
        root: str,
        name: str,
        *,
        create: bool = False,
        mode: Mode = "rw",
        storage_options: Mapping[str, Any] | None = None,
        clock: Clock | None = None,
        min_commit_interval_ms: int = 0,
        store: Store | None = None,
    ) -> None:
        self.name = parse_namespace_name(name)
        self.root = root
        self.mode: Mode = mode
        self._storage_options = dict(storage_options or {})
        self._clock = clock
        self._min_commit_interval_ms = min_commit_interval_ms
        self._given_store = store
        self._closed = False
        self._connect(create=create)
        _open_connections.add(self)

    def _connect(self, *, create: bool) -> None:
        self.identity = object()
        self.runtime = Runtime(self._clock)
        whole = self._given_store or open_store(self.root, self._storage_options)
        if self.mode == "r":
            whole = ReadOnlyStore(whole)
        whole = self._counting = CountingStore(whole, keys.kind_of)
        self._whole_store = whole
        self.store: Store = PrefixStore(whole, self.name)
        self._root_log = Root(whole, self.runtime)
        log = Log(self.store, self.runtime)
        if not log.exists():
            if not create:
                raise NamespaceNotFound(
                    f"there is no namespace {self.name!r} in this root", advice=self._nearest_namespace()
                )
            self._create()
        self.follower = Follower(log)
        self.coordinator = self.follower.state.head.coordinator
        self.reader = SegmentReader(self.store, self.runtime)
        self._appender: Appender | None = None
        self._checkpointer = Checkpointer(self.follower, self.store, self.runtime)
        self._lock = threading.RLock()
        self._holds: dict[int, list[Acknowledgement]] = {}
        self._handles: dict[str, TopicHandle] = {}
        self._turns: dict[int, int] = {}
        if self.mode == "rw":
            check_writable(self.follower.state)

    def _nearest_namespace(self) -> str:
        names = [item.name for item in self._root_log.namespaces()] if self._root_log.exists() else []
        return f"{nearest(self.name, names)}; open with create=True to make it"

    def _create(self) -> None:
        self._root_log.ensure_safe()
        record = self._root_log.register(self.name)
        actions: list[AnyAction] = [
            ProtocolAction(FORMAT_VERSION, FORMAT_VERSION),
            NamespaceAction(self.name, record.coordinator),
        ]
        create_log(self.store, self.runtime, actions, self.runtime.unique())

    # --- the handle itself ------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return f"Namespace({self.name!r}, version={self.follower.version}, mode={self.mode!r})"

    def __getstate__(self) -> dict[str, Any]:
        if self._given_store is not None or self._clock is not None:
            raise InvalidInputError("a namespace with a store or clock of its own cannot be pickled")
        return {
            "root": self.root,
            "name": self.name,
            "mode": self.mode,
            "storage_options": self._storage_options,
            "min_commit_interval_ms": self._min_commit_interval_ms,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]  # a new handle: writer identity and numbers are never shared

    def close(self) -> None:
        """Finish background work and let go of the handle. Open transactions end by their timeout."""
        if self._closed:
            return
        self._closed = True
        if self._appender is not None:
            self._appender.close(InvalidTransactionState("the namespace handle was closed", advice="open it again"))
        self._checkpointer.close()
        self.runtime.close()

    @property
    def appender(self) -> Appender:
        """The writer of this handle. Raises ReadOnly for mode="r"."""
        if self._closed:
            raise InvalidTransactionState("the namespace handle was closed", advice="open it again")
        if self.mode == "r":
            raise ReadOnly(f'the namespace {self.name!r} was opened with mode="r"')
        with self._lock:
            if self._appender is None:
                self._appender = Appender(
                    self.follower,
                    self.store,
                    self.runtime,
                    SharedSegmentBuilder(self.runtime.unique),
                    min_commit_interval_ms=self._min_commit_interval_ms,
                    before_first_append=self._before_first_append,
                    after_append=self._checkpointer.after_append,
                )
            return self._appender

    def _before_first_append(self) -> None:
        self._root_log.ensure_safe()
        self._root_log.check_not_dropped(self.name, self.coordinator)
        if self.runtime.trusts_clock:
            return
        key = f"{keys.LOG_FOLDER}clock/{self.runtime.unique()}"
        self.store.put(key, b"")
        try:
            ahead = self.runtime.now_ms() - self.store.info(key).modified_ms
        finally:
            self.store.delete(key)
        if ahead > MAX_CLOCK_AHEAD_MS:
            raise ClockSkew(f"this machine's clock is {ahead / 1000:.0f} s ahead of the store's")

    def reserve_block(self, count: int) -> range:
        """A block of numbers of its own for a job whose tasks number their files themselves (Spark's executors).

        Any process may use them, each once: the transaction that names them need not be this handle's.
        """
        wanted = -(-count // CHUNK) * CHUNK

        def decide(draft: Draft, _at: Header) -> list[Reserve]:
            return [Reserve(self.appender.writer, draft.head.next_number, wanted)]

        def result(draft: Draft, _at: Header) -> range:
            end = draft.head.next_number
            return range(end - wanted, end)

        return self.appender.call(Simple(decide, result, "reserve"))

    @property
    def store_requests(self) -> dict[tuple[str, str], int]:
        """Requests that this handle sent to the store so far, by call and kind of object: ``("put", "segment"): 3``.

        Calls are create, put, get, get_range, info, list, delete and sync (no request on an object store); kinds are
        entry, segment, checkpoint, root and other.
        """
        return self._counting.counts()

    def check_owner(self, owner: object, what: str) -> None:
        """Raise unless a handle of this namespace belongs to this process and the namespace is open."""
        if self._closed:
            raise InvalidTransactionState("the namespace handle was closed", advice="open it again")
        if owner is not self.identity:
            raise InvalidTransactionState(
                f"the {what} belongs to the process that this one was forked from", advice=f"make a {what} of your own"
            )

    def after_fork(self) -> None:
        """In a forked child: connect again, with an identity and numbers of its own."""
        if not self._closed:
            self._connect(create=False)

    # --- topics -----------------------------------------------------------------------------------------------------

    def topic_record(self, name: str, version: int | None = None) -> TopicRecord:
        """The record of a live topic, or of one that lived at a version."""
        parse_topic_name(name)
        with self.follower.lock:
            state = self.follower.state
            if version is None or version == state.head.version:
                known = state.topic_names.get(folded(name))
                record = None if known is None else state.topics[known]
                if record is not None and record.name == name:
                    return record
                candidates = [item.name for item in state.topics.values() if item.dropped_version is None]
            else:
                living = [item for item in state.topics.values() if item.exists_at(version)]
                for item in living:
                    if item.name == name:
                        return item
                candidates = [item.name for item in living]
        raise TopicNotFound(f"no topic {name!r} in the namespace {self.name!r}", advice=nearest(name, candidates))

    def topic_record_by_id(self, topic: int) -> TopicRecord:
        """The record of a topic that was once there."""
        with self.follower.lock:
            return self.follower.state.topics[topic]

    def topic_handle(self, name: str) -> TopicHandle:
        """A live topic for producing; looks at the log once before saying that there is none."""
        state = self.follower.state
        handle = self._handles.get(name)
        if handle is not None and state.topics.get(handle.id) is handle.record:
            return handle
        try:
            record = self.topic_record(name)
        except TopicNotFound:
            self.follower.refresh()
            record = self.topic_record(name)
        handle = TopicHandle(record)
        self._handles[name] = handle
        return handle

    def next_partition(self, handle: TopicHandle) -> int:
        """The partition whose turn it is, in a topic without a key."""
        with self._lock:
            turn = self._turns.get(handle.id)
            turn = int(self.runtime.jitter(handle.partitions)) if turn is None else turn + 1
            self._turns[handle.id] = turn
            return turn % handle.partitions

    # --- results and views ------------------------------------------------------------------------------------------

    def committed(self, result: CommitResult, dropped: Iterable[int]) -> Committed:
        """The public form of a commit's result."""
        if isinstance(result, Skipped):
            return Committed(TxnId(self.coordinator, result.txn), result.version, None, skipped=True)
        topics = self.follower.state.topics  # topics are never forgotten, so a look-up needs no lock
        if isinstance(result, Duplicate):
            return self._duplicate(result)
        offsets = None
        if result.offsets is not None:
            offsets = {
                (topics[item.topic].name, item.partition): range(item.start, item.end) for item in result.offsets
            }
        lost = tuple(topics[topic].name for topic in dict.fromkeys((*result.dropped, *dropped)))
        return Committed(TxnId(self.coordinator, result.number), result.version, offsets, dropped=lost)

    def _duplicate(self, result: Duplicate) -> Committed:
        offsets: dict[tuple[str, int], range] | None = {}
        txn: TxnId | None = None
        version = self.follower.version
        for piece in result.pieces:
            if piece.sequence is None:
                continue
            batch = self.follower.batch(result.producer, piece.topic, piece.partition, piece.sequence)
            if batch is None:
                offsets = None
                break
            start = batch.offset + piece.sequence - batch.sequence
            assert offsets is not None, "set to None only before leaving the loop"
            offsets[self.follower.state.topics[piece.topic].name, piece.partition] = range(start, start + piece.rows)
            txn, version = TxnId(self.coordinator, batch.txn), batch.version
        return Committed(txn, version, offsets, duplicate=True)

    def skips(self, app_id: str | None, app_version: int | None) -> bool:
        """Whether a batch of an app would be skipped, by what this client knows."""
        if app_id is None or app_version is None:
            return False
        known = self.follower.state.apps.get(app_id)
        return known is not None and app_version <= known.app_version

    def snapshot_at(self, version: int) -> Snapshot:
        """A view at a version this client knows."""
        head = self.follower.state.head
        if not isinstance(version, int) or not head.oldest_readable <= version <= head.version:
            raise VersionNotAvailable(
                f"version {version!r} cannot be read",
                advice=f"versions {head.oldest_readable} to {head.version} can be read",
            )
        return Snapshot(self, version)

    def resolve_position(self, topic: TopicRecord, position: Position) -> dict[int, int]:
        """Offsets of a position by name, time or partition."""
        self.follower.refresh()
        with self.follower.lock:
            state = self.follower.state
            starts = {p: state.starts.get((topic.id, p), 0) for p in range(topic.partitions)}
            ends = {p: state.ends.get((topic.id, p), 0) for p in range(topic.partitions)}
        if position == "earliest":
            return starts
        if position == "latest":
            return ends
        if isinstance(position, datetime.datetime):
            version = self.follower.log.version_at(epoch_ms(position), self.follower.version)
            if version is None or version < topic.id:
                return starts
            found = Snapshot(self, version).end_offsets(topic.name)
            return {p: max(starts[p], found[p]) for p in found}
        if isinstance(position, Mapping):
            return {int(p): int(offset) for p, offset in position.items()}
        raise InvalidInputError(
            f"unknown position {ascii(position)[:60]}",
            advice='use "earliest", "latest", {partition: offset} or a datetime with a zone',
        )

    # --- acknowledgements of open transactions of this client -------------------------------------------------------

    def note_holds(self, txn: int, acknowledgements: list[Acknowledgement]) -> None:
        """What an open transaction of this client acknowledged: others of the client conflict with it at once."""
        with self._lock:
            self._holds[txn] = acknowledgements

    def release_holds(self, txn: int) -> None:
        """The transaction ended."""
        with self._lock:
            self._holds.pop(txn, None)

    def holds(self) -> list[tuple[int, list[Acknowledgement]]]:
        """All of them, by transaction."""
        with self._lock:
            return list(self._holds.items())

    def end_overdue(self, subscriptions: Sequence[int]) -> None:
        """End overdue transactions that hold messages of these subscriptions: somebody waits for them."""
        now_ms = self.runtime.now_ms()
        with self.follower.lock:
            state = self.follower.state
            held = any(
                cursor.holds or cursor.cumulative is not None
                for (subscription, _), cursor in state.cursors.items()
                if subscription in subscriptions
            )
            due = bool(overdue(state.draft(), now_ms)) if held else False
        if due and self.mode == "rw":
            self.appender.call(
                Simple(lambda draft, at: overdue(draft, at.timestamp_ms) or Answer(None), lambda _draft, _at: None)
            )


def epoch_ms(timestamp: datetime.datetime | int) -> int:
    """Epoch milliseconds of a time with a zone. Raises InvalidInputError for a naive one."""
    if isinstance(timestamp, int):
        return timestamp
    if not isinstance(timestamp, datetime.datetime) or timestamp.tzinfo is None:
        raise InvalidInputError(
            "a timestamp is a datetime with a zone",
            advice="use datetime(..., tzinfo=datetime.UTC), or epoch milliseconds",
        )
    return int(timestamp.timestamp() * 1000)


def _after_fork() -> None:
    for handle in list(_open_connections):
        handle.after_fork()


os.register_at_fork(after_in_child=_after_fork)

__all__ = ["Connection", "Mode", "Position", "TopicHandle", "epoch_ms"]
