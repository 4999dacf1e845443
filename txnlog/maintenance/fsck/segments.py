"""Checking the files of segments: that each which the log shows is there, and is the one that it recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from txnlog.common.limits import PARALLEL_REQUESTS
from txnlog.data import segment_file
from txnlog.data.scan_planner import plan_segment
from txnlog.data.segment_rows import PlannedSegment, damaged_segment, missing_text
from txnlog.engine.runtime import Runtime
from txnlog.errors import CorruptionError, TxnLogError
from txnlog.fold.apply import apply_entry
from txnlog.fold.garbage import ClosedNumbers, is_needed
from txnlog.fold.state import SegmentRecord, State, TopicRecord
from txnlog.fold.visibility import state_at
from txnlog.format import keys
from txnlog.format import schema as schemas
from txnlog.format.codec import decode_entry
from txnlog.log.log_reader import SLOTS_AT_ONCE, Log
from txnlog.maintenance.fsck.findings import PAGE, Findings, all_attempted
from txnlog.maintenance.fsck.replay import View
from txnlog.maintenance.fsck.rows import check_offsets, check_rows
from txnlog.maintenance.waves import waves
from txnlog.sentences import Argument, Call, Words
from txnlog.store.base import ObjectNotFound

_WAVE_BYTES: Final = 64 << 20
_WAVE_SEGMENTS: Final = 256
"""Files that are read at once, each by a thread: of big ones one, which may take several times its size in memory."""

_RESTORE: Final = Words(
    "restore the object from a copy: ",
    Call("repair", Argument("source", ...)),
    f'; without one, see "A segment that cannot be read" in {PAGE}: its rows can be left out, or skipped',
)

Listed = dict[tuple[int, str], int]
"""Of the files in a topic's folder the sizes, by number and name."""


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """A file that a readable version, or an open transaction, needs."""

    topic: TopicRecord
    record: SegmentRecord

    @property
    def key(self) -> str:
        """Its key in the folder of the namespace."""
        return keys.segment_key(self.topic.folder, self.record.number, self.record.file)


