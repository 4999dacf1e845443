"""What a streaming query's commit says besides its rows: which batch it holds, and what of its sources it acknowledges.

Both sinks use it, the format's and ``write_stream``. A batch is remembered for ever by (identity, batch id, digest of
all source offsets): its replay is skipped, another one under its id refused. Its acknowledgement is the range that it
read, ``[start, end)`` of every partition, valid only where the cursor stands at ``start``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Final

from spark_ext.streaming.offsets import StreamOffset, cursor_moved
from spark_ext.streaming.query_checkpoint import BatchOffsets, Checkpoint
from spark_ext.support.namespace_cache import log_of, shows
from spark_ext.support.python_process import ProcessLock
from spark_ext.write.write_jobs import check_there
from txnlog.api.internals import connection_of, leave_outcome_open
from txnlog.client.subscription_ownership import check_streamable, take_epoch
from txnlog.common.names import parse_label
from txnlog.errors import InvalidInputError, OutcomeUnknown, SubscriptionNotFound, TopicNotFound
from txnlog.fold.acknowledgements import check_epoch
from txnlog.format.actions import Acknowledgement, Commit, StreamBatch
from txnlog.format.actions import Consumer as ConsumerAction
from txnlog.log.transaction_commands import Skipped

if TYPE_CHECKING:
    from txnlog.api.namespace import Namespace
    from txnlog.api.transaction import Transaction
    from txnlog.fold.state import SubscriptionRecord
    from txnlog.results import Committed

_logger: Final = logging.getLogger("txnlog.spark")


@dataclass(frozen=True, slots=True)
class QueryIdentity:
    """Under which name a query's batches are remembered, and which query (checkpoint) it is."""

    name: str
    query: str


def identity_of(checkpoint: Checkpoint | None, txn_app_id: str | None, told: str = "") -> QueryIdentity:
    """``txn_app_id``, else the id in the checkpoint. Raises InvalidInputError where there is neither.

    ``told`` is the query's id as Spark's tasks know it: under a ``txn_app_id`` without a checkpoint that can be read it
    tells one checkpoint from the next.
    """
    query = None if checkpoint is None else checkpoint.query_id()
    if txn_app_id is not None:
        return QueryIdentity(parse_label("txnAppId", txn_app_id), query or told)
    if query is None:
        raise InvalidInputError(
            "the query's identity is unknown: no checkpoint could be read"
            + ("" if checkpoint is None else f" at {checkpoint.location}"),
            advice="pass checkpointLocation as an option, or txnAppId",
        )
    return QueryIdentity(query, query)


def stream_batch(identity: QueryIdentity, batch: int, offsets: BatchOffsets | None) -> StreamBatch:
    """The batch as a commit names it. Without a readable checkpoint the digest is empty: no offsets are compared."""
    return StreamBatch(identity.name, identity.query, batch, "" if offsets is None else offsets.digest())


def committed_before(ns: Namespace, batch: StreamBatch) -> Skipped | None:
    """The commit of this very batch, if the log shows it.

    Raises:
        InvalidInputError: another batch has its id, or the query's last one is above it: Spark repeats no batch but the
            last, so the checkpoint is an older one, and the batch may have rows that no committed one had.
    """
    connection_of(ns).follower.refresh()
    last = connection_of(ns).stream(batch.identity)
    if last is not None and batch.query == last.query and batch.batch < last.batch:
        raise InvalidInputError(
            f"the checkpoint of the stream {batch.identity!r} goes on at batch {batch.batch}, but the log shows batch "
            f"{last.batch} of it: it is an older one, and what the batches between held is not known",
            advice="restore the newest checkpoint, or begin with a new checkpointLocation (and another txnAppId); a "
            "subscription that was sought back for this one is to be sought forward first, or its rows come twice",
        )
    return connection_of(ns).committed_batch(batch)


