"""Bugs planted in catalog: topics as Delta tables."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant
from tests.mutants.names import (
    CATALOG_IN_HANDLERS,
    DAMAGED_PUBLICATION,
    DELTA_ACTIONS,
    PUBLICATION,
    PUBLISHERS,
    SEGMENTS_TABLE,
)

MUTANTS: Final = (
    # --- topics as Delta tables ---------------------------------------------------------------------------------------
    Mutant(
        "merged rows are new to those who stream a published topic",
        "catalog/publication/topic_versions.py",
        "        if not new:\n            found.add(record.number)\n",
        "",
        "a stream reads rows twice",
        (
            PUBLICATION + "what_was_new_and_merged_meanwhile_is_shown_new_first",
            DELTA_ACTIONS + "published_versions_show_what_is_visible",
        ),
    ),
    Mutant(
        "rows that were merged at once are never shown as new",
        "catalog/publication/topic_versions.py",
        " or not fresh.isdisjoint(replaced)",
        "",
        "a stream is stopped, or misses rows",
        (PUBLICATION + "what_was_new_and_merged_meanwhile_is_shown_new_first",),
    ),
    Mutant(
        "a published table goes back behind a vacuum",
        "catalog/publication/topic_versions.py",
        "(item for item in versions if item <= oldest_readable)",
        "(item for item in versions if item < 0)",
        "its versions name files that are gone",
        (PUBLICATION + "what_a_vacuum_made_unreadable_is_never_shown",),
    ),
    Mutant(
        "an upper bound of a time is cut",
        "catalog/delta_log/statistics.py",
        "if not upper or not value.microsecond % 1_000:",
        "if not upper or value.microsecond < 1_000_000:",
        "files with the newest rows are skipped",
        (DELTA_ACTIONS + "bounds_hold_or_are_left_out",),
    ),
    Mutant(
        "a published version is trusted as it is read",
        "catalog/publication/table_publisher.py",
        "if not same_content(view.commit(wanted), data, bounds=self._compares_bounds):",
        "if not data:",
        "a commit that lost a line stays, and its files are never read",
        (DAMAGED_PUBLICATION + "a_damaged_version_is_written_again_as_it_was",),
    ),
    Mutant(
        "a commit of somebody else is passed over",
        "catalog/publication/table_publisher.py",
        "if not stamp.is_of(self._table.identity):",
        "if stamp.fields is not None and not stamp.is_of(self._table.identity):",
        "a foreign commit is overwritten as damaged",
        (DAMAGED_PUBLICATION + "a_commit_of_somebody_else_is_refused",),
    ),
    Mutant(
        "who lost a race to publish goes on as if it had won",
        "catalog/publication/table_publisher.py",
        "            if found == prepared:\n",
        "            if found:\n",
        "its next version begins elsewhere than the one before ends",
        (PUBLISHERS + "two_publishers_who_know_the_table_in_every_interleaving",),
    ),
    Mutant(
        "a publisher goes on behind what it knows without a look",
        "catalog/publication/table_publisher.py",
        "return self._note(self._follow(self._looked_at(self._shown, changes), changes, ahead=2))",
        "return self._shown",
        "a gap where the newest version was removed, rows in two versions where others made it again",
        (
            PUBLISHERS + "a_newest_version_that_was_removed_comes_back_before_the_next_one",
            PUBLISHERS + "who_knew_a_version_that_others_made_again_goes_on_from_what_is_there",
        ),
    ),
    Mutant(
        "whether a checkpoint is left of the next version is not asked",
        "catalog/publication/table_publisher.py",
        "            if self._was_there(wanted.delta_version, view):",
        "            if not wanted:",
        "rows that readers who begin at the checkpoint never see",
        (PUBLISHERS + "a_version_that_was_removed_but_not_its_checkpoint_comes_back_with_one_that_shows_the_same",),
    ),
    Mutant(
        "a checkpoint is written without a look at what its version shows after that",
        "catalog/publication/table_publisher.py",
        "            if there == shown:\n                break\n",
        "            break\n",
        "a version whose rows depend on whether a reader begins at the checkpoint",
        (
            PUBLISHERS + "a_checkpoint_shows_what_its_version_does_though_two_repaired_them_at_once",
            PUBLISHERS + "a_new_checkpoint_shows_what_its_version_does_though_another_repaired_that_meanwhile",
        ),
    ),
    Mutant(
        "a version that was written again keeps the checkpoint that others made of it meanwhile",
        "catalog/publication/table_publisher.py",
        "return self._renew_checkpoint(written, changes)",
        "return written",
        "a version whose rows depend on whether a reader begins at the checkpoint",
        (PUBLISHERS + "a_checkpoint_shows_what_its_version_does_though_one_who_repairs_it_knew_more_of_it",),
    ),
    Mutant(
        "what a lost version showed is not looked up",
        "catalog/publication/table_publisher.py",
        "if following == version + 1 and max(shown.version, 0) <= limit <= view.newest:",
        "if following == version and max(shown.version, 0) <= limit <= view.newest:",
        "a version that others have read becomes another one",
        (DAMAGED_PUBLICATION + "a_damaged_version_is_written_again_as_it_was",),
    ),
    Mutant(
        "the file of a stretch keeps its first name",
        "catalog/publication/segments_table.py",
        'text = f"{self._table.identity.coordinator}/{last}"',
        'text = f"{self._table.identity.coordinator}/{last // STRETCH}"',
        "the table of segments never grows within a stretch",
        (SEGMENTS_TABLE + "the_table_says_what_the_log_says",),
    ),
    Mutant(
        "whoever publishes waits for who does already",
        "catalog/publication/publications.py",
        "        publisher = self._idle.pop(topic, None) or made()\n",
        "        while (publisher := self._idle.setdefault(topic, made())) is None:\n            pass\n"
        "        self._idle[topic] = None\n",
        "a signal's handler that publishes, or closes, waits for ever for the call that it interrupts",
        (
            CATALOG_IN_HANDLERS + "a_publication_inside_of_another_one_comes_through_wherever_it_comes",
            CATALOG_IN_HANDLERS + "a_handle_can_be_closed_while_it_publishes_in_maintain_and_in_the_background",
        ),
    ),
    Mutant(
        "two handles for one namespace of a catalog",
        "catalog/namespaces.py",
        "if self._closed or known is not made:",
        "if self._closed:",
        "the second one is open for good, and nobody closes it before the catalog's end",
        (CATALOG_IN_HANDLERS + "of_threads_that_open_a_namespace_for_publishing_one_handle_stays",),
    ),
)
