"""The catalog of a root, which ``catalog.open`` returns: its namespaces and the Delta tables of their topics."""

from __future__ import annotations

import html
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, overload

from catalog import registration
from catalog.publication.publications import MOST_VERSIONS, Publications, Published, PublishedVersion
from txnlog.api.adoption import adopt_namespace
from txnlog.api.internals import connection_of
from txnlog.api.namespace import Namespace
from txnlog.api.opening import check_clock, check_store, open_namespace
from txnlog.api.paths import root_text
from txnlog.common.format_limits import MAX_NUMBER
from txnlog.common.names import NamespaceName, folded, parse_namespace_name
from txnlog.common.validation import mapping, shown, truth, whole_number
from txnlog.engine.runtime import Clock, Runtime, renew_in_child
from txnlog.engine.worker import refuse_after_end
from txnlog.errors import (
    Durable,
    InvalidInputError,
    InvalidTransactionState,
    NamespaceNotFound,
    StoreError,
    TxnLogError,
)
from txnlog.fold.state import NamespaceRecord
from txnlog.log.log_identity import LogIdentity, other_listed
from txnlog.log.log_reader import Log
from txnlog.log.root_log import Root, remains
from txnlog.replies import in_parts, refused_write
from txnlog.sentences import Argument, Words
from txnlog.store.base import Store
from txnlog.store.folders import close_folders
from txnlog.store.open import absolute, open_store
from txnlog.store.wrappers import HookStore, PrefixStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from txnlog.client.session_owner import Mode


@dataclass(frozen=True, slots=True)
class NamespaceInfo:
    """A namespace of a root.

    Attributes:
        name: its name, which is its folder.
        coordinator: the high 16 bits of its new TxnIDs, which no other namespace of the root ever gets.
    """

    name: str
    coordinator: int

    def _repr_html_(self) -> str:
        return f"<table>{_HEAD}{_row(self)}</table>"


_HEAD = "<tr><th>namespace</th><th>coordinator</th></tr>"


def _row(info: NamespaceInfo) -> str:
    return f"<tr><td>{html.escape(info.name)}</td><td>{info.coordinator}</td></tr>"


@dataclass(frozen=True, slots=True, eq=False)
class _Opened:
    """A namespace that is open for publishing, and its tables."""

    name: NamespaceName
    namespace: Namespace
    publications: Publications


