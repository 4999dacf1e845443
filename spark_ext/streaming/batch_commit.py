"""Batches and acknowledgements in the commits of streaming queries, for both sinks: the format and ``write_stream``.

The log remembers a batch by (identity, batch id, digest of all source offsets): its replay is skipped, and another
batch with its id is refused. A batch acknowledges the range that it read, ``[start, end)`` of every partition, which is
valid only if the cursor is at ``start``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Final

from spark_ext.streaming.offsets import LEAVE_THE_OTHER_RUN, StreamOffset, can_expire, cursor_moved, expired
from spark_ext.streaming.query_checkpoint import BatchOffsets, Checkpoint
from spark_ext.support.former_owners import warn_of_former_owner
from spark_ext.support.namespace_cache import shows
from spark_ext.support.python_process import ProcessLock
from spark_ext.write.write_jobs import begin, check_there
from txnlog.api.internals import acknowledge_ranges, connection_of, leave, leave_outcome_open, set_stream
from txnlog.client.subscription_ownership import check_streamable, take_epoch
from txnlog.common.names import parse_label
from txnlog.errors import ConsumerFenced, InvalidInputError, OutcomeUnknown, SubscriptionNotFound, TopicNotFound
from txnlog.fold.subscription_records import check_epoch
from txnlog.format.actions import Acknowledgement, Commit, StreamBatch
from txnlog.format.actions import Consumer as ConsumerAction
from txnlog.log.transaction_commands import Skipped
from txnlog.replies import advising_of

if TYPE_CHECKING:
    from spark_ext.write.task_writer import JobNumbers
    from txnlog.api.namespace import Namespace
    from txnlog.api.transaction import Transaction
    from txnlog.fold.state import SubscriptionRecord
    from txnlog.results import Committed

_logger: Final = logging.getLogger("txnlog.spark")


@dataclass(frozen=True, slots=True)
class QueryIdentity:
    """The name under which the log remembers a query's batches, and the query's id in its checkpoint."""

    name: str
    query: str


def identity_of(checkpoint: Checkpoint | None, txn_app_id: str | None, task_query: str = "") -> QueryIdentity:
    """``txn_app_id``, else the id in the checkpoint. Raises InvalidInputError where there is neither.

    ``task_query`` is the query's id as Spark's tasks know it: under a ``txn_app_id``, it distinguishes one checkpoint
    from the next where no checkpoint can be read.
    """
    query = None if checkpoint is None else checkpoint.query_id()
    if txn_app_id is not None:
        return QueryIdentity(parse_label("txnAppId", txn_app_id), query or task_query)
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


def committed_before(ns: Namespace, batch: StreamBatch, checkpoint: Checkpoint | None) -> Skipped | None:
    """The commit of this batch, if the log has it.

    Raises:
        ConsumerFenced: another run of the query with this checkpoint committed a later batch.
        InvalidInputError: another batch has its id, or the query's last batch is later: Spark repeats only the last
            one, so the checkpoint is an older copy, and the batch may have rows that no committed batch had.
    """
    connection_of(ns).follower.refresh()
    last = connection_of(ns).stream(batch.identity)
    if last is not None and batch.query == last.query and batch.batch < last.batch:
        # A run begins at the newest batch of its folder: one that has come into it since is another run's.
        newer = None if checkpoint is None else checkpoint.offsets(last.batch)
        if newer is not None and newer.digest() == last.offsets_digest:
            raise ConsumerFenced(
                f"another run of the query with this checkpoint is or was at work: it committed batch {last.batch} of "
                f"the stream {batch.identity!r} before this run could commit batch {batch.batch}",
                advice=LEAVE_THE_OTHER_RUN,
            )
        raise InvalidInputError(
            f"the checkpoint of the stream {batch.identity!r} continues at batch {batch.batch}, but the log has batch "
            f"{last.batch} of it: either another run of the query with this checkpoint is at work, or the checkpoint "
            "is an older copy, and the rows of the batches between are not known",
            advice="stop the other run, and start this one again; where there is none, restore the newest checkpoint, "
            "or begin with a new checkpointLocation (and another txnAppId); if a subscription was sought back for this "
            "one, seek it forward first, or its rows come twice",
        )
    return connection_of(ns).committed_batch(batch)


def begin_batch(
    ns: Namespace,
    checkpoint: Checkpoint | None,
    txn_app_id: str | None,
    batch: int,
    offsets: BatchOffsets | None,
    *,
    task_query: str = "",
) -> tuple[QueryIdentity, StreamBatch] | None:
    """The identity of a batch and its name in the commit, which both sinks need first.

    None, after a log line, if the batch was committed before.

    Args:
        ns: the namespace.
        checkpoint: the query's; None where it cannot be read here.
        txn_app_id: the query's identity instead of the checkpoint's.
        batch: the batch's number.
        offsets: where it ends in each source; None where the checkpoint does not say.
        task_query: the query's id, as Spark's tasks know it.

    Raises:
        ConsumerFenced: another run of the query with this checkpoint committed a later batch.
        InvalidInputError: the query is unknown, the checkpoint is an older copy, another batch has the number, or two
            sources share a subscription.
    """
    identity = identity_of(checkpoint, txn_app_id, task_query)
    named = stream_batch(identity, batch, offsets)
    skipped = committed_before(ns, named, checkpoint)
    if skipped is not None:
        _logger.info("batch %d of %r was committed before, at version %d", batch, identity.name, skipped.version)
        return None
    if offsets is not None:
        check_sources(ns, offsets)
    return identity, named


def check_sources(ns: Namespace, offsets: BatchOffsets) -> None:
    """Raise InvalidInputError where two sources of a query read one topic with one subscription.

    The acknowledgements of each would include messages that the other has still to read.
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
    """Check that the topics of a batch are those that its query wrote to before. Call ``committed_before`` first.

    Raises:
        TransactionConflict: a topic was dropped while the batch was written. Spark repeats the batch.
        InvalidInputError: a topic's name meant another topic when the query's last batch was committed.
    """
    last = connection_of(ns).stream(batch.identity)
    for number in sorted(topics):
        record = check_there(
            ns,
            number,
            f"batch {batch.batch} of {batch.identity!r} was written",
            advice="create the topic again if it is needed, then start the query again: it repeats the batch",
        )
        if last is None:
            continue
        with suppress(TopicNotFound):  # the topic's name did not exist at the last batch
            if connection_of(ns).topic_record(record.name, last.version).id != number:
                raise InvalidInputError(
                    f"the topic {record.name!r} that the stream {batch.identity!r} wrote to was dropped and created "
                    "again: the new topic does not have the rows of earlier batches",
                    advice="to write to the new topic, begin with a new checkpointLocation (and another txnAppId)",
                )


