"""What a handle has in one process: store, fold, writer. A forked child makes its own."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import Final

from txnlog import keys
from txnlog.actions import AbortReason, AnyAction
from txnlog.actions import Namespace as NamespaceAction
from txnlog.actions import Protocol as ProtocolAction
from txnlog.appender import Appender
from txnlog.apply import check_writable
from txnlog.arguments import shortened
from txnlog.codec import digest_of
from txnlog.errors import (
    ClockSkew,
    CorruptionError,
    Durable,
    InvalidInputError,
    NamespaceNotFound,
    ReadOnly,
    TxnLogError,
    after_writing,
)
from txnlog.follower import Follower
from txnlog.heartbeats import Heartbeats
from txnlog.holds import Holds
from txnlog.limits import FORMAT_VERSION, MAX_CLOCK_AHEAD_MS
from txnlog.log import Log
from txnlog.maintenance.auto_publisher import AutoPublisher
from txnlog.maintenance.checkpointer import Checkpointer
from txnlog.names import NamespaceName
from txnlog.reader import SegmentReader
from txnlog.root import Root, check_coordinator, create_log, namespaces_below, not_found
from txnlog.runtime import Runtime
from txnlog.segment_builder import SharedSegmentBuilder
from txnlog.store.base import Store
from txnlog.store.wrappers import CountingStore, PrefixStore, ReadOnlyStore
from txnlog.unended import Unended

_CLOCK_JUMP_MS: Final = MAX_CLOCK_AHEAD_MS / 10
"""A clock that was set, or a machine that slept; slower drift is less than what the check allows for."""

_CUT_MS: Final = 1_000
"""S3's HEAD cuts times to whole seconds: an object may be that much younger than its store says."""

_IDLE_MS: Final = 60_000
"""Whoever paused for so long looks whether its log is still there. A commit of a writer at work stays one PUT."""


