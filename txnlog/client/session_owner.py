"""The life of a client's connection: opened, used in one process, forked, pickled, closed, ended with its process."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal

from txnlog.client.client_text import client_text
from txnlog.client.consumer_heartbeats import Heartbeats
from txnlog.client.ledger import Ledger
from txnlog.client.session import Session
from txnlog.client.unended import report
from txnlog.client.unsettled_epochs import UnsettledEpochs
from txnlog.common.first_of import FirstOf
from txnlog.common.ids import Coordinators, TxnId
from txnlog.common.names import parse_namespace_name
from txnlog.data.segment_reader import SegmentReader
from txnlog.engine.runtime import Clock, Runtime, call_at_exit, renew_in_child
from txnlog.engine.worker import program_has_ended
from txnlog.errors import CalledInItsOwnWork, InvalidInputError, InvalidTransactionState
from txnlog.fold import number_blocks
from txnlog.fold.state import Outcome, SegmentRecord
from txnlog.format.actions import AbortReason
from txnlog.log.appender import Appender
from txnlog.log.follower import Follower
from txnlog.store.base import Store
from txnlog.store.open import absolute, open_store

Mode = Literal["r", "rw"]

_OPEN_AGAIN: Final = "open it again"


def _merge_nothing(_owner: object, _topic: int, _small: Sequence[SegmentRecord], _version: int) -> None:
    pass


class SessionOwner:
    """The session of a namespace in this process: made when it is opened, anew in a forked child, and closed once.

    Attributes:
        identity: what it is in this process: whatever was made under another one belongs to another process.
    """

    def __init__(
        self,
        root: str,
        name: str,
        *,
        create: bool = False,
        mode: Mode = "rw",
        storage_options: Mapping[str, Any] | None = None,
        clock: Clock | None = None,
        min_commit_interval_ms: int = 0,
        store: Store | None = None,
        runtime: Runtime | None = None,
        merge: Callable[[Any, int, Sequence[SegmentRecord], int], object] = _merge_nothing,
        client_name: str | None = None,
        client_info: bool = False,
    ) -> None:
        self.name = parse_namespace_name(name)
        self.root = absolute(root) if store is None else root
        self.mode: Mode = mode
        self._storage_options = dict(storage_options or {})
        self._clock = clock
        self._min_commit_interval_ms = min_commit_interval_ms
        self._given_store = store
        self._given_runtime = runtime
        self._merge = merge
        self._client_name = client_name
        self._client_info = client_info
        self._closed = False
        self._begin_in_child()
        self._first.get_or(partial(self._connect, create=create))
        renew_in_child(self)
        call_at_exit(self)

    def _connect(self, *, create: bool) -> Session:
        runtime = self._given_runtime or Runtime(self._clock)
        try:
            return Session(
                self._open_store,
                self.name,
                runtime,
                create=create,
                read_only=self.mode == "r",
                owns_store=self._given_store is None,
                min_commit_interval_ms=self._min_commit_interval_ms,
                merge=partial(self._merge, self),
                client=self._client,
            )
        except BaseException:
            runtime.close()
            raise

    def _client(self) -> str:
        if not self._client_info:
            return ""
        return client_text(self._client_name, of_process=self._given_runtime is None)

    def _open_store(self) -> Store:
        return self._given_store or open_store(self.root, self._storage_options)

    # --- its life ---------------------------------------------------------------------------------------------------

    def summary(self) -> str:
        """For a repr: name, version as far as known, mode. No request, also of a closed one."""
        session = self._current
        state = "closed" if self._closed else f"version={session.follower.version}" if session is not None else "forked"
        return f"{self.name!r}, {state}, mode={self.mode!r}"

    def __getstate__(self) -> dict[str, Any]:
        if any(given is not None for given in (self._given_store, self._given_runtime, self._clock)):
            raise InvalidInputError(
                "a namespace with a store, runtime or clock of its own cannot be pickled",
                advice="open it in the other process",
            )
        return {
            "root": self.root,
            "name": self.name,
            "mode": self.mode,
            "storage_options": self._storage_options,
            "min_commit_interval_ms": self._min_commit_interval_ms,
            "merge": self._merge,
            "client_name": self._client_name,
            "client_info": self._client_info,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]  # a new connection: writer identity and numbers are never shared

    def close(self) -> None:
        """Finish background work; later calls are refused. Open transactions end by their timeout.

        Closing again goes on where an interrupt ended it.
        """
        session = self._current
        if session is not None and not program_has_ended():
            if session.runtime.is_in_work:  # a finalizer there would wait for the work that waits for it
                raise CalledInItsOwnWork
            session.auto_merger.close()  # what is under way needs the handle
        self._closed = True
        # When the program has ended (finalizers run then) its end has waited for the work, and reported the rest.
        if session is not None and not program_has_ended():
            session.close(self._closed_error())
            # Behind it: where an interrupt ends the waiting, the next close still has them to report.
            self._report(f"The handle of the namespace {self.name!r} was closed before these", session)

    def _report(self, what: str, session: Session) -> None:
        report(what, self.described_work(session.unended.settle_all()))

    def settled_work(self, numbers: Iterable[int]) -> dict[str, list[str]]:
        """Of some that are about to be aborted those with work, whose end nobody asked for; as ``described_work``."""
        session = self._current
        if session is None:
            return {}
        unended = session.unended
        return self.described_work({n: topics for n in numbers if (topics := unended.settle(n)) is not None})

    def described_work(self, unended: Mapping[int, Collection[int]]) -> dict[str, list[str]]:
        """The names of the topics that transactions have work for, by TxnID, without those whose end is known here.

        For the garbage collector as well: it takes no lock, and makes no request.
        """
        session = self._current
        if session is None:
            return {}
        state = session.follower.state  # topics are never forgotten, and each look-up is one step
        return {
            str(state.txn_id(number)): [state.topics[topic].name for topic in tuple(topics)]
            for number, topics in unended.items()
            if number not in state.outcomes
        }

    def report_at_exit(self) -> None:
        """The interpreter ends: report transactions with work. A daemon thread may have any lock: it takes none."""
        session = self._current
        if session is not None:
            self._report(f"The interpreter ended, with the namespace {self.name!r} open, before these", session)

    def _closed_error(self, advice: str = _OPEN_AGAIN) -> InvalidTransactionState:
        return InvalidTransactionState(f"the handle of the namespace {self.name!r} was closed", advice=advice)

    def _begin_in_child(self) -> None:
        """In a forked child: no request now, but an identity, numbers and threads of its own at the next call."""
        self.identity = object()
        self._first = FirstOf[Session]()

    @property
    def _current(self) -> Session | None:
        """The session, if this process has made one; also of a closed connection."""
        return self._first.get()

    @property
    def session(self) -> Session:
        """The store, follower and writer of this process. Raises InvalidTransactionState for a closed connection."""
        if self._closed:
            raise self._closed_error()
        session = self._first.get()  # and not by _current: each call of a user comes here several times
        if session is None:
            made = self._connect(create=False)
            session = self._first.get_or(lambda: made)
            if session is not made:
                made.close(self._closed_error())
        return session

    @property
    def is_closed(self) -> bool:
        """Whether it serves no call any more."""
        return self._closed

    def check_owner(self, owner: object, what: str, if_closed: Callable[[], str] = lambda: _OPEN_AGAIN) -> None:
        """Raise unless what was made by this connection belongs to this process, and the connection is open.

        ``if_closed`` gives what to do where it is not open. Only the process that made it can say.
        """
        if owner is not self.identity:
            raise InvalidTransactionState(
                f"the {what} belongs to the process that this one was forked from", advice=f"make a {what} of your own"
            )
        if self._closed:
            raise self._closed_error(if_closed())

    def same_namespace(self, other: SessionOwner) -> bool:
        """Whether another connection leads to the same namespace, as far as that can be known."""
        return self is other or (
            (self.root, self.name, self._given_store) == (other.root, other.name, other._given_store)
            and self.session.beginning == other.session.beginning  # else one was dropped, and the name was used again
        )

    @property
    def log_label(self) -> str:
        """64 bits of what identifies the log among all others but its copies: the digest of its entry 0.

        Names and numbers do not: they are the same in all roots that one script created.
        """
        return self.session.beginning[:16]

    # --- what it shares ---------------------------------------------------------------------------------------------

    @property
    def runtime(self) -> Runtime:
        """Time, chance and threads."""
        return self.session.runtime

    @property
    def store(self) -> Store:
        """The namespace's objects."""
        return self.session.store

    @property
    def follower(self) -> Follower:
        """The follower of the namespace's log, with the materialized state."""
        return self.session.follower

    @property
    def heartbeats(self) -> Heartbeats:
        """Signs of life of consumers that keep their place for a lease."""
        return self.session.heartbeats

    @property
    def unsettled_epochs(self) -> UnsettledEpochs:
        """Of takeovers and seeks of this client whose outcome is unknown."""
        return self.session.unsettled_epochs

    @property
    def coordinators(self) -> Coordinators:
        """The namespace's coordinator ids, by the numbers of its transactions."""
        return self.follower.state.head.coordinators

    @property
    def coordinator(self) -> int:
        """The namespace's coordinator id, which new TxnIDs have."""
        return self.coordinators.newest

    def txn_id(self, number: int) -> TxnId:
        """The TxnID of a number of the namespace's log."""
        return self.follower.state.txn_id(number)

    @property
    def appender(self) -> Appender:
        """The writer of this connection. Raises ReadOnly for mode="r"."""
        return self.session.appender

    def check_writes(self) -> None:
        """Raise ReadOnly for mode="r": for calls that look at something before they write, which a reader need not."""
        self.session.check_writes()

    # --- also on a closed connection --------------------------------------------------------------------------------

    @property
    def _session_even_closed(self) -> Session:
        """The session, also after ``close``: a commit under way ends after it, and must not seem to have failed."""
        return self._current or self.session

    @property
    def reader(self) -> SegmentReader:
        """Decodes segments; also on a closed connection, for a scan under way."""
        return self._session_even_closed.reader

    def outcome(self, number: int) -> Outcome | None:
        """How a transaction ended, also one that only a checkpoint remembers; also on a closed connection."""
        return self._session_even_closed.follower.outcome(number)

    def may_have_ended(self, number: int) -> bool:
        """Whether a transaction that is not open can have ended in the log, even where no outcome is remembered."""
        return self._session_even_closed.follower.look(
            lambda state: number not in state.transactions and number_blocks.is_spent(state, number)
        )

    def may_land(self, number: int) -> bool:
        """Whether the log may get an entry of a transaction yet (see Appender); also on a closed connection."""
        return self._session_even_closed.may_land(number)

    def ledger(self, subscription: int, epoch: int) -> Ledger:
        """What this client does with the messages of a subscription in an epoch. Also on a closed connection."""
        return self._session_even_closed.ledgers.of(subscription, epoch)

    def note_unlogged_abort(self, txn: int, reason: AbortReason) -> None:
        """The abort of a transaction did not reach the log: it comes there as soon as somebody here waits for it.

        Of this handle's, or of another one's that acknowledged what consumers of this one received.
        """
        session = self._current
        if session is not None:
            session.unlogged_aborts[txn] = reason

    def has_unlogged_abort(self, txn: int) -> bool:
        """Whether the log may still show a transaction as open whose abort did not reach it."""
        session = self._current
        return session is not None and txn in session.unlogged_aborts


__all__ = ["Mode", "SessionOwner"]