def last_version(ns: Namespace, batch: StreamBatch) -> int:
    """The version at which the query committed its last batch; 0 before the first."""
    last = connection_of(ns).stream(batch.identity)
    return 0 if last is None else last.version


def warn_of_dropped(batch: StreamBatch, result: Committed | None) -> None:
    """Log a warning for rows that a commit left out because their topic was dropped at the last moment."""
    if result is not None and result.dropped:
        names = ", ".join(result.dropped)
        _logger.warning(
            "batch %d of %r: left out, since it was dropped meanwhile: %s", batch.batch, batch.identity, names
        )


@contextmanager
def batch_transaction(
    ns: Namespace, numbers: JobNumbers, batch: StreamBatch, wanted: Sequence[Acknowledgement]
) -> Iterator[Transaction]:
    """Context with the transaction of a batch, which has its name and its acknowledgements: to be ended inside.

    Before anything else, so that no commit can be without them.

    Raises:
        TransactionConflict, ConsumerFenced, SubscriptionNotFound: of an acknowledgement; the transaction was aborted.
    """
    txn = begin(ns, numbers)
    with _leaving_outcome_open(txn):
        try:
            set_stream(txn, batch)
            acknowledge_ranges(txn, list(wanted))
        except BaseException as error:
            leave(txn, error)
            raise
        yield txn


@contextmanager
def _leaving_outcome_open(txn: Transaction) -> Iterator[None]:
    """Context that leaves a transaction with an unknown outcome open, so that it does not block the batch's replay.

    Spark repeats the batch under another transaction, and the log shows whether this one was committed.
    """
    try:
        yield
    except OutcomeUnknown:
        leave_outcome_open(txn)
        raise


