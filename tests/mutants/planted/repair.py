"""Bugs planted in txnlog/maintenance/repair: guesses, wrong copies, and what gets lost on the way."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant
from tests.mutants.names import REPAIR

MUTANTS: Final = (
    # --- what is certain ----------------------------------------------------------------------------------------------
    Mutant(
        "an entry of the copy taken as it is",
        "txnlog/maintenance/repair/entries.py",
        "if digest_of(data) != digest:",
        "if not digest:",
        "an entry that is damaged in the copy, too, comes into the log",
        (REPAIR + "what_the_copy_has_damaged_is_not_taken",),
    ),
    Mutant(
        "the newest entry taken for named",
        "txnlog/maintenance/repair/entries.py",
        '    named = ""\n    waves',
        '    named = _digest_in(copy, last) or ""\n    waves',
        "the slot of the newest entry gets what a copy has, which may have gone on by itself",
        (REPAIR + "the_newest_entry_is_never_put_back",),
    ),
    Mutant(
        "the end of a copy that was adopted taken for a lost one",
        "txnlog/maintenance/repair/entries.py",
        " and not _is_adopted(behind):",
        ":",
        "somebody is told to bring entries of another namespace into this one",
        (REPAIR + "entries_of_a_copy_that_went_on_by_itself_are_not_taken",),
    ),
    Mutant(
        "a segment of the copy taken as it is",
        "txnlog/maintenance/repair/segments.py",
        "segment_file.verify(data, record.checksum, rows=record.rows, key=file.key, size_bytes=record.size_bytes)",
        "assert data",
        "a segment that is damaged in the copy, too, comes into the topic",
        (REPAIR + "what_the_copy_has_damaged_is_not_taken",),
    ),
    Mutant(
        "any namespace taken for a copy",
        "txnlog/maintenance/repair/entries.py",
        "    _check_copy(work, work.copy, log, last)\n",
        "",
        "whoever names the wrong folder is not told",
        (REPAIR + "wrong_sources_are_refused_before_anything_is_written",),
    ),
    Mutant(
        "the namespace itself taken for a copy",
        "txnlog/maintenance/repair/repair.py",
        "copy.check_apart(store)",
        "pass",
        "whoever names the damaged folder as its own copy is not told",
        (REPAIR + "the_namespace_itself_is_known_by_whatever_path",),
    ),
    # --- how it is put back -------------------------------------------------------------------------------------------
    Mutant(
        "what a repair replaces is not kept",
        "txnlog/maintenance/repair/work.py",
        "occupy(self.store, self.runtime, keys.replaced_key(key, digest_of(found)), found)",
        "pass",
        "the entry of a writer that found a gap is gone without a trace",
        (REPAIR + "an_entry_that_somebody_put_into_the_gap_is_kept_aside",),
    ),
    Mutant(
        "a damaged object deleted and made anew",
        "txnlog/maintenance/repair/work.py",
        "            self.store.put(key, data)",
        "            self.store.delete(key)\n            self.store.create(key, data)",
        "the slot is free for a moment, and a writer that paused fills it",
        (REPAIR + "an_entry_that_somebody_put_into_the_gap_is_kept_aside",),
    ),
    Mutant(
        "a checkpoint always made again from entry 0",
        "txnlog/maintenance/repair/checkpoints.py",
        "base = max((below for below in usable if below < version), default=None)",
        "base: int | None = None",
        "a checkpoint behind a lost entry is not made again, although an older one has what it says",
        (REPAIR + "where_an_entry_is_lost_a_checkpoint_behind_it_is_made_from_one_behind_it",),
    ),
    Mutant(
        "a checkpoint of a newer txnlog replaced",
        "txnlog/maintenance/repair/checkpoints.py",
        "if _is_of_newer_txnlog(work, version):",
        "if _is_of_newer_txnlog(work, version) is None:",
        "the checkpoint of a newer version is lost for those that can use it",
        (REPAIR + "a_checkpoint_of_a_newer_txnlog_is_left",),
    ),
    Mutant(
        "what names the collector stays damaged",
        "txnlog/maintenance/repair/hints.py",
        "return not who_collects.is_collecting(data)",
        "return False",
        "a repair leaves what it says it removes",
        (REPAIR + "without_a_copy_what_follows_from_the_log_comes_back",),
    ),
    Mutant(
        "tables made that were never published",
        "catalog/publication/publications.py",
        "if not DeltaLog(self._store, self._runtime, folder).objects():",
        "if folder is None:",
        "a repair publishes topics that nobody wanted to be published",
        (REPAIR + "a_table_that_was_never_published_is_not_made",),
    ),
    # --- who may, and what is only foreseen ---------------------------------------------------------------------------
    Mutant(
        "a dry run that writes",
        "txnlog/maintenance/repair/repair.py",
        "    if dry_run:\n",
        "    if dry_run is None:\n",
        "whoever only asks what would be done has it done",
        (REPAIR + "a_handle_repairs_what_it_has_open_and_goes_on",),
    ),
)
