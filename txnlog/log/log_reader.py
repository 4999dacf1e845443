"""Reading a commit log from its store: slots, the tail, the state at a version. Nothing here appends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from txnlog.common.format_limits import ENTRIES_PER_FOLDER
from txnlog.engine.runtime import Runtime
from txnlog.errors import CorruptionError, Durable, NamespaceNotFound, UnsupportedFeature
from txnlog.fold.apply import apply_entry, newer_checkpoint
from txnlog.fold.state import State
from txnlog.format import keys
from txnlog.format.actions import Header
from txnlog.format.codec import Entry, decode_entry, digest_of
from txnlog.log.checkpoint_codec import Manifest
from txnlog.log.checkpoint_reader import CheckpointReader, UnusableCheckpoint
from txnlog.store.base import ObjectNotFound, Store
from txnlog.store.identity import identity_of

SLOTS_AT_ONCE: Final = 32
"""Slots that are asked for at once: behind a checkpoint there are seldom more than 1,000."""

NO_ENTRIES: Final[Mapping[int, bytes]] = {}

_LOOKS_BEHIND: Final = (2, 4, 16, 128)
"""How far behind the tail slots are looked at by whoever opens a log, at once: a listing would take longer."""

_LISTED_SLOTS: Final = 1_000
"""Slots of a listing that stores answer in one request: their keys differ in the last digits alone."""

_FOLDERS_BEHIND: Final = 16
"""Folders behind the tail that are looked into, each twice as far away as the one before."""

_CONFIRM_MS: Final = (0, 50, 250)
"""Pauses before the looks at an entry that must be there. A later entry is there, so its slot was filled before: at the
first look it is there again where writers went on meanwhile, at the others where a cache of names was behind."""


FOLDER_GONE: Final = (
    "its folder was removed, renamed or replaced: if it was renamed or moved, bring it back, and nothing that was "
    "committed is lost; otherwise open the namespace again, which says what is there now"
)
"""What to do where a handle finds that its log is not there any more."""


class Log:
    """The commit log of one namespace on its store."""

    def __init__(self, store: Store, runtime: Runtime) -> None:
        self.store = store
        self._runtime = runtime
        self._is_near = identity_of(store).is_near
        self.checkpoints = CheckpointReader(self, runtime)
        self._first: bytes | None = None
        self._known: State | None = None

    def note_known(self, state: State) -> None:
        """Note the state that is kept at the newest version: its entry is there for as long as the log is."""
        self._known = state

    def check_there(self) -> None:
        """Raise NamespaceNotFound where the folder was removed, or holds the log of another namespace of that name.

        To be asked before anything missing is called damage, and before an entry is put into a slot that is free: an
        entry that continues this log would be the end of another one.
        """
        if self._known is None:
            return
        head = self._known.head
        data = self.get(head.version)
        if data is None or digest_of(data) != head.digest:
            if data is not None:
                decode_entry(data, head.version)  # a damaged entry is no other log
            raise NamespaceNotFound(
                f"the namespace {head.name!r} is no longer the one that this handle has open: entry {head.version} of "
                f"its log is {'gone' if data is None else 'another one'}",
                advice=FOLDER_GONE,
                durable=Durable.NOTHING,
            )

    def get(self, version: int) -> bytes | None:
        """The bytes in a slot, None where it is free."""
        try:
            return self.store.get(keys.entry_key(version))
        except ObjectNotFound:
            return None

    def entry(self, version: int) -> Entry:
        """An entry that must be there: an absent one is damage, since log objects are never deleted."""
        data = self.get(version)
        return decode_entry(self._confirmed(version) if data is None else data, version)

    def get_many(self, first: int, count: int, known: Mapping[int, bytes] = NO_ENTRIES) -> list[bytes]:
        """The bytes of slots from ``first`` on, up to the first free one, at most ``count``; not those ``known``."""
        wanted = range(first, first + count)
        return up_to_free(wanted, known, self._read(self.reads(wanted, known)))

    def _read(self, reads: Sequence[Callable[[], bytes | None]]) -> list[bytes | None]:
        return self._runtime.run_quick(reads) if self._is_near else self._runtime.run_all(reads)

    def reads(self, wanted: Iterable[int], known: Mapping[int, bytes]) -> list[Callable[[], bytes | None]]:
        """The requests for what is in slots, but for those ``known``: independent of each other."""
        return [partial(self.get, version) for version in wanted if version not in known]

    def first(self) -> bytes | None:
        """The bytes of entry 0, None where there is no log. They never change, so they are read once."""
        if self._first is None:
            self._first = self.get(0)
        return self._first

    def exists(self) -> bool:
        """Whether there is a log at all."""
        return self.first() is not None

    def beginning(self) -> str:
        """The digest of entry 0, which identifies the log: only copies of the log have the same."""
        data = self.first()
        if data is None:
            raise CorruptionError("entry 0 is missing: there is no log")
        return digest_of(data)

    def _check_first(self, header: Header, data: bytes) -> None:
        """Raise CorruptionError where entry 0 is not the one that entry 1, with this header, continues.

        A checkpoint may cover both entries, but the root identifies the log by the digest of entry 0: with a damaged
        one, the log would pass for another one. Entry 2 shows which of the two entries is damaged.
        """
        if header.previous == self.beginning():
            return
        third = self.get(2)
        if third is None or decode_entry(third, 2).header.previous == digest_of(data):
            raise CorruptionError(
                "entry 0 is damaged: it is not the one that entry 1 continues",
                advice=f"restore {keys.entry_key(0)} of the namespace from a copy",
            )

    def newest(self) -> tuple[int, int | None, dict[int, bytes]]:
        """The tail of the log, the newest checkpoint that headers on the way name, and the entries on the way.

        No slot below the tail is ever free, so doubling and bisection find it without a LIST. A header names only
        checkpoints below itself: one that names another could lead behind the end of its own log.

        An entry on the way that nobody can apply counts as the tail: applying the entries in order stops there at the
        latest, and reports what is wrong with it, or with a lower one. So the lowest of several faults is reported,
        whichever entries the search read.
        """
        low, checkpointed = 0, None
        data = self.first()
        if data is None:
            raise CorruptionError("entry 0 is missing: there is no log")
        seen = {0: data}
        step = 1
        high = None
        while high is None:
            probe = low + step
            data = self.get(probe)
            if data is None:
                high = probe
                break
            low, step, seen[probe] = probe, step * 2, data
            try:
                header = decode_entry(data, probe).header
                checkpointed = newer_checkpoint(checkpointed, header)
            except (CorruptionError, UnsupportedFeature):
                return probe, checkpointed, seen
            if probe == 1:
                self._check_first(header, data)
        while high - low > 1:
            middle = (low + high) // 2
            data = self.get(middle)
            if data is None:
                high = middle
            else:
                low, seen[middle] = middle, data
                try:
                    checkpointed = newer_checkpoint(checkpointed, decode_entry(data, middle).header)
                except (CorruptionError, UnsupportedFeature):
                    return middle, checkpointed, seen
        return low, checkpointed, seen

    def _confirmed(self, version: int) -> bytes:
        """The bytes in a slot below the tail that seemed free. Raises CorruptionError where it is (docs/stores.md)."""
        for pause_ms in _CONFIRM_MS:
            if pause_ms:
                self._runtime.sleep_ms(pause_ms)
            data = self.get(version)
            if data is not None:
                return data
        self.check_there()
        raise CorruptionError(
            f"entry {version} is missing below the tail of the log",
            advice=f"write and delete nothing; restore {keys.entry_key(version)} of the namespace from a copy, and all "
            "entries behind it that are missing, as after a copy that ended halfway; over a network file system, "
            "which may show new entries seconds late, open it again first",
        )

    def load(self) -> tuple[State, Manifest | None, int]:
        """The state at the tail, from the newest usable checkpoint on; see ``state_at``."""
        tail, checkpointed, seen = self.newest()
        loaded = self.state_at(tail, checkpointed, seen)
        # The free slot after the tail may be an entry that the store lost, or the first of several (a copy that ended
        # halfway): then slots behind it are occupied, most likely one of these.
        behind = [tail + distance for distance in _LOOKS_BEHIND]
        found = self._read(self.reads(behind, NO_ENTRIES))
        self._check_filled(tail + 1, [slot for slot, data in zip(behind, found, strict=True) if data is not None])
        return loaded

    def check_end(self, version: int, *, whole: bool = False) -> None:
        """Raise CorruptionError where a slot behind a version is free below one that is not, as listings show.

        So ends the log in a copy that ended halfway: what is written there is lost when the rest comes.

        Args:
            version: the newest that is known.
            whole: whether the rest of its folder is listed, and folders far behind it, and not only some slots: before
                anything is deleted that no entry names.
        """
        folder = version // ENTRIES_PER_FOLDER
        near = version // _LISTED_SLOTS
        looks = [folder] if whole else [near, near + 1]
        prefix_of = keys.entries_prefix if whole else partial(keys.entries_prefix, slots=_LISTED_SLOTS)
        for look in looks:
            self._check_filled(version + 1, self._listed(prefix_of(look), version))
        for doublings in range(_FOLDERS_BEHIND if whole else 0):
            first = next(iter(self._listed(keys.entries_prefix(folder + (1 << doublings)), version)), None)
            if first is not None:
                self._check_filled(version + 1, [first])

    def _listed(self, prefix: str, version: int) -> Iterator[int]:
        """The versions above one of the entries whose keys begin so, in their order."""
        for info in self.store.list(prefix):
            known = keys.parse_key(info.key)
            if isinstance(known, keys.EntryKey) and known.version > version:
                yield known.version

    def _check_filled(self, first: int, below: Iterable[int]) -> None:
        """Raise CorruptionError unless all slots from ``first`` on are filled that are below one of these."""
        for end in below:
            while first < end:
                self._confirmed(first)
                first += 1
            first = max(first, end + 1)

    def state_at(
        self, version: int, named: int | None, known: Mapping[int, bytes] = NO_ENTRIES
    ) -> tuple[State, Manifest | None, int]:
        """The state at a version, from the newest usable checkpoint on that ``named`` leads to, else from entry 0.

        Returns the manifest of that checkpoint as well, and the size in bytes of the entries that were applied. Entries
        that are ``known`` are not read again.
        """
        for manifest in self.checkpoints.usable(named):
            try:
                state = self.checkpoints.restore(manifest)
                return state, manifest, self.fold(state, version, known)
            except UnusableCheckpoint as error:
                self.checkpoints.note(error)
            except CorruptionError:
                if self.checkpoints.is_of_this_log(manifest):
                    raise
                text = "it is of another log than the entry of its version"
                self.checkpoints.note(UnusableCheckpoint(manifest.version, text))
            self.checkpoints.exclude(manifest)
        state = State()
        return state, None, self.fold(state, version, known)

    def fold(self, state: State, until: int, known: Mapping[int, bytes] = NO_ENTRIES) -> int:
        """Apply the entries after a state's version up to ``until``. Returns their size in bytes.

        Those that are ``known`` are not read again.
        """
        size = 0
        while state.head.version < until:
            first = state.head.version + 1
            count = min(SLOTS_AT_ONCE, until - first + 1)
            for data in self.get_many(first, count, known) or [self._confirmed(first)]:
                apply_entry(state, decode_entry(data, state.head.version + 1))
                size += len(data)
        return size

    def version_at(self, timestamp_ms: int, newest: int) -> int | None:
        """The newest version whose timestamp is at or below a time; None where the log begins later."""
        low, high = -1, newest + 1
        while high - low > 1:
            middle = (low + high) // 2
            if self.entry(middle).header.timestamp_ms <= timestamp_ms:
                low = middle
            else:
                high = middle
        return None if low < 0 else low


def up_to_free(wanted: Iterable[int], known: Mapping[int, bytes], read: Iterable[bytes | None]) -> list[bytes]:
    """The bytes of slots, up to the first free one: those ``known``, and what ``Log.reads`` gave for the others."""
    others, result = iter(read), list[bytes]()
    for version in wanted:
        data = known[version] if version in known else next(others)
        if data is None:
            break
        result.append(data)
    return result


__all__ = ["NO_ENTRIES", "SLOTS_AT_ONCE", "Log", "up_to_free"]