class Segments:
    """The segments that a readable version shows, those of open transactions, and the folders that they lie in.

    Attributes:
        beyond: the key and the number of a file that no entry of this log can have named.
        damaged: the files that were reported as missing or damaged.
        unread: those that the store did not return.
    """

    def __init__(self, log: Log, runtime: Runtime, findings: Findings, view: View) -> None:
        self._log = log
        self._runtime = runtime
        self._findings = findings
        self._view = view
        self._later: State | None = None
        self._missing: list[SegmentFile] = []
        self.beyond: tuple[str, int] | None = None
        self.damaged: list[SegmentFile] = []
        self.unread: list[SegmentFile] = []

    def check(self, *, bytes_: bool, rows: bool) -> None:
        """Check them.

        Args:
            bytes_: whether all files are read, and their checksums compared.
            rows: whether their rows are decoded as well.
        """
        by_topic: dict[int, list[SegmentRecord]] = {topic: [] for topic in self._view.state.topics}
        for record in self._view.records:
            by_topic[record.topic].append(record)
        topics = list(self._view.state.topics.values())
        there: list[SegmentFile] = []
        total = len(self._view.records)
        for start in range(0, len(topics), PARALLEL_REQUESTS):
            wave = topics[start : start + PARALLEL_REQUESTS]
            listings = all_attempted(self._runtime, [partial(self._listed, topic) for topic in wave])
            for topic, listed in zip(wave, listings, strict=True):
                if isinstance(listed, ObjectNotFound):
                    continue
                if isinstance(listed, TxnLogError):
                    self._findings.unread("segment", keys.segments_prefix(topic.folder), listed)
                    continue
                there += self._compared(topic, by_topic[topic.id], listed, total)
        if bytes_:
            self._read(there, rows=rows)
        if rows:
            self._check_offsets(by_topic)
        self._report_missing()

    def _listed(self, topic: TopicRecord) -> Listed:
        found: Listed = {}
        for info in self._log.store.list(keys.segments_prefix(topic.folder)):
            key = keys.parse_key(info.key)
            if isinstance(key, keys.SegmentKey):
                found[key.segment, key.file] = info.size_bytes
        return found

    # --- what is listed -----------------------------------------------------------------------------------------------

    def _compared(
        self, topic: TopicRecord, records: Sequence[SegmentRecord], listed: Listed, total: int
    ) -> list[SegmentFile]:
        """The files of a topic that are there with their sizes; the others are reported."""
        there: list[SegmentFile] = []
        suspects: list[SegmentFile] = []
        oldest_readable = self._view.state.head.oldest_readable
        for record in records:
            size_bytes = listed.pop((record.number, record.file), None)
            if is_needed(record, self._view.removals, topic.dropped_version, oldest_readable):
                file = SegmentFile(topic, record)
                (there if size_bytes == record.size_bytes else suspects).append(file)
        self._findings.looked_at("segment", len(there) + len(suspects), total)
        # Listings may be behind.
        found = all_attempted(self._runtime, [partial(self._log.store.info, file.key) for file in suspects])
        for file, info in zip(suspects, found, strict=True):
            if isinstance(info, ObjectNotFound):
                self._missing.append(file)
            elif isinstance(info, TxnLogError):
                self._findings.unread("segment", file.key, info)
            elif info.size_bytes != file.record.size_bytes:
                text = f"it has {info.size_bytes:,} bytes, the log says {file.record.size_bytes:,}"
                self._report(file, CorruptionError(f"the segment {file.key} is damaged: {text}"))
            else:
                there.append(file)
        if listed and self._view.is_complete:
            self._note_orphans(topic, listed)
        return there

    def _note_orphans(self, topic: TopicRecord, listed: Listed) -> None:
        """Note the files that no entry names; which of them show that the log had more entries once."""
        number, file = max(listed)
        if number >= self._view.state.head.next_number:
            later = self.later()
            if later is not None and number >= later.head.next_number:
                self.beyond = (keys.segment_key(topic.folder, number, file), number)
        closed = ClosedNumbers.of(self._view.state)
        waiting = sum(number not in closed for number, _ in listed)
        self._findings.add(
            "note",
            "segment",
            keys.segments_prefix(topic.folder),
            f"no entry names {len(listed):,} of the files in the folder of the topic {topic.name!r}, with "
            f"{sum(listed.values()):,} bytes, such as {keys.segment_key(topic.folder, number, file)}",
            _what_to_do(waiting, len(listed) - waiting),
        )

    # --- what is missing ----------------------------------------------------------------------------------------------

    def later(self) -> State | None:
        """The state with what was appended since the check began; None where that cannot be known."""
        if self._later is None:
            state = self._view.state.copy()
            try:
                while more := self._log.get_many(state.head.version + 1, SLOTS_AT_ONCE):
                    for data in more:
                        apply_entry(state, decode_entry(data, state.head.version + 1))
            except TxnLogError:
                return None
            self._later = state
        return self._later

    def vacuumed_since(self, files: Sequence[SegmentFile]) -> list[SegmentFile]:
        """Those of some files that the log by now allows to be deleted, as far as that can be known."""
        self._later = None
        later = self.later()
        return [] if later is None else [file for file in files if self._was_vacuumed(file, later)]

    def _report_missing(self) -> None:
        """Report the files that are missing, but for those that a vacuum announced since the check began."""
        if not self._missing:
            return
        self._log.note_known(self._view.state)
        if self._view.is_complete:
            self._log.check_there()
        later = self.later()
        for file in self._missing:
            if later is not None and self._was_vacuumed(file, later):
                continue
            if self._view.is_complete:
                self._report(file, CorruptionError(missing_text(file.key)))
            else:
                self._findings.add(
                    "unchecked",
                    "segment",
                    file.key,
                    f"{missing_text(file.key)}, and entries that cannot be read may say that it was deleted",
                    "see to the findings about entries first, then check again",
                )

    def _was_vacuumed(self, file: SegmentFile, later: State) -> bool:
        record = later.segments.get(file.record.number, file.record)
        dropped = later.topics[file.topic.id].dropped_version
        return not is_needed(record, self._view.removals | later.removals, dropped, later.head.oldest_readable)

    def _report(self, file: SegmentFile, error: CorruptionError) -> None:
        self.damaged.append(file)
        rows = [(item.partition, item.offset, file.record.width_of(item)) for item in file.record.slices]
        found = damaged_segment(error, file.topic.name, file.record.number, rows, _RESTORE)
        removed = self._view.removals.get(file.record.number)
        shown = "" if removed is None else f"; only versions below {removed} show it"
        self._findings.add("damage", "segment", file.key, f"{found.message}{shown}", found.advice)

    # --- what is read -------------------------------------------------------------------------------------------------

    def _read(self, files: Sequence[SegmentFile], *, rows: bool) -> None:
        look = self._look_at_rows if rows else self._look_at_bytes
        if rows and not self._view.is_whole:
            self._findings.add(
                "unchecked",
                "segment",
                keys.LOG_FOLDER,
                "which transaction brought which rows could not be compared with the entries",
                "see to the findings about entries first, then check again",
            )
        done = 0
        for wave in waves(files, lambda file: file.record.size_bytes, _WAVE_SEGMENTS, _WAVE_BYTES):
            found = all_attempted(self._runtime, [partial(look, file) for file in wave])
            for file, error in zip(wave, found, strict=True):
                if isinstance(error, ObjectNotFound):
                    self._missing.append(file)
                elif isinstance(error, CorruptionError):
                    self._report(file, error)
                elif isinstance(error, TxnLogError):
                    self.unread.append(file)
                    self._findings.unread("segment", file.key, error)
                elif rows:
                    self._findings.looked_at("row", file.record.rows)
            done += len(wave)
            self._findings.looked_at("file", len(wave), len(files))

    def _look_at_bytes(self, file: SegmentFile) -> None:
        self._verified(file)

    def _verified(self, file: SegmentFile) -> bytes:
        record = file.record
        data = self._log.store.get(file.key)
        segment_file.verify(data, record.checksum, rows=record.rows, key=file.key, size_bytes=record.size_bytes)
        return data

    def _look_at_rows(self, file: SegmentFile) -> None:
        data = self._verified(file)
        origins = self._view.origins if self._view.is_whole else None
        check_rows(data, self._planned(file), schemas.to_arrow(file.topic.schema), file.record, origins)

    def _planned(self, file: SegmentFile) -> PlannedSegment:
        state = state_at(file.record, self._view.state.head.version)
        assert state is not None, "it is in the log"
        planned = plan_segment(file.record, file.topic.folder, state, None, {})
        assert planned is not None, "all of it is wanted"
        return planned

    def _check_offsets(self, by_topic: dict[int, list[SegmentRecord]]) -> None:
        """Report partitions whose visible segments do not hold each message once."""
        state = self._view.state
        for topic in state.topics.values():
            if topic.dropped or not self._view.is_complete:
                continue
            shown = [
                record
                for record in by_topic[topic.id]
                if record.state == "visible" and record.number not in self._view.removals
            ]
            for partition in range(topic.partitions):
                span = state.start_of(topic.id, partition), state.end_of(topic.id, partition)
                text = check_offsets(shown, partition, *span)
                if text:
                    self._findings.add(
                        "damage",
                        "segment",
                        f"{topic.folder}/ partition {partition}",
                        f"the segments of the topic {topic.name!r} {text} of partition {partition}",
                        f"keep all files, and report it as a fault of txnlog; {PAGE} says how to go on reading",
                    )


def _what_to_do(waiting: int, others: int) -> Words:
    """About files that no entry names: of writers that may be at work, and of others."""
    parts = []
    if waiting:
        parts.append(
            f"{waiting:,} of them may be about to be named by writers at work, or are left of commits of theirs that "
            "lost a race and wrote their rows anew"
        )
    if others:
        parts.append(
            f"{others:,} of them are left of such commits, of writers that died, or of a newest entry that was lost "
            "(before a vacuum, compare with a backup)"
        )
    return Words("nothing to do: ", "; ".join(parts), ". ", Call("vacuum"), " deletes what is not needed")


__all__ = ["SegmentFile", "Segments"]
