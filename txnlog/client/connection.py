"""A client's connection to a namespace: what its handles share. Users hold a Namespace, which has one."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

from txnlog.client import commit_results
from txnlog.client.block_keeper import BlockKeeper
from txnlog.client.dropped_subscriptions import DroppedSubscriptions
from txnlog.client.session_owner import SessionOwner
from txnlog.client.skipped_versions import warn_of_larger
from txnlog.common.limits import RENEW_AFTER_MS
from txnlog.common.names import nearest, parse_label, parse_topic_name
from txnlog.common.validation import whole_number
from txnlog.errors import SubscriptionNotFound, TopicNotFound, TxnLogError
from txnlog.fold import number_blocks
from txnlog.fold.number_blocks import CHUNK
from txnlog.fold.producers import check_producer, committed_app
from txnlog.fold.state import Cursor, Draft, ProducerRecord, State, StreamRecord, SubscriptionRecord, TopicRecord
from txnlog.fold.subscription_records import check_epoch, live_subscription
from txnlog.fold.topics import topic_named
from txnlog.format import schema
from txnlog.format.actions import Header, Reserve, StreamBatch
from txnlog.format.codec import digest_of
from txnlog.log.commands import ONE_RESERVATION, Simple
from txnlog.log.transaction_commands import CommitResult, Skipped, replayed
from txnlog.replies import Replying, refused_write, reworded
from txnlog.results import Committed


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


class Connection(SessionOwner):
    """A client's connection to one namespace: its store, its follower, its one writer. Bound to its process."""

    def __repr__(self) -> str:
        return f"Connection({self.summary()})"

    def _begin_in_child(self) -> None:
        """In a forked child: no request now, but an identity, numbers and threads of its own at the next call."""
        self._handles: dict[str, TopicHandle] = {}
        self._turns: dict[int, Iterator[int]] = {}
        self._dropped = DroppedSubscriptions()
        super()._begin_in_child()

    # --- the log ----------------------------------------------------------------------------------------------------

    def log_now_ms(self) -> int:
        """The time of the log, by which leases and blocks end: the next entry would have at least this timestamp."""
        return self.follower.state.head.log_time_ms(self.runtime.now_ms())

    @property
    def newest_entry(self) -> tuple[int, str]:
        """Version and digest of the newest entry that this handle has read: the digest covers all before."""
        head = self.follower.state.head
        return head.version, head.digest

    def has_entry(self, version: int, digest: str) -> bool:
        """Whether the log holds this very entry."""
        data = self.follower.log.get(version)
        return data is not None and digest_of(data) == digest

    def is_in_log(self) -> bool:
        """Whether the log still holds what this handle has read of it.

        Who deletes a namespace's files, or puts an older copy in their place, does not know of the handle.
        """
        return self.has_entry(*self.newest_entry)

    def remembers_outcomes_behind(self, version: int) -> bool:
        """Whether the log knows the outcome of whatever ended behind a version: else it may have been forgotten.

        Of a version that it does not have (it was set back) it knows that nothing ended behind it.
        """
        head = self.follower.state.head
        return version > head.version or self.follower.log.entry(version).header.timestamp_ms >= head.outcomes_since_ms

    # --- numbers of the log -----------------------------------------------------------------------------------------

    @property
    def next_number(self) -> int:
        """Above all numbers that the log has given to writers."""
        return self.follower.state.head.next_number

    def reserve_block(self, count: int) -> range:
        """A block of numbers of its own for a job whose tasks number their files themselves (Spark's executors).

        Any process may use them, each once: the transaction that names them need not be this connection's.
        """
        whole_number("count", count, 1)
        wanted = -(-count // CHUNK) * CHUNK
        appender = self.appender

        def decide(draft: Draft, _at: Header) -> list[Reserve]:
            return [Reserve(appender.numbers.writer_text, draft.head.next_number, wanted)]

        def result(draft: Draft, _at: Header) -> range:
            end = draft.head.next_number
            return range(end - wanted, end)

        return appender.call(Simple(decide, result, ONE_RESERVATION, is_upkeep=True))

    def keep_alive(self, number: int) -> BlockKeeper:
        """A context manager for long jobs under numbers that the log does not show yet: their block stays open.

        ``with connection.keep_alive(block.start): ...`` renews the block of that number in the background. Without it a
        job that takes longer than a vacuum's grace (a day by default) may find that its commit is refused.
        """
        return BlockKeeper(number, self.appender.carry_out, self.runtime.engine)

    @contextmanager
    def keep_blocks_alive(self, wanted: Iterable[int]) -> Iterator[None]:
        """``keep_alive`` for every open block that holds one of these numbers."""
        numbers = list(wanted)
        found = self.follower.look(lambda state: [number_blocks.block_of(state, number) for number in numbers])
        blocks = {block.first for block in found if block is not None}
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

    # --- topics -----------------------------------------------------------------------------------------------------

    def topic_record(self, name: str, version: int | None = None) -> TopicRecord:
        """The record of a live topic, or of one that lived at a version."""
        text, later = f"no topic {name!r} in the namespace {self.name!r}", list[int]()
        parse_topic_name(name)
        newest, record = self.follower.look(lambda state: (state.head.version, topic_named(state, name)))
        if record is not None and version in {None, newest}:
            return record
        topics = self.follower.topics()
        if version is None or version == newest:
            candidates = [item.name for item in topics if not item.dropped]
        else:
            living = [item for item in topics if item.exists_at(version)]
            for item in living:
                if item.name == name:
                    return item
            candidates = [item.name for item in living]
            text += f" at version {version}"
            later = [item.id for item in topics if item.name == name and item.id > version]
        advice = f"there is one from version {min(later)} on" if later else nearest(name, candidates)
        raise TopicNotFound(text, advice=advice)

    def topic_record_by_id(self, topic: int) -> TopicRecord:
        """The record of a topic that was once there."""
        return self.follower.state.topics[topic]

    def live_topics(self) -> list[TopicRecord]:
        """The topics that are there now, by name."""
        topics = self.follower.topics()
        return sorted((item for item in topics if not item.dropped), key=lambda item: item.name)

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

    def next_partition(self, handle: TopicHandle) -> int:
        """The partition whose turn it is, in a topic without a key."""
        turns = self._turns.get(handle.id)
        if turns is None:
            turns = self._turns.setdefault(handle.id, itertools.count(int(self.runtime.jitter(handle.partitions))))
        return next(turns) % handle.partitions

    # --- subscriptions ----------------------------------------------------------------------------------------------

    def subscription_record(self, topic: int, name: str) -> SubscriptionRecord | None:
        """A subscription of a topic, by the topic's id."""

        def look(state: State) -> SubscriptionRecord | None:
            number = state.subscription_names.get((topic, name))
            return None if number is None else state.subscriptions[number]

        return self.follower.look(look)

    def subscription_record_by_id(self, subscription: int) -> SubscriptionRecord:
        """The record of a subscription. Raises SubscriptionNotFound where it was dropped."""
        record = self.follower.state.subscriptions.get(subscription)
        if record is None:
            raise self._dropped.error(self.follower, subscription)
        return record

    def has_subscription(self, subscription: int) -> bool:
        """Whether a subscription is there, by its id: not where it was dropped."""
        return self.follower.state.subscriptions.get(subscription) is not None

    def shared_subscription(self, subscription: int) -> SubscriptionRecord | None:
        """A subscription if several consumers take its messages, by leases."""
        record = self.follower.state.subscriptions.get(subscription)
        return record if record is not None and record.type == "shared" else None

    def cursors_of(self, subscription: int) -> dict[int, Cursor]:
        """How far a subscription has come, by partition. Raises SubscriptionNotFound where it was dropped."""

        def look(state: State) -> dict[int, Cursor] | None:
            record = state.subscriptions.get(subscription)
            if record is None:
                return None
            return {p: state.cursors[subscription, p] for p in range(state.topics[record.topic].partitions)}

        found = self.follower.look(look)
        if found is None:
            raise self._dropped.error(self.follower, subscription)
        return found

    def naming_dropped(self) -> Replying:
        """Name a subscription that the state does not have in errors about it."""
        return Replying(self._naming_dropped)

    def _naming_dropped(self, error: TxnLogError) -> TxnLogError:
        if not isinstance(error, SubscriptionNotFound) or error._number is None:
            return error
        named = self._dropped.error(self.follower, error._number)
        return reworded(named, durable=error.durable)  # an earlier part of the call may have written something

    # --- commits ----------------------------------------------------------------------------------------------------

    def committed(self, result: CommitResult, subscriptions: Mapping[int, str] | None = None) -> Committed:
        """The public form of a commit's result; ``subscriptions`` has texts of some by their ids.

        Also on a closed connection.
        """
        return commit_results.committed(self._session_even_closed, result, subscriptions or {}, self._dropped)

    def committed_before(self, app_id: str | None, app_version: int | None) -> Skipped | None:
        """The commit that brought this version of an app, or a later one, as far as this client knows the log.

        For who does no work then: it warns of a later one.
        """
        if app_id is None or app_version is None:
            return None
        known = committed_app(self.follower.state, parse_label("txn_app_id", app_id), app_version)
        if known is None:
            return None
        warn_of_larger(known, app_version)
        return Skipped(known.txn, known.version)

    def committed_batch(self, batch: StreamBatch) -> Skipped | None:
        """The commit of this very batch of a stream, by what this client knows.

        Raises InvalidInputError where another batch has its id.
        """
        return self.follower.look(lambda state: replayed(state.draft(), batch))

    def stream(self, identity: str) -> StreamRecord | None:
        """The last batch that a streaming query committed."""
        return self.follower.state.streams.get(identity)

    # --- conflicts of a call, by what this client knows -------------------------------------------------------------

    def producer_record(self, producer: str | None) -> ProducerRecord | None:
        """The newest record of a producer's name."""
        return None if producer is None else self._session_even_closed.follower.state.producers.get(producer)

    def check_producer(self, producer: str | None, epoch: int | None) -> None:
        """Raise ProducerFenced for an epoch that this client knows to be old."""
        if producer is not None:
            self.follower.look(lambda state: check_producer(state.draft(), producer, epoch))

    def check_consumer(self, subscription: int, epoch: int) -> None:
        """Raise ConsumerFenced for an epoch known to be old, SubscriptionNotFound where it was dropped."""
        self.follower.look(lambda state: check_epoch(live_subscription(state.draft(), subscription), epoch))


__all__ = ["Connection", "TopicHandle"]