# --- ranges -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BatchRange:
    """The offsets that a batch read from a topic under a subscription: by partition from ``start`` up to ``end``."""

    topic: str
    subscription: int
    start: Mapping[int, int]
    end: Mapping[int, int]


def ranges_of_batch(
    ns: Namespace, checkpoint: Checkpoint, offsets: BatchOffsets, subscription: str
) -> list[BatchRange]:
    """The ranges that a batch read from a subscription in this namespace, by the offsets of the query's sources.

    Raises:
        InvalidInputError: no source reads the subscription; the checkpoint lacks the preceding batch.
        SubscriptionNotFound: it was dropped, or belongs to an earlier topic of the name.
    """
    before = checkpoint.offsets(offsets.batch - 1) if offsets.batch > 0 else None
    if before is None and offsets.batch > 0:
        raise InvalidInputError(
            f"the checkpoint lacks the offsets of batch {offsets.batch - 1}, at which batch {offsets.batch} begins",
            advice="restore the checkpoint, or continue with a new checkpointLocation, which begins at the cursor",
        )
    read_ranges: list[BatchRange] = []
    for name, text in offsets.sources.items():
        end = _ours(ns, text)
        if end is None or end.subscription != subscription:
            continue
        # A source without new messages has the preceding batch's offset, with the start of that one; or in the first
        # batch the query's first offset, which has no start.
        same = before is not None and before.sources.get(name) == text
        for topic, ends in end.offsets.items():
            number = _subscription_id(ns, topic, end, subscription)
            read_ranges.append(BatchRange(topic, number, ends if same or not end.start else end.start[topic], ends))
    if not read_ranges:
        raise not_read(ns.name, subscription, subscriptions_read(ns, offsets))
    return read_ranges


def not_read(namespace: str, subscription: str, read: Sequence[str]) -> InvalidInputError:
    """The error for acknowledging a subscription that no source reads. ``read`` are those that sources read."""
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
    """Log a warning for subscriptions that are read and not acknowledged, which only a restart would show."""
    for name in subscriptions_read(ns, offsets):
        if name != acknowledge:
            advice = (
                f"pass acknowledge={name!r}, or leave out the option 'subscription'"
                if acknowledge is None
                else f"sources of several topics share one subscription name: {acknowledge!r}"
            )
            _logger.warning(
                "a source reads the subscription %r and nothing acknowledges it with the rows: its cursor moves one "
                "batch late, so with a new checkpoint the last batch is read again (%s)",
                name,
                advice,
            )


def _ours(ns: Namespace, text: str | None) -> StreamOffset | None:
    """The offset of a source of txnlog's in this namespace; None for any other source.

    Raises InvalidInputError where it is damaged.
    """
    if text is None:
        return None
    found = StreamOffset.from_text(text)
    if found is None:
        return None
    if not found.is_of(ns.name, connection_of(ns).coordinators, connection_of(ns).log_label):
        return None
    # Copies of one log share name and first entry, but not the messages after the copy was made.
    if found.entry is not None and not shows(connection_of(ns), found.entry):
        return None
    found.check_partitions(connection_of(ns))
    return found


_BEGIN_ANEW: Final = "begin with a new checkpointLocation"
"""The advice for a dropped subscription: a new one has another id, so that the checkpoint's offsets are not of it."""


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
    ns: Namespace, read_ranges: Sequence[BatchRange], identity: QueryIdentity, run: str
) -> list[Acknowledgement]:
    """The acknowledgements of a batch, under the epochs of this run. It takes the subscription over if it has none.

    Each batch names every epoch of its run, even where it acknowledges nothing. So it is refused if one of them was
    lost, and the preceding batch always shows the run's epochs to the process that commits the next one.

    Raises:
        InvalidInputError: the cursor is not where the batch begins.
        UnsupportedFeature: the subscription is of a kind that a stream cannot use.
        SubscriptionNotFound: it was dropped meanwhile.
        ConsumerFenced: a newer run, another consumer or a seek took the subscription over; or messages expired.
        ConsumerBusy: the subscription's takeover rule reserves it for another consumer or query.
    """
    named = cache(partial(_named_by_last_batch, ns, identity))
    result: list[Acknowledgement] = []
    for item in read_ranges:
        moved = sorted((p, item.start[p], end) for p, end in item.end.items() if end > item.start[p])
        epoch = _epoch_of_run(ns, item, identity, run, named)
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
    with advising_of(SubscriptionNotFound, _BEGIN_ANEW):
        return connection_of(ns).subscription_record_by_id(item.subscription)


