"""Where the batches of a stream begin and end, and what it acknowledges. Runs where Spark plans, never on executors."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from spark_ext.read.scan import Scan, input_partitions, open_scan, tasks_of
from spark_ext.read.start_end_offsets import bounds, clip, starts_of
from spark_ext.read.task_reader import ReadPartition
from spark_ext.streaming.batch_limits import Ends, limited
from spark_ext.streaming.lag import lags_of
from spark_ext.streaming.offsets import StreamOffset, can_expire, cursor_moved, expired, overtaken
from spark_ext.support.former_owners import warn_of_former_owner
from spark_ext.support.namespace_cache import remember_shown, shows
from spark_ext.support.options import ReadOptions
from txnlog.api import subscriptions
from txnlog.api.internals import connection_of
from txnlog.client.plain_acknowledgement import acknowledge_plain
from txnlog.client.subscription_ownership import check_streamable, take_epoch
from txnlog.common.names import parse_label
from txnlog.errors import InvalidInputError, SubscriptionNotFound
from txnlog.format.actions import Acknowledgement

if TYPE_CHECKING:
    from txnlog.fold.state import SubscriptionRecord, TopicRecord
    from txnlog.format.schema import StructType

_logger: Final = logging.getLogger("txnlog.spark")

_EMPTY_IN_A_REPORT: Final = ("start", "query", "epochs")
"""Parts of an offset that only a batch has: the newest offsets of the log are easier to read without them."""


class StreamPlan:
    """The driver's side of one source of a running query.

    Its topics are fixed: those that ``subscribePattern`` matched when the query began, also over its restarts. Its
    schema is as well, until it is started again: columns that a topic has got since are left out, and where others were
    widened the query ends with SchemaMismatch. A topic that is made again under its name is another one.
    """

    def __init__(self, options: ReadOptions, topics: Mapping[str, int], columns: StructType | None) -> None:
        """``topics`` are the ids of those that have the query's ``columns``, and that a pattern matches now."""
        self._options = options
        self._columns = columns
        self._ids = dict(topics)
        self._topics = tuple(self._ids)
        if options.txn_app_id is not None:
            parse_label("txnAppId", options.txn_app_id)
        self._last: StreamOffset | None = None
        self._end: StreamOffset | None = None
        """Where the batch that was planned last ends, or would begin."""
        self._lag_failed = False
        self._epochs: dict[int, int] = {}
        self._fitted = False
        """Whether this run saw the cursors where its checkpoint is: then that is no older copy."""

    @property
    def max_rows(self) -> int | None:
        """``maxOffsetsPerTrigger``."""
        return self._options.max_offsets_per_trigger

    def _look(self, last: StreamOffset | None = None) -> Scan:
        """The newest version of the namespace, with the topics of ``last`` where a pattern names them.

        Raises InvalidInputError where a name means another topic than when this run looked first.
        """
        options = self._options
        if options.subscribe_pattern is not None:
            if last is not None:
                self._topics = tuple(last.topic_ids)
            options = replace(options, subscribe=self._topics)
        scan = open_scan(options, mode="r" if options.subscription is None else "rw", columns=self._columns)
        for topic in scan.topics:
            now = _topic(scan, topic).id
            if self._ids.setdefault(topic, now) != now:
                raise InvalidInputError(
                    f"the topic {topic!r} was dropped and made again since the query began",
                    advice="to read the new topic, start the query with a new checkpointLocation",
                )
        return scan

    def _offset(
        self,
        scan: Scan,
        offsets: Mapping[str, Ends],
        version: int | None = None,
        start: Mapping[str, Ends] | None = None,
        query: str | None = None,
        epochs: Mapping[str, int] | None = None,
    ) -> StreamOffset:
        return StreamOffset(
            scan.namespace.name,
            connection_of(scan.namespace).coordinator,
            scan.snapshot.version if version is None else version,
            self._options.subscription,
            {topic: _topic(scan, topic).id for topic in scan.topics},
            offsets,
            start or {},
            query,
            epochs or {},
            connection_of(scan.namespace).log_label,
            connection_of(scan.namespace).newest_entry,
        )

    # --- where batches begin and end --------------------------------------------------------------------------------

    def initial(self) -> StreamOffset:
        """The beginning of a query without a checkpoint; the subscription is created if it is missing."""
        scan = self._look()
        if self._options.subscription is None:
            return self._offset(scan, self._starts(scan))
        missing = [topic for topic in scan.topics if _subscription(scan, topic, self._options.subscription) is None]
        if missing:
            starts = self._starts(scan)
            connection = connection_of(scan.namespace)
            for topic in missing:
                name = self._options.subscription
                scan.namespace.create_subscription(topic, name, start=starts[topic], if_not_exists=True)
                made = subscriptions.find(connection, topic, name)
                subscriptions.report_created(connection, made, "the query", "where its starting offsets say")
        epochs = self._epochs_now(scan)
        return self._offset(scan, {topic: self._followed(scan, topic)[1] for topic in scan.topics}, epochs=epochs)

    def _starts(self, scan: Scan) -> dict[str, dict[int, int]]:
        """The start of the query by the options. Raises OffsetOutOfRange for offsets that do not exist."""
        starts = starts_of(scan)
        for topic, offsets in starts.items():
            clip(topic, offsets, bounds(scan, topic)[1], scan)
        return starts

    def newest(self) -> StreamOffset:
        """The ends of all partitions."""
        scan = self._look()
        return self._offset(scan, {topic: bounds(scan, topic)[1] for topic in scan.topics})

    def reported(self) -> dict[str, Any]:
        """The newest offsets for a query's progress, and how far they are ahead of the batch that is planned.

        Spark shows it as ``latestOffset``, and asks a Python source for no metrics: so they are in here, by topic.
        """
        scan = self._look()
        newest = self._offset(scan, {topic: bounds(scan, topic)[1] for topic in scan.topics})
        found = {name: value for name, value in newest.to_dict().items() if name not in _EMPTY_IN_A_REPORT}
        found["path"] = f"{scan.root}/{scan.namespace.name}"
        if self._end is not None:
            try:
                lags = lags_of(connection_of(scan.namespace), self._end)
            except Exception as error:  # whoever looks at the progress has less to see, and the query goes on
                level = logging.DEBUG if self._lag_failed else logging.WARNING
                _logger.log(level, "how far the query is behind is not in its progress", exc_info=error)
                self._lag_failed = True
            else:
                found["behind"] = {item.topic: item.metrics for item in lags}
        return found

    def stop_at_newest(self) -> None:
        """Let no batch of this run go beyond the current ends."""
        self._last = self.newest()

    def latest(self, start: Mapping[str, Any], limit: int | None) -> dict[str, Any]:
        """The end of the batch that begins at ``start``: at a version, with at most ``limit`` rows if that can be.

        Returns ``start`` itself while there is nothing to read. Raises as ``_check_cursors``.
        """
        begin = StreamOffset.from_dict(start)
        scan = self._look(begin)
        self._check_same(scan, begin)
        _check_not_ahead(scan, begin)
        first = _begin_of(scan, begin)
        epochs = self._epochs_now(scan)  # before the cursors are read: a later move changes the epoch
        self._check_cursors(scan, first, begin)
        if limit is None:
            end = self._last or self.newest()
            offsets = {
                topic: {p: max(offset, end.offsets[topic][p]) for p, offset in ends.items()}
                for topic, ends in first.items()
            }
            version = end.version
        else:
            newest = None if self._last is None else self._last.version
            version, offsets = limited(scan, first, limit, newest, split=self._options.split_transactions)
        if offsets == begin.offsets:
            self._end = begin
            return dict(start)
        query = begin.query or connection_of(scan.namespace).runtime.unique()
        found = self._offset(scan, offsets, version, first, query, epochs)
        if found.entry is not None:
            remember_shown(connection_of(scan.namespace), found.entry)
        self._end = found
        return found.to_dict()

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[ReadPartition]:
        """The rows of the batch that ends at ``end``.

        By offsets, so that a replay gives the same rows whatever was compacted since; and from where ``end`` says that
        the batch began, since a replay of the first batch may come with another ``start``.
        """
        last = StreamOffset.from_dict(end)
        scan = self._look(last)
        self._check_same(scan, last)
        if start == end or not last.start:  # without a start it is the query's first offset: no batch ends there
            return []
        self._note_fitting(scan, last.offsets)  # for a run that begins with a batch of the one before
        tasks = []
        for topic, ends in last.offsets.items():
            ranges = clip(topic, last.start[topic], ends, scan)
            if ranges:
                tasks += tasks_of(scan.plan(topic, ranges))
        return input_partitions(tasks, self._options.min_partitions)

    def _check_same(self, scan: Scan, offset: StreamOffset) -> None:
        """Raise InvalidInputError unless the checkpoint is of this namespace, these topics and this subscription."""
        namespace = scan.namespace
        if not offset.is_of(namespace.name, connection_of(namespace).coordinators, connection_of(namespace).log_label):
            which = "" if offset.namespace != namespace.name else " (in another root, or deleted and made again since)"
            raise _changed(f"of another namespace {offset.namespace!r}{which}", f"the namespace {namespace.name!r}")
        if offset.entry is not None and not shows(connection_of(namespace), offset.entry):
            raise _changed(
                f"of version {offset.entry[0]}",
                f"a namespace {namespace.name!r} that ends before, or was put back to an older state and went on",
            )
        if offset.subscription != self._options.subscription:
            before, now = offset.subscription, self._options.subscription
            raise _changed(
                "without a subscription" if before is None else f"with the subscription {before!r}",
                "without one" if now is None else f"with the subscription {now!r}",
            )
        for topic, number in offset.topic_ids.items():
            pattern = self._options.subscribe_pattern
            if pattern is not None and not re.fullmatch(pattern, topic):
                raise _changed(f"of the topic {topic!r}", f"topics that match {ascii(pattern)[:80]}")
            if topic not in scan.topics:
                raise _changed(f"of the topic {topic!r}", f"the topics {', '.join(scan.topics)}")
            if _topic(scan, topic).id != number:
                raise _changed(f"of a topic {topic!r} that was dropped", "a new topic of that name")
        offset.check_partitions(connection_of(namespace))

    # --- the subscription -------------------------------------------------------------------------------------------

    def _followed(self, scan: Scan, topic: str) -> tuple[SubscriptionRecord, dict[int, int]]:
        """The subscription of a topic, and by partition where its cursor is."""
        name = self._options.subscription
        assert name is not None, "asked for with a subscription only"
        record = _subscription(scan, topic, name)
        if record is None:
            raise SubscriptionNotFound(
                f"the subscription {name!r} of the topic {topic!r} was dropped, or the topic is new to the query",
                advice="create it where the stream should go on, or begin with a new checkpointLocation",
            )
        check_streamable(record)
        return record, {p: cursor.position for p, cursor in connection_of(scan.namespace).cursors_of(record.id).items()}

    def _epochs_now(self, scan: Scan) -> dict[str, int]:
        """By topic the subscription's epoch, where there is one."""
        name = self._options.subscription
        found = {} if name is None else {topic: _subscription(scan, topic, name) for topic in scan.topics}
        return {topic: record.epoch for topic, record in found.items() if record is not None}

    def _check_cursors(self, scan: Scan, offsets: Mapping[str, Ends], last: StreamOffset) -> None:
        """Raise InvalidInputError where a cursor is not where this query left it: others took messages, or want them.

        Raises ConsumerFenced where another run or query took them since this run saw the cursor in its place.

        Behind is right where only this query can have left it there: a sink of another kind lets us acknowledge only
        when its next batch begins.
        """
        name = self._options.subscription
        if name is None:
            return
        for topic, ends in offsets.items():
            record, cursors = self._followed(scan, topic)
            ours = self._left_by_us(record, topic, last)
            for partition, cursor in cursors.items():
                checkpoint = ends[partition]
                if cursor > checkpoint and can_expire(connection_of(scan.namespace), record.topic):
                    raise expired(topic, partition, checkpoint, cursor, name)
                if cursor > checkpoint and self._fitted and record.stream is not None:
                    raise overtaken(topic, partition, checkpoint, cursor, name)
                if cursor > checkpoint or (cursor < checkpoint and not ours):
                    raise cursor_moved(topic, partition, checkpoint, cursor, name)
        self._fitted = True

    def _note_fitting(self, scan: Scan, offsets: Mapping[str, Ends]) -> None:
        """Note whether no cursor is beyond the end of a batch that this run repeats."""
        name = self._options.subscription
        if name is None or self._fitted:
            return
        for topic, ends in offsets.items():
            record = _subscription(scan, topic, name)
            if record is None:
                return  # the sink says so, or the next look
            cursors = connection_of(scan.namespace).cursors_of(record.id)
            if any(cursors[partition].position > end for partition, end in ends.items()):
                return
        self._fitted = True

    def _left_by_us(self, record: SubscriptionRecord, topic: str, last: StreamOffset) -> bool:
        """Whether nobody but this query has had the subscription since its last batch was planned.

        Who seeks needs an epoch of his own. Where this run had one and lost it, its acknowledgement is fenced.
        """
        if record.id in self._epochs or topic not in last.epochs:
            return True
        own = self._options.txn_app_id or last.query
        return record.epoch == last.epochs[topic] or (own is not None and record.stream == own)

    def acknowledge(self, end: Mapping[str, Any]) -> None:
        """Take everything below ``end`` off the subscription, where the sink did not.

        The first time it makes this run the subscription's consumer, which fences the one before. Its name there is
        ``txnAppId``, else what the offsets call the query, which all runs from one checkpoint share.

        Raises:
            InvalidInputError: the cursor is not where this query left it: somebody moved it back.
            ConsumerFenced: a newer run, another consumer or a seek took the subscription over.
            ConsumerBusy: the subscription's takeover rule keeps it for another consumer or query.
        """
        if self._options.subscription is None:
            return
        offset = StreamOffset.from_dict(end)
        scan = self._look(offset)
        self._check_same(scan, offset)
        for topic, ends in offset.offsets.items():
            record, cursors = self._followed(scan, topic)
            if all(cursors[partition] >= position for partition, position in ends.items()):
                continue
            if record.id not in self._epochs:
                self._take_over(scan, topic, record, cursors, offset)
            wanted = Acknowledgement(record.id, self._epochs[record.id], cumulative=tuple(sorted(ends.items())))
            acknowledge_plain(connection_of(scan.namespace), [wanted])

    def _take_over(self, scan: Scan, topic: str, record: SubscriptionRecord, before: Ends, last: StreamOffset) -> None:
        """Become the consumer, unless somebody moved the cursor back since the batch: his seek would be undone."""
        ends = last.offsets[topic]
        behind = min(partition for partition, end in ends.items() if before[partition] < end)
        if not self._left_by_us(record, topic, last):
            raise cursor_moved(topic, behind, ends[behind], before[behind], record.name)
        connection = connection_of(scan.namespace)
        run = f"spark-source-{connection.runtime.unique()[:8]}"
        own = self._options.txn_app_id or last.query
        epoch = take_epoch(connection, record.id, run, own)
        warn_of_former_owner(topic, record, own or run, before)
        _, now = self._followed(scan, topic)
        if any(now[partition] < before[partition] for partition in ends):
            take_epoch(
                connection, record.id, own or run, takeover=True
            )  # no stream's: the next run is to see it as well
            raise cursor_moved(topic, behind, ends[behind], now[behind], record.name)
        self._epochs[record.id] = epoch


