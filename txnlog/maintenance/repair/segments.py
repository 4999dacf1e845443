"""Bringing segments back from a copy: those with the size and the checksum in the log."""

from __future__ import annotations

from functools import partial

from txnlog.data import segment_file
from txnlog.maintenance.fsck.segments import SegmentFile, Segments
from txnlog.maintenance.repair.work import FROM_COPY, Copy, Work
from txnlog.maintenance.waves import copied_in_waves


def repair_segments(work: Work, segments: Segments) -> None:
    """Bring back the segments that a check reported, as far as the copy has them.

    Also those that the store did not return: a disk may have lost them, and if not, the bytes are the same.
    """
    if work.copy is None:
        return
    done = 0
    wanted = [*segments.damaged, *segments.unread]
    for wave in copied_in_waves(wanted, lambda file: file.record.size_bytes):
        gone = segments.vacuumed_since(wave)
        for file in gone:
            work.leave(file.key, "a vacuum has announced that it is deleted")
        work.begin_writing()
        work.runtime.run_all([partial(_repair, work, work.copy, file) for file in wave if file not in gone])
        for file in segments.vacuumed_since(wave):
            # The vacuum that came meanwhile had found nothing to delete.
            work.take_back("segment", file.key, "a vacuum has announced that it is deleted")
        done += len(wave)
        work.show("segment", done, len(wanted))


def _repair(work: Work, copy: Copy, file: SegmentFile) -> None:
    work.attempt("segment", file.key, FROM_COPY, partial(_bring_back, work, copy, file))


def _bring_back(work: Work, copy: Copy, file: SegmentFile) -> None:
    record = file.record

    def check(data: bytes) -> None:
        segment_file.verify(data, record.checksum, rows=record.rows, key=file.key, size_bytes=record.size_bytes)

    work.store.put(file.key, copy.take(file.key, check))


__all__ = ["repair_segments"]