def begin_batch(
    ns: Namespace,
    checkpoint: Checkpoint | None,
    txn_app_id: str | None,
    batch: int,
    offsets: BatchOffsets | None,
    *,
    told: str = "",
) -> tuple[QueryIdentity, StreamBatch] | None:
    """What both sinks do first with a batch: whose it is, and how its commit names it.

    None, and a line in the log of Python, where it was committed before.

    Args:
        ns: the namespace.
        checkpoint: the query's; None where it cannot be read here.
        txn_app_id: the query's identity instead of the checkpoint's.
        batch: its number.
        offsets: where it ends in each source; None where the checkpoint does not say.
        told: the query's id, as Spark's tasks know it.

    Raises:
        InvalidInputError: nobody knows the query, the checkpoint is an older one, another batch has the number, or two
            sources share a subscription.
    """
    identity = identity_of(checkpoint, txn_app_id, told)
    named = stream_batch(identity, batch, offsets)
    skipped = committed_before(ns, named)
    if skipped is not None:
        _logger.info("batch %d of %r was committed before, at version %d", batch, identity.name, skipped.version)
        return None
    if offsets is not None:
        check_sources(ns, offsets)
    return identity, named


def check_sources(ns: Namespace, offsets: BatchOffsets) -> None:
    """Raise InvalidInputError where two sources of a query read one topic with one subscription.

    Whoever acknowledges, each of them would take off what the other has still to read.
    """
    seen: set[tuple[str, str]] = set()
    for text in offsets.sources.values():
        found = _ours(ns, text)
        if found is None or found.subscription is None:
            continue
        for topic in found.offsets:
            if (topic, found.subscription) in seen:
                raise InvalidInputError(
                    f"two sources of the query read the topic {topic!r} with the subscription {found.subscription!r}",
                    advice="give each source a subscription of its own",
                )
            seen.add((topic, found.subscription))


def check_targets(ns: Namespace, batch: StreamBatch, topics: Iterable[int]) -> None:
    """See that the topics that a batch was written for are those that its query wrote to before.

    After ``committed_before``, which looks at the log.

    Raises:
        TransactionConflict: a topic was dropped while the batch was written. Spark brings the batch again.
        InvalidInputError: when the query's last batch was committed, the name of one meant another topic.
    """
    last = connection_of(ns).stream(batch.identity)
    for number in sorted(topics):
        record = check_there(
            ns,
            number,
            f"batch {batch.batch} of {batch.identity!r} was written",
            advice="start the query again: it writes the batch anew, if there is a topic for it",
        )
        if last is None:
            continue
        with suppress(TopicNotFound):  # the topic is newer than the last batch, and its name as well
            if connection_of(ns).topic_record(record.name, last.version).id != number:
                raise InvalidInputError(
                    f"the topic {record.name!r} that the stream {batch.identity!r} wrote to was dropped, and made "
                    "again: the rows of earlier batches are not in the one that has the name now",
                    advice="to write to the new topic, begin with a new checkpointLocation (and another txnAppId)",
                )


def warn_of_dropped(batch: StreamBatch, result: Committed | None) -> None:
    """Tell of rows that a commit left out since their topic was dropped at the last moment: nothing can be done now."""
    if result is not None and result.dropped:
        names = ", ".join(result.dropped)
        _logger.warning(
            "batch %d of %r: left out, since it was dropped meanwhile: %s", batch.batch, batch.identity, names
        )


@contextmanager
def not_held_in_doubt(txn: Transaction) -> Iterator[None]:
    """In doubt, a batch comes again under another transaction, and the log tells: this one must not be in its way."""
    try:
        yield
    except OutcomeUnknown:
        leave_outcome_open(txn)
        raise


# --- ranges -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BatchRange:
    """What a batch took of one topic under a subscription: from ``start`` up to ``end``, by partition."""

    topic: str
    subscription: int
    start: Mapping[int, int]
    end: Mapping[int, int]


def taken_by(ns: Namespace, checkpoint: Checkpoint, offsets: BatchOffsets, subscription: str) -> list[BatchRange]:
    """What a batch took of a subscription in this namespace, by the query's own sources.

    Raises:
        InvalidInputError: no source reads the subscription; the checkpoint lacks the batch before.
        SubscriptionNotFound: it was dropped, or belongs to an earlier topic of the name.
    """
    before = checkpoint.offsets(offsets.batch - 1) if offsets.batch > 0 else None
    if before is None and offsets.batch > 0:
        raise InvalidInputError(
            f"the checkpoint does not hold the offsets of batch {offsets.batch - 1}, where {offsets.batch} begins",
            advice="restore the checkpoint, or go on with a new checkpointLocation: it begins at the cursor",
        )
    taken: list[BatchRange] = []
    for name, text in offsets.sources.items():
        end = _ours(ns, text)
        if end is None or end.subscription != subscription:
            continue
        # A source without anything new has the offset of the batch before, which says where that one began; or in the
        # first batch the query's first one, without a start.
        same = before is not None and before.sources.get(name) == text
        for topic, ends in end.offsets.items():
            number = _subscription_id(ns, topic, end, subscription)
            taken.append(BatchRange(topic, number, ends if same or not end.start else end.start[topic], ends))
    if not taken:
        raise not_read(ns.name, subscription, subscriptions_read(ns, offsets))
    return taken


