"""A client's connection to a namespace: what its handles share. Users hold a Namespace, which has one."""

from __future__ import annotations

import contextlib
import datetime
import itertools
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Literal

from txnlog.client.block_keeper import BlockKeeper
from txnlog.client.heartbeats import Heartbeats
from txnlog.client.ledger import Claim, Ledger, Receipt, check_claim, offsets_of
from txnlog.client.partition_numbers import check_partition
from txnlog.client.session import Session
from txnlog.client.unended import report
from txnlog.common import ranges
from txnlog.common.ids import Coordinators, TxnId
from txnlog.common.limits import RENEW_AFTER_MS
from txnlog.common.lru import Recent
from txnlog.common.names import nearest, parse_label, parse_namespace_name, parse_topic_name
from txnlog.common.runtime import Clock, Runtime, call_at_exit, renew_in_child
from txnlog.common.validation import epoch_ms, is_to_come, shown, whole_number
from txnlog.data.segment_reader import SegmentReader
from txnlog.errors import (
    Durable,
    InvalidInputError,
    InvalidTransactionState,
    OutcomeUnknown,
    SubscriptionNotFound,
    TopicNotFound,
    TransactionConflict,
    TxnLogError,
    refused_write,
)
from txnlog.fold import id_blocks
from txnlog.fold.acknowledgements import check_epoch, live_subscription, unknown_subscription
from txnlog.fold.expiry import overdue
from txnlog.fold.id_blocks import CHUNK
from txnlog.fold.producers import check_producer, committed_app
from txnlog.fold.sequences import before_first
from txnlog.fold.state import Batch, Cursor, Draft, Outcome, StreamRecord, SubscriptionRecord, TopicRecord
from txnlog.fold.topics import topic_named
from txnlog.format import schema
from txnlog.format.actions import AbortReason, Acknowledgement, Header, Reserve, StreamBatch, Subscription
from txnlog.format.codec import digest_of
from txnlog.log.appender import Appender
from txnlog.log.commands import ONE_RESERVATION, Answer, Simple
from txnlog.log.follower import Follower
from txnlog.log.transaction_commands import CommitResult, Duplicate, Skipped, replayed
from txnlog.results import Committed
from txnlog.store.base import Store
from txnlog.store.open import absolute, open_store
from txnlog.wording import Call, Words

Mode = Literal["r", "rw"]
Position = str | Mapping[int, int] | datetime.datetime

_CONSUMER = Words("consumer with ", Call("consumer", "..."))

