"""The handle of a namespace: topics, producers, consumers, snapshots, outcomes. What ``txnlog.open`` returns."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Final, TypeVar

import pyarrow as pa

from txnlog.api import subscriptions, transaction_admin
from txnlog.api.consumer import Consumer
from txnlog.api.producer import Producer, begin_transaction, produce_plain
from txnlog.api.snapshot import Snapshot, snapshot_at
from txnlog.api.topic_alteration import Alteration
from txnlog.api.transact import transact
from txnlog.api.transaction import Transaction
from txnlog.client import dead_letters
from txnlog.client.connection import Connection
from txnlog.client.positions import Position
from txnlog.client.session_owner import Mode
from txnlog.common.ids import TxnId
from txnlog.common.limits import (
    DEFAULT_GRACE_MS,
    DEFAULT_LEASE_MS,
    DEFAULT_RETAIN_MS,
    MAINTAIN_BYTES,
    MAX_NUMBER,
    MAX_PARTITIONS,
    TARGET_SEGMENT_BYTES,
)
from txnlog.common.names import nearest, parse_label, parse_namespace_name, parse_topic_name
from txnlog.common.runtime import Clock, Runtime
from txnlog.common.validation import (
    IN_SECONDS,
    Duration,
    duration_ms,
    epoch_ms,
    is_in_seconds,
    mapping,
    shown,
    text_properties,
    truth,
    whole_number,
)
from txnlog.errors import (
    Durable,
    InvalidInputError,
    LimitExceeded,
    TopicExists,
    TopicNotFound,
    VersionNotAvailable,
    only_looking,
    unknown_outcome,
)
from txnlog.fold.state import Draft, TopicRecord
from txnlog.fold.topics import topic_named
from txnlog.format import schema
from txnlog.format.actions import DropTopic, Header, Topic
from txnlog.format.delta_mode import (
    DEFAULT_MODE,
    DeltaMode,
    check_delta_columns,
    delta_mode,
    parse_delta_mode,
    with_delta_mode,
)
from txnlog.format.topic_properties import check_properties
from txnlog.log.commands import ONE_CREATION, Answer, Simple, effect
from txnlog.maintenance import optimizer, upkeep, vacuum
from txnlog.maintenance.vacuum import Before
from txnlog.results import (
    Committed,
    Listing,
    Maintained,
    Optimized,
    SubscriptionInfo,
    TopicInfo,
    TransactionInfo,
    Vacuumed,
)
from txnlog.store.base import Store
from txnlog.wording import Call, Words

T = TypeVar("T")

_MOST_SHOWN: Final = 200
"""Characters of a topic's columns in a message."""


