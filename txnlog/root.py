"""The root log: the namespaces of a root, their coordinator ids, the store's verdict. The same engine as any log."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Final

from txnlog import keys
from txnlog.actions import AnyAction, Header, Namespace, Protocol, Register, Unregister, Verdict
from txnlog.appender import Appender
from txnlog.apply import check_writable
from txnlog.arguments import shortened
from txnlog.codec import decode_entry, encode_action, encode_entry
from txnlog.commands import ONE_REGISTRATION, Answer, Piece, Simple, effect
from txnlog.entry_builder import SharedWave
from txnlog.errors import (
    CorruptionError,
    Durable,
    InvalidInputError,
    NamespaceNotFound,
    StoreError,
    TxnLogError,
    UnsafeStore,
    in_doubt,
)
from txnlog.follower import Follower
from txnlog.limits import FORMAT_VERSION
from txnlog.log import Log
from txnlog.names import NamespaceName, folded, nearest
from txnlog.number_pool import NumberPool
from txnlog.runtime import Runtime
from txnlog.slots import occupy
from txnlog.state import Draft, NamespaceRecord
from txnlog.store.base import Store
from txnlog.store.identity import identity_of
from txnlog.store.probe import probe
from txnlog.store.wrappers import PrefixStore

_logger = logging.getLogger("txnlog.root")

_HOW_MADE: Final = "in Python txnlog.open(root, namespace=..., create=True)"
"""Advice that is as good on the command line and in Spark, where nothing makes a namespace."""


class _NoRows:
    """The root log has no segments."""

    def build(self, _draft: Draft, _pieces: list[tuple[int, Piece]], _numbers: NumberPool) -> SharedWave | None:
        raise AssertionError("the root log holds no rows")


def create_log(store: Store, runtime: Runtime, actions: Sequence[AnyAction], writer: str) -> None:
    """Make version 0 of a log, unless somebody else did: whoever was first, it is there on return.

    Raises OutcomeUnknown when the store does not say.
    """
    header = Header(0, writer, runtime.now_ms())
    data = encode_entry(header, [encode_action(action) for action in actions])
    with in_doubt("open it again"):
        found = occupy(store, runtime, keys.entry_key(0), data)
    decode_entry(found, 0)


def check_coordinator(name: str, registered: int, found: int) -> None:
    """Raise InvalidInputError where the log in a namespace's folder is not that of its registration."""
    if found != registered:
        raise InvalidInputError(
            f"the folder {name}/ holds the log of another namespace, with coordinator id {found} instead of "
            f"{registered}",
            advice="bring the right folder back, or drop the namespace and choose another name; if this name was "
            f"dropped while it was created, close its writers, remove the folder {name}/ and create it again",
        )


