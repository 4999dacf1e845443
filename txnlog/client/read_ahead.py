"""Reading the messages that a consumer delivers, and with them those that come next.

A transaction writes a file, however few its messages are, and mostly for several partitions. So what a call takes of a
partition lies in several files, and other calls take the rest of these. The files are decoded and shaped once, for all
partitions, with some of those that follow: the calls after that take slices of what is in memory.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from txnlog.common import ranges
from txnlog.common.format_limits import MAX_NUMBER
from txnlog.common.ranges import EMPTY, Ranges
from txnlog.data import scan_planner
from txnlog.data.joined_tables import joined
from txnlog.data.segment_run import SegmentRun
from txnlog.errors import TxnLogError

if TYPE_CHECKING:
    from txnlog.client.connection import Connection
    from txnlog.data.segment_reader import RunKey
    from txnlog.fold.state import SegmentRecord, TopicRecord

_MOST_AHEAD: Final = 256
"""Files that are read ahead at most. Each time that a consumer comes to the end of what it has, it reads twice as many:
the first messages come at once, and who takes but a few does not wait for thousands."""

_MOST_RUNS: Final = 16
"""Of one topic of a consumer: a partition is ahead of another one by some."""

_MOST_PIECES: Final = 4
"""From more of them a table is copied: whoever reads it on would pay for every one."""

_Kept = Mapping["RunKey", SegmentRun]


class ReadAhead:
    """What one topic of a consumer has read and not delivered yet. The rows lie with the reader of the session.

    Two threads may be here at once, where nobody waits for one of them any more: each change is one assignment.

    Attributes:
        ready: what can be delivered now, by partition: of it some is read ahead.
    """

    __slots__ = ("_connection", "_keys", "_next", "_topic", "ready")

    def __init__(self, connection: Connection, topic: TopicRecord) -> None:
        self._connection = connection
        self._topic = topic
        self._keys: tuple[RunKey, ...] = ()
        self._next = 0  # files, of which the next run is to have so many
        self.ready: Mapping[int, Ranges] = {}

    def read(self, wanted: Mapping[int, Ranges]) -> pa.Table | None:
        """The messages at these offsets, partition by partition, from memory, or read with some that come next.

        None where they are to be read alone: their files are too big to be kept, or one is damaged, maybe one that is
        not wanted yet. Not in the engine: it reads, and decodes.
        """
        kept = self._kept()
        pieces, missing = self._pieces(kept, wanted)
        if missing:
            made = self._made(missing, kept)
            if made is None:
                return None
            pieces, missing = self._pieces({**made, **kept}, wanted)
        return None if missing else joined(pieces, _MOST_PIECES)

    def _schema_version(self) -> int:
        return self._connection.follower.state.topics[self._topic.id].schemas[-1].version

    def _kept(self) -> _Kept:
        """What is still in memory: the newest first, which has most often what is wanted.

        Without what was erased since, or superseded: nobody is delivered what no file has any more.
        """
        version, runs, follower = self._schema_version(), self._connection.reader.runs, self._connection.follower
        keys = self._keys
        lost = follower.may_have_lost_rows(self._topic.id, [key[2] for key in keys])
        self._keys = tuple(key for key, has_lost in zip(keys, lost, strict=True) if not has_lost)
        found = {key: runs.peek(key) for key in reversed(self._keys) if key[1] == version}
        return {key: run for key, run in found.items() if run is not None}

    def _pieces(self, kept: _Kept, wanted: Mapping[int, Ranges]) -> tuple[list[pa.Table], dict[int, Ranges]]:
        """The rows at some offsets, partition by partition, and what of them is not kept."""
        pieces: list[pa.Table] = []
        missing: dict[int, Ranges] = {}
        used: dict[RunKey, None] = {}
        for partition in sorted(wanted):
            for start, end in wanted[partition]:
                at = start
                while at < end:
                    for key, run in kept.items():
                        if (piece := run.rows(partition, at, end)) is not None:
                            rows, at = piece
                            pieces.append(rows)
                            used[key] = None
                            break
                    else:
                        behind = min([run.next_offset(partition, at, end) for run in kept.values()], default=end)
                        missing[partition] = (*missing.get(partition, EMPTY), (at, behind))
                        at = behind
        for key in used:
            self._connection.reader.runs.get(key)  # only what is used counts as that, and is kept longest
        return pieces, missing

    def _made(self, missing: Mapping[int, Ranges], kept: _Kept) -> _Kept | None:
        """A run with what is missing; None where there is to be none."""
        topic, version = self._topic, self._schema_version()
        follower, reader = self._connection.follower, self._connection.reader
        records, at_version = self._chosen(missing, {number for key in kept for number in key[2]})
        if not records:
            return None
        key = (topic.id, version, tuple([record.number for record in records]))
        run = reader.runs.get(key)
        if run is None:
            plan = scan_planner.plan(
                records,
                {},
                topic=topic.name,
                folder=topic.folder,
                schema=follower.state.topics[topic.id].schema,
                coordinators=self._connection.coordinators,
                version=at_version,
            )
            try:
                run = reader.run(plan)
            except TxnLogError:
                self._next = 0  # what is damaged is met again when it is wanted, and not at each call until then
                return None
            reader.runs.put(key, run)
        self._keys = (*self._keys, key)[-_MOST_RUNS:]
        self._next = 2 * len(records)
        return {key: run}

    def _chosen(self, missing: Mapping[int, Ranges], known: Collection[int]) -> tuple[Sequence[SegmentRecord], int]:
        """The segments of what is missing, and of some that comes next, with the version at which they are visible.

        None where the former alone are too many. ``known``: the numbers of segments that are not read once more.
        """
        follower, most_bytes = self._connection.follower, self._connection.reader.most_bytes_of_run
        needed, version = follower.holding(self._topic.id, missing)
        size_bytes = sum([record.size_bytes for record in needed])
        if size_bytes > most_bytes:
            return (), version
        chosen = {record.number: record for record in needed}
        most = min(self._next - len(needed), _MOST_AHEAD)
        behind = {
            partition: ranges.intersect(self.ready.get(partition, EMPTY), ((found[-1][1], MAX_NUMBER),))
            for partition, found in missing.items()
        }
        for record in follower.holding(self._topic.id, behind, most)[0] if most > 0 else ():
            if record.number not in chosen and record.number not in known:
                size_bytes += record.size_bytes
                if size_bytes > most_bytes:
                    break
                chosen[record.number] = record
        return list(chosen.values()), version


__all__ = ["ReadAhead"]
