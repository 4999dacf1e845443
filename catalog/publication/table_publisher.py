"""Publishing one Delta table from the materialized state: next versions, repair of lost ones, and checkpoints.

Any number of publishers may work at once. A version is created if it is absent, with bytes that follow from the log and
from what the preceding version shows; a publisher that comes late reads the existing version and continues after it.
What is read is never trusted: it must be what the log yields for the versions that it names, or it is written again.
Only a repair compares the bounds of files: different releases of txnlog state more or fewer of them, and would
otherwise keep undoing each other's versions.

A version with a checkpoint is two objects, and readers use either. Several publishers may repair it at once, each to
show something else, and no request writes both. So whoever wrote the commit again writes the checkpoint after it, and
whoever wrote a checkpoint reads the commit after it, until both show the same: the last request of all of them is then
a look that found them the same.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from catalog.delta_log.checkpoint import Hint, checkpoint_bytes, hint_bytes, is_checkpoint
from catalog.delta_log.commit import NO_VERSION, TableVersion
from catalog.delta_log.commit_stamp import DamagedCommitError, Stamp, claimed_version, same_content, stamp_of
from catalog.delta_log.objects import COMMITS_AT_ONCE, DeltaLog
from catalog.publication.table import Table, View
from txnlog.errors import CorruptionError, Durable, ForeignDeltaLog, TxnLogError
from txnlog.replies import in_parts, note_written

_logger = logging.getLogger("txnlog.publisher")

CHECKPOINT_VERSIONS: Final = 100
"""Versions after a checkpoint until the next one is due; more for a table of many files, since that one costs more."""

_FILES_PER_VERSION: Final = 100
"""For each so many files of a table, its next checkpoint is due a version later."""

_WALKED: Final = 8 * COMMITS_AT_ONCE
"""The most versions that are read from the beginning before a listing is used to find the newest."""

_MOST_LOOKS: Final = 8
"""The most passes over repaired versions, and the most times that a checkpoint is written until it shows what its
version does; a pass finds something to do only if others repair at the same time."""


@dataclass(slots=True)
class Changes:
    """The changes that one publication made to a table."""

    created: int = 0
    repaired: list[int] = field(default_factory=list)
    wrote: bool = False
    """Whether any object was or may have been written: a version, a checkpoint, a data file."""


class TablePublisher:
    """A publisher of one table. Not thread-safe, but for ``stamp``: of one call at a time."""

    def __init__(self, log: DeltaLog, table: Table) -> None:
        self.log = log
        self._table = table
        self._shown: TableVersion | None = None
        self._checkpoint = -1
        self._due = -1
        self._compares_bounds = False
        """Whether a commit with other bounds of files than the log yields counts as damaged."""
        self._unsound: TableVersion | None = None
        """The version whose checkpoint ``_last_checkpoint`` names, though that is missing or damaged."""
        self._knows_checkpoint(-1)
        self._seen: tuple[int, View] | None = None

    def publish(self) -> tuple[TableVersion, Changes]:
        """Publish what the materialized state has beyond the table. Returns what the newest version shows then.

        The newest version that this process knows is read again first: others may have removed it, or have written
        another one in its place, and the next version would not follow it.

        Raises:
            ForeignDeltaLog: somebody else's table is there, or somebody else wrote to it.
            OutcomeUnknown: the store did not say whether a write took effect; call it again.
            CorruptionError: the table shows what the log does not have.
        """
        changes = Changes()
        with self._at_work(changes):
            shown = self._settled(self._advance(self._newest(changes), changes), changes)
            self._keep_checkpoint(shown, changes)
        return shown, changes

    def repair(self) -> tuple[TableVersion, Changes]:
        """Check every version, write again those that are missing or damaged, and make a checkpoint.

        A version with other bounds of files than the log yields, as from another release of txnlog, counts as damaged.
        """
        changes = Changes()
        with self._at_work(changes, compares_bounds=True):
            listed = self.log.listed()
            if not listed.commits and listed.others:
                raise self._foreign_remains()
            newest = self._view(-1, -1).newest
            there = {*listed.commits, *(version for version in listed.checkpoints if version <= newest)}
            shown = self._follow(NO_VERSION, changes, until=max(there, default=-1), renewed=listed.checkpoints)
            shown = self._settled(self._advance(self._note(shown), changes), changes)
            if shown != NO_VERSION:
                self._table.tidy(self._make_checkpoint(shown, changes))
        return shown, changes

    def repair_newest(self) -> TableVersion:
        """What the newest version shows, once damaged ones are repaired as ``publish`` does. Publishes nothing new."""
        changes = Changes()
        with self._at_work(changes):
            return self._newest(changes)

    def stamp(self, version: int) -> Stamp:
        """The stamp of a commit of this table. Raises CorruptionError where it is missing or damaged."""
        data = self.log.get(version)
        try:
            if data is not None and (stamp := stamp_of(data)).is_of(self._table.identity) and stamp.version >= 0:
                return stamp
        except DamagedCommitError:
            pass
        raise CorruptionError(
            f"version {version} of the Delta table of {self._table.name!r} is {'damaged' if data else 'missing'}",
            advice="call the catalog's repair(namespace, topic), which writes it again from the log",
        )

    @contextmanager
    def _at_work(self, changes: Changes, *, compares_bounds: bool = False) -> Iterator[None]:
        """Context of a call: drops its view at the end; sets ``durable`` of an error after a write."""
        before = self.log.writes
        self._compares_bounds = compares_bounds
        with in_parts():
            try:
                yield
            finally:
                changes.wrote = self.log.writes > before
                if changes.wrote:
                    note_written()
                self._seen = None

    def _note(self, shown: TableVersion) -> TableVersion:
        self._shown = shown
        return shown

    # --- what is there ----------------------------------------------------------------------------------------------

    def _newest(self, changes: Changes) -> TableVersion:
        """What the newest version shows, once it and those since the last known one are repaired where needed."""
        if self._shown is None or self._shown == NO_VERSION:
            return self._note(self._find(changes))
        return self._note(self._follow(self._looked_at(self._shown, changes), changes, ahead=2))

    def _looked_at(self, shown: TableVersion, changes: Changes) -> TableVersion:
        """What a version that this process knew shows now, after a repair where it is missing or damaged.

        If it was removed, another publisher may have written another one in its place, with more after it: that counts.
        """
        if shown == NO_VERSION:
            return shown
        found = self.log.get(shown.delta_version)
        sound = None if found is None else self._begin_at(shown.delta_version, found)
        return self._write(None, shown, found, changes) if sound is None else sound

    def _find(self, changes: Changes) -> TableVersion:
        """What the newest version shows, found from the newest checkpoint, from the beginning, or by a listing."""
        hint = self.log.hint()
        if hint is not None and (shown := self._begin_at(hint.version)) is not None:
            self._take(hint)
            return self._follow(shown, changes)
        if self.log.get(0) is not None:
            hinted = hint is not None and self._was_there(hint.version, self._view(-1, -1))
            until = hint.version if hint is not None and hinted else -1
            shown = self._follow(NO_VERSION, changes, until=until, most=_WALKED if hint is None else None)
            if shown.delta_version < _WALKED - 1:
                return shown
            newest = max(self.log.listed().commits, default=-1)
            jumped = self._begin_at(newest) if newest > shown.delta_version else None
            return self._follow(shown if jumped is None else jumped, changes)
        listed = self.log.listed()
        if listed.commits:  # the first ones are gone
            return self._follow(NO_VERSION, changes, until=max(listed.commits))
        if listed.others:
            raise self._foreign_remains()
        return NO_VERSION

    def _was_there(self, version: int, view: View) -> bool:
        """Whether a missing commit has a checkpoint: readers use that as the version, so the commit must exist as well.

        A table has no more versions than the log has entries, so a claim of more is not believed.
        """
        return version <= view.newest and self.log.has_checkpoint(version)

    def _begin_at(self, version: int, data: bytes | None = None) -> TableVersion | None:
        """What a commit shows, without reading its predecessors; None where it is missing or damaged."""
        data = self.log.get(version) if data is None else data
        if data is None:
            return None
        try:
            stamp = self._own_stamp(version, data)
            shown = TableVersion(version, stamp.version, stamp.timestamp_ms, stamp.before)
        except DamagedCommitError:
            return None
        if not -1 <= shown.before <= shown.version or shown.version < 0:
            return None
        earliest_ms = self._view(shown.before, shown.version).time_of(shown.version)
        if not 0 <= shown.timestamp_ms - earliest_ms <= version:  # later by a millisecond for each version before it
            return None
        return self._judge(shown, data)

    def _own_stamp(self, version: int, data: bytes) -> Stamp:
        """The stamp of a commit. Raises DamagedCommitError, and ForeignDeltaLog for a commit of another table."""
        stamp = stamp_of(data)
        if not stamp.is_of(self._table.identity):
            raise self._foreign(version, stamp)
        return stamp

    def _view(self, after: int, until: int) -> View:
        """A view of the materialized state that covers a version: the last view if possible, as a new one is slow."""
        if self._seen is not None and self._seen[0] <= after and until <= self._seen[1].newest:
            return self._seen[1]
        view = self._table.view(after)
        if until > view.newest:
            self._table.refresh()
            view = self._table.view(after)
            if until > view.newest:
                raise CorruptionError(
                    f"the Delta table of {self._table.name!r} shows version {until} of the namespace, whose log ends "
                    f"at {view.newest}",
                    advice="the log was restored to an older state, or the table was copied here: restore the newer "
                    f"log, or remove the folder {self.log.url()}/_delta_log and publish again",
                )
        self._seen = after, view
        return view

    def _judge(self, wanted: TableVersion, data: bytes) -> TableVersion | None:
        """``wanted`` if a commit is what the log yields for it; None if it is damaged."""
        view = self._view(wanted.before, wanted.version)
        if not same_content(view.commit(wanted), data, bounds=self._compares_bounds):
            return None
        return wanted

    def _after(self, shown: TableVersion, version: int, view: View) -> TableVersion:
        """The next Delta version after one, showing a version of the namespace."""
        timestamp_ms = max(view.time_of(version), shown.timestamp_ms + 1)
        return TableVersion(shown.delta_version + 1, version, timestamp_ms, shown.version)

    def _follow(
        self,
        shown: TableVersion,
        changes: Changes,
        *,
        until: int = -1,
        most: int | None = None,
        ahead: int = COMMITS_AT_ONCE,
        renewed: frozenset[int] = frozenset(),
    ) -> TableVersion:
        """Continue from a version to the newest existing one, repairing those that are missing or damaged.

        Args:
            shown: the version to continue from.
            changes: collects the repairs.
            until: the newest version, if that is known.
            most: reads about this many versions at most.
            ahead: how many are requested at first; a gap of fewer is seen by the versions after it.
            renewed: versions whose checkpoints are written again, since their content is not checked.
        """
        begun = shown.delta_version
        befores = self._befores(begun, until)
        while most is None or shown.delta_version - begun < most:
            first = shown.delta_version + 1
            found = self.log.get_many(first, ahead)
            last = max(found, default=first - 1)
            for version in range(first, last):  # what is missing may have come while those behind it were read
                if version not in found and (data := self.log.get(version)) is not None:
                    found[version] = data
            befores.update(self._known_befores(found))
            if until > last:
                last = min(until, first + ahead - 1)
            for version in range(first, last + 1):
                followed = version < max(last, until)
                shown = self._note(self._step(shown, found.get(version), befores, changes, followed=followed))
                if version in renewed:
                    shown = self._note(self._renew_checkpoint(shown, changes))
            if last < first + ahead - 1:
                break
            ahead = min(2 * ahead, COMMITS_AT_ONCE)
        return shown

    def _befores(self, after: int, until: int) -> dict[int, int]:
        """By version, up to one, what it says its predecessor shows: this says what the versions of a gap showed."""
        found: dict[int, int] = {}
        for first in range(after + 1, until + 1, COMMITS_AT_ONCE):
            found.update(self._known_befores(self.log.get_many(first)))
        return found

    def _known_befores(self, commits: Mapping[int, bytes]) -> dict[int, int]:
        found: dict[int, int] = {}
        for version, data in commits.items():
            try:
                found[version] = self._own_stamp(version, data).before
            except DamagedCommitError:
                continue
        return found

    def _step(
        self, shown: TableVersion, data: bytes | None, befores: Mapping[int, int], changes: Changes, *, followed: bool
    ) -> TableVersion:
        """What the next version shows, after a repair where its commit is not what the log yields."""
        if data is not None and (found := self._next(shown, data)) is not None:
            return found
        # All entries are needed: another publisher that knows more may repair the version at once and continue after
        # it.
        self._table.refresh()
        view = self._table.view(shown.version)
        to = self._lost(shown, data, befores, view) if followed else self._damaged(shown, data, view)
        return self._write(shown, self._after(shown, to, view), data, changes)

    def _next(self, shown: TableVersion, data: bytes) -> TableVersion | None:
        """What the next version shows, by its bytes; None where they are damaged."""
        try:
            stamp = self._own_stamp(shown.delta_version + 1, data)
            if stamp.before != shown.version or stamp.version < max(stamp.before, 0):
                return None
        except DamagedCommitError:
            return None
        view = self._view(shown.version, stamp.version)
        return self._judge(self._after(shown, stamp.version, view), data)

    def _lost(self, shown: TableVersion, data: bytes | None, befores: Mapping[int, int], view: View) -> int:
        """The version that a lost commit showed which is followed by others: the next commit states it.

        If several in a row are lost, all but the last show what their predecessor shows, unless they claim another one.
        """
        version = shown.delta_version + 1
        following = min((item for item in befores if item > version), default=None)
        limit = view.newest if following is None else befores[following]
        if following == version + 1 and max(shown.version, 0) <= limit <= view.newest:
            return limit
        claimed = None if data is None else claimed_version(data)
        if claimed is not None and shown.version < claimed <= limit and view.may_show(claimed):
            return claimed
        if shown.version < 0:
            least = view.least_version(shown.version)
            assert least is not None, "a table begins with its creation"
            return least
        return shown.version

    def _damaged(self, shown: TableVersion, data: bytes | None, view: View) -> int:
        """The version to show in place of a damaged newest commit: the one that it claims, or the nearest one."""
        claimed = None if data is None else claimed_version(data)
        if claimed is not None and shown.version < claimed <= view.newest and view.may_show(claimed):
            return claimed
        least = view.least_version(shown.version)
        return shown.version if least is None else least

    def _settled(self, shown: TableVersion, changes: Changes) -> TableVersion:
        """Check repaired versions until none needs repair: others may have written them from fewer or more entries.

        The publisher that writes last also checks last, so that the versions are consistent in the end.
        """
        for _ in range(_MOST_LOOKS):
            if not changes.repaired:
                break
            first, count = min(changes.repaired), len(changes.repaired)
            before = NO_VERSION if first == 0 else self._begin_at(first - 1)
            if before is None:
                break
            shown = self._follow(before, changes, ahead=2)
            shown = self._advance(self._note(shown), changes)
            if len(changes.repaired) == count:
                break
        return shown

    def _write(
        self, shown: TableVersion | None, wanted: TableVersion, data: bytes | None, changes: Changes
    ) -> TableVersion:
        """Write a commit in place of a missing or damaged one, and its checkpoint if it has one.

        ``shown`` is its predecessor (None: not known). Returns what the version shows then.
        """
        written = self._write_commit(shown, wanted, data, changes)
        # Others who repaired it too may have made one, or written theirs.
        return self._renew_checkpoint(written, changes)

    def _write_commit(
        self, shown: TableVersion | None, wanted: TableVersion, data: bytes | None, changes: Changes
    ) -> TableVersion:
        prepared = self._view(wanted.before, wanted.version).commit(wanted)
        if self.log.has_checkpoint(wanted.delta_version):
            # First: a crash in between leaves a commit that is still to be repaired.
            self._write_checkpoint(wanted, anew=True)
        if data is not None:
            self.log.overwrite(wanted.delta_version, prepared)
        else:
            found = self.log.create(wanted.delta_version, prepared)
            if found != prepared:  # somebody else wrote it meanwhile
                sound = self._begin_at(wanted.delta_version, found) if shown is None else self._next(shown, found)
                if sound is not None:
                    return sound
                self.log.overwrite(wanted.delta_version, prepared)
        _logger.warning(
            "version %d of the Delta table of %r was %s: the log says what it should be",
            wanted.delta_version,
            self._table.name,
            "missing" if data is None else "damaged",
        )
        changes.repaired.append(wanted.delta_version)
        return wanted

    def _foreign(self, version: int, stamp: Stamp) -> ForeignDeltaLog:
        url = self.log.commit_url(version)
        what = "was not written by txnlog" if stamp.fields is None else "belongs to another topic or namespace"
        return ForeignDeltaLog(
            f"version {version} of the Delta table in the folder of {self._table.name!r} {what}: {url}",
            advice="it is not overwritten. Where nobody needs it, remove that object and those of later versions and "
            f"checkpoints, or all of {self.log.url()}/_delta_log, then publish again",
            durable=Durable.NOTHING,
        )

    def _foreign_remains(self) -> ForeignDeltaLog:
        return ForeignDeltaLog(
            f"the folder of {self._table.name!r} holds parts of a Delta log without any version of it",
            advice=f"where nobody needs them, remove {self.log.url()}/_delta_log, then publish again",
            durable=Durable.NOTHING,
        )

    # --- what is new ------------------------------------------------------------------------------------------------

    def _advance(self, shown: TableVersion, changes: Changes) -> TableVersion:
        """Publish what the materialized state has beyond a version, one Delta version after the other."""
        if shown == NO_VERSION and not self._table.begins:
            return shown
        while True:
            view = self._table.view(shown.version)
            to = view.next_version(shown.version)
            if to is None:
                return shown
            wanted = self._after(shown, to, view)
            if self._was_there(wanted.delta_version, view):  # then it must show what its checkpoint shows
                shown = self._follow(shown, changes, until=wanted.delta_version, ahead=2)
                continue
            prepared = view.commit(wanted)
            found = self.log.create(wanted.delta_version, prepared)
            if found == prepared:
                changes.created += 1
                shown = self._note(wanted)
            else:  # another publisher was first; what does not follow is damaged, or this process's knowledge is old
                sound = self._next(shown, found)
                shown = self._note(self._looked_at(shown, changes) if sound is None else sound)
                shown = self._follow(shown, changes, ahead=2)

    # --- checkpoints ------------------------------------------------------------------------------------------------

    def _knows_checkpoint(self, version: int) -> None:
        """Note the newest checkpoint's version, from which the next one's is computed anew."""
        self._checkpoint = version
        self._due = version + CHECKPOINT_VERSIONS
        self._unsound = None

    def _take(self, hint: Hint) -> None:
        """Note the checkpoint of a hint if it is sound. One that is not counts as none, and is to be made again."""
        if self.log.is_sound(hint):
            self._knows_checkpoint(hint.version)
        else:
            self._unsound = self._begin_at(hint.version)

    def _keep_checkpoint(self, shown: TableVersion, changes: Changes) -> None:
        """Make a checkpoint if one is due. A failure is only logged, since the versions are published.

        One is also made after repairs, so that the versions before need not be read any more. If ``_last_checkpoint``
        names one that is not sound, that is made again first, at its version: without it nobody could open the table,
        nor read that version later. If this fails, the one that is due is made all the same, by which the table can be
        opened.
        """
        due = False
        with self._logging_failures():
            due = self._is_due(shown)
            if self._unsound is not None:
                self._remake_checkpoint(self._unsound, changes)
                due = self._is_due(shown)
        with self._logging_failures():
            if changes.repaired or due:
                self._table.tidy(self._make_checkpoint(shown, changes, anew=bool(changes.repaired)))

    @contextmanager
    def _logging_failures(self) -> Iterator[None]:
        """Context in which a checkpoint is made: its failure is logged, and fails nothing else."""
        try:
            yield
        except TxnLogError as error:
            _logger.warning(
                "the checkpoint of the Delta table of %r could not be made: %s", self._table.name, error.message
            )

    def _is_due(self, shown: TableVersion) -> bool:
        """Whether a checkpoint is due. Sends no request, and counts no files, before the first version that may be due.

        The first one is due however many files there are: without it every reader starts from version 0.
        """
        if shown.delta_version < self._due:
            return False
        hint = self.log.hint()  # somebody else may have made one
        if hint is not None and self._checkpoint < hint.version <= shown.delta_version:
            self._take(hint)
        if self._checkpoint >= 0 and shown.delta_version >= self._due:
            files = self._table.view(-1).file_count(shown.version)
            self._due = max(self._due, self._checkpoint + -(-files // _FILES_PER_VERSION))
        return shown.delta_version >= self._due

    def _renew_checkpoint(self, shown: TableVersion, changes: Changes) -> TableVersion:
        """Rewrite a version's checkpoint, if it has one, to show what the commit shows. Returns what that is then."""
        if not self.log.has_checkpoint(shown.delta_version):
            return shown
        return self._put_checkpoint(shown, changes, anew=True)[0]

    def _remake_checkpoint(self, shown: TableVersion, changes: Changes) -> None:
        self._make_checkpoint(shown, changes)
        _logger.warning(
            "the checkpoint of version %d of the Delta table of %r was missing or damaged: it was written again from "
            "the log",
            shown.delta_version,
            self._table.name,
        )

    def _make_checkpoint(self, shown: TableVersion, changes: Changes, *, anew: bool = True) -> TableVersion:
        """Make the checkpoint of a version and name it in ``_last_checkpoint``. Returns what the version shows then."""
        shown, data, actions = self._put_checkpoint(shown, changes, anew=anew)
        files = self._view(-1, shown.version).file_count(shown.version)
        self.log.put_hint(hint_bytes(shown.delta_version, data, actions, files))
        self._knows_checkpoint(shown.delta_version)
        return shown

    def _put_checkpoint(self, shown: TableVersion, changes: Changes, *, anew: bool) -> tuple[TableVersion, bytes, int]:
        """Write a version's checkpoint until it shows what the commit shows when it is read after that.

        Args:
            shown: what the version is known to show.
            changes: collects the repair of a commit that is missing or damaged by then.
            anew: whether an existing checkpoint is overwritten; else it stays if it is one.

        Returns what both show, the checkpoint, and the number of its actions.
        """
        data, actions = self._write_checkpoint(shown, anew=anew)
        for _ in range(_MOST_LOOKS):
            found = self.log.get(shown.delta_version)
            there = None if found is None else self._begin_at(shown.delta_version, found)
            if there == shown:
                break
            shown = self._write_commit(None, shown, found, changes) if there is None else there
            data, actions = self._write_checkpoint(shown, anew=True)
        return shown, data, actions

    def _write_checkpoint(self, shown: TableVersion, *, anew: bool) -> tuple[bytes, int]:
        """Write a version's checkpoint; returns the one that is there then, and the number of its actions."""
        data, actions = checkpoint_bytes(self._view(-1, shown.version).checkpoint(shown))
        if not anew:
            found = self.log.create_checkpoint(shown.delta_version, data)
            if found == data or is_checkpoint(lambda start, end: found[start:end], len(found)):
                return found, actions  # otherwise nobody can read it
        self.log.overwrite_checkpoint(shown.delta_version, data)
        return data, actions


__all__ = ["CHECKPOINT_VERSIONS", "Changes", "TablePublisher"]
