"""Which small segments are merged into big ones, and the command that replaces them. Pure.

A merged segment holds one partition and one range of offsets. What is merged together are neighbours, in two steps:

- shared segments, whose rows lie in several partitions, with what lies between them: one segment for each partition
  comes out, and each shared one goes as a whole. Only where that leaves half of the files, or fewer.
- segments of one partition, up to the target. Neighbours that fill a file are merged at once; what is left at the end,
  where more is to come, only where no file is more than half of the whole: so that a row is written again a few times,
  not whenever something small was added.

What comes out is merged again like everything else, until nothing is left to do: a second run finds nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from txnlog.data.segment_order import in_log_order
from txnlog.errors import Durable, TopicNotFound
from txnlog.fold.state import Draft, SegmentRecord, TopicRecord
from txnlog.fold.visibility import is_visible
from txnlog.format.actions import AnyAction, Begin, Header, Replace, Segment
from txnlog.log.commands import Answer, CommandDefaults, SharedNumbers
from txnlog.log.small_segments import is_small

MOST_REPLACED: Final = 10_000
MOST_WRITTEN: Final = 1_000
"""Segments that one merge takes and makes: its entry names them all, with statistics."""

LEAST_WEIGHT_BYTES: Final = 1 << 20
"""A smaller file counts as one of this size: what it costs is its request."""


@dataclass(frozen=True, slots=True)
class Part:
    """The rows of one partition in a segment: those of ``width`` offsets from ``offset`` on.

    They begin at ``first_row`` of its file, unless it has holes: then the file says at which offset each row is.
    """

    segment: int
    partition: int
    offset: int
    width: int
    first_row: int
    has_holes: bool = False

    @property
    def end(self) -> int:
        """The offset behind the last one."""
        return self.offset + self.width


@dataclass(frozen=True, slots=True)
class Output:
    """A segment that comes out of a merge: a partition, and a range of offsets, of which some may have no row."""

    partition: int
    offset: int
    width: int
    has_holes: bool = False

    @property
    def end(self) -> int:
        """The offset behind the last one."""
        return self.offset + self.width


@dataclass(frozen=True, slots=True)
class Merge:
    """Segments that go and what comes in their place, in one entry; no output where retention has passed all rows."""

    removed: tuple[SegmentRecord, ...]
    outputs: tuple[Output, ...]

    @property
    def size_bytes(self) -> int:
        """What is read."""
        return sum(record.size_bytes for record in self.removed) if self.outputs else 0


def parts_of(record: SegmentRecord, starts: Mapping[int, int]) -> list[Part]:
    """The slices of a visible segment, as far as their rows are not below the earliest offsets."""
    found: list[Part] = []
    row = 0
    for item in record.slices:
        width = record.width_of(item)
        gone = min(width, max(0, starts.get(item.partition, 0) - item.start))
        if gone < width:
            first_row, has_holes = (row + gone, False) if record.extent is None else (0, True)
            found.append(Part(record.number, item.partition, item.start + gone, width - gone, first_row, has_holes))
        row += item.rows
    return found


def outputs_of(parts: Iterable[Part]) -> tuple[Output, ...]:
    """The ranges that parts of different segments make up, by partition and offset."""
    found: list[Output] = []
    for part in sorted(parts, key=lambda item: (item.partition, item.offset)):
        last = found[-1] if found else None
        if last is not None and last.partition == part.partition and last.end == part.offset:
            has_holes = last.has_holes or part.has_holes
            found[-1] = Output(last.partition, last.offset, last.width + part.width, has_holes)
        else:
            found.append(Output(part.partition, part.offset, part.width, part.has_holes))
    return tuple(found)


def merges(
    records: Iterable[SegmentRecord],
    removals: Mapping[int, int],
    version: int,
    starts: Mapping[int, int],
    target_size_bytes: int,
    wanted: Callable[[SegmentRecord], bool] = lambda _: True,
) -> list[Merge]:
    """What can be merged at a version, no segment twice; merges of shared segments before the others.

    ``wanted`` leaves segments out, such as those that came while an optimize was under way.
    """
    visible = [record for record in records if is_visible(record, version, removals) and wanted(record)]
    passed = [record for record in visible if not parts_of(record, starts)]
    found = [Merge(tuple(passed[i : i + MOST_REPLACED]), ()) for i in range(0, len(passed), MOST_REPLACED)]
    gone = {record.number for record in passed}
    small = [r for r in visible if r.number not in gone and is_small(r, target_size_bytes)]
    shared = _merges_of_shared(in_log_order(small), starts, target_size_bytes)
    gone = {record.number for merge in shared for record in merge.removed}
    single = [record for record in small if record.number not in gone and len(record.slices) == 1]
    return [*found, *shared, *_merges_of_partitions(single, starts, target_size_bytes)]


def newest(records: Iterable[SegmentRecord], most_bytes: int) -> list[SegmentRecord]:
    """Of small segments, in no order, the newest that are worth merging.

    They go back to the first that was merged before and has more rows than all behind it. So a row is written again
    whenever as many came behind it: of a million small segments about twenty times, and as many files are left.
    """
    found: list[SegmentRecord] = []
    rows = size = 0
    for record in reversed(in_log_order(records)):
        if size + record.size_bytes > most_bytes or (record.compacted and record.rows > rows):
            break
        found.append(record)
        rows += record.rows
        size += record.size_bytes
    return found[::-1]


# --- shared segments --------------------------------------------------------------------------------------------------


def _merges_of_shared(ordered: Sequence[SegmentRecord], starts: Mapping[int, int], target: int) -> list[Merge]:
    """Runs of segments that begin and end with a shared one, as far as fewer files come of them."""
    found: list[Merge] = []
    run: list[SegmentRecord] = []
    size = 0
    for record in ordered:
        if run and (size + record.size_bytes > target or len(run) >= MOST_REPLACED):
            found += _merge_of_shared(run, starts)
            run, size = [], 0
        if run or len(record.slices) > 1:
            run.append(record)
            size += record.size_bytes
    return found + _merge_of_shared(run, starts)


def _merge_of_shared(run: list[SegmentRecord], starts: Mapping[int, int]) -> list[Merge]:
    while run and len(run[-1].slices) == 1:
        run = run[:-1]
    outputs = outputs_of(part for record in run for part in parts_of(record, starts))
    if not run or len(outputs) * 2 > len(run) or len(outputs) > MOST_WRITTEN:
        return []
    return [Merge(tuple(run), outputs)]


# --- segments of one partition ----------------------------------------------------------------------------------------


def _merges_of_partitions(records: Sequence[SegmentRecord], starts: Mapping[int, int], target: int) -> list[Merge]:
    by_partition: dict[int, list[tuple[Part, SegmentRecord]]] = {}
    for record in records:
        for part in parts_of(record, starts):
            by_partition.setdefault(part.partition, []).append((part, record))
    found: list[Merge] = []
    for partition in sorted(by_partition):
        pairs = sorted(by_partition[partition], key=lambda pair: pair[0].offset)
        run: list[SegmentRecord] = []
        end = -1
        for part, record in pairs:
            if part.offset != end:
                found += _merges_of_run(run, starts, target)
                run = []
            run.append(record)
            end = part.end
        found += _merges_of_run(run, starts, target)
    return found


def _merges_of_run(run: Sequence[SegmentRecord], starts: Mapping[int, int], target: int) -> list[Merge]:
    """The merges of neighbours: those that fill a file each, then what is worth it of the rest."""
    chosen: list[Sequence[SegmentRecord]] = []
    group: list[SegmentRecord] = []
    size = 0
    for record in run:
        if group and (size + record.size_bytes > target or len(group) >= MOST_REPLACED):
            chosen.append(group)
            group, size = [], 0
        group.append(record)
        size += record.size_bytes
    chosen += _worth_it(group)
    return [
        Merge(tuple(item), outputs_of(part for record in item for part in parts_of(record, starts)))
        for item in chosen
        if len(item) > 1
    ]


def _worth_it(group: Sequence[SegmentRecord]) -> list[Sequence[SegmentRecord]]:
    """Runs of which no file is more than half: all of the group, or else what lies around its biggest file."""
    found: list[Sequence[SegmentRecord]] = []
    waiting = [group]
    while waiting:
        run = waiting.pop()
        if len(run) < 2:
            continue
        weights = [max(record.size_bytes, LEAST_WEIGHT_BYTES) for record in run]
        biggest = max(weights)
        if biggest * 2 <= sum(weights):
            found.append(run)
        else:
            place = weights.index(biggest)
            waiting += [run[place + 1 :], run[:place]]
    return found


# --- the entry --------------------------------------------------------------------------------------------------------


def not_dropped(topic: TopicRecord | None, number: int) -> TopicRecord:
    """A topic of this id. Raises TopicNotFound where it was dropped while it was being rewritten."""
    if topic is None or topic.dropped:
        raise TopicNotFound(
            f"the topic {topic.name if topic else number!r} was dropped meanwhile",
            advice="nothing is left to do for it: a vacuum deletes its files",
            durable=Durable.NOTHING,
        )
    return topic


@dataclass(frozen=True, slots=True)
class ReplaceCommand(CommandDefaults):
    """Replace segments by merged ones, which are on the store: the version that did, None where some are gone by now.

    Attributes:
        txn: the number of the transaction that does it.
        topic: the topic's id.
        segments: what comes in, and ``offsets`` where each begins.
        removed: what goes.
        known: the version up to which it was looked at all segments and removals.
        forgotten: asked for the version up to which the state has forgotten removals.
        needed: segments that have to be there as well: they are why rows of others go.
        still: whether the topic, as it and its subscriptions are in front of an entry, asks for it yet.
    """

    txn: int
    topic: int
    segments: tuple[Segment, ...]
    offsets: tuple[int, ...]
    removed: tuple[int, ...]
    known: int
    forgotten: Callable[[], int]
    needed: tuple[int, ...] = ()
    still: Callable[[Draft, TopicRecord, Header], bool] = lambda _draft, _topic, _at: True

    @property
    def txn_ids(self) -> tuple[int, ...]:
        """See Command."""
        return (self.txn,)

    def decide(self, draft: Draft, at: Header, _shared: SharedNumbers) -> Sequence[AnyAction] | Answer[int | None]:
        """See Command."""
        outcome = draft.outcomes.get(self.txn)
        if outcome is not None:
            return Answer(outcome.version if outcome.state == "COMMITTED" else None, settled=True)
        topic = not_dropped(draft.topics.get(self.topic), self.topic)
        if not self.still(draft, topic, at):
            return Answer(None)
        if not all(self._is_there(draft, number) for number in (*self.removed, *self.needed)):
            return Answer(None)
        return [Begin(self.txn), *self.segments, Replace(self.topic, self.txn, self.removed, self.offsets)]

    def _is_there(self, draft: Draft, number: int) -> bool:
        """Whether a segment is visible yet: the state accepts what it has forgotten unseen (P-91)."""
        if draft.removals.get(number) is not None:
            return False
        return draft.segments.get(number) is not None or self.forgotten() <= self.known

    def result(self, _draft: Draft, at: Header) -> int | None:
        """See Command."""
        return at.version


__all__ = [
    "LEAST_WEIGHT_BYTES",
    "MOST_REPLACED",
    "MOST_WRITTEN",
    "Merge",
    "Output",
    "Part",
    "ReplaceCommand",
    "merges",
    "newest",
    "not_dropped",
    "outputs_of",
    "parts_of",
]