class Catalog:
    """The namespaces of one root. Thread-safe; a context manager. Opening it writes nothing.

    It can be used in a forked child, where it opens a writer of its own, and in the handler of a signal: no call waits
    for the one that is interrupted there.

    Attributes:
        root: the path or URL of the root; a relative path was made absolute when it was opened.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        storage_options: Mapping[str, Any] | None = None,
        *,
        clock: Clock | None = None,
        store: Store | None = None,
    ) -> None:
        check_clock(clock)
        check_store(store)
        text = root_text(root)
        self.root = absolute(text) if store is None else text
        self._storage_options = mapping("storage_options", storage_options)
        self._clock = clock
        self._given_store = store
        self._closed = False
        self._opened: list[_Opened] = []
        self._open_root: Root | None = self._open()
        renew_in_child(self)

    def _open(self) -> Root:
        store = self._given_store or open_store(self.root, self._storage_options)
        self._store: Store = HookStore(store, before=refuse_after_end)
        self._runtime = Runtime(self._clock)
        return Root(self._store, self._runtime)

    def _begin_in_child(self) -> None:
        """Reset in a forked child without a request; its next call opens a writer and threads of its own."""
        self._open_root = None
        self._opened = []

    # --- looking ----------------------------------------------------------------------------------------------------

    def namespaces(self) -> tuple[str, ...]:
        """Names of the namespaces, sorted; none where nothing was ever created in the root, or its path is misspelt.

        The two look the same: an object store has no folders. So does a root whose folder ``_catalog`` was removed: a
        warning is logged (``txnlog.root``) if namespaces are found in it.

        Raises InvalidInputError where the path is that of a namespace, and CorruptionError where the first entry of the
        root log was lost.
        """
        records = self._records()
        if not records:
            self._root.warn_of_unlisted()
        return tuple(record.name for record in records)

    def namespace(self, name: str) -> NamespaceInfo:
        """Look a namespace up. Raises NamespaceNotFound with the nearest name, and what ``namespaces`` raises."""
        wanted = parse_namespace_name(name)
        records = self._records()
        for record in records:
            if record.name == name:
                return NamespaceInfo(record.name, record.coordinator)
        raise self._missing(wanted, records)

    def _missing(
        self, name: NamespaceName, records: Sequence[NamespaceRecord], durable: Durable | None = None
    ) -> NamespaceNotFound:
        """The error for a namespace that is not listed, with the reason where its folder has a log."""
        error = self._root.lacks(name, [record.name for record in records], durable=durable)
        with suppress(TxnLogError):  # what cannot be looked at is not known, and the namespace is not listed anyway
            found = self._log_in_folder(name)
            why = None if found is None else self._root.misplaced(name, found)
            if why is not None:
                return NamespaceNotFound(f"{error.message}: {why.message}", advice=why.advice, durable=durable)
        return error

    def _records(self, *, refuse_namespace: bool = True) -> list[NamespaceRecord]:
        """The records of the namespaces; none where there is no root.

        Raises InvalidInputError where the path is that of a namespace, unless ``refuse_namespace`` is False, and
        CorruptionError where the first entry of the root log is known to be lost.
        """
        if self._root.exists():
            return self._root.namespaces()
        if refuse_namespace:
            self._root.refuse_namespace()
            with suppress(StoreError):  # who may not list the store does not learn of it
                self._root.refuse_remains()
        return []

    # --- changing ---------------------------------------------------------------------------------------------------

    @in_parts()
    def create_namespace(self, name: str, *, if_not_exists: bool = False) -> NamespaceInfo:
        """Create a namespace, and the root if it is the first one.

        One that is listed without a log, because its creation was interrupted or its folder was moved or removed,
        is created anew, empty, with a coordinator id of its own.

        Args:
            name: ASCII letters, digits, ``-``, ``_``, single dots.
            if_not_exists: return the existing namespace instead of raising.

        Raises:
            NameNotAllowed: the name, or one that differs from an existing one only in case.
            InvalidInputError: it exists; or its folder holds the log of another one, which was dropped or copied there:
                a namespace that is created is empty.
            UnsafeStore: the store has no atomic create-if-absent.
        """
        wanted = parse_namespace_name(name)
        if_not_exists = truth("if_not_exists", if_not_exists)
        self._let_go(wanted)
        known = next((record for record in self._records() if folded(record.name) == folded(wanted)), None)
        found = self._log_in_folder(wanted)
        if known is None and found is not None:
            if (misplaced := self._root.misplaced(wanted, found)) is not None:
                raise misplaced
            raise InvalidInputError(
                f"the folder {wanted}/ holds the log of a namespace that this root does not have: it was dropped, or "
                "copied there",
                advice="to make it one: adopt_namespace; for an empty one under this name, close every writer that has "
                f"it open, then remove the folder {self._store.url(wanted)}; or choose another name; "
                'txnlog.open(..., mode="r") reads it',
            )
        if known is not None and known.name == wanted:
            if found is not None and not found.is_of(known):
                raise other_listed(known, found, self._store.url(wanted))
            if found is not None and not if_not_exists:
                raise InvalidInputError(
                    f"the namespace {wanted!r} exists",
                    advice=Words("open it, or use ", Argument("if_not_exists", True), " if that is fine"),
                )
        if known is not None and found is None:
            self._replace_lost(known, wanted)
        with self._handle(wanted, create=True) as made:
            return NamespaceInfo(wanted, connection_of(made).coordinator)

    def _replace_lost(self, known: NamespaceRecord, name: NamespaceName) -> None:
        """Register a namespace anew whose creation was interrupted, or whose folder was moved or removed.

        All checks that refuse the creation come before, and the folder is read once more: if a log was created or
        restored there since the first look, the root continues to list that.
        """
        with refused_write():
            self._root.ensure_safe()
            error = remains(self._store, name, self._runtime)
            if error is not None:
                raise error
            if not Log(PrefixStore(self._store, name), self._runtime).exists():
                self._root.register(name, replace=known)

    def _log_in_folder(self, name: NamespaceName) -> LogIdentity | None:
        """The identity of the log in a namespace's folder, None where there is no log."""
        log = Log(PrefixStore(self._store, name), self._runtime)
        if not log.exists():
            return None
        state, _, _ = log.load()
        return LogIdentity.of(state.head, log.beginning())

    def adopt_namespace(self, name: str, *, force: bool = False) -> NamespaceInfo:
        """Make a folder that was copied or moved here a namespace of this root, with TxnIDs of its own.

        The root gives it a coordinator id that its log never had. All TxnIDs from before keep their meaning: the rows
        show them, and prepared transactions are completed by them. New ones have the new id, so they are not those that
        the original gives. Numbers that writers of the original had reserved are not used in the copy.

        Creates the root if it is the first namespace. A namespace that was dropped, whose folder is still there, comes
        back in this way, too. It must be all there: `docs/python.md` says how a live namespace is copied.

        Args:
            name: the folder in this root, which is the namespace's name from now on.
            force: also where this root lists the very log under this name. A copy of a whole root, its folder
                ``_catalog`` included, cannot be distinguished from its original: adopt its namespaces with this.
                Writers that have the namespace open go on, and lose the work that they did not log
                (``CoordinatorFenced``).

        Raises:
            NamespaceNotFound: there is no such folder, or no log in it.
            InvalidInputError: the namespace is one of this root already, and ``force`` is False; or the root lists
                another namespace under the name.
            NameNotAllowed: the name differs from that of another namespace only in case.
            InvalidTransactionState: somebody else adopted it at the same time.
            UnsafeStore: the store has no atomic create-if-absent.
            OutcomeUnknown: call it again.
        """
        wanted = parse_namespace_name(name)
        force = truth("force", force)
        _ = self._root  # refused where the handle was closed
        self._let_go(wanted)
        found, coordinator = adopt_namespace(
            self.root,
            wanted,
            force=force,
            storage_options=self._storage_options,
            clock=self._clock,
            store=self._store,
        )
        return NamespaceInfo(found, coordinator)

    def drop_namespace(self, name: str) -> str:
        """Drop a namespace: it is no longer one of the root, and refuses whoever opens it to write.

        Its folder is not touched: remove it with the tools of the store, at the address that is returned. Until then
        the data can be read with ``mode="r"`` and the name cannot be created again.

        Handles that are open are not closed: one that has written goes on, and its commits succeed. They are in the
        folder: ``adopt_namespace`` brings them back with everything else, and they are lost when the folder is removed.
        A handle that has not written yet is refused at its first write.

        So close all of the namespace's writers before you remove its folder. On an object store, a writer at work does
        not see that the folder was removed or is another one: its commits still succeed, nobody can read them, and they
        damage a new namespace of this name. Only a writer that was idle for a minute looks, and is refused; on a local
        disk every writer is.

        Raises:
            NamespaceNotFound: with the nearest name.
            OutcomeUnknown: look at ``namespaces()``. Another one may have the name by then.
        """
        wanted = parse_namespace_name(name)
        records = self._records(refuse_namespace=False)
        if not any(record.name == wanted for record in records):
            with suppress(StoreError):
                self._root.refuse_remains()
            raise self._missing(wanted, records, Durable.NOTHING)
        self._let_go(wanted)
        self._root.follower.refresh()
        self._root.unregister(wanted)
        return self._store.url(wanted)

    # --- names in Spark ---------------------------------------------------------------------------------------------

    def register(
        self,
        spark: SparkSession,
        namespace: str,
        as_: str = "views",
        *,
        topics: Sequence[str] | None = None,
        names: Mapping[str, str] | None = None,
        database: str | None = None,
        replace: bool = False,
    ) -> Mapping[str, str]:
        """Give the topics of a namespace names in Spark's SQL.

        ``as_="views"``: temporary views of the session over the format: SELECT and INSERT INTO. Like any DataFrame of
        the format a view stays at the version of its first action: register again with ``replace=True`` for newer rows.

        ``as_="delta"``: the published Delta tables as external tables of a database, which other sessions can use, too:
        SELECT of what was published last, and ``VERSION AS OF``. Topics that are not published are left out.

        Spark's own catalog takes letters, digits and underscores, and both ways use the same names: ``.`` and ``-`` in
        a topic's name become ``_``.

        Args:
            spark: the session.
            namespace: its name.
            as_: see above. Persistent tables over the format do not exist: Spark would not pass their path to it.
            topics: the topics to register; None for all.
            names: by topic a name to use instead.
            database: the database of the tables, created if it is missing; None for one named like the namespace.
            replace: whether to replace existing views of these names. Not for tables.

        Returns:
            By topic its name, with the database if it is a table.

        Raises:
            NamespaceNotFound, TopicNotFound: with the nearest name.
            InvalidInputError: Spark does not accept a name, or two topics have the same one, or another view or table
                has it; nothing is published; for tables, a topic's URL contains ``${``; for views, the catalog was
                opened with storage options that are not JSON values, for example a credential object (none of them is
                shown). Nothing was registered.
            UnsupportedFeature: the session has no Delta.
        """
        if as_ not in registration.WAYS:
            raise InvalidInputError(
                f"topics cannot be registered as {shown(as_)}: a table over the format would lose its path",
                advice='pass as_="views", or as_="delta" for the published tables',
            )
        if truth("replace", replace) and as_ == "delta":
            raise InvalidInputError(
                "replace is for views: a table always shows what was published last, and other tables are not dropped",
                advice="leave replace out; if another table has the name already, the error says so",
            )
        found = self.namespace(namespace).name
        with self._handle(found, mode="r") as opened:
            known = [
                registration.Candidate(
                    record.name,
                    record.name,
                    f"{self.root.rstrip('/')}/{found}/{record.name}",
                    self._store.url(f"{found}/{record.folder}"),
                )
                for record in connection_of(opened).live_topics()
            ]
        wanted = registration.chosen(known, topics, names)
        if not hasattr(spark, "sql"):
            raise InvalidInputError(f"spark is a SparkSession, not {type(spark).__name__}")
        if as_ == "views":
            if database is not None:
                raise InvalidInputError("temporary views are in no database", advice="leave database out")
            registration.register_views(spark, wanted, self._storage_options, replace=replace)
            return {item.topic: item.name for item in wanted}
        target = registration.spark_name(found) if database is None else database
        registration.check_name("a database", target)
        tables = registration.register_tables(spark, wanted, target)
        return {item.topic: f"{target}.{item.name}" for item in tables}

    # --- Delta tables -----------------------------------------------------------------------------------------------

    @overload
    def publish(self, namespace: str, topic: str) -> Published: ...

    @overload
    def publish(self, namespace: str, topic: None = None) -> tuple[Published, ...]: ...

    def publish(self, namespace: str, topic: str | None = None) -> Published | tuple[Published, ...]:
        """Bring a topic's Delta table up to what is committed now; without a topic, all tables of the namespace.

        Any number of publishers may be at work, each process and each ``delta="auto"`` among them. What is missing or
        damaged of the newest versions is written again from the log. A topic with ``delta="off"`` is refused by name,
        and left out of all. The table of a topic that was dropped stays as it is; its last commit carries ``ended``.

        All tables are those of the topics and, last, the one of the namespace's segments (``_delta/segments``).

        Returns what the table shows then; of all tables those that are there. Of all tables one that fails keeps no
        other back: the first error is raised in the end, and its text says which are up to date and which are not.

        Raises:
            ForeignDeltaLog: somebody else's table is in the topic's folder, or somebody else wrote to the topic's.
            OutcomeUnknown: the store did not say whether a version exists; call it again.
            TopicNotFound, NamespaceNotFound: with the nearest name.
            CorruptionError: the table shows more than the log has.
            InvalidInputError: the topic has ``delta="off"``; nothing was written.
            SchemaMismatch: Delta has no such column, or no such name; the table stays as it is.
            StoreError: the store refuses; versions that were written before stay, and the next call goes on there.
        """
        with refused_write():
            ns, publications = self._publications(namespace)
            number = None if topic is None else connection_of(ns).topic_record(topic).id
        return publications.publish_all() if number is None else publications.publish(number)

    @overload
    def repair(self, namespace: str, topic: str) -> Published: ...

    @overload
    def repair(self, namespace: str, topic: None = None) -> tuple[Published, ...]: ...

    def repair(self, namespace: str, topic: str | None = None) -> Published | tuple[Published, ...]:
        """Check every version of a topic's Delta table, and write again from the log what is missing or damaged.

        Without a topic all tables of the namespace are repaired, with the results and errors of :meth:`publish`, which
        checks the newest versions only. Repair also brings a table up to what is committed now, and makes a checkpoint.

        Raises what :meth:`publish` raises.
        """
        with refused_write():
            ns, publications = self._publications(namespace)
            number = None if topic is None else connection_of(ns).topic_record(topic).id
        return publications.repair_all() if number is None else publications.repair(number)

    @in_parts()
    def published(self, namespace: str, topic: str, limit: int = 100) -> tuple[PublishedVersion, ...]:
        """Which version of the namespace each version of a topic's Delta table shows, newest first.

        A version of the table stands until the next one; entries that change nothing of the topic have none. Nothing
        new is published, but where the newest versions are damaged they are written again from the log.

        Args:
            namespace: the namespace.
            topic: the topic.
            limit: how many of the newest, one request each; 1 to 10,000.

        Raises:
            CorruptionError: an older version is damaged or missing; :meth:`repair` writes it again.
            ForeignDeltaLog, OutcomeUnknown, TopicNotFound, NamespaceNotFound: as :meth:`publish`.
        """
        most = whole_number("limit", limit, 1, MOST_VERSIONS)
        ns, publications = self._publications(namespace)
        return publications.versions(connection_of(ns).topic_record(topic).id, most)

    @in_parts()
    def delta_version(self, namespace: str, topic: str, version: int) -> int:
        """The version of a topic's Delta table that shows what the topic was at a version of the namespace.

        Raises:
            VersionNotAvailable: it is not published yet, or only together with later entries; the message names the
                nearest versions.

        It also raises what :meth:`published` raises, which looks at the table in the same way.
        """
        wanted = whole_number("version", version, 0, MAX_NUMBER)
        ns, publications = self._publications(namespace)
        return publications.delta_version(connection_of(ns).topic_record(topic).id, wanted)

    def _let_go(self, namespace: NamespaceName) -> None:
        """Close what was opened for publishing, since the name may mean another namespace from now on."""
        for known in list(self._opened):
            if known.name == namespace:
                self._end(known)

    def _end(self, known: _Opened) -> None:
        """Close it, unless somebody else does."""
        with suppress(ValueError):
            self._opened.remove(known)
            known.namespace.close()

    def _publications(self, namespace: str) -> tuple[Namespace, Publications]:
        """The namespace, refreshed, and its tables. Both are kept open for later calls.

        No lock: the handler of a signal might find it taken by the very thread that it interrupts. Of several that are
        opened at once the first one stays.
        """
        _ = self._root  # raises where the handle was closed
        name = parse_namespace_name(namespace)
        known = self._known(name)
        if known is not None and not connection_of(known.namespace).is_in_log():  # its folder was removed or replaced
            self._end(known)
            known = self._known(name)
        while known is None:
            ns = self._handle(name)
            of = connection_of(ns)
            made = _Opened(name, ns, Publications(of.follower, of.store, of.runtime))
            self._opened.append(made)
            known = self._known(name)
            if self._closed or known is not made:
                self._end(made)
                _ = self._root  # raises where the catalog was closed meanwhile
        connection_of(known.namespace).follower.refresh()
        return known.namespace, known.publications

    def _known(self, name: NamespaceName) -> _Opened | None:
        return next((known for known in list(self._opened) if known.name == name), None)

    def _handle(self, namespace: str, *, create: bool = False, mode: Mode = "rw") -> Namespace:
        """Open a namespace over the catalog's own store, which does not outlive the catalog.

        The caller has read ``_root`` before, which opens the store again in a forked child.
        """
        return open_namespace(
            self.root,
            namespace,
            create=create,
            mode=mode,
            storage_options=self._storage_options,
            clock=self._clock,
            store=self._store,
        )

    # --- the handle -------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the handle, which refuses further calls. Namespaces stay as they are."""
        self._closed = True
        for known in list(self._opened):
            with suppress(TxnLogError):
                self._end(known)
        self._runtime.close()
        if self._given_store is None:
            close_folders(self._store)

    @property
    def _root(self) -> Root:
        if self._closed:
            raise InvalidTransactionState(f"the handle of the catalog {self.root!r} was closed", advice="open it again")
        opened = self._open_root
        if opened is None:
            opened = self._open_root = self._open()
        return opened

    def __enter__(self) -> Catalog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Catalog({self.root!r})"

    def _repr_html_(self) -> str:
        records = self._records(refuse_namespace=False)  # a notebook shows the path instead of an error
        rows = "".join(_row(NamespaceInfo(record.name, record.coordinator)) for record in records)
        return f"<table><caption>{html.escape(self.root)}</caption>{_HEAD}{rows}</table>"


def open_catalog(
    root: str | os.PathLike[str],
    storage_options: Mapping[str, Any] | None = None,
    *,
    clock: Clock | None = None,
    store: Store | None = None,
) -> Catalog:
    """Open the catalog of a root. Writes nothing, also where there is no root yet.

    There is no mode: to the store write ``create_namespace``, ``adopt_namespace``, ``drop_namespace``, ``publish`` and
    ``repair``, and where versions of a Delta table are damaged ``published`` and ``delta_version``. The other calls
    only read.

    Args:
        root: a local path or any fsspec URL.
        storage_options: fsspec's options for the store; they appear in no repr, error or log.
        clock: a clock to trust instead of the machine's (tests).
        store: an object with the interface of ``txnlog.store`` to use for ``root`` (tests, wrappers).
    """
    return Catalog(root, storage_options, clock=clock, store=store)


__all__ = ["Catalog", "NamespaceInfo", "open_catalog"]
