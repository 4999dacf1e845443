"""The root log: the namespaces of a root, their coordinator ids, verdicts on the store. A log like any other."""

from __future__ import annotations

import contextlib
import errno
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from txnlog.common.format_limits import FORMAT_VERSION
from txnlog.common.ids import Coordinators
from txnlog.common.names import NamespaceName, folded, nearest, parse_namespace_name
from txnlog.common.validation import shortened
from txnlog.engine.log_lines import LogLines
from txnlog.engine.runtime import Runtime
from txnlog.errors import (
    CorruptionError,
    Durable,
    InvalidInputError,
    InvalidTransactionState,
    NameNotAllowed,
    NamespaceNotFound,
    StoreError,
    TxnLogError,
    UnsafeStore,
)
from txnlog.fold.apply import check_writable
from txnlog.fold.draft_tables import DraftTable
from txnlog.fold.state import Draft, NamespaceRecord
from txnlog.format import keys
from txnlog.format.actions import AnyAction, Header, Namespace, Protocol, Register, Unregister, Verdict
from txnlog.format.codec import decode_entry, digest_of, encode_action, encode_entry
from txnlog.log.appender import Appender
from txnlog.log.commands import ONE_REGISTRATION, Answer, Piece, Simple, effect
from txnlog.log.follower import Follower
from txnlog.log.group_commit import SharedWave
from txnlog.log.log_identity import CATALOG, LogIdentity, Standing, listed, refusal, renamed, rootless, standing
from txnlog.log.log_reader import Log
from txnlog.log.number_pool import NumberPool
from txnlog.log.slots import occupy
from txnlog.replies import IfUnknown, note_written, reworded, unknown_outcome
from txnlog.sentences import Call, Either, Words
from txnlog.store.base import ObjectNotFound, Store
from txnlog.store.identity import identity_of
from txnlog.store.probe import needed_bytes, probe
from txnlog.store.wrappers import PrefixStore

_logger = LogLines("txnlog.root")