def not_read(namespace: str, subscription: str, read: Sequence[str]) -> InvalidInputError:
    """What is acknowledged must have been read: ``read`` are the subscriptions that were."""
    others = f"it reads with {', '.join(map(repr, read[:8]))}: " if read else ""
    return InvalidInputError(
        f"no source of the query reads the namespace {namespace!r} with the subscription {subscription!r}",
        advice=f"{others}give the source the option 'subscription', and the sink the same name as 'acknowledge'",
    )


def subscriptions_read(ns: Namespace, offsets: BatchOffsets) -> list[str]:
    """The subscriptions of this namespace that the query's sources read."""
    found = [_ours(ns, text) for text in offsets.sources.values()]
    return sorted({item.subscription for item in found if item is not None and item.subscription is not None})


def warn_of_unacknowledged(ns: Namespace, offsets: BatchOffsets, acknowledge: str | None) -> None:
    """Tell of subscriptions that the query reads and does not acknowledge: nobody notices before a restart."""
    for name in subscriptions_read(ns, offsets):
        if name != acknowledge:
            advice = (
                f"pass acknowledge={name!r}, or leave out the option 'subscription'"
                if acknowledge is None
                else f"sources of several topics share one subscription name: {acknowledge!r}"
            )
            _logger.warning(
                "a source reads the subscription %r and nothing acknowledges it: its cursor stays, and "
                "a new checkpoint reads all again (%s)",
                name,
                advice,
            )


def _ours(ns: Namespace, text: str | None) -> StreamOffset | None:
    """The offset of a source of ours in this namespace; None for any other.

    Raises InvalidInputError where it is damaged.
    """
    if text is None:
        return None
    found = StreamOffset.from_text(text)
    if found is None:
        return None
    if not found.is_of(ns.name, connection_of(ns).coordinators, log_of(connection_of(ns))):
        return None
    # Copies of one log have a name and a first entry in common: what was read in one of them is not in the others.
    if found.entry is not None and not shows(connection_of(ns), found.entry):
        return None
    found.check_partitions(connection_of(ns))
    return found


_BEGIN_ANEW: Final = "begin with a new checkpointLocation"
"""One made again has another id: the offsets of the checkpoint are not of it."""


def _subscription_id(ns: Namespace, topic: str, offset: StreamOffset, subscription: str) -> int:
    record = connection_of(ns).subscription_record(offset.topic_ids.get(topic, -1), subscription)
    if record is None:
        raise SubscriptionNotFound(
            f"the subscription {subscription!r} of the topic {topic!r}, which the checkpoint names, is gone",
            advice=_BEGIN_ANEW,
        )
    return record.id


# --- acknowledgements -------------------------------------------------------------------------------------------------


def acknowledgements(
    ns: Namespace, taken: Sequence[BatchRange], identity: QueryIdentity, run: str
) -> list[Acknowledgement]:
    """What a batch acknowledges, under epochs that this run of the query holds (or takes, where it has none yet).

    Each batch names every epoch that its run holds, also where it takes nothing: so it is refused when one of them was
    lost, and the batch before always says what the run held, to whichever process commits the next.

    Raises:
        InvalidInputError: the cursor does not stand where the batch begins.
        UnsupportedFeature: the subscription is of a kind that a stream cannot have.
        SubscriptionNotFound: it was dropped meanwhile.
        ConsumerFenced: a newer run, another consumer or a seek took the subscription over.
        ConsumerBusy: the subscription's takeover rule keeps it for another consumer or query.
    """
    named = cache(partial(_named_by_last_batch, ns, identity))
    result: list[Acknowledgement] = []
    for item in taken:
        moved = sorted((p, item.start[p], end) for p, end in item.end.items() if end > item.start[p])
        epoch = _held_epoch(ns, item, identity, run, named)
        if moved:
            _check_cursors(ns, item, moved)
        elif epoch is None:
            continue
        if epoch is None:
            epoch = _take_epoch(ns, item, identity, run)
        result.append(
            Acknowledgement(
                item.subscription,
                epoch,
                cumulative=tuple((partition, end) for partition, _, end in moved),
                expected=tuple((partition, start) for partition, start, _ in moved),
            )
        )
    return result