def open_namespace(
    root: str | os.PathLike[str],
    namespace: str | None = None,
    *,
    create: bool = False,
    mode: Mode = "rw",
    storage_options: Mapping[str, Any] | None = None,
    clock: Clock | None = None,
    min_commit_interval_ms: Duration = 0,
    store: Store | None = None,
    runtime: Runtime | None = None,
) -> Namespace:
    """Open a namespace of a root.

    Args:
        root: a local path or any fsspec URL (``s3://bucket/lake``, ``abfss://``, ``gs://``, ``memory://``). A relative
            path means the working directory of now, also for the handle in another process.
        namespace: its name; left out, the last part of ``root`` is the name.
        create: make root and namespace where they do not exist.
        mode: ``"rw"``, or ``"r"``, which needs only GET and LIST and refuses every write.
        storage_options: fsspec's options for the store; they appear in no repr, error, log or plan.
        clock: a clock to trust instead of the machine's (tests). It is never compared with the store's (no
            ``ClockSkew``): one that is ahead takes the log's time along, by which timeouts and leases of all end.
        min_commit_interval_ms: let concurrent commits gather so long, for fewer requests.
        store: an object with the interface of ``txnlog.store`` to use for ``root`` (tests, wrappers).
        runtime: time, chance and concurrency of a simulation (``txnlog.testing``), in place of ``clock``.

    Raises:
        NamespaceNotFound: there is none, or it was dropped (``mode="r"`` reads it yet), and ``create`` is False.
        InvalidInputError: a wrong argument; or the folder is a copy: its root lists another log under the name, or this
            one under another name, or, for ``mode="rw"``, does not list it at all. ``catalog.open(root)
            .adopt_namespace(name)`` makes a copy a namespace of its own.
        UnsafeStore: the store has no atomic create-if-absent (found out before the first append).
        UnsupportedFeature: the log needs a newer txnlog.
        CorruptionError: the log is damaged.
    """
    if not isinstance(mode, str) or mode not in {"r", "rw"}:
        raise InvalidInputError(f"unknown mode {shown(mode)}", advice='use mode="r" or mode="rw"')
    create = truth("create", create)
    if mode == "r" and create:
        raise InvalidInputError('create=True needs mode="rw"')
    if clock is not None and not hasattr(clock, "now_ms"):
        raise InvalidInputError(
            f"a clock has a method now_ms(), unlike {shown(clock)}",
            advice="leave clock out for the machine's clock, or pass an object whose now_ms() gives epoch milliseconds",
        )
    if store is not None and not hasattr(store, "create"):
        raise InvalidInputError(  # not shown: it may hold secrets
            f"a store has the methods of txnlog.store.Store, unlike {type(store).__name__}",
            advice="leave store out for the one that root names",
        )
    text, name = root_and_name(root, namespace)
    connection = Connection(
        text,
        name,
        create=create,
        mode=mode,
        storage_options=mapping("storage_options", storage_options),
        clock=clock,
        min_commit_interval_ms=duration_ms("min_commit_interval_ms", min_commit_interval_ms, 0, MAX_NUMBER),
        store=store,
        runtime=runtime,
    )
    try:
        connection.session.check_identity()
    except BaseException:
        connection.close()
        raise
    return Namespace(connection)


def root_and_name(root: object, namespace: object) -> tuple[str, str]:
    """Root and name of a namespace, whose path may be given as one. Raises InvalidInputError for what is no path."""
    if not isinstance(root, str | os.PathLike):
        raise InvalidInputError(f"a root is a path or a URL, not {type(root).__name__}")
    text = os.fspath(root)
    if not isinstance(text, str):
        raise InvalidInputError("a root is text, not bytes", advice="use os.fsdecode(...)")
    text = text.rstrip("/") or text
    if namespace is None:
        text, slash, namespace = text.rpartition("/")
        text = text or slash or "."
    return text, parse_namespace_name(namespace)