_HOW_MADE: Final = Either(
    "in Python txnlog.open(root, namespace=..., create=True)",
    "txnlog ROOT namespaces create NAME",
)
"""Advice that is as good in Spark, where nothing makes a namespace."""

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""What a file system answers that has no room left, for anybody or for this user."""

_CREATION_MS: Final = 10_000
"""For how long a registration without a log may be a creation under way, by the time of the root log."""

_FIRST_KEYS: Final = 1_000
"""Keys below a folder without a root log among which namespaces are looked for: a page of most stores."""

_FIRST_FOLDERS: Final = 8
"""Folders of them that are asked for a log."""


class _NoRows:
    """The root log has no segments."""

    def build(self, _draft: Draft, _pieces: list[tuple[int, Piece]], _numbers: NumberPool) -> SharedWave | None:
        raise AssertionError("the root log holds no rows")


def has_verdict_on(
    store: Store, verdicts: Mapping[tuple[str, str], Verdict] | DraftTable[tuple[str, str], Verdict]
) -> bool:
    """Whether the verdicts of a log have one on a store."""
    identity = identity_of(store)
    return (identity.store_kind, identity.endpoint_hash) in verdicts


def probed(store: Store) -> Verdict:
    """The verdict on a store that passes the probe, which writes below the folder of a log, whose store this is.

    Raises UnsafeStore where create-if-absent is not what it must be; then nothing of ours is left behind.
    """
    try:
        passed = probe(store, keys.PROBE_FOLDER)
    except UnsafeStore:
        raise
    except StoreError as error:
        advice = error.advice
        if isinstance(error.__cause__, OSError) and error.__cause__.errno in _FULL:
            needed_mb = -(-needed_bytes(store) // 1_000_000)
            advice = Words(advice, f": this test, once for a root, needs up to {needed_mb} MB, which it frees again")
        what = f"the store was tried before it is trusted with anything, and failed: {error.message}"
        raise reworded(error, message=what, advice=advice) from error.__cause__
    _logger.info("the store honours create-if-absent (%d rounds, %d ms)", passed.rounds, passed.elapsed_ms)
    return Verdict(passed.identity.store_kind, passed.identity.endpoint_hash, passed.rounds)


def create_log(store: Store, runtime: Runtime, actions: Sequence[AnyAction], writer: str) -> None:
    """Make version 0 of a log, unless somebody else did: whoever was first, it is there on return.

    Raises OutcomeUnknown when the store does not say.
    """
    put_first(store, runtime, first_entry(actions, writer, runtime.now_ms()))


def put_first(store: Store, runtime: Runtime, data: bytes) -> None:
    """Put entry 0 of a log, unless somebody else did. Raises what ``create_log`` raises."""
    with unknown_outcome(IfUnknown.CREATE_LOG):
        found = occupy(store, runtime, keys.entry_key(0), data)
    if found == data:
        note_written()
    decode_entry(found, 0)


def first_entry(actions: Sequence[AnyAction], writer: str, timestamp_ms: int) -> bytes:
    """The bytes of entry 0 with these actions."""
    return encode_entry(Header(0, writer, timestamp_ms), [encode_action(action) for action in actions])


def namespace_entry(name: str, coordinator: int, at: Header) -> bytes:
    """The bytes of entry 0 of a namespace's log: they follow from the header of the entry that registers it.

    So whoever finishes a creation that was interrupted puts the bytes whose digest the registration has.
    """
    actions: list[AnyAction] = [Protocol(FORMAT_VERSION, FORMAT_VERSION), Namespace(name, coordinator)]
    return first_entry(actions, at.writer, at.timestamp_ms)


class Root:
    """The root log of a store, opened when it is needed first. Reading it needs no right to write."""

    def __init__(self, store: Store, runtime: Runtime) -> None:
        self._whole = store
        self._store = PrefixStore(store, keys.CATALOG_FOLDER)
        self._runtime = runtime
        self._log = Log(self._store, runtime)
        self._follower: Follower | None = None
        self._appender: Appender | None = None

    def exists(self) -> bool:
        """Whether the root has a root log."""
        self._log = Log(self._store, self._runtime)  # looked for anew: a root may be made, or removed, meanwhile
        return self._log.exists()

    def refuse_namespace(self) -> None:
        """Raise InvalidInputError where the folder of a root that has no root log is a namespace."""
        if Log(self._whole, self._runtime).exists():
            raise InvalidInputError(
                "a root is a folder of namespaces, and its folder is a namespace itself",
                advice="open the namespace of that folder: the root is the folder above it",
            )

    def lacks(
        self, name: NamespaceName, known: Iterable[str] = (), *, durable: Durable | None = None
    ) -> NamespaceNotFound:
        """The error for a namespace that the root does not have; it has those that are known."""
        text = f"there is no namespace {name!r} at {shortened(self._whole.url(name))}"
        return NamespaceNotFound(text, advice=nearest(name, known), durable=durable)

    @property
    def follower(self) -> Follower:
        """The materialized state of the root log, loaded at the first use."""
        if self._follower is None:
            self._follower = Follower(self._log, self._runtime)
        return self._follower

    @property
    def appender(self) -> Appender:
        """The writer of the root log."""
        if self._appender is None:
            check_writable(self.follower.state)
            self._appender = Appender(self.follower, self._store, self._runtime, _NoRows())
        return self._appender

    def refresh(self) -> None:
        """Read what was appended to the root log since it was loaded."""
        if self._follower is not None:
            self._follower.refresh()

    def has_verdict(self) -> bool:
        """Whether the root log is there, as it stands now, and has a verdict on this store."""
        if not self.exists():
            return False
        self.follower.refresh()
        return has_verdict_on(self._whole, self.follower.state.verdicts)

    def ensure_safe(self, *, adopting: bool = False) -> None:
        """Make sure that the verdict on this store is in the root log, probing it if it is not.

        For whoever writes to the root: its log is created if need be. Where namespaces are there already, that is worth
        a warning, unless the caller adopts one. Raises UnsafeStore; then nothing of ours is left.
        """
        if self.has_verdict():
            return
        exists = self._follower is not None
        if not exists:
            self.refuse_namespace()
            self.refuse_remains()
            if not adopting:
                self.warn_of_unlisted()
        verdict = probed(self._store)
        if not exists:
            start: list[AnyAction] = [
                Protocol(FORMAT_VERSION, FORMAT_VERSION),
                Namespace(keys.CATALOG_FOLDER, 0),
                verdict,
            ]
            create_log(self._store, self._runtime, start, self._runtime.unique())
        if not self.has_verdict():
            self.appender.call(effect(lambda _draft, _at: [verdict], is_upkeep=True))

    def refuse_remains(self) -> None:
        """Raise CorruptionError where the root log has entries and no first one: a new one would take its place.

        Whoever creates the root log at the same time has its first entry there before any other.
        """
        found = next(iter(self._store.list(keys.LOG_FOLDER)), None)
        if found is not None and not self.exists():
            raise CorruptionError(
                f"the first entry of the root log is missing, and later ones are there ({found.key})",
                advice=Words(
                    f"restore {keys.CATALOG_FOLDER}/{keys.entry_key(0)} from a copy; namespaces can be read meanwhile",
                    Either(' with mode="r"', ""),
                ),
            )

    def unlisted(self) -> str | None:
        """A folder that holds the log of a namespace where there is no root log, None where none is among the first.

        Whoever may not list the store does not learn of it.
        """
        with contextlib.suppress(StoreError):
            if self.exists():
                return None
            keys_below = (info.key for info in itertools.islice(self._whole.list(""), _FIRST_KEYS))
            folders = dict.fromkeys(key.partition("/")[0] for key in keys_below if "/" in key)
            for folder in itertools.islice(filter(_may_be_namespace, folders), _FIRST_FOLDERS):
                if Log(PrefixStore(self._whole, folder), self._runtime).exists():
                    return folder
        return None

    def warn_of_unlisted(self) -> None:
        """Log a warning where there are namespaces and no root log, which looks like an empty root."""
        folder = self.unlisted()
        if folder is not None:
            _logger.warning("%s", without_list(folder))

    def namespaces(self) -> list[NamespaceRecord]:
        """The namespaces that are registered and not dropped, by name."""
        self.follower.refresh()
        found = self.follower.look(lambda state: [item for item in state.namespaces.values() if not item.dropped])
        return sorted(found, key=lambda item: item.name)

    def register(self, name: NamespaceName, *, replace: NamespaceRecord | None = None) -> NamespaceRecord:
        """A registration under which to make the log of a namespace, whose folder has none.

        One that was made just now is used: others may be about to make the log, and all must make the same one. An
        older one means that the folder was moved or removed since, or that its creation was interrupted. It is never
        used: a log that began with the same entry would give the TxnIDs of the lost one again. If it is the one to
        ``replace``, a new one takes its place, else NamespaceNotFound is raised: an empty namespace would hide what
        happened.

        Raises NameNotAllowed for a clash in case.
        """
        known = listed(self.namespaces(), name)
        made_ms = None if known is None else self.follower.log.entry(known.id).header.timestamp_ms

        def decide(draft: Draft, at: Header) -> list[Register | Unregister] | Answer[NamespaceRecord]:
            record = _namespace_named(draft, name)
            replaced: list[Register | Unregister] = []
            if record is not None:
                if record != known or made_ms is None or at.timestamp_ms - made_ms <= _CREATION_MS:
                    return Answer(record)
                if record != replace:
                    raise lost(self._whole, name)
                replaced = [Unregister(record.id)]
            coordinator = draft.head.next_coordinator
            return [*replaced, Register(name, coordinator, digest_of(namespace_entry(name, coordinator, at)))]

        return self.appender.call(Simple(decide, _registered, ONE_REGISTRATION))

    def create_log_of(self, record: NamespaceRecord, store: Store) -> None:
        """Make version 0 of the log of a registered namespace, unless somebody else did; ``store`` is its folder.

        Raises InvalidInputError where another version of txnlog registered it, which begins logs in another way.
        """
        data = namespace_entry(record.name, record.coordinator, self.follower.log.entry(record.id).header)
        if record.log not in {"", digest_of(data)}:
            raise InvalidInputError(
                f"the namespace {record.name!r} was registered by another version of txnlog, and its log was not made",
                advice="create it with that version, or drop it and create it again",
            )
        put_first(store, self._runtime, data)

    def registration(self, name: NamespaceName) -> NamespaceRecord | None:
        """What the root lists under a name now."""
        return listed(self.namespaces(), name)

    def adopt(
        self,
        name: NamespaceName,
        found: LogIdentity,
        known: Coordinators,
        seen: NamespaceRecord | None,
        *,
        force: bool,
    ) -> NamespaceRecord:
        """A registration of a name for the log that is found in its folder, with a coordinator id that it never had.

        ``seen`` is what the root listed before the log was read. Raises InvalidInputError where the root lists the log
        there already, unless ``force``, or lists another one; InvalidTransactionState where somebody else has adopted
        the folder since; NameNotAllowed for a clash in case.
        """

        def decide(draft: Draft, _at: Header) -> list[Register | Unregister]:
            records = [item for _, item in draft.namespaces.items()]
            if listed(records, name) != seen:
                raise adopted_meanwhile(name)
            found_as, record = standing(records, name, found)
            if found_as is Standing.LISTED and not force:
                raise InvalidInputError(
                    f"{name!r} is a namespace of its root already: it can be opened",
                    advice=Words(
                        "open it; only where it is a backup that was put back in the place of the original, or where "
                        "the whole root is a copy of another one that is written to as well, adopt it all the same: ",
                        Either("force=True in Python, --force on the command line", "--force"),
                    ),
                )
            if record is not None and found_as is Standing.OTHER_LISTED and record.log != found.beginning:
                raise InvalidInputError(
                    f"the root lists another namespace {name!r} than that of the folder {name}/",
                    advice=Words(
                        "bring the right folder back; or take the other one out of the root, ",
                        Call("drop_namespace", repr(str(name)), of=CATALOG),
                        ", and adopt the folder then",
                    ),
                )
            own = listed(records, name)
            coordinator = draft.head.next_coordinator
            while coordinator in known:
                coordinator += 1
            registration = Register(name, coordinator, found.beginning)
            return [registration] if own is None else [Unregister(own.id), registration]

        with unknown_outcome(IfUnknown.REGISTER):
            return self.appender.call(Simple(decide, _registered, ONE_REGISTRATION))

    def check_identity(self, name: NamespaceName, found: LogIdentity, *, writing: bool) -> None:
        """Raise InvalidInputError or NamespaceNotFound where a namespace's folder holds a log that must not be opened.

        By what is known of the root log after ``has_verdict``. Where there is none, it lists nothing.
        """
        self._check(self._known_records(), name, found, writing=writing)

    def misplaced(self, name: NamespaceName, found: LogIdentity) -> InvalidInputError | None:
        """The error for a log whose root has no root log, or whose namespace's folder was renamed to this name."""
        return self._misplaced(self._known_records(), name, found)

    def _misplaced(
        self, records: Sequence[NamespaceRecord] | None, name: NamespaceName, found: LogIdentity
    ) -> InvalidInputError | None:
        if records is None:
            return rootless(name, self._whole.url(name))
        stands, record = standing(records, name, found)
        if stands is Standing.COPY and record is not None:
            with contextlib.suppress(StoreError):  # who may not look at the other folder hears of a copy
                if not Log(PrefixStore(self._whole, record.name), self._runtime).exists():
                    return renamed(record.name, name, self._whole.url(name))
        return None

    def _known_records(self) -> Sequence[NamespaceRecord] | None:
        """All registrations that are known, None where there is no root log.

        Raises CorruptionError where its first entry is lost: what it lists is not known then, which is not nothing.
        """
        if self._follower is None and not self.exists():
            self.refuse_remains()
            return None
        return tuple(self.follower.state.namespaces.values())

    def _check(
        self, records: Sequence[NamespaceRecord] | None, name: NamespaceName, found: LogIdentity, *, writing: bool
    ) -> None:
        error: TxnLogError | None = None
        if writing or records is not None:
            error = self._misplaced(records, name, found)
        if error is None and records is not None:
            error = refusal(
                records, name, found, self._whole.url(name), writing=writing, newest_of=self._newest_version
            )
        if error is not None:
            raise error

    def _newest_version(self, folder: str) -> int | None:
        """The newest version of the log in a folder; None where it cannot be seen."""
        with contextlib.suppress(StoreError, CorruptionError):
            return Log(PrefixStore(self._whole, folder), self._runtime).newest()[0]
        return None

    def check_at_open(self, name: NamespaceName, found: LogIdentity, *, writing: bool) -> None:
        """``check_identity`` before anything else is asked of the root, where its log can be read.

        Where it cannot, a namespace can be read all the same; the first append asks again, and raises.
        """
        try:
            records = self._known_records()
        except TxnLogError:
            _logger.info("the root log cannot be read: whether %r is what it lists is asked by the first append", name)
            return
        self._check(records, name, found, writing=writing)

    def unregister(self, name: NamespaceName) -> None:
        """Drop a namespace: its name is free, its coordinator id stays used, its folder is not touched."""

        def decide(draft: Draft, _at: Header) -> list[Unregister]:
            record = _namespace_named(draft, name)
            if record is None:
                known = [item.name for _, item in draft.namespaces.items() if not item.dropped]
                raise self.lacks(name, known, durable=Durable.NOTHING)
            return [Unregister(record.id)]

        with unknown_outcome(IfUnknown.DROP_NAMESPACE):
            self.appender.call(effect(decide, ONE_REGISTRATION))