def _record_of(ns: Namespace, item: BatchRange) -> SubscriptionRecord:
    try:
        return connection_of(ns).subscription_record_by_id(item.subscription)
    except SubscriptionNotFound as error:
        error.advice = _BEGIN_ANEW
        raise


def _check_cursors(ns: Namespace, item: BatchRange, moved: Sequence[tuple[int, int, int]]) -> None:
    """Raise InvalidInputError where the subscription is not where the batch begins, UnsupportedFeature for its kind."""
    record = _record_of(ns, item)
    check_streamable(record)
    cursors = connection_of(ns).cursors_of(item.subscription)
    for partition, start, end in moved:
        cursor = cursors[partition]
        if cursor.position != start:
            raise cursor_moved(item.topic, partition, start, cursor.position, record.name)
        above = [(low, high) for low, high in cursor.acknowledged if low < end]
        if above:
            raise InvalidInputError(
                f"partition {partition} of {item.topic!r}: the batch read the offsets {above[0][0]} to {above[0][1]}, "
                f"which were acknowledged on the subscription {record.name!r} by themselves",
                advice="acknowledge what lies below them, or seek, then start the stream with a new checkpointLocation",
            )


# --- epochs -----------------------------------------------------------------------------------------------------------

_MOST_EPOCHS: Final = 1_024

_epochs: dict[tuple[object, int, str, str], int] = {}
"""By handle, subscription, identity and run: the epoch that the run took in this process, lost or not."""

_epochs_lock: Final = ProcessLock()


def _held_epoch(
    ns: Namespace, item: BatchRange, identity: QueryIdentity, run: str, named: Callable[[], Mapping[int, int]]
) -> int | None:
    """The epoch that a run of a query holds; None before its first acknowledgement.

    Who holds it is in the log (the consumer's name is the run), so a process that knows nothing, because Spark ended
    the one that committed the batch before, finds out. A run that had an epoch and lost it takes no other: the batch
    before, if it was the run's, has ``named`` it.

    Raises:
        ConsumerFenced: the run had it, and lost it.
    """
    record = _record_of(ns, item)
    with _epochs_lock:
        known = _epochs.get((connection_of(ns).identity, item.subscription, identity.name, run))
    if known is not None:
        check_epoch(record, known)
        return known
    if (record.consumer, record.stream) == (run, identity.name):
        return record.epoch
    lost = named().get(item.subscription)
    if lost is not None and _is_taken_by(ns, item.subscription, lost, run):
        check_epoch(record, lost)  # raises: the subscription's newest consumer is not this run
    return None


def _take_epoch(ns: Namespace, item: BatchRange, identity: QueryIdentity, run: str) -> int:
    """Take the subscription over for this run: fences whoever had it, an older run of the query as well."""
    epoch = take_epoch(connection_of(ns), item.subscription, run, identity.name)
    with _epochs_lock:
        if len(_epochs) >= _MOST_EPOCHS:
            _epochs.clear()
        _epochs[connection_of(ns).identity, item.subscription, identity.name, run] = epoch
    return epoch


def _named_by_last_batch(ns: Namespace, identity: QueryIdentity) -> Mapping[int, int]:
    """By subscription the epochs that the query's last commit names."""
    last = connection_of(ns).stream(identity.name)
    if last is None:
        return {}
    return {
        item.subscription: item.epoch
        for action in connection_of(ns).follower.log.entry(last.version).actions
        if isinstance(action, Commit) and action.txn == last.txn
        for item in action.acknowledgements
    }


def _is_taken_by(ns: Namespace, subscription: int, epoch: int, run: str) -> bool:
    """Whether it was this run that became the subscription's consumer by an epoch."""
    return any(
        isinstance(action, ConsumerAction) and action.subscription == subscription and action.name == run
        for action in connection_of(ns).follower.log.entry(epoch).actions
    )


__all__ = [
    "BatchRange",
    "QueryIdentity",
    "acknowledgements",
    "begin_batch",
    "check_sources",
    "check_targets",
    "committed_before",
    "identity_of",
    "not_held_in_doubt",
    "not_read",
    "stream_batch",
    "subscriptions_read",
    "taken_by",
    "warn_of_dropped",
    "warn_of_unacknowledged",
]