def _topic(scan: Scan, topic: str) -> TopicRecord:
    return connection_of(scan.namespace).topic_record(topic, scan.snapshot.version)


def _subscription(scan: Scan, topic: str, name: str) -> SubscriptionRecord | None:
    return connection_of(scan.namespace).subscription_record(_topic(scan, topic).id, name)


def _check_not_ahead(scan: Scan, offset: StreamOffset) -> None:
    """Raise InvalidInputError where the log ends before the checkpoint: what comes up to there would be passed over.

    By the offsets alone, for those that an older version wrote, which say nothing of an entry.
    """
    known = {topic: bounds(scan, topic)[1] for topic in offset.offsets}
    ahead = any(end > known[topic][p] for topic, ends in offset.offsets.items() for p, end in ends.items())
    if ahead or offset.version > scan.snapshot.version:
        raise _changed(
            f"of version {offset.version}",
            f"a namespace {scan.namespace.name!r} that ends before them, at version {scan.snapshot.version}",
        )


def _begin_of(scan: Scan, offset: StreamOffset) -> dict[str, dict[int, int]]:
    """Offsets of all topics: one that the checkpoint does not know yet begins at its earliest ones."""
    known = offset.offsets
    return {topic: dict(known[topic]) if topic in known else bounds(scan, topic)[0] for topic in scan.topics}


def _changed(before: str, now: str) -> InvalidInputError:
    return InvalidInputError(
        f"the query's checkpoint holds offsets {before}, but it now reads {now}",
        advice="start it as it was, or with a new checkpointLocation",
    )


__all__ = ["StreamPlan"]