def _check_cursors(ns: Namespace, item: BatchRange, moved: Sequence[tuple[int, int, int]]) -> None:
    """Check that each cursor is where the batch begins.

    Raises:
        InvalidInputError: it is elsewhere, or messages of the batch were acknowledged individually.
        ConsumerFenced: it is elsewhere, in a topic whose messages expire.
        UnsupportedFeature: the subscription is of a kind that a stream cannot use.
    """
    record = _record_of(ns, item)
    check_streamable(record)
    connection = connection_of(ns)
    cursors = connection.cursors_of(item.subscription)
    for partition, start, end in moved:
        cursor = cursors[partition]
        if cursor.position > start and can_expire(connection, record.topic):
            raise expired(item.topic, partition, start, cursor.position, record.name)
        if cursor.position != start:
            raise cursor_moved(item.topic, partition, start, cursor.position, record.name)
        above = [(low, high) for low, high in cursor.acknowledged if low < end]
        if above:
            raise InvalidInputError(
                f"partition {partition} of {item.topic!r}: the batch read the offsets {above[0][0]} to {above[0][1]}, "
                f"which were acknowledged individually on the subscription {record.name!r}",
                advice="acknowledge the messages below them, or seek, then start the stream with a new "
                "checkpointLocation",
            )


# --- epochs -----------------------------------------------------------------------------------------------------------

_MOST_EPOCHS: Final = 1_024

_epochs: dict[tuple[object, int, str, str], int] = {}
"""The epochs that runs acquired in this process, lost or not, by handle, subscription, identity and run."""

_epochs_lock: Final = ProcessLock()


def _epoch_of_run(
    ns: Namespace, item: BatchRange, identity: QueryIdentity, run: str, named: Callable[[], Mapping[int, int]]
) -> int | None:
    """The epoch of a run of a query; None before its first acknowledgement.

    The log shows its owner (the consumer's name is the run), also to a new process, if Spark ended the one that
    committed the preceding batch. A run that lost its epoch does not acquire another one: the preceding batch, if it
    was of this run, has ``named`` it.

    Raises:
        ConsumerFenced: the run had an epoch, and lost it.
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
    if lost is not None and _is_epoch_of(ns, item.subscription, lost, run):
        check_epoch(record, lost)  # raises: the subscription's newest consumer is not this run
    return None


def _take_epoch(ns: Namespace, item: BatchRange, identity: QueryIdentity, run: str) -> int:
    """Take the subscription over for this run, which fences its owner, also an older run of the query."""
    record = _record_of(ns, item)
    epoch = take_epoch(connection_of(ns), item.subscription, run, identity.name)
    warn_of_former_owner(item.topic, record, identity.name, item.start)
    with _epochs_lock:
        if len(_epochs) >= _MOST_EPOCHS:
            _epochs.clear()
        _epochs[connection_of(ns).identity, item.subscription, identity.name, run] = epoch
    return epoch


def _named_by_last_batch(ns: Namespace, identity: QueryIdentity) -> Mapping[int, int]:
    """The epochs that the query's last commit names, by subscription."""
    last = connection_of(ns).stream(identity.name)
    if last is None:
        return {}
    return {
        item.subscription: item.epoch
        for action in connection_of(ns).follower.log.entry(last.version).actions
        if isinstance(action, Commit) and action.txn == last.txn
        for item in action.acknowledgements
    }


def _is_epoch_of(ns: Namespace, subscription: int, epoch: int, run: str) -> bool:
    """Whether this run became the subscription's consumer at an epoch."""
    return any(
        isinstance(action, ConsumerAction) and action.subscription == subscription and action.name == run
        for action in connection_of(ns).follower.log.entry(epoch).actions
    )


__all__ = [
    "BatchRange",
    "QueryIdentity",
    "acknowledgements",
    "batch_transaction",
    "begin_batch",
    "check_sources",
    "check_targets",
    "committed_before",
    "identity_of",
    "last_version",
    "not_read",
    "ranges_of_batch",
    "stream_batch",
    "subscriptions_read",
    "warn_of_dropped",
    "warn_of_unacknowledged",
]