class Session:
    """What one process has of one namespace; a handle without one (forked, unpickled) makes another.

    Attributes:
        requests: counts what is sent to the store.
        given_up: transactions of this process whose abort, for this reason, did not reach the log, and which hold
            messages of this client, or are its own.
        unended: transactions of this process that have work, and whose end nobody has asked for.
    """

    def __init__(
        self,
        open_store: Callable[[], Store],
        name: NamespaceName,
        runtime: Runtime,
        *,
        create: bool,
        read_only: bool,
        min_commit_interval_ms: int,
    ) -> None:
        self.name = name
        self.runtime = runtime
        self._read_only = read_only
        self._min_commit_interval_ms = min_commit_interval_ms
        self._lock = threading.Lock()
        self._appender: Appender | None = None
        self._may_write = False
        self._clock_lead_ms: float | None = None
        whole = open_store()
        self.requests = CountingStore(ReadOnlyStore(whole) if read_only else whole, keys.kind_of)
        self.store: Store = PrefixStore(self.requests, name)
        self._root = Root(self.requests, runtime)
        log = Log(self.store, runtime)
        registered: int | None = None
        if not log.exists():
            if create:
                registered = self._create()
            else:
                error = not_found(self.requests, self.name, runtime)
                if not log.exists():  # it may have been made meanwhile
                    raise error
        self.follower = Follower(log)
        self._append_ms = runtime.now_ms()
        self.coordinator = self.follower.state.head.coordinator
        if registered is not None:
            check_coordinator(self.name, registered, self.coordinator)
        self.reader = SegmentReader(self.store, runtime, self.follower.missing)
        self.holds = Holds(runtime.now_ms)
        self.given_up: dict[int, AbortReason] = {}
        self.unended = Unended()
        self.heartbeats = Heartbeats(self.store, runtime)
        self.checkpointer = Checkpointer(self.follower, self.store, runtime)
        self.auto_publisher = AutoPublisher(self.follower, self.store, runtime)
        if not read_only:
            check_writable(self.follower.state)
            self.auto_publisher.watch()

    def _shown_url(self) -> str:
        return shortened(self.requests.url(self.name))

    def _create(self) -> int:
        """Make the namespace, and the root if need be. Returns the coordinator id of its registration."""
        below = namespaces_below(PrefixStore(self.requests, self.name), self.runtime)
        if below is not None:
            raise InvalidInputError(
                f"{self._shown_url()} is a root, a folder of namespaces, and cannot be a namespace itself",
                advice=f"name one of its namespaces ({below}), or a new one: txnlog.open(root, namespace=...)",
            )
        self._root.ensure_safe()
        self._refuse_leftovers()
        record = self._root.register(self.name)
        actions: Sequence[AnyAction] = [
            ProtocolAction(FORMAT_VERSION, FORMAT_VERSION),
            NamespaceAction(self.name, record.coordinator),
        ]
        with after_writing("open it again"):
            create_log(self.store, self.runtime, actions, self.runtime.unique())
        return record.coordinator

    def _refuse_leftovers(self) -> None:
        """Raise CorruptionError where files of a namespace are there, and the beginning of its log is not.

        A making that was cut short leaves none behind, and whoever makes it at the same time has its log there first.
        """
        found = next(iter(self.store.list("")), None)
        if found is not None and not Log(self.store, self.runtime).exists():
            raise CorruptionError(
                f"files of a namespace {self.name!r} are at {self._shown_url()} ({found.key}), but the beginning of "
                "its log is missing: an empty one would take its place",
                advice="restore the folder from a copy; or remove it, once nobody has it open",
            )

    def refuse_dropped(self) -> None:
        """Raise NamespaceNotFound where only the folder is left of a namespace that was dropped."""
        self._root.refuse_dropped(self.name, self.coordinator)

    @property
    def appender(self) -> Appender:
        """The writer of this process. Raises ReadOnly for mode="r"."""
        if self._read_only:
            raise ReadOnly(f'the namespace {self.name!r} was opened with mode="r"')
        with self._lock:
            if self._appender is None:
                self._appender = Appender(
                    self.follower,
                    self.store,
                    self.runtime,
                    SharedSegmentBuilder(self.runtime.unique),
                    min_commit_interval_ms=self._min_commit_interval_ms,
                    before_append=self._before_append,
                    after_append=self._after_append,
                    given_up=self.given_up,
                )
            return self._appender

    def _before_append(self) -> None:
        """Once what must hold for a writer; the log again after a pause.

        The clock again whenever it moved against the one that never jumps.
        """
        if not self._may_write:
            self._root.ensure_safe()
            self._root.check_not_dropped(self.name, self.coordinator)
            self._may_write = True
        now_ms = self.runtime.now_ms()
        if abs(now_ms - self._append_ms) > _IDLE_MS:
            self._check_log()
        self._append_ms = now_ms
        if self.runtime.trusts_clock:
            return
        lead_ms = self.runtime.now_ms() - self.runtime.elapsed_ms()
        if self._clock_lead_ms is None or abs(lead_ms - self._clock_lead_ms) > _CLOCK_JUMP_MS:
            self._check_clock()
            self._clock_lead_ms = lead_ms

    def _after_append(self) -> None:
        """What is done in the background for the sake of those who read."""
        self.checkpointer.after_append()
        self.auto_publisher.after_append()

    def _check_log(self) -> None:
        """Raise NamespaceNotFound where the folder was removed, or holds the log of another namespace of that name.

        Its next slot may be free there, and an entry that continues the old log would be the end of the new one.
        """
        with self.follower.lock:
            head = self.follower.state.head
        data = self.follower.log.get(head.version)
        if data is None or digest_of(data) != head.digest:
            raise NamespaceNotFound(
                f"the namespace {self.name!r} is no longer the one that this handle has open: entry {head.version} of "
                f"its log is {'gone' if data is None else 'another one'}",
                advice="its folder was removed, and perhaps the namespace was made again: open it again",
                durable=Durable.NOTHING,
            )

    def _check_clock(self) -> None:
        """Raise ClockSkew where this machine's clock would drag the log's time along."""
        key = f"{keys.PROBE_FOLDER}clock-{self.runtime.unique()}"
        before_ms = self.runtime.now_ms()
        self.requests.put(key, b"")
        try:
            ahead = before_ms - self.requests.info(key).modified_ms - _CUT_MS
        finally:
            with contextlib.suppress(TxnLogError):  # the right to delete is not needed to append
                self.requests.delete(key)
        if ahead > MAX_CLOCK_AHEAD_MS:
            raise ClockSkew(f"this machine's clock is {ahead / 1000:.0f} s ahead of the store's")

    def close(self, error: TxnLogError) -> None:
        """Finish what is under way and let go of the threads."""
        with self._lock:
            appender = self._appender
        if appender is not None:
            appender.close(error)
        self.checkpointer.close()
        self.auto_publisher.close()
        self.runtime.close()


__all__ = ["Session"]
