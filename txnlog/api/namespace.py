"""The handle of a namespace: topics, producers, consumers, snapshots, outcomes. What ``txnlog.open`` returns."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

import pyarrow as pa

from txnlog.api import producers, subscriptions, topics
from txnlog.api.administration import Administration
from txnlog.api.consumer import Consumer
from txnlog.api.producer import Producer
from txnlog.api.snapshot import Snapshot, snapshot_of
from txnlog.api.topic_alteration import Alteration
from txnlog.api.transact import transact
from txnlog.api.transaction import Transaction
from txnlog.api.writing import begin_transaction, produce_plain
from txnlog.client.connection import Connection
from txnlog.client.positions import Position
from txnlog.common.limits import DEFAULT_LEASE_MS
from txnlog.common.names import parse_label
from txnlog.common.validation import Duration, Size
from txnlog.replies import only_looking
from txnlog.results import Committed, Listing, SubscriptionInfo, TopicInfo

T = TypeVar("T")


class Namespace(Administration):
    """A handle: the object by which a process uses one namespace.

    Thread-safe; bound to its process: forked or unpickled, it is a writer of its own.

    Any call, also of what it makes, may raise InvalidTransactionState where the handle was closed, and StoreError,
    RetriableError or CorruptionError where the log cannot be read; one that writes, ReadOnly with ``mode="r"``. Other
    errors are listed with the calls that raise them.
    """

    def __init__(self, connection: Connection) -> None:
        # What it and all that it makes work through: for this project's own packages and tests, and free to change.
        self._connection = connection

    def __repr__(self) -> str:
        return f"Namespace({self._connection.summary()})"

    def __getstate__(self) -> dict[str, Any]:
        return self._connection.__getstate__()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._connection = Connection(**state)  # of its own: no two handles share one

    def __enter__(self) -> Namespace:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><td>{name}</td></tr>" for name in self.topics())
        version = self._connection.follower.version
        return f"<table><caption>namespace {self.name}, version {version}</caption>{rows}</table>"

    @property
    def name(self) -> str:
        """The namespace's name."""
        return self._connection.name

    @property
    def root(self) -> str:
        """The path or URL of its root; a relative path was made absolute when it was opened."""
        return self._connection.root

    @property
    def store_requests(self) -> dict[tuple[str, str], int]:
        """Requests that this handle sent to the store so far, by call and kind of object, ``("put", "segment"): 3``.

        Calls are create, put, get, get_range, info, list, delete and sync (no request on an object store); kinds are
        entry, segment, checkpoint, hint (a heartbeat), proposal, delta, probe, root and other.
        """
        return self._connection.session.requests.counts()

    def close(self) -> None:
        """Finish background work and let go of the handle. Open transactions end by their timeout.

        Transactions with work that nobody committed, prepared or aborted are reported, with their TxnIDs and topics, by
        a line in the log (of Python) and a ``ResourceWarning``; so are those that are garbage-collected, or open when
        the interpreter ends, also where nobody closes the handle.
        """
        self._connection.close()

    # --- topics -----------------------------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        schema: pa.Schema | None = None,
        partitions: int = 1,
        key: str | None = None,
        *,
        if_not_exists: bool = False,
        properties: Mapping[str, str] | None = None,
        delta: str | None = None,
        merge: str | None = None,
        retention_ms: Duration | None = None,
        retention_bytes: Size | None = None,
        retain_unacknowledged: bool | None = None,
        message_ttl_ms: Duration | None = None,
        cleanup_policy: str | None = None,
        delete_retention_ms: Duration | None = None,
        min_compaction_lag_ms: Duration | None = None,
        compact_unacknowledged: bool | None = None,
        statistics: str | None = None,
    ) -> TopicInfo:
        """Create a topic.

        Args:
            name: ASCII letters, digits, ``-``, ``_``, single dots.
            schema: its columns; left out: ``key: binary, value: binary, headers: map<string, binary>``. Times become
                ``timestamp("us")``, those with a zone ``timestamp("us", "UTC")``, whatever unit and zone the schema
                has; the result shows it.
            partitions: their number, from 1 to 10,000 (``LimitExceeded`` above). Of a keyed topic it cannot change.
            key: the column whose hash chooses the partition of a row.
            if_not_exists: return the topic that is there, if it has the same schema, partitions and key (and the
                same settings, if they are given).
            properties: labels of your own, texts under names that begin with ``user.``; others are refused.
            delta: whether the committed topic is a Delta table, too: ``"manual"`` (the default: brought up to date by
                ``catalog``'s ``publish``), ``"auto"`` (also after every commit, in the background), or ``"off"``:
                never. A ``timestamp`` without a zone needs ``"off"``: readers of Delta lack it.
            merge: whether clients that commit to the topic merge its small segments in the background, so that reading
                stays fast: ``"auto"`` (the default), or ``"manual"``: only :meth:`optimize` and :meth:`maintain` do.
            retention_ms: how long messages are kept: milliseconds, or ``"7d"``, ``"36h"``; -1, the default: for ever.
                :meth:`maintain` deletes older ones. The age of a message is that of its entry in the log.
            retention_bytes: how many bytes of segments are kept: a whole number, or ``"10GiB"``; -1, the default: all.
                :meth:`maintain` deletes the oldest messages beyond that, in whole segments.
            retain_unacknowledged: whether these two keep what a subscription has not acknowledged (the default).
            message_ttl_ms: after this time a message counts as acknowledged on every subscription, so that retention
                can delete it; -1, the default: never. At least as long as ``retention_ms``.
            cleanup_policy: ``"compact"``: :meth:`maintain` leaves of each key the newest message, in each partition,
                and takes the others out; offsets stay as they are. The topic needs a ``key``, the namespace the feature
                ``holes`` (:meth:`enable`). ``"delete"``, the default: only the settings above delete messages, which
                they do with ``"compact"`` as well.
            delete_retention_ms: with ``"compact"``, how long a message stays whose key has no value any more: all other
                columns are null (``headers`` of a topic without a schema of its own may be there). A day by default.
            min_compaction_lag_ms: with ``"compact"``, how long every message stays at least; 0 by default.
            compact_unacknowledged: with ``"compact"``, whether messages may go that a subscription has not acknowledged
                (the default, as in Kafka).
            statistics: whether entries hold the least and the greatest value of columns, by which scans leave out
                files: ``"auto"`` (the default) or ``"off"``, for what may have to be erased (:meth:`erase`): an entry
                is never changed.

        Raises:
            TopicExists, NameNotAllowed, SchemaMismatch, InvalidInputError, LimitExceeded: nothing was written.
            UnsupportedFeature: a setting needs a feature that the namespace does not have; nothing was written.
        """
        made = topics.create(
            self._connection,
            name,
            schema,
            partitions,
            key,
            if_not_exists=if_not_exists,
            properties=properties,
            given={
                "delta": delta,
                "merge": merge,
                "retention_ms": retention_ms,
                "retention_bytes": retention_bytes,
                "retain_unacknowledged": retain_unacknowledged,
                "message_ttl_ms": message_ttl_ms,
                "cleanup_policy": cleanup_policy,
                "delete_retention_ms": delete_retention_ms,
                "min_compaction_lag_ms": min_compaction_lag_ms,
                "compact_unacknowledged": compact_unacknowledged,
                "statistics": statistics,
            },
        )
        return topics.describe(made)

    def alter_topic(
        self,
        name: str,
        add_columns: pa.Schema | Iterable[pa.Field | tuple[str, pa.DataType]] | None = None,
        *,
        widen: Mapping[str, pa.DataType | pa.Field] | None = None,
        properties: Mapping[str, str | None] | None = None,
        delta: str | None = None,
        merge: str | None = None,
        retention_ms: Duration | None = None,
        retention_bytes: Size | None = None,
        retain_unacknowledged: bool | None = None,
        message_ttl_ms: Duration | None = None,
        cleanup_policy: str | None = None,
        delete_retention_ms: Duration | None = None,
        min_compaction_lag_ms: Duration | None = None,
        compact_unacknowledged: bool | None = None,
        statistics: str | None = None,
    ) -> TopicInfo:
        """Change a topic: more columns, wider ones, other properties. What is so already is fine, and writes nothing.

        Rows that are there stay as they are and have null in the new columns; a snapshot of an older version shows the
        columns of that version. Writers under way go on with the columns they know, running streams of Spark with those
        that they began with. Topics that take dead letters of this one follow. ``create_topic`` with
        ``if_not_exists=True`` and the columns of before gives the topic back as it is.

        Args:
            name: the topic.
            add_columns: new columns, which come last and allow null: a schema, or a list of fields or ``(name, type)``.
            widen: by column its new type, which holds every value of the old one: a bigger integer, ``double`` for
                ``float`` and for integers of up to 32 bits, a decimal with no fewer digits on either side of the point;
                of a nested column the whole type, whose structs may have more fields. A ``pa.field`` instead of a type
                may also allow null. The key keeps its type. Without ``delta="off"`` only as Delta's readers do.
            properties: labels of your own, texts under names that begin with ``user.``: those named are set, None takes
                one away, others stay.
            delta: whether the topic is a Delta table as well: ``"auto"``, ``"manual"``, ``"off"``.
            merge: whether clients that commit merge its small segments: ``"auto"``, ``"manual"``.
            retention_ms: how long messages are kept, as of :meth:`create_topic`; -1: for ever.
            retention_bytes: how many bytes of segments are kept; -1: all.
            retain_unacknowledged: whether these two keep what a subscription has not acknowledged.
            message_ttl_ms: when a message counts as acknowledged on every subscription; -1: never.
            cleanup_policy: whether of each key only the newest message stays: ``"compact"``, ``"delete"``.
            delete_retention_ms: how long a message without a value stays then.
            min_compaction_lag_ms: how long every message stays at least then.
            compact_unacknowledged: whether messages may go then that a subscription has not acknowledged.
            statistics: whether entries hold the least and the greatest value of columns, from now on: ``"auto"``,
                ``"off"``.

        Raises:
            SchemaMismatch: naming the column and the rule; nothing was written.
            TopicNotFound, InvalidInputError, NameNotAllowed, UnsupportedFeature: nothing was written.
            OutcomeUnknown: call it again.
        """
        given = {
            "delta": delta,
            "merge": merge,
            "retention_ms": retention_ms,
            "retention_bytes": retention_bytes,
            "retain_unacknowledged": retain_unacknowledged,
            "message_ttl_ms": message_ttl_ms,
            "cleanup_policy": cleanup_policy,
            "delete_retention_ms": delete_retention_ms,
            "min_compaction_lag_ms": min_compaction_lag_ms,
            "compact_unacknowledged": compact_unacknowledged,
            "statistics": statistics,
        }
        wanted = Alteration.parse(name, add_columns, widen, properties, given)
        return topics.describe(self._connection.appender.call(wanted.command()))

    def drop_topic(self, name: str) -> None:
        """Drop a topic and its subscriptions. Older versions still show it; open transactions go on without it.

        Its files stay until a vacuum finds that no readable version shows it: :meth:`vacuum`.

        Raises:
            TopicNotFound: with the nearest name.
            InvalidInputError: a subscription sends its dead letters there; nothing was written.
            OutcomeUnknown: look at ``ns.topics()``. Another topic may have the name by then: dropped again, it is gone.
        """
        topics.drop(self._connection, name)

    def topics(self) -> tuple[str, ...]:
        """Names of the topics, sorted."""
        return self.snapshot().topics()

    def topic(self, name: str) -> TopicInfo:
        """What a topic is. Raises TopicNotFound with the nearest name."""
        self._connection.follower.refresh()
        return topics.describe(self._connection.topic_record(name))

    # --- producing --------------------------------------------------------------------------------------------------

    def begin(
        self, *, timeout_ms: Duration | None = None, txn_app_id: str | None = None, txn_version: int | None = None
    ) -> Transaction:
        """Begin an anonymous transaction; see :meth:`txnlog.Producer.begin`."""
        return begin_transaction(
            self._connection, None, None, timeout_ms=timeout_ms, txn_app_id=txn_app_id, txn_version=txn_version
        )

    def produce(self, topic: str, data: Any, partition: int | None = None) -> Committed:
        """Produce outside a transaction, in nobody's name: one atomic entry, visible on return.

        See :meth:`txnlog.Producer.produce`, of a producer whose name makes it idempotent.

        Raises:
            SchemaMismatch, TopicNotFound, OffsetOutOfRange: naming the column, the nearest topic, the partitions;
                nothing was written.
            OutcomeUnknown: the rows may be visible, now or later; the same call again would bring them twice:
                ``ns.abort(error.txn_ids[0])`` makes the outcome of this one definite, and returns it.
        """
        return produce_plain(self._connection, None, None, topic, data, partition, None)

    def producer(self, name: str | None = None) -> Producer:
        """A producer. A name makes it exclusive: it fences its predecessor and aborts its open transactions.

        A named one is an entry of the log, durable on return; one without a name writes nothing.

        Raises:
            NameNotAllowed, LimitExceeded, ReadOnly: nothing was written, and nobody is fenced.
            OutcomeUnknown: the predecessor may be fenced; call it again: it fences what this call may have started.
        """
        if name is None:
            self._connection.check_writes()
            return Producer(self._connection, None, None)
        return Producer(self._connection, name, producers.start_producer(self._connection, name, None))

    def transact(self, work: Callable[[Transaction], T], attempts: int = 5, **options: Any) -> T:
        """Run ``work(txn)`` and commit; run it again in a new transaction where that may help.

        Args:
            work: does everything through ``txn``, and may run several times: of all attempts at most one has an effect.
            attempts: how often it is run at most, with growing pauses between.
            options: as of :meth:`begin`.

        It runs again after an ``AbortableError``, a ``RetriableError`` and ``CoordinatorFenced``, but not where it had
        committed the transaction by itself: then the error is raised. ``txn.prepare()`` is refused. An outcome that is
        unknown is made definite before (asked for again, else aborted); one that cannot be, and one of something else
        that ``work`` did, is raised. Messages that were acknowledged before are refused each time: let ``work`` receive
        them. What ``work`` receives in its own thread is delivered again after an attempt that failed, whether it was
        acknowledged there or not. Returns what ``work`` returned in the attempt that committed.

        Raises:
            OutcomeUnknown: with the transaction's id; nothing was run again.
            TxnLogError: what the last attempt met, or what another one cannot repair.
        """
        return transact(self._connection, partial(self.begin, **options), work, attempts)

    def last_txn_version(self, txn_app_id: str) -> int | None:
        """The last committed ``txn_version`` of an application id, None before the first.

        Raises:
            NameNotAllowed: no application can have this id.
        """
        self._connection.follower.refresh()
        known = self._connection.follower.state.apps.get(parse_label("txn_app_id", txn_app_id))
        return None if known is None else known.app_version

    # --- reading ----------------------------------------------------------------------------------------------------

    @only_looking()
    def snapshot(self, version: int | None = None, timestamp: datetime.datetime | str | int | None = None) -> Snapshot:
        """A consistent view of all topics: the newest, or at a version, or at the newest version of a time.

        A time is an aware datetime, ISO 8601 text with a zone, or epoch milliseconds.

        Raises:
            VersionNotAvailable: naming the range that can be read.
            InvalidInputError: a version that is no whole number; a version and a time.
        """
        return snapshot_of(self._connection, version, timestamp)

    # --- subscriptions ----------------------------------------------------------------------------------------------

    def create_subscription(
        self,
        topic: str,
        name: str,
        *,
        type: str = "exclusive",  # noqa: A002 - the name users know from Pulsar
        start: Position = "earliest",
        lease_ms: Duration = DEFAULT_LEASE_MS,
        takeover: str = "any",
        max_redeliveries: int | None = None,
        dead_letter_topic: str | None = None,
        if_not_exists: bool = False,
        allow_short_lease: bool = False,
    ) -> SubscriptionInfo:
        """Create a subscription of a topic: a cursor per partition, shared by whoever consumes under its name.

        Args:
            topic: the topic.
            name: of the subscription.
            type: ``exclusive`` (one consumer; a newer one fences it), ``failover`` (one is active, the others wait) or
                ``shared`` (several; each message is leased to one of them, who acknowledges first wins).
            start: ``"earliest"``, ``"latest"``, ``{partition: offset}``, or a time with a zone: an aware datetime, or
                ISO 8601 text. A time in the future is refused.
            lease_ms: how long a consumer that is silent keeps its place (Failover, ``takeover="after_lease"``), or a
                Shared one its messages; the former by calling ``receive``. Milliseconds, or text like ``"30s"``. Less
                than a second is refused without ``allow_short_lease``.
            takeover: who may take over from an Exclusive consumer: ``"any"`` at once, ``"same_name"``, or
                ``"after_lease"``. Of a Shared one nobody takes over.
            max_redeliveries: Shared: a message that came back more often goes to the dead-letter topic.
            dead_letter_topic: where to; it is created where there is none. An Exclusive one may have it alone: its
                consumer says what goes there (``spark_ext.process``).
            if_not_exists: return the subscription that is there, wherever its cursors are, if it has the same
                settings: type, lease, takeover rule and dead letters.
            allow_short_lease: a ``lease_ms`` below a second is meant. A lease that is in the log stays as it is.

        Raises:
            SubscriptionExists, TopicNotFound, SchemaMismatch, OffsetOutOfRange, InvalidInputError, LimitExceeded:
                nothing was written, the dead-letter topic neither.
        """
        found = subscriptions.create(
            self._connection,
            topic,
            name,
            type=type,
            start=start,
            lease_ms=lease_ms,
            takeover=takeover,
            max_redeliveries=max_redeliveries,
            dead_letter_topic=dead_letter_topic,
            if_not_exists=if_not_exists,
            allow_short_lease=allow_short_lease,
        )
        return subscriptions.describe(self._connection, found)

    def drop_subscription(self, topic: str, name: str) -> None:
        """Drop a subscription. Open transactions go on without what they acknowledged on it.

        Raises:
            TopicNotFound, SubscriptionNotFound: with the nearest name.
            OutcomeUnknown: look at ``ns.subscriptions(topic)``. Another one may have the name by then.
        """
        subscriptions.drop(self._connection, topic, name)

    def subscriptions(self, topic: str) -> tuple[str, ...]:
        """Names of a topic's subscriptions, sorted.

        Raises:
            TopicNotFound: with the nearest name.
        """
        self._connection.follower.refresh()
        return subscriptions.names_of(self._connection, topic)

    def subscription(self, topic: str, name: str) -> SubscriptionInfo:
        """A subscription: type, epoch, cursor by partition, what open transactions have acknowledged of it.

        Raises:
            TopicNotFound, SubscriptionNotFound: with the nearest name.
        """
        self._connection.follower.refresh()
        return subscriptions.describe(self._connection, subscriptions.find(self._connection, topic, name))

    def lag(self, topic: str, subscription: str) -> Listing:
        """The lag of a subscription by partition: cursor, end, messages and time behind, and what is pending or leased.

        Raises:
            TopicNotFound, SubscriptionNotFound: with the nearest name.
        """
        self._connection.follower.refresh()
        return subscriptions.lag(self._connection, topic, subscription)

    def consumer(
        self,
        topics: str | Sequence[str],
        subscription: str,
        *,
        type: str | None = None,  # noqa: A002 - the name users know from Pulsar
        name: str | None = None,
        takeover: bool = False,
    ) -> Consumer:
        """Open a consumer; the subscription is created (from earliest) where it does not exist.

        So a misspelt name begins again with the earliest message. A creation is a line of the logger
        ``txnlog.subscriptions``: a warning that names it where a subscription of the topic has a similar name.

        Args:
            topics: one topic, or a list of them under the same subscription name.
            subscription: its name.
            type: must be the existing subscription's; left out, it is.
            name: shown in listings.
            takeover: also where the subscription belongs to a streaming query or to ``spark_ext.process``, which this
                ends. The subscription's own takeover rule counts as well.

        On an exclusive subscription it takes over: an older consumer is fenced, and the open transactions with its
        acknowledgements are aborted. On a failover one it waits for the active one; on a shared one they go together.

        Raises:
            ConsumerBusy: the subscription's takeover rule keeps it for another consumer: as long as its lease lasts, or
                for its name for ever (``same_name``); or it belongs to a query, and ``takeover`` is False. Of several
                topics it then becomes the consumer of none.
            OutcomeUnknown: call it again; an older consumer may be fenced.
        """
        return subscriptions.open_consumer(
            self._connection, topics, subscription, type=type, name=name, takeover=takeover
        )


__all__ = ["Namespace"]