_LOOKED_AT: Final = 1_000
"""Files of a folder without a log that are looked at for one of txnlog's own."""


def _may_be_namespace(folder: str) -> bool:
    try:
        parse_namespace_name(folder)
    except NameNotAllowed:
        return False
    return True


def without_list(folder: str) -> str:
    """What is wrong with a root that has no root log, and a namespace in a folder."""
    return Words(
        f"the root has no folder {keys.CATALOG_FOLDER}, which lists its namespaces, and {folder!r} is the folder of "
        f"one: bring {keys.CATALOG_FOLDER} back, or list each namespace again: ",
        Either(f"{CATALOG}.adopt_namespace({folder!r})", f"txnlog ROOT/{folder} adopt"),
    )


def _registered(draft: Draft, at: Header) -> NamespaceRecord:
    record = draft.namespaces.get(at.version)
    assert record is not None, "just registered"
    return record


def _namespace_named(draft: Draft, name: NamespaceName) -> NamespaceRecord | None:
    """The registration of exactly this name, unless it was dropped."""
    number = draft.namespace_names.get(folded(name))
    record = None if number is None else draft.namespaces.get(number)
    return record if record is not None and record.name == name else None


# --- errors about a namespace that is not there -----------------------------------------------------------------------


def not_found(store: Store, name: str, runtime: Runtime) -> TxnLogError:
    """What to do instead of opening ``name`` below a folder, whose ``store`` it is.

    A namespace of the root with a like name, or of the root that the path itself is.
    """
    url = shortened(store.url(name))
    text, advice = f"there is no namespace {name!r} at {url}", _instead(store, name, runtime)
    if advice is None:
        with contextlib.suppress(StoreError):  # who may not list hears what the root lists
            if (error := remains(store, name, runtime)) is not None:
                return error
        return lost(store, name)
    return NamespaceNotFound(text, advice=advice)


