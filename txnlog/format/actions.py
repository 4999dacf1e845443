"""The actions of a commit log: the vocabulary of PROTOCOL.md as frozen, strict structs.

An entry is a header and actions, one JSON object a line, each tagged by ``"action"``. Defaults are left out on the
wire. Topics, subscriptions and producers' epochs are named by id: the version of the entry that made them.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from txnlog.common.format_limits import MAX_NUMBER, MAX_TIME_MS
from txnlog.format.schema import StructType

SubscriptionType = Literal["exclusive", "failover", "shared"]
Takeover = Literal["any", "same_name", "after_lease"]
AbortReason = Literal["user", "timeout", "fenced", "admin", "failed"]

Count = Annotated[int, Meta(ge=0, le=MAX_NUMBER)]
"""Versions, ids, numbers, offsets, times and sizes: what does not fit a signed 64-bit integer is no entry."""

Time = Annotated[int, Meta(ge=0, le=MAX_TIME_MS)]
"""Log time, epoch milliseconds."""

Signed = Annotated[int, Meta(ge=-MAX_NUMBER - 1, le=MAX_NUMBER)]
"""What an application counts by itself (``app_version``)."""

WireRanges = tuple[tuple[Count, Count], ...]
Bound = str | int | float | bool | None
"""Of a column in a file's statistics; None: not known."""