_GONE_TEXTS = 1_024
"""Texts of dropped subscriptions that are kept: the same answer twice costs one read."""


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
    """A client's connection to one namespace: its store, its follower, its one writer. Bound to its process."""

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
        runtime: Runtime | None = None,
    ) -> None:
        self.name = parse_namespace_name(name)
        self.root = absolute(root) if store is None else root
        self.mode: Mode = mode
        self._storage_options = dict(storage_options or {})
        self._clock = clock
        self._min_commit_interval_ms = min_commit_interval_ms
        self._given_store = store
        self._given_runtime = runtime
        self._closed = False
        self._begin_in_child()
        self._current: Session | None = self._connect(create=create)
        renew_in_child(self)
        call_at_exit(self)

    def _connect(self, *, create: bool) -> Session:
        runtime = self._given_runtime or Runtime(self._clock)
        try:
            return Session(
                self._open_store,
                self.name,
                runtime,
                create=create,
                read_only=self.mode == "r",
                min_commit_interval_ms=self._min_commit_interval_ms,
            )
        except BaseException:
            runtime.close()
            raise

    def _open_store(self) -> Store:
        return self._given_store or open_store(self.root, self._storage_options)

    # --- the connection itself --------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return f"Connection({self.summary()})"

    def summary(self) -> str:
        """For a repr: name, version as far as known, mode. No request, also of a closed one."""
        session = self._current
        state = "closed" if self._closed else f"version={session.follower.version}" if session is not None else "forked"
        return f"{self.name!r}, {state}, mode={self.mode!r}"

    def __getstate__(self) -> dict[str, Any]:
        if any(given is not None for given in (self._given_store, self._given_runtime, self._clock)):
            raise InvalidInputError("a namespace with a store, runtime or clock of its own cannot be pickled")
        return {
            "root": self.root,
            "name": self.name,
            "mode": self.mode,
            "storage_options": self._storage_options,
            "min_commit_interval_ms": self._min_commit_interval_ms,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]  # a new connection: writer identity and numbers are never shared

    def close(self) -> None:
        """Finish background work; later calls are refused. Open transactions end by their timeout.

        Closing again goes on where an interrupt ended it.
        """
        self._closed = True
        session = self._current
        if session is not None:
            session.close(self._closed_error())
            # Behind it: where an interrupt ends the waiting, the next close still has them to report.
            self._report(f"The handle of the namespace {self.name!r} was closed before these", session)

    def _report(self, what: str, session: Session) -> None:
        report(what, self.described_work(session.unended.settle_all()))

    def described_work(self, unended: Mapping[int, Collection[int]]) -> dict[str, list[str]]:
        """The names of the topics that transactions have work for, by TxnID, without those whose end is known here.

        For the garbage collector as well: it takes no lock, and makes no request.
        """
        session = self._current
        if session is None:
            return {}
        state = session.follower.state  # topics are never forgotten, and each look-up is one step
        return {
            str(state.txn_id(number)): [state.topics[topic].name for topic in tuple(topics)]
            for number, topics in unended.items()
            if number not in state.outcomes
        }

    def report_at_exit(self) -> None:
        """The interpreter ends: report transactions with work. A daemon thread may have any lock: it takes none."""
        session = self._current
        if session is not None:
            self._report(f"The interpreter ended, with the namespace {self.name!r} open, before these", session)

    def _closed_error(self, what: str | None = None) -> InvalidTransactionState:
        advice = "open it again"
        if what == "transaction":
            advice = Words(
                advice,
                " and begin a new one: nothing of this becomes visible, unless the outcome of its commit is unknown: ",
                Call("abort", "txn_id"),
                " makes it definite",
            )
        return InvalidTransactionState(f"the handle of the namespace {self.name!r} was closed", advice=advice)

    def _begin_in_child(self) -> None:
        """In a forked child: no request now, but an identity, numbers and threads of its own at the next call."""
        self.identity = object()
        self._session_lock = threading.Lock()
        self._lock = threading.RLock()
        self._handles: dict[str, TopicHandle] = {}
        self._turns: dict[int, int] = {}
        self._gone_texts: Recent[int, str] = Recent(_GONE_TEXTS)
        self._current = None

    @property
    def session(self) -> Session:
        """The store, follower and writer of this process. Raises InvalidTransactionState for a closed connection."""
        if self._closed:
            raise self._closed_error()
        session = self._current
        if session is None:
            with self._session_lock:
                session = self._current
                if session is None:
                    session = self._current = self._connect(create=False)
        return session

    @property
    def _session_even_closed(self) -> Session:
        """The session, also after ``close``: a commit under way ends after it, and must not seem to have failed."""
        return self._current or self.session

    @property
    def runtime(self) -> Runtime:
        """Time, chance and threads."""
        return self.session.runtime

    @property
    def store(self) -> Store:
        """The namespace's objects."""
        return self.session.store

    @property
    def follower(self) -> Follower:
        """The follower of the namespace's log, with the materialized state."""
        return self.session.follower

    @property
    def reader(self) -> SegmentReader:
        """Decodes segments; also on a closed connection, for a scan under way."""
        return self._session_even_closed.reader

    @property
    def heartbeats(self) -> Heartbeats:
        """Signs of life of consumers that keep their place for a lease."""
        return self.session.heartbeats

    @property
    def coordinators(self) -> Coordinators:
        """The namespace's coordinator ids, by the numbers of its transactions."""
        return self.follower.state.head.coordinators

    @property
    def coordinator(self) -> int:
        """The namespace's coordinator id, which new TxnIDs have."""
        return self.coordinators.newest

    def txn_id(self, number: int) -> TxnId:
        """The TxnID of a number of the namespace's log."""
        return self.follower.state.txn_id(number)

    @property
    def appender(self) -> Appender:
        """The writer of this connection. Raises ReadOnly for mode="r"."""
        return self.session.appender

    @property
    def is_closed(self) -> bool:
        """Whether it serves no call any more."""
        return self._closed

    def check_owner(self, owner: object, what: str) -> None:
        """Raise unless what was made by this connection belongs to this process, and the connection is open."""
        if self._closed:
            raise self._closed_error(what)
        if owner is not self.identity:
            raise InvalidTransactionState(
                f"the {what} belongs to the process that this one was forked from", advice=f"make a {what} of your own"
            )

    def same_namespace(self, other: Connection) -> bool:
        """Whether another connection leads to the same namespace, as far as that can be known."""
        return self is other or (
            (self.root, self.name, self._given_store) == (other.root, other.name, other._given_store)
            and self.session.beginning == other.session.beginning  # else one was dropped, and the name was used again
        )

    def reserve_block(self, count: int) -> range:
        """A block of numbers of its own for a job whose tasks number their files themselves (Spark's executors).

        Any process may use them, each once: the transaction that names them need not be this connection's.
        """
        whole_number("count", count, 1)
        wanted = -(-count // CHUNK) * CHUNK
        appender = self.appender

        def decide(draft: Draft, _at: Header) -> list[Reserve]:
            return [Reserve(appender.writer, draft.head.next_number, wanted)]

        def result(draft: Draft, _at: Header) -> range:
            end = draft.head.next_number
            return range(end - wanted, end)

        return appender.call(Simple(decide, result, ONE_RESERVATION))

    def keep_alive(self, number: int) -> BlockKeeper:
        """A context manager for long jobs under numbers that the log does not show yet: their block stays open.

        ``with connection.keep_alive(block.start): ...`` renews the block of that number in the background. Without it a
        job that takes longer than a vacuum's grace (a day by default) may find that its commit is refused.
        """
        return BlockKeeper(number, self.appender.call, self.runtime)

    @contextmanager
    def keep_blocks_alive(self, wanted: Iterable[int]) -> Iterator[None]:
        """``keep_alive`` for every open block that holds one of these numbers."""
        with self.follower.lock:
            draft = self.follower.state.draft()
            blocks = {block.first for number in wanted if (block := id_blocks.block_of(draft, number)) is not None}
        with ExitStack() as stack:
            for first in sorted(blocks):
                stack.enter_context(self.keep_alive(first))
            yield

    def is_silent(self, first: int) -> bool:
        """Whether a block of this handle showed no life for so long that vacuum may close it before a job ends.

        Handing its numbers out shows none: jobs may fail, or write nothing. What this handle has not heard yet only
        makes a block younger.
        """
        block = self.follower.state.blocks.get(first)
        return block is None or self.log_now_ms() - block.touched_ms >= RENEW_AFTER_MS

    def log_now_ms(self) -> int:
        """The time of the log, by which leases and blocks end: the next entry would have at least this timestamp."""
        return max(self.follower.state.head.timestamp_ms, self.runtime.now_ms())

    @property
    def newest_entry(self) -> tuple[int, str]:
        """Version and digest of the newest entry that this handle has read: the digest covers all before."""
        with self.follower.lock:
            head = self.follower.state.head
            return head.version, head.digest

    def has_entry(self, version: int, digest: str) -> bool:
        """Whether the log holds this very entry."""
        data = self.follower.log.get(version)
        return data is not None and digest_of(data) == digest

    def remembers_outcomes_behind(self, version: int) -> bool:
        """Whether the log knows the outcome of whatever ended behind a version: else it may have been forgotten.

        Of a version that it does not have (it was set back) it knows that nothing ended behind it.
        """
        head = self.follower.state.head
        return version > head.version or self.follower.log.entry(version).header.timestamp_ms >= head.outcomes_since_ms

    def is_in_log(self) -> bool:
        """Whether the log still holds what this handle has read of it.

        Who deletes a namespace's files, or puts an older copy in their place, does not know of the handle.
        """
        return self.has_entry(*self.newest_entry)

    @property
    def next_number(self) -> int:
        """Above all numbers that the log has given to writers."""
        return self.follower.state.head.next_number

    # --- topics -----------------------------------------------------------------------------------------------------

    def topic_record(self, name: str, version: int | None = None) -> TopicRecord:
        """The record of a live topic, or of one that lived at a version."""
        text, later = f"no topic {name!r} in the namespace {self.name!r}", list[int]()
        parse_topic_name(name)
        with self.follower.lock:
            state = self.follower.state
            if version is None or version == state.head.version:
                record = topic_named(state, name)
                if record is not None:
                    return record
                candidates = [item.name for item in state.topics.values() if not item.dropped]
            else:
                living = [item for item in state.topics.values() if item.exists_at(version)]
                for item in living:
                    if item.name == name:
                        return item
                candidates = [item.name for item in living]
                text += f" at version {version}"
                later = [item.id for item in state.topics.values() if item.name == name and item.id > version]
        advice = f"there is one from version {min(later)} on" if later else nearest(name, candidates)
        raise TopicNotFound(text, advice=advice)

    def topic_record_by_id(self, topic: int) -> TopicRecord:
        """The record of a topic that was once there."""
        with self.follower.lock:
            return self.follower.state.topics[topic]

    def live_topics(self) -> list[TopicRecord]:
        """The topics that are there now."""
        with self.follower.lock:
            return [item for item in self.follower.state.topics.values() if not item.dropped]

    def topic_handle(self, name: str) -> TopicHandle:
        """A live topic for producing; looks at the log once before saying that there is none."""
        state = self.follower.state
        handle = self._handles.get(name) if isinstance(name, str) else None
        if handle is not None and state.topics.get(handle.id) is handle.record:
            return handle
        parse_topic_name(name)
        record: TopicRecord | None = None
        with contextlib.suppress(TopicNotFound):
            record = self.topic_record(name)
        if record is None:  # the first look's error is no cause of the second one's
            self.follower.refresh()
            with refused_write():
                record = self.topic_record(name)
        handle = TopicHandle(record)
        self._handles[name] = handle
        return handle

    def subscription_record(self, topic: int, name: str) -> SubscriptionRecord | None:
        """A subscription of a topic, by the topic's id."""
        with self.follower.lock:
            state = self.follower.state
            number = state.subscription_names.get((topic, name))
            return None if number is None else state.subscriptions[number]

    def subscription_record_by_id(self, subscription: int) -> SubscriptionRecord:
        """The record of a subscription. Raises SubscriptionNotFound where it was dropped."""
        record = self.follower.state.subscriptions.get(subscription)
        if record is None:
            raise self.dropped_subscription(subscription)
        return record

    def cursors_of(self, subscription: int) -> dict[int, Cursor]:
        """How far a subscription has come, by partition. Raises SubscriptionNotFound where it was dropped."""
        with self.follower.lock:
            state = self.follower.state
            record = state.subscriptions.get(subscription)
            if record is not None:
                return {p: state.cursors[subscription, p] for p in range(state.topics[record.topic].partitions)}
        raise self.dropped_subscription(subscription)

    def next_partition(self, handle: TopicHandle) -> int:
        """The partition whose turn it is, in a topic without a key."""
        with self._lock:
            turn = self._turns.get(handle.id)
            turn = int(self.runtime.jitter(handle.partitions)) if turn is None else turn + 1
            self._turns[handle.id] = turn
            return turn % handle.partitions

    # --- results and views ------------------------------------------------------------------------------------------

    def committed(self, result: CommitResult, subscriptions: Mapping[int, str] | None = None) -> Committed:
        """The public form of a commit's result; ``subscriptions`` has texts of some by their ids.

        Also on a closed connection.
        """
        session = self._session_even_closed
        if isinstance(result, Skipped):
            return Committed(session.txn_id(result.txn), result.version, None, skipped=True)
        topics = session.follower.state.topics  # topics are never forgotten, so a look-up needs no lock
        if isinstance(result, Duplicate):
            return _repeated(session, result)
        offsets = None
        if result.offsets is not None:
            offsets = {
                (topics[item.topic].name, item.partition): range(item.start, item.end) for item in result.offsets
            }
        known = subscriptions or {}
        dropped = [
            *[topics[topic].name for topic in result.dropped_topics],
            *[known.get(number) or self._gone(session, number) for number in result.dropped_subscriptions],
        ]
        return Committed(session.txn_id(result.number), result.version, offsets, dropped=tuple(dropped))

    def _gone(self, session: Session, number: int) -> str:
        """The text of a subscription that was dropped: the entry that created it has its name.

        Its number where that entry cannot be read: the commit that is reported stands. What was reported once stays.
        """
        text = self._gone_texts.get(number)
        if text is None:
            text = str(number)
            with contextlib.suppress(TxnLogError):
                for action in session.follower.log.entry(number).actions:
                    if isinstance(action, Subscription):
                        text = f"{session.follower.state.topics[action.topic].name}/{action.name}"
            self._gone_texts.put(number, text)
        return text

    def dropped_subscription(self, number: int) -> SubscriptionNotFound:
        """The error for a subscription that was dropped, by itself or with its topic: its name and the way out."""
        topic, _, name = self._gone(self._session_even_closed, number).partition("/")
        if not name:
            return unknown_subscription(number)
        with self.follower.lock:
            alone = topic_named(self.follower.state, topic) is not None
        if alone:
            return SubscriptionNotFound(
                f"the subscription {name!r} of {topic!r} was dropped",
                advice=Words("open another ", _CONSUMER, ": it creates the subscription again"),
                durable=Durable.NOTHING,
            )
        return SubscriptionNotFound(
            f"the topic {topic!r} was dropped, and its subscription {name!r} with it",
            advice=Words("make the topic again with ", Call("create_topic", "..."), ", then open another ", _CONSUMER),
            durable=Durable.NOTHING,
        )

    @contextmanager
    def naming_dropped(self) -> Iterator[None]:
        """Name a subscription that the state does not have in errors about it."""
        try:
            yield
        except SubscriptionNotFound as error:
            if error._number is None:
                raise
            named = self.dropped_subscription(error._number)
            named.durable = error.durable  # an earlier part of the call may have written something
            raise named from None

    def committed_before(self, app_id: str | None, app_version: int | None) -> Skipped | None:
        """The commit that brought this version of an app, or a later one, as far as this client knows the log."""
        if app_id is None or app_version is None:
            return None
        known = committed_app(self.follower.state, parse_label("txn_app_id", app_id), app_version)
        return None if known is None else Skipped(known.txn, known.version)

    def committed_batch(self, batch: StreamBatch) -> Skipped | None:
        """The commit of this very batch of a stream, by what this client knows.

        Raises InvalidInputError where another batch has its id.
        """
        with self.follower.lock:
            return replayed(self.follower.state.draft(), batch)

    def stream(self, identity: str) -> StreamRecord | None:
        """The last batch that a streaming query committed."""
        return self.follower.state.streams.get(identity)

    def start_offsets(self, topic: TopicRecord) -> dict[int, int]:
        """The earliest offset that can be read, by partition."""
        with self.follower.lock:
            state = self.follower.state
            return {p: state.start_of(topic.id, p) for p in range(topic.partitions)}

    def end_offsets(self, topic: TopicRecord, version: int) -> dict[int, int]:
        """The offset behind the last message visible at a version, by partition of a topic, also a dropped one."""
        with self.follower.lock:
            state = self.follower.state
            if state.head.version == version:
                return {p: state.end_of(topic.id, p) for p in range(topic.partitions)}
        ends = dict.fromkeys(range(topic.partitions), 0)
        segments, _ = self.follower.segments(topic.id)
        for segment in segments:
            if segment.state != "visible" or segment.ended_version is None or segment.ended_version > version:
                continue
            for item in segment.slices:
                if item.offset is not None:
                    ends[item.partition] = max(ends[item.partition], item.offset + item.rows)
        return ends

    def resolve_position(self, topic: TopicRecord, position: Position) -> dict[int, int]:
        """Offsets of a position by name, time or partition. Raises what :func:`check_position` raises."""
        self.follower.refresh()
        with self.follower.lock:
            state = self.follower.state
            starts = self.start_offsets(topic)
            ends = {p: state.end_of(topic.id, p) for p in range(topic.partitions)}
        if isinstance(position, str) and position == "earliest":
            return starts
        if isinstance(position, str) and position == "latest":
            return ends
        if isinstance(position, Mapping):
            return _offsets_of(topic, position)
        return self._offsets_at(topic, _time_of(position, self.log_now_ms()), starts)

    def _offsets_at(self, topic: TopicRecord, timestamp_ms: int, starts: Mapping[int, int]) -> dict[int, int]:
        """Behind what was visible at a time."""
        version = self.follower.log.version_at(timestamp_ms, self.follower.version)
        if version is None or version < topic.id:
            return dict(starts)
        found = self.end_offsets(topic, version)
        return {p: max(starts[p], found[p]) for p in found}

    # --- conflicts of a call, by what this client knows ---------------------------------------------------------------

    def producer_epoch(self, producer: str | None) -> int | None:
        """The newest epoch of a producer's name."""
        session = self._session_even_closed
        record = None if producer is None else session.follower.state.producers.get(producer)
        return None if record is None else record.epoch

    def check_producer(self, producer: str | None, epoch: int | None) -> None:
        """Raise ProducerFenced for an epoch that this client knows to be old."""
        if producer is not None:
            with self.follower.lock:
                check_producer(self.follower.state.draft(), producer, epoch)

    def check_consumer(self, subscription: int, epoch: int) -> None:
        """Raise ConsumerFenced for an epoch known to be old, SubscriptionNotFound where it was dropped."""
        with self.follower.lock:
            check_epoch(live_subscription(self.follower.state.draft(), subscription), epoch)

    def outcome(self, number: int) -> Outcome | None:
        """How a transaction ended, also one that only a checkpoint remembers; also on a closed connection."""
        return self._session_even_closed.follower.outcome(number)

    def may_have_ended(self, number: int) -> bool:
        """Whether a transaction that is not open can have ended in the log, even where no outcome is remembered."""
        follower = self._session_even_closed.follower
        with follower.lock:
            return number not in follower.state.transactions and id_blocks.is_spent(follower.state, number)

    def ledger(self, subscription: int, epoch: int) -> Ledger:
        """What this client does with the messages of a subscription in an epoch. Also on a closed connection."""
        return self._session_even_closed.ledgers.of(subscription, epoch)

    def ledgers_of(self, wanted: Iterable[Acknowledgement], receipt: Receipt | None) -> list[Ledger]:
        """The ledgers for claims of acknowledgements: this handle's, and that of the consumer that received them."""
        found = [self.ledger(item.subscription, item.epoch) for item in wanted]
        return found if receipt is None or receipt.ledger in found else [*found, receipt.ledger]

    def end_claims(self, ledger: Ledger) -> None:
        """Abort the claims in a ledger whose transactions are past their deadline, or ended in the log."""
        ledger.abort_those_over(self.may_have_ended, self.runtime.now_ms())

    def check_conflicts(
        self,
        txn: int,
        wanted: Sequence[Acknowledgement],
        receipt: Receipt | None,
        claim: Callable[[Sequence[Acknowledgement]], None],
        *,
        rest_of: Callable[[Draft], Sequence[Acknowledgement]] | None = None,
    ) -> None:
        """Raise the conflict of acknowledgements, or claim them: between the two nothing else happens to them.

        A conflict with the log, with a claim of another transaction of this client, or with what their consumer has
        still to deliver. No request where there is none. What the client knows is looked at again before it says no,
        and what is overdue is ended: its claims are over.

        Args:
            txn: the transaction that acknowledges.
            wanted: what it acknowledges.
            receipt: how it was received, where a consumer did: maybe one of another handle.
            claim: claims them, or what is left of them. It makes no request: everybody waits for it.
            rest_of: what of them is left to acknowledge, if not all; for an acknowledgement outside of transactions.

        Raises:
            TransactionConflict, ConsumerFenced, SubscriptionNotFound: nothing was claimed.
            StoreError: neither; the log could not be looked at again.
        """
        handles = [self] if receipt is None or receipt.connection is self else [self, receipt.connection]
        known = [handle.follower.version for handle in handles]
        refusal = self._refusal(handles, txn, wanted, receipt, claim, rest_of)
        if refusal is None:
            return
        for handle in handles:
            handle.follower.refresh()
            with contextlib.suppress(OutcomeUnknown):  # of its end: the refusal stands then
                handle.end_overdue([item.subscription for item in wanted])
        if len(handles) > 1:
            self.follower.refresh()  # of what the other one ended, which alone may know of its unlogged aborts
        if known != [handle.follower.version for handle in handles]:
            refusal = self._refusal(handles, txn, wanted, receipt, claim, rest_of)
        if refusal is not None:
            raise refusal

    def _refusal(
        self,
        handles: Sequence[Connection],
        txn: int,
        wanted: Sequence[Acknowledgement],
        receipt: Receipt | None,
        claim: Callable[[Sequence[Acknowledgement]], None],
        rest_of: Callable[[Draft], Sequence[Acknowledgement]] | None,
    ) -> TxnLogError | None:
        """The conflict of acknowledgements by what these handles know; None where they are claimed."""
        # In one order, or two threads wait for each other. Without a context manager of ours, whose frames an interrupt
        # would leave with the lock: behind Ctrl-C a traceback may be kept for ever, and an ExitStack entered halfway.
        first, second = sorted((handles[0], handles[-1]), key=id)
        rest = wanted
        with first.follower.lock, second.follower.lock:
            try:
                for handle in handles:  # a consumer passes over what is claimed in one of them, and must not lose it
                    draft = handle.follower.state.draft()
                    rest = wanted if rest_of is None else rest_of(draft)
                    check_claim(draft, txn, rest, handle._claims_of(wanted))
                if rest_of is None:
                    self._check_plain(wanted, receipt)
                if receipt is not None:
                    receipt.check_delivered()
            except TxnLogError as error:
                return error
            claim(rest)
            return None

    def _claims_of(self, wanted: Iterable[Acknowledgement]) -> Iterator[tuple[int, Claim]]:
        """What transactions of this client claim of the same subscriptions."""
        for item in wanted:
            ledger = self.ledger(item.subscription, item.epoch)
            self.end_claims(ledger)
            for number, claim in ledger.claims().items():
                if not claim.plain:
                    yield number, claim

    def _check_plain(self, wanted: Sequence[Acknowledgement], receipt: Receipt | None) -> None:
        """Raise TransactionConflict for messages that an acknowledgement outside of transactions takes just now.

        Only for those that are named: what lies before the end of a cumulative one may be acknowledged meanwhile. Two
        acknowledgements outside of transactions have no conflict: which the log shows first makes no difference.
        """
        for item in wanted:
            named = offsets_of(item)
            if receipt is not None:
                ranges.exclude(named, receipt.unnamed)
            for ledger in self.ledgers_of([item], receipt):
                for claim in ledger.claims().values():
                    claimed = claim.offsets() if claim.plain else {}
                    for partition, found in named.items():
                        if ranges.overlaps(found, claimed.get(partition, ())):
                            raise TransactionConflict(
                                f"a message of partition {partition} is pending in an acknowledgement outside of "
                                "transactions, which is under way"
                            )

    def shared_subscription(self, subscription: int) -> SubscriptionRecord | None:
        """A subscription if several consumers take its messages, by leases."""
        record = self.follower.state.subscriptions.get(subscription)
        return record if record is not None and record.type == "shared" else None

    def note_unlogged_abort(self, txn: int, reason: AbortReason) -> None:
        """The abort of a transaction did not reach the log: it comes there as soon as somebody here waits for it.

        Of this handle's, or of another one's that acknowledged what consumers of this one received.
        """
        session = self._current
        if session is not None:
            session.unlogged_aborts[txn] = reason

    def has_unlogged_abort(self, txn: int) -> bool:
        """Whether the log may still show a transaction as open whose abort did not reach it."""
        session = self._current
        return session is not None and txn in session.unlogged_aborts

    def end_overdue(self, subscriptions: Sequence[int]) -> None:
        """End transactions that claim messages of subscriptions and are overdue, or whose abort is not logged yet.

        Somebody waits for them.
        """
        if self.mode != "rw":
            return
        unlogged_aborts = self.session.unlogged_aborts

        def is_due() -> bool:
            now_ms = self.runtime.now_ms()
            with self.follower.lock:
                state = self.follower.state
                held = any(
                    cursor.holds or cursor.cumulative is not None
                    for (subscription, _), cursor in state.cursors.items()
                    if subscription in subscriptions
                )
                return held and bool(overdue(state.draft(), now_ms, unlogged_aborts))

        ending = Simple(
            lambda draft, at: overdue(draft, at.timestamp_ms, unlogged_aborts) or Answer(False),
            lambda _draft, _at: True,
        )
        # An entry ends a part of them, and who holds these messages may come last. Where it ends none, the clock was
        # ahead a moment ago: by the time of the log none is overdue.
        while is_due() and self.appender.call(ending):
            pass
        for txn in [txn for txn in list(unlogged_aborts) if self.follower.state.outcomes.get(txn) is not None]:
            unlogged_aborts.pop(txn, None)


def _repeated(session: Session, result: Duplicate) -> Committed:
    """Rows that were there already, with their original offsets. Raises OutOfOrderSequence for some that were not.

    Batches are kept for ever and leave no gap: what is not above the last sequence and not found lies before the first.
    The offsets are None where they are not one range: rows of others may lie between several batches.
    """
    offsets: dict[tuple[str, int], range] | None = {}
    found: list[Batch] = []
    for piece in result.pieces:
        if piece.sequence is None:
            continue
        last = piece.sequence + piece.rows - 1
        batches = session.follower.batches(result.producer, piece.topic, piece.partition, piece.sequence, last)
        if not batches or batches[0].sequence > piece.sequence:
            raise before_first(result.producer, piece.partition, piece.sequence)
        found += batches
        if any(one.offset + one.rows != other.offset for one, other in itertools.pairwise(batches)):
            offsets = None
        if offsets is not None:
            start = batches[0].offset + piece.sequence - batches[0].sequence
            place = (session.follower.state.topics[piece.topic].name, piece.partition)
            offsets[place] = range(start, start + piece.rows)
    transactions = {batch.txn for batch in found}
    txn = session.txn_id(transactions.pop()) if len(transactions) == 1 else None
    return Committed(txn, max(batch.version for batch in found), offsets, duplicate=True)


def check_position(topic: TopicRecord, position: object, now_ms: int) -> None:
    """Raise what ``Connection.resolve_position`` raises for what is no position of a topic. Asks no store.

    Args:
        topic: the topic.
        position: what is to be one.
        now_ms: the time of the log (``Connection.log_now_ms``).

    Raises:
        OffsetOutOfRange: the topic has no such partition.
        InvalidInputError: it is of no kind that a position has, or a time in the future.
    """
    if isinstance(position, Mapping):
        _offsets_of(topic, position)
    elif not isinstance(position, str) or position not in {"earliest", "latest"}:
        _time_of(position, now_ms)


def _time_of(position: object, now_ms: int) -> int:
    """Milliseconds since the epoch. Raises InvalidInputError for what is no time either, or one that is to come."""
    timestamp_ms = None
    if isinstance(position, datetime.datetime | str):  # no number: an offset would pass for a time of long ago
        with contextlib.suppress(InvalidInputError):
            timestamp_ms = epoch_ms(position)
    if timestamp_ms is not None and is_to_come(timestamp_ms, now_ms):
        raise InvalidInputError(
            f"the position {shown(str(position))} is a time in the future: whatever is there would be passed over",
            advice='give a time that has come, or "latest", which is behind whatever is there',
        )
    if timestamp_ms is not None:
        return timestamp_ms
    raise InvalidInputError(
        f"unknown position {shown(position)}",
        advice='use "earliest", "latest", {partition: offset}, or a time with a zone: '
        "datetime(..., tzinfo=datetime.UTC), datetime.fromtimestamp(seconds, datetime.UTC) or "
        '"2026-11-21T12:00:00Z"; a number alone could be an offset',
    )


def _offsets_of(topic: TopicRecord, position: Mapping[Any, Any]) -> dict[int, int]:
    found: dict[int, int] = {}
    for partition, offset in position.items():
        found[check_partition(topic.name, partition, topic.partitions)] = whole_number("an offset", offset, 0)
    return found


__all__ = ["Connection", "Mode", "Position", "TopicHandle", "check_position"]