def remains(store: Store, name: str, runtime: Runtime) -> TxnLogError | None:
    """The error for the folder of a namespace that has files, and no entry 0, or is a file itself; None for any other.

    A creation that was interrupted leaves no files, and whoever creates it at the same time writes its log first.
    """
    folder = PrefixStore(store, name)
    # No listing: that would name all objects of namespaces whose names begin with this one, too.
    with contextlib.suppress(ObjectNotFound, StoreError):  # a folder has nothing to tell, and some may not look
        store.info(name)
        return InvalidInputError(
            f"{shortened(store.url(name))} is a file, and a namespace is a folder",
            advice="choose another path",
            durable=Durable.NOTHING,
        )
    first = list(itertools.islice(folder.list(""), _LOOKED_AT))
    if not first or Log(folder, runtime).exists():
        return None
    with contextlib.suppress(ObjectNotFound, StoreError):
        folder.info(keys.RESTORE_KEY)
        return InvalidInputError(
            f"a backup is being restored to {shortened(store.url(name))}, or was, and that was interrupted",
            advice="wait for it, or restore the same backup there again, which goes on where it ended",
            durable=Durable.NOTHING,
        )
    found = next((item for item in first if keys.parse_key(item.key) is not None), None)
    if found is None:
        return InvalidInputError(
            f"the folder {shortened(store.url(name))} has files that are none of txnlog's ({first[0].key}), and no "
            "namespace",
            advice="choose another path, or an empty folder",
            durable=Durable.NOTHING,
        )
    return CorruptionError(
        f"files of a namespace {name!r} are at {shortened(store.url(name))} ({found.key}), but entry 0 of its log is "
        "missing: a writer that was at work when the folder was removed or moved may have made them",
        advice=f"restore {keys.entry_key(0)}, or the whole folder where more is missing, from a copy; only if "
        "nothing in it is needed, remove the folder, once nobody has it open",
    )