class Root:
    """The root log of a store. Opened only when it is needed: a reader of a namespace never is asked to."""

    def __init__(self, store: Store, runtime: Runtime) -> None:
        self._whole = store
        self._store = PrefixStore(store, keys.CATALOG_FOLDER)
        self._runtime = runtime
        self._follower: Follower | None = None
        self._appender: Appender | None = None

    def exists(self) -> bool:
        """Whether the root has a root log."""
        return Log(self._store, self._runtime).exists()

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
        """The fold of the root log, loaded at the first use."""
        if self._follower is None:
            self._follower = Follower(Log(self._store, self._runtime))
        return self._follower

    @property
    def appender(self) -> Appender:
        """The writer of the root log."""
        if self._appender is None:
            check_writable(self.follower.state)
            self._appender = Appender(self.follower, self._store, self._runtime, _NoRows())
        return self._appender

    def ensure_safe(self) -> None:
        """Make sure that this store's verdict is in the root log, probing it if it is not. Creates the root if need be.

        Raises UnsafeStore where create-if-absent is not what it must be; then nothing of ours is left behind.
        """
        identity = identity_of(self._whole)
        exists = self.exists()
        if exists:
            self.follower.refresh()
            if (identity.store_kind, identity.endpoint_hash) in self.follower.state.verdicts:
                return
        else:
            self.refuse_namespace()
            self._refuse_remains()
        try:
            passed = probe(self._whole, keys.PROBE_FOLDER)
        except UnsafeStore:
            raise
        except StoreError as error:
            error.message = f"the store was tried before it is trusted with anything, and failed: {error.message}"
            raise
        _logger.info("the store honours create-if-absent (%d rounds, %d ms)", passed.rounds, passed.elapsed_ms)
        action = Verdict(identity.store_kind, identity.endpoint_hash, passed.rounds)
        if not exists:
            start: list[AnyAction] = [
                Protocol(FORMAT_VERSION, FORMAT_VERSION),
                Namespace(keys.CATALOG_FOLDER, 0),
                action,
            ]
            create_log(self._store, self._runtime, start, self._runtime.unique())
            self.follower.refresh()
        if (identity.store_kind, identity.endpoint_hash) not in self.follower.state.verdicts:
            self.appender.call(effect(lambda _draft, _at: [action]))

    def _refuse_remains(self) -> None:
        """Raise CorruptionError where the root log has entries and no first one: a new one would take its place.

        Whoever creates the root log at the same time has its first entry there before any other.
        """
        found = next(iter(self._store.list(keys.LOG_FOLDER)), None)
        if found is not None and not self.exists():
            raise CorruptionError(
                f"the first entry of the root log is missing, and later ones are there ({found.key})",
                advice=f"restore {keys.CATALOG_FOLDER}/{keys.entry_key(0)} from a copy; namespaces can be read "
                'meanwhile with mode="r"',
            )

    def namespaces(self) -> list[NamespaceRecord]:
        """The namespaces that are registered and not dropped, by name."""
        self.follower.refresh()
        with self.follower.lock:
            found = [item for item in self.follower.state.namespaces.values() if not item.dropped]
        return sorted(found, key=lambda item: item.name)

    def register(self, name: NamespaceName) -> NamespaceRecord:
        """The registration of a namespace, made now if there is none. Raises NameNotAllowed for a clash in case."""

        def decide(draft: Draft, _at: Header) -> list[Register] | Answer[NamespaceRecord]:
            record = _namespace_named(draft, name)
            return Answer(record) if record is not None else [Register(name, draft.head.next_coordinator)]

        def result(draft: Draft, at: Header) -> NamespaceRecord:
            record = draft.namespaces.get(at.version)
            assert record is not None, "just registered"
            return record

        return self.appender.call(Simple(decide, result, ONE_REGISTRATION))

    def check_not_dropped(self, name: NamespaceName, coordinator: int) -> None:
        """Raise NamespaceNotFound where a namespace with this coordinator id was dropped: its folder is a relic.

        By what is known of the root log after ``ensure_safe``.
        """
        for item in self.follower.state.namespaces.values():
            if (item.name, item.coordinator) == (name, coordinator) and item.dropped:
                raise NamespaceNotFound(
                    f"the namespace {name!r} was dropped; only its folder is still there",
                    advice="to use the name again, close every writer that has it open, then remove the folder "
                    f'{name}/; or choose another name; until then mode="r" reads it',
                )

    def refuse_dropped(self, name: NamespaceName, coordinator: int) -> None:
        """``check_not_dropped`` before anything else is asked of the root, where its log is there and can be read.

        Where it cannot, a namespace can be used all the same; the first append asks again, and raises.
        """
        try:
            if self.exists():
                self.check_not_dropped(name, coordinator)
        except NamespaceNotFound:
            raise
        except TxnLogError:
            _logger.info("the root log cannot be read: the first append asks whether %r was dropped", name)

    def unregister(self, name: NamespaceName) -> None:
        """Drop a namespace: its name is free, its coordinator id stays used, its folder is not touched."""

        def decide(draft: Draft, _at: Header) -> list[Unregister]:
            record = _namespace_named(draft, name)
            if record is None:
                known = [item.name for _, item in draft.namespaces.items() if not item.dropped]
                raise self.lacks(name, known, durable=Durable.NOTHING)
            return [Unregister(record.id)]

        with in_doubt("look whether it was done: namespaces(); one of this name may be another, made since"):
            self.appender.call(effect(decide, ONE_REGISTRATION))


def _namespace_named(draft: Draft, name: NamespaceName) -> NamespaceRecord | None:
    """The registration of exactly this name, unless it was dropped."""
    number = draft.namespace_names.get(folded(name))
    record = None if number is None else draft.namespaces.get(number)
    return record if record is not None and record.name == name else None


# --- what is told of a namespace that is not there --------------------------------------------------------------------


def not_found(store: Store, name: str, runtime: Runtime) -> NamespaceNotFound:
    """What to do instead of opening ``name`` below a folder, whose ``store`` it is.

    A namespace of the root with a like name, or of the root that the path itself is.
    """
    url = shortened(store.url(name))
    text, advice = f"there is no namespace {name!r} at {url}", _instead(store, name, runtime)
    if advice is None:
        text = f"the root lists the namespace {name!r}, but its log at {url} is missing"
        advice = "restore its folder from a copy; one whose making was cut short is finished by create=True, empty"
    return NamespaceNotFound(text, advice=advice)


def _instead(store: Store, name: str, runtime: Runtime) -> str | None:
    """Advice; None where the root lists the very name."""
    below = namespaces_below(PrefixStore(store, name), runtime)
    if below is not None:
        return append_one(below)
    root = Root(store, runtime)
    if not root.exists():
        if Log(store, runtime).exists():
            return "the folder above it is a namespace itself: leave out the last part of the path to open that"
        return f"nothing of txnlog is there: check the path; {_HOW_MADE} makes root and namespace"
    names_here = [item.name for item in root.namespaces()]
    if name in names_here:
        return None
    return f"{nearest(name, names_here)}; {_HOW_MADE} makes it"


def append_one(below: str) -> str:
    """Advice to whoever gives a root where a namespace is wanted."""
    return f"this is a root: append one of its namespaces ({below})"


def namespaces_below(folder: Store, runtime: Runtime) -> str | None:
    """The namespaces of the root that a folder is, as a person reads them; None where it is none."""
    inner = Root(folder, runtime)
    if not inner.exists():
        return None
    return ", ".join([item.name for item in inner.namespaces()][:8]) or "there is none yet"


__all__ = ["Root", "append_one", "check_coordinator", "create_log", "namespaces_below", "not_found"]