class Namespace:
    """A handle of one namespace. Thread-safe; bound to its process: forked or unpickled, it is a writer of its own.

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
        entry, segment, checkpoint, hint, delta, root and other.
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
    ) -> TopicInfo:
        """Create a topic.

        Args:
            name: ASCII letters, digits, ``-``, ``_``, single dots.
            schema: its columns; left out: ``key: binary, value: binary, headers: map<string, binary>``. Times are kept
                in microseconds, and those with a zone in UTC, whatever the schema has.
            partitions: their number, from 1 to 10,000 (``LimitExceeded`` above). Of a keyed topic it cannot change.
            key: the column whose hash chooses the partition of a row.
            if_not_exists: return the topic that is there, if it has the same schema, partitions and key (and the
                same ``delta``, if it is given).
            properties: labels of your own, texts under names that begin with ``user.``; others are refused.
            delta: whether the committed topic is a Delta table, too: ``"manual"`` (the default: brought up to date by
                ``catalog``'s ``publish``), ``"auto"`` (also after every commit, in the background), or ``"off"``:
                never. A ``timestamp`` without a zone needs ``"off"``: readers of Delta lack it.

        Raises:
            TopicExists, NameNotAllowed, SchemaMismatch, InvalidInputError, LimitExceeded: nothing was written.
        """
        stored = _schema_of(schema)
        if key is not None and not isinstance(key, str):
            raise InvalidInputError(f"key is the name of a column, not {type(key).__name__}")
        mode = None if delta is None else parse_delta_mode(delta)
        settings = text_properties(properties)
        check_properties(settings)
        if_not_exists = truth("if_not_exists", if_not_exists)
        action = Topic(
            parse_topic_name(name),
            stored,
            _partitions(partitions),
            key,
            with_delta_mode(settings, mode or DEFAULT_MODE),
        )

        def decide(draft: Draft, _at: Header) -> list[Topic] | Answer[TopicRecord]:
            record = topic_named(draft, action.name)
            if record is not None:
                if (clash := _clash(record, action, mode)) is not None:
                    raise TopicExists(
                        f"the topic {name!r} exists with other {clash}",
                        advice=Words(
                            "choose another name, or take it as it is: ",
                            Call("topic", repr(name)),
                            " shows it, and ",
                            Call("alter_topic", repr(name), "..."),
                            " adds columns",
                        ),
                    )
                if not if_not_exists:
                    raise TopicExists(f"the topic {name!r} exists")
                return Answer(record)
            check_delta_columns(stored, mode or DEFAULT_MODE)
            return [action]

        def result(draft: Draft, at: Header) -> TopicRecord:
            record = draft.topics.get(at.version)
            assert record is not None, "just created"
            return record

        return _info(self._connection.appender.call(Simple(decide, result, ONE_CREATION)))

    def alter_topic(
        self,
        name: str,
        add_columns: pa.Schema | Iterable[pa.Field | tuple[str, pa.DataType]] | None = None,
        *,
        widen: Mapping[str, pa.DataType | pa.Field] | None = None,
        properties: Mapping[str, str | None] | None = None,
        delta: str | None = None,
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
            properties: free text settings: those named are set, None takes one away, others stay.
            delta: whether the topic is a Delta table as well: ``"auto"``, ``"manual"``, ``"off"``.

        Raises:
            SchemaMismatch: naming the column and the rule; nothing was written.
            TopicNotFound, InvalidInputError, NameNotAllowed: nothing was written.
            OutcomeUnknown: call it again.
        """
        wanted = Alteration.parse(name, add_columns, widen, properties, delta)
        return _info(self._connection.appender.call(wanted.command()))

    def drop_topic(self, name: str) -> None:
        """Drop a topic and its subscriptions. Older versions still show it; open transactions go on without it.

        Its files stay until a vacuum finds that no readable version shows it: :meth:`vacuum`.

        Raises:
            TopicNotFound: with the nearest name.
            InvalidInputError: a subscription sends its dead letters there; nothing was written.
            OutcomeUnknown: look at ``ns.topics()``. Another topic may have the name by then: dropped again, it is gone.
        """
        parse_topic_name(name)

        def decide(draft: Draft, _at: Header) -> list[DropTopic]:
            record = topic_named(draft, name)
            if record is None:
                names = [item.name for _, item in draft.topics.items() if not item.dropped]
                raise TopicNotFound(f"no topic {name!r}", advice=nearest(name, names), durable=Durable.NOTHING)
            dead_letters.check_not_needed(draft, record)
            return [DropTopic(record.id)]

        again = Words(
            "look whether it was done: ", Call("topics"), "; a topic of this name may be another one, made since"
        )
        with unknown_outcome(again):
            self._connection.appender.call(effect(decide))

    def topics(self) -> tuple[str, ...]:
        """Names of the topics, sorted."""
        return self.snapshot().topics()

    def topic(self, name: str) -> TopicInfo:
        """What a topic is. Raises TopicNotFound with the nearest name."""
        self._connection.follower.refresh()
        return _info(self._connection.topic_record(name))

    # --- producing --------------------------------------------------------------------------------------------------

    def begin(
        self, *, timeout_ms: Duration | None = None, txn_app_id: str | None = None, txn_version: int | None = None
    ) -> Transaction:
        """Begin an anonymous transaction; see :meth:`txnlog.api.producer.Producer.begin`."""
        return begin_transaction(
            self._connection, None, None, timeout_ms=timeout_ms, txn_app_id=txn_app_id, txn_version=txn_version
        )

    def produce(self, topic: str, data: Any, partition: int | None = None) -> Committed:
        """Produce outside a transaction, in nobody's name: one atomic entry, visible on return.

        See :meth:`txnlog.api.producer.Producer.produce`, of a producer whose name makes it idempotent.

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
            _ = self._connection.appender
            return Producer(self._connection, None, None)
        return Producer(self._connection, name, transaction_admin.start_producer(self._connection, name, None))

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
        newest = self._connection.follower.refresh()
        if version is not None and type(version) is not int:
            raise InvalidInputError(
                f"the version is a whole number, not {shown(version)}", advice=f"give 0 to {newest}"
            )
        if version is not None and timestamp is not None:
            raise InvalidInputError("give a version or a timestamp, not both")
        if timestamp is not None:
            version = self._version_at(timestamp)
        return snapshot_at(self._connection, newest if version is None else version)

    def _version_at(self, timestamp: datetime.datetime | str | int) -> int:
        version = self._connection.follower.log.version_at(epoch_ms(timestamp), self._connection.follower.version)
        if version is None:
            unit = " (epoch milliseconds)" if isinstance(timestamp, int) else ""
            seconds = is_in_seconds(epoch_ms(timestamp), self._connection.log_now_ms())
            advice = IN_SECONDS if seconds else "ask for a later time"
            raise VersionNotAvailable(f"the log begins after {timestamp}{unit}", advice=advice)
        return version

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
        """A subscription: type, epoch, cursor by partition, what is pending.

        Raises:
            TopicNotFound, SubscriptionNotFound: with the nearest name.
        """
        self._connection.follower.refresh()
        return subscriptions.describe(self._connection, subscriptions.find(self._connection, topic, name))

    def lag(self, topic: str, subscription: str) -> Listing:
        """The lag of a subscription by partition: cursor, end, behind_messages and behind_ms of a subscription.

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

    # --- administration ---------------------------------------------------------------------------------------------

    def transactions(self, state: str | None = None, min_age_ms: Duration | None = None) -> Listing:
        """Open and prepared transactions, and those that ended lately; by state and age if asked.

        What the log shows: a transaction is there from its first ``flush()``, its ``prepare()``, or its first
        acknowledgement on a Shared subscription, not from ``begin``.

        Raises:
            InvalidInputError: an unknown state, or an age that is no whole number of milliseconds.
        """
        self._connection.follower.refresh()
        return transaction_admin.transactions(self._connection, state, min_age_ms)

    def transaction(self, txn_id: TxnId | str) -> TransactionInfo:
        """What the log shows of a transaction. UNKNOWN is no negative answer: :meth:`abort` gives a definite one.

        One that has begun is UNKNOWN to other processes until its first entry: ``begin`` writes nothing.

        Raises:
            InvalidInputError: this is no TxnID, or one of another namespace.
        """
        return transaction_admin.transaction(self._connection, txn_id)

    def abort(
        self, txn_id: TxnId | str, *, by: str | None = None, why: str | None = None, force: bool = False
    ) -> TransactionInfo:
        """Make a transaction's outcome definite: aborted for ever, or what it truly was.

        Recovery calls it before it repeats work whose commit has an unknown outcome. A prepared transaction needs
        ``force``.

        Raises:
            InvalidTransactionState: it is PREPARED, and ``force`` is False.
            OutcomeUnknown: the store did not answer; make the same call again.
        """
        return transaction_admin.abort(self._connection, txn_id, by, why, force=truth("force", force))

    def complete(self, token: TxnId | str, *, commit: bool) -> Committed | None:
        """Commit or abort a prepared transaction, from any process; nothing fences this call.

        Args:
            token: what ``txn.prepare()`` gave, or the ``txn_id`` of ``ns.transactions(state="PREPARED")``.
            commit: the decision of the outside system.

        Returns what a commit gives; None for an abort. The same decision again gives the same answer.

        Raises:
            InvalidTransactionState: the opposite decision came first, or the transaction was not prepared.
            TransactionNotFound: the log shows no such transaction.
            OutcomeUnknown: the store did not answer; call it again with the same decision.
        """
        return transaction_admin.complete(self._connection, token, commit=commit)

    def fence(self, producer: str, by: str = "admin") -> int:
        """Fence a producer name: its open transactions are aborted, its handle is refused from now on.

        Raises:
            InvalidInputError: nobody started it; with the nearest name.
            OutcomeUnknown: look for a newer producer with this name, which a second call would stop as well.
        """
        return transaction_admin.fence(self._connection, producer, by)

    def forget_app(self, txn_app_id: str) -> None:
        """Forget the last ``txn_version`` of an application id; the next transaction may bring any.

        Raises:
            OutcomeUnknown: look at ``ns.last_txn_version(txn_app_id)`` before you make the call again.
        """
        transaction_admin.forget_app(self._connection, txn_app_id)

    def enable(self, feature: str) -> None:
        """Enable a feature of the format, for ever: older versions of txnlog cannot read or write the log afterwards.

        A newer txnlog never does so by itself. Raises UnsupportedFeature for one that this txnlog does not know.
        """
        transaction_admin.enable(self._connection, feature)

    def checkpoint(self) -> int:
        """Make a checkpoint now, in this thread; returns its version. Clients make them by themselves when due.

        It is the way to a whole one where an older one was lost or damaged, as a warning reported: everything that
        the new one takes over from older ones is read first. Where headers lead to an unusable one, an entry without
        actions is appended, which names the new one.

        Raises:
            ReadOnly: the handle was opened with ``mode="r"``.
            StoreError, OutcomeUnknown: call it again, any time; no commit depends on it.
            CorruptionError: an entry is missing or damaged.
        """
        return self._connection.session.checkpoint()

    def vacuum(
        self,
        *,
        retain_ms: Duration = DEFAULT_RETAIN_MS,
        grace_ms: Duration = DEFAULT_GRACE_MS,
        allow_short_retention: bool = False,
        dry_run: bool = False,
        before: Before | None = None,
        progress: vacuum.Progress | None = None,
    ) -> Vacuumed:
        """Delete files that nobody can need: of aborted transactions, of writers that died, replaced by others.

        Also of dropped topics, with their published Delta tables, once no readable version shows them.

        Args:
            retain_ms: versions younger than this stay readable: milliseconds, or ``"7d"``, ``"36h"``. Older ones do as
                long as no file of theirs is deleted. Less than an hour is refused without ``allow_short_retention``.
            grace_ms: how long a writer may be silent, and what ended is left alone; an hour at least. The unused
                numbers of a silent writer are withdrawn: work that it did not log is refused (``CoordinatorFenced``).
            allow_short_retention: a ``retain_ms`` below an hour is meant.
            dry_run: only count. Works with mode="r" too.
            before: called with what becomes unreadable, before anything is written or deleted, where anything does.
                What it raises ends the vacuum. It names the topics with a Delta table that may need what is deleted
                and is not published after commits: publish those first.
            progress: called with the topic at work, the files looked at and those deleted so far.

        What open and prepared transactions have in the log stays, as do the log and its checkpoints. Signs of life of
        consumers that are gone are deleted too, and not counted. A vacuum that was interrupted is simply called again.

        Raises:
            InvalidInputError: a time that makes no sense; nothing was deleted.
            OutcomeUnknown: the store did not say whether the announcement is in the log; nothing was deleted.
            StoreError: a listing or a deletion failed; what was deleted before is gone, call it again.
        """
        return vacuum.vacuum(
            self._connection,
            retain_ms,
            grace_ms,
            allow_short_retention=truth("allow_short_retention", allow_short_retention),
            dry_run=truth("dry_run", dry_run),
            before=before,
            progress=progress,
        )

    def optimize(
        self,
        topic: str,
        target_size_bytes: int = TARGET_SEGMENT_BYTES,
        *,
        max_bytes: int | None = None,
        dry_run: bool = False,
        progress: optimizer.Progress | None = None,
    ) -> Optimized:
        """Merge small segments of a topic into big ones: fewer files, one partition each. No row changes in any way.

        It runs at the same time as writers and readers, and blocks none of them; any number of them may run at once.
        Readers of older versions go on with the old files, which vacuum deletes when their time has come.

        Args:
            topic: the topic.
            target_size_bytes: about the size of a file at most; files of more than half of it are left alone. What is
                merged at once is in memory, some of it decoded: a few times as much.
            max_bytes: read no more than this, but merge once at least: what is left is done by the next call.
            dry_run: only say what it would begin with. Works with mode="r" too.
            progress: called with the topic, the segments merged so far, and those to be merged as far as is known.

        Each merge is an entry of its own, so an optimize that is interrupted is simply called again. What comes while
        it runs is left for the next one. Segments that hold several partitions are merged where that leaves half of
        the files, or fewer.

        Raises:
            TopicNotFound: also where it is dropped meanwhile.
            CorruptionError: a file is missing or damaged; what was merged before stays merged.
            OutcomeUnknown, StoreError: call it again.
        """
        return optimizer.optimize(
            self._connection,
            topic,
            target_size_bytes,
            max_bytes=max_bytes,
            dry_run=truth("dry_run", dry_run),
            progress=progress,
        )

    def maintain(
        self,
        *,
        target_size_bytes: int = TARGET_SEGMENT_BYTES,
        max_bytes: int = MAINTAIN_BYTES,
        retain_ms: Duration = DEFAULT_RETAIN_MS,
        grace_ms: Duration = DEFAULT_GRACE_MS,
        allow_short_retention: bool = False,
        before: Before | None = None,
        progress: upkeep.Progress | None = None,
    ) -> Maintained:
        """Do what a namespace needs from time to time: a checkpoint, :meth:`optimize` of all topics, :meth:`vacuum`.

        Before the vacuum the Delta tables of the topics with ``delta="auto"`` are brought up to date, and of no others:
        a table of a ``"manual"`` topic shows what it was published with, also a file that vacuum deletes, until
        ``catalog``'s ``publish`` brings it up to date. Publish it once a week at least (``retain_ms``);
        ``vacuumed.unreadable`` of the result, and before that ``before``, name the topics whose tables may need it.

        Made to be called every few minutes or once a day, by anybody, also by several at once; a call that was
        interrupted is simply made again.

        Args:
            target_size_bytes: as of :meth:`optimize`.
            max_bytes: read no more than this to merge it, of all topics together: what is left is for the next call.
            retain_ms: as of :meth:`vacuum`.
            grace_ms: as of :meth:`vacuum`.
            allow_short_retention: as of :meth:`vacuum`.
            before: as of :meth:`vacuum`.
            progress: called with ``"optimize"`` or ``"vacuum"``, and what progress of those is called with.

        A topic with a damaged file, or whose Delta table cannot be published, is passed over and named in ``failures``.

        Raises:
            InvalidInputError: a value that makes no sense; nothing was done.
            OutcomeUnknown, StoreError: call it again; what was done before stays done.
        """
        return upkeep.maintain(
            self._connection,
            target_size_bytes=target_size_bytes,
            max_bytes=max_bytes,
            retain_ms=retain_ms,
            grace_ms=grace_ms,
            allow_short_retention=truth("allow_short_retention", allow_short_retention),
            before=before,
            progress=progress,
        )


def _schema_of(given: pa.Schema | None) -> schema.StructType:
    if given is None:
        return schema.DEFAULT_SCHEMA
    return schema.from_arrow(given)


def _clash(there: TopicRecord, wanted: Topic, mode: DeltaMode | None) -> str | None:
    """How a topic differs from one that is wanted; None if it does not."""
    if all(item.schema != wanted.schema for item in there.schemas):  # it may have been altered since
        return f"columns: {_columns(there.schema)} instead of {_columns(wanted.schema)}"
    if there.partitions != wanted.partitions:
        return f"partitions: {there.partitions} instead of {wanted.partitions}"
    if there.key != wanted.key:
        return f"key: {there.key!r} instead of {wanted.key!r}"
    found = delta_mode(there.properties)
    return None if mode in {None, found} else f"delta: {found!r} instead of {mode!r}"


def _columns(columns: schema.StructType) -> str:
    text = ", ".join(f"{field.name}: {field.type}" for field in schema.to_arrow(columns))
    return ascii(text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}...")[1:-1]


def _partitions(value: object) -> int:
    """The number of partitions of a topic, from 1 to the format's limit."""
    number = whole_number("partitions", value, 1)
    if number > MAX_PARTITIONS:
        raise LimitExceeded(
            f"a topic has at most {MAX_PARTITIONS:,} partitions, not {shown(number)}", advice="use fewer partitions"
        )
    return number


def _info(record: TopicRecord) -> TopicInfo:
    return TopicInfo(
        record.name,
        schema.to_arrow(record.schema),
        record.partitions,
        record.key,
        dict(record.properties),
        record.id,
    )


__all__ = ["Namespace", "open_namespace", "root_and_name"]