def lost(store: Store, name: str) -> NamespaceNotFound:
    """The error for a namespace that the root lists, and whose folder has no log."""
    return NamespaceNotFound(
        f"the root lists the namespace {name!r}, but its log at {shortened(store.url(name))} is missing: its folder "
        "was removed, renamed or moved, or its creation was interrupted",
        advice=Words(
            "where it was renamed or moved, nothing is lost: give it its name and place again; otherwise bring its "
            "folder back, restoring it from a copy; for an empty namespace in its place, or where its creation was "
            "interrupted: ",
            Call("create_namespace", repr(str(name)), of=CATALOG),
        ),
        durable=Durable.NOTHING,
    )


def _instead(store: Store, name: str, runtime: Runtime) -> str | None:
    """Advice; None where the root lists the very name."""
    below = namespaces_below(PrefixStore(store, name), runtime)
    if below is not None:
        return advice_for_a_root(below)
    root = Root(store, runtime)
    if not root.exists():
        if Log(store, runtime).exists():
            return "the folder above it is a namespace itself: leave out the last part of the path to open that"
        with contextlib.suppress(StoreError):
            root.refuse_remains()
        if (unlisted := root.unlisted()) is not None:
            return without_list(unlisted)
        return Words("nothing of txnlog is there: check the path; ", _HOW_MADE, " makes root and namespace")
    names_here = [item.name for item in root.namespaces()]
    if name in names_here:
        return None
    return Words(f"{nearest(name, names_here)}; ", _HOW_MADE, " makes it")


def advice_for_a_root(below: str) -> str:
    """Advice to whoever gives a root where a namespace is wanted."""
    return f"this is a root: append one of its namespaces ({below})"


def adopted_meanwhile(name: str) -> InvalidTransactionState:
    """The error for who adopts a folder that somebody else adopts at the same time."""
    return InvalidTransactionState(
        f"somebody else adopted {name!r} at the same time",
        advice="open it, which says whether it must be adopted again",
    )


def namespaces_below(folder: Store, runtime: Runtime) -> str | None:
    """The namespaces of the root that a folder is, as a person reads them; None where it is none."""
    inner = Root(folder, runtime)
    if not inner.exists():
        return None
    return ", ".join([item.name for item in inner.namespaces()][:8]) or "there is none"


__all__ = [
    "Root",
    "adopted_meanwhile",
    "advice_for_a_root",
    "create_log",
    "has_verdict_on",
    "namespaces_below",
    "not_found",
    "probed",
    "remains",
]