class Action(Struct, frozen=True, tag_field="action", omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """Base of all lines of an entry."""


# --- the entry itself -----------------------------------------------------------------------------------------------


class Header(Action, frozen=True, tag="header"):
    """First line of every entry.

    ``previous`` is the digest of entry ``version - 1`` (empty at version 0); ``checkpoint`` the newest checkpoint the
    writer knew; ``timestamp_ms`` never goes back.
    """

    version: Count
    writer: str
    timestamp_ms: Time
    previous: str = ""
    checkpoint: Count | None = None


class Protocol(Action, frozen=True, tag="protocol"):
    """What a reader and a writer must know. At version 0, and again whenever a feature is enabled."""

    reader_version: Count
    writer_version: Count
    reader_features: tuple[str, ...] = ()
    writer_features: tuple[str, ...] = ()


class Namespace(Action, frozen=True, tag="namespace"):
    """Name, coordinator id (the high 16 bits of its TxnIDs until an adopt) and settings of this log. At version 0."""

    name: str
    coordinator: Count
    max_timeout_ms: Count | None = None
    outcome_retention_ms: Count | None = None


class Adopt(Action, frozen=True, tag="adopt"):
    """A copy of a log becomes a namespace of its own: name and coordinator id of all numbers from the next one on.

    Its open blocks are closed: no number from before is used any more.
    """

    name: str
    coordinator: Count


# --- the root log ---------------------------------------------------------------------------------------------------


class Register(Action, frozen=True, tag="register"):
    """Root log: a namespace and its coordinator id, never given again. The namespace's id is this entry's version.

    ``log`` is the digest of entry 0 of its log; empty where an older version registered it, which did not say.
    """

    name: str
    coordinator: Count
    log: str = ""


class Unregister(Action, frozen=True, tag="unregister"):
    """Root log: a namespace was dropped. Its folder may be removed afterwards; its coordinator id stays used."""

    namespace: Count


class Verdict(Action, frozen=True, tag="verdict"):
    """Root log: this store was probed and honours create-if-absent."""

    store: str
    endpoint: str
    rounds: Count


# --- topics ---------------------------------------------------------------------------------------------------------


class Topic(Action, frozen=True, tag="topic"):
    """A topic is created; its id is this entry's version. ``schema`` is in Delta's schema JSON."""

    name: str
    schema: StructType
    partitions: Count
    key: str | None = None
    properties: dict[str, str] = {}


class AlterTopic(Action, frozen=True, tag="alter_topic"):
    """A topic's schema or properties change; what is left out stays."""

    topic: Count
    schema: StructType | None = None
    properties: dict[str, str] | None = None


class DropTopic(Action, frozen=True, tag="drop_topic"):
    """A topic and its subscriptions are dropped; older versions still show it."""

    topic: Count


class DeleteRecords(Action, frozen=True, tag="delete_records"):
    """The earliest offset of partitions moves up: ``before`` holds ``(partition, offset)``."""

    topic: Count
    before: tuple[tuple[Count, Count], ...]


# --- subscriptions --------------------------------------------------------------------------------------------------


class Subscription(Action, frozen=True, tag="subscription"):
    """A subscription is created; its id is this entry's version. ``start`` has one offset a partition."""

    topic: Count
    name: str
    type: SubscriptionType
    start: tuple[Count, ...]
    lease_ms: Count
    takeover: Takeover = "any"
    max_redeliveries: Count | None = None
    dead_letter_topic: str | None = None


class DropSubscription(Action, frozen=True, tag="drop_subscription"):
    """A subscription is dropped; its epoch ends."""

    subscription: Count


class Consumer(Action, frozen=True, tag="consumer"):
    """A consumer opens.

    On Exclusive and Failover the subscription's epoch becomes this entry's version, which fences the older consumer and
    aborts open transactions with its acknowledgements. ``stream`` is the identity of a streaming query.
    """

    subscription: Count
    name: str
    stream: str | None = None


class Seek(Action, frozen=True, tag="seek"):
    """Cursors move to ``(partition, offset)``; the epoch becomes this entry's version."""

    subscription: Count
    positions: tuple[tuple[Count, Count], ...]


class PartitionRanges(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """Offsets of one partition: ``[partition, [[start, end], ...]]``, normal ranges."""

    partition: Count
    ranges: WireRanges


class Lease(Action, frozen=True, tag="lease"):
    """Shared: ranges granted to a consumer until ``timestamp_ms + lease_ms`` of this entry's header."""

    subscription: Count
    consumer: str
    ranges: tuple[PartitionRanges, ...]


class Release(Action, frozen=True, tag="release"):
    """Shared: leased ranges return; ``redeliver`` counts one more delivery for them."""

    subscription: Count
    consumer: str
    ranges: tuple[PartitionRanges, ...]
    redeliver: bool = False


# --- numbers --------------------------------------------------------------------------------------------------------


class Reserve(Action, frozen=True, tag="reserve"):
    """A block of numbers for one writer: ``count`` from ``first``, which is the namespace's next number."""

    writer: str
    first: Count
    count: Count


class Renew(Action, frozen=True, tag="renew"):
    """The writer of the block that begins at ``first`` is alive though nothing else shows it."""

    first: Count


class Close(Action, frozen=True, tag="close"):
    """The block that begins at ``first`` gives no new number any more: the fence before its garbage is collected."""

    first: Count


# --- producers ------------------------------------------------------------------------------------------------------


class Producer(Action, frozen=True, tag="producer"):
    """A named producer starts: its epoch becomes this entry's version and its older OPEN transactions are aborted.

    ``fenced_by`` marks an administrator's fence: nobody owns the new epoch.
    """

    name: str
    fenced_by: str | None = None


class ForgetApp(Action, frozen=True, tag="forget_app"):
    """The last ``txn_version`` of an application id is forgotten."""

    app_id: str


# --- transactions ---------------------------------------------------------------------------------------------------


class Begin(Action, frozen=True, tag="begin"):
    """A transaction shows its first effect in the log; ``timeout_ms`` is what is left, None for no deadline."""

    txn: Count
    timeout_ms: Count | None = None
    producer: str | None = None
    epoch: Count | None = None
    app_id: str | None = None
    app_version: Signed | None = None


class SliceRows(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """Rows of one partition in a segment: ``[partition, rows]`` or ``[partition, rows, first_sequence]``."""

    partition: Count
    rows: Count
    sequence: Count | None = None


class Segment(Action, frozen=True, tag="segment"):
    """A Parquet file of a topic, already durable. Rows lie by partition, in the order of ``slices``.

    With ``txn`` it is pending and belongs to that transaction; without, it is shared by the commits of this very entry,
    which claim all of its rows, and becomes visible here. ``checksum`` is ``crc32:<8 hex>`` of the whole file where the
    writer had its bytes, else ``footer-crc32:<8 hex>`` of the footer (pages carry checksums of their own). A
    ``compacted`` one stores what the log no longer says of each row: ``_txn``, ``_version`` and ``_timestamp``; with an
    ``extent``, which says for how many offsets it stands, ``_offset`` as well: some of these offsets have no row.
    """

    segment: Count
    topic: Count
    file: str
    rows: Count
    size_bytes: Count
    checksum: str
    slices: tuple[SliceRows, ...]
    txn: Count | None = None
    compacted: bool = False
    statistics: dict[str, tuple[Bound, Bound, Count | None]] = {}
    extent: Count | None = None


class Acknowledgement(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """What one transaction takes off one subscription.

    ``ranges`` individually; ``cumulative`` as ``(partition, end)``: everything below ``end``. ``expected`` as
    ``(partition, cursor)`` makes it valid only where the cursor stands exactly there (streams).
    """

    subscription: Count
    epoch: Count
    ranges: tuple[PartitionRanges, ...] = ()
    cumulative: tuple[tuple[Count, Count], ...] = ()
    expected: tuple[tuple[Count, Count], ...] = ()


class Acknowledge(Action, frozen=True, tag="acknowledge"):
    """Acknowledgements of an open transaction become pending."""

    txn: Count
    acknowledgement: Acknowledgement


class Share(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """Rows that a commit claims of a shared segment of its entry: ``[segment, partition, rows, first_sequence]``.

    Claims follow each other: the commits of an entry claim each slice from its first row on, in log order.
    """

    segment: Count
    partition: Count
    rows: Count
    sequence: Count | None = None


class StreamBatch(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """The micro-batch of a streaming query that this commit holds: remembered for ever, so that a replay is skipped."""

    identity: str
    query: str
    batch: Count
    offsets_digest: str


class Commit(Action, frozen=True, tag="commit"):
    """A transaction ends: all it holds becomes visible and acknowledged, here.

    Of a transaction that no earlier entry shows, it is the beginning too and names producer and epoch. ``digest``
    distinguishes a repetition from another transaction's success. ``dropped_topics`` and
    ``dropped_subscriptions`` were dropped before the log had all of the transaction's work for them.
    """

    txn: Count
    digest: str = ""
    shares: tuple[Share, ...] = ()
    acknowledgements: tuple[Acknowledgement, ...] = ()
    producer: str | None = None
    epoch: Count | None = None
    app_id: str | None = None
    app_version: Signed | None = None
    stream: StreamBatch | None = None
    dropped_topics: tuple[Count, ...] = ()
    dropped_subscriptions: tuple[Count, ...] = ()


class Abort(Action, frozen=True, tag="abort"):
    """A transaction ends without effect, for ever: also one that no entry showed before."""

    txn: Count
    reason: AbortReason = "user"
    by: str | None = None
    why: str | None = None


class Prepare(Action, frozen=True, tag="prepare"):
    """A transaction waits for an outside decision: no timeout, no fencing, acknowledgements and sequences reserved."""

    txn: Count
    digest: str


# --- maintenance ----------------------------------------------------------------------------------------------------


class Replace(Action, frozen=True, tag="replace"):
    """Visible segments of one topic are replaced by those of ``txn``: the same rows at the same offsets.

    ``offsets`` is the first offset of each new segment (of one slice), in the order they were logged.
    """

    topic: Count
    txn: Count
    removed: tuple[Count, ...]
    offsets: tuple[Count, ...]


class Vacuum(Action, frozen=True, tag="vacuum"):
    """Announced before files are deleted: versions below ``oldest_readable`` can no longer be read."""

    oldest_readable: Count


AnyAction = (
    Protocol
    | Namespace
    | Adopt
    | Register
    | Unregister
    | Verdict
    | Topic
    | AlterTopic
    | DropTopic
    | DeleteRecords
    | Subscription
    | DropSubscription
    | Consumer
    | Seek
    | Lease
    | Release
    | Reserve
    | Renew
    | Close
    | Producer
    | ForgetApp
    | Begin
    | Segment
    | Acknowledge
    | Commit
    | Abort
    | Prepare
    | Replace
    | Vacuum
)

KNOWN_ACTIONS = frozenset(kind.__struct_config__.tag for kind in AnyAction.__args__) | {"header"}
"""Tags of this format version; any other tag means that the entry needs a newer client."""

__all__ = [
    "KNOWN_ACTIONS",
    "Abort",
    "AbortReason",
    "Acknowledge",
    "Acknowledgement",
    "Action",
    "Adopt",
    "AlterTopic",
    "AnyAction",
    "Begin",
    "Bound",
    "Close",
    "Commit",
    "Consumer",
    "Count",
    "DeleteRecords",
    "DropSubscription",
    "DropTopic",
    "ForgetApp",
    "Header",
    "Lease",
    "Namespace",
    "PartitionRanges",
    "Prepare",
    "Producer",
    "Protocol",
    "Register",
    "Release",
    "Renew",
    "Replace",
    "Reserve",
    "Seek",
    "Segment",
    "Share",
    "Signed",
    "SliceRows",
    "StreamBatch",
    "Subscription",
    "SubscriptionType",
    "Takeover",
    "Time",
    "Topic",
    "Unregister",
    "Vacuum",
    "Verdict",
    "WireRanges",
]
