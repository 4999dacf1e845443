"""The state of a handle in one process: store, follower, writer. A forked child makes its own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from txnlog.client.auto_merger import AutoMerger, MergeSmall
from txnlog.client.auto_publisher import AutoPublisher
from txnlog.client.checkpointed_summaries import SegmentSummaries
from txnlog.client.checkpointer import Checkpointer, SlotOccupied
from txnlog.client.commit_times import CommitTimes
from txnlog.client.consumer_heartbeats import Heartbeats
from txnlog.client.ended_transactions import EndedTransactions
from txnlog.client.ledger import Ledgers
from txnlog.client.unended import Unended
from txnlog.client.unsettled_epochs import UnsettledEpochs
from txnlog.common.first_of import FirstOf
from txnlog.common.format_limits import MAX_CLOCK_AHEAD_MS
from txnlog.common.ids import TxnId
from txnlog.common.names import NamespaceName
from txnlog.common.validation import rough_duration, shortened
from txnlog.data.segment_reader import SegmentReader
from txnlog.engine.log_lines import LogLines
from txnlog.engine.runtime import Runtime
from txnlog.engine.worker import refuse_after_end
from txnlog.errors import (
    ClockSkew,
    InvalidInputError,
    InvalidTransactionState,
    NamespaceNotFound,
    ReadOnly,
    TxnLogError,
)
from txnlog.fold.apply import check_writable
from txnlog.fold.state import Draft
from txnlog.format import keys
from txnlog.format.actions import AbortReason, Adopt, AnyAction, Header, Verdict
from txnlog.log.append_counts import AppendCounts
from txnlog.log.appender import Appender
from txnlog.log.commands import ONE_PROTOCOL, Answer, effect
from txnlog.log.follower import Follower
from txnlog.log.log_identity import LogIdentity, Standing, standing
from txnlog.log.log_reader import Log
from txnlog.log.root_log import Root, adopted_meanwhile, has_verdict_on, namespaces_below, not_found, probed, remains
from txnlog.log.segment_builder import SharedSegmentBuilder
from txnlog.replies import Rest, finishing, not_sent
from txnlog.sentences import Argument, Call, Words
from txnlog.store.base import Store
from txnlog.store.folders import close_folders, may_make, never_make
from txnlog.store.identity import identity_of
from txnlog.store.wrappers import CountingStore, HookStore, PrefixStore, ReadOnlyStore

_logger: Final = LogLines("txnlog.clock")

_CLOCK_JUMP_MS: Final = MAX_CLOCK_AHEAD_MS / 10
"""A clock that was set, or a machine that slept; slower drift is less than what the check allows for."""

_TIME_AHEAD_MS: Final = 5 * MAX_CLOCK_AHEAD_MS
"""More than two honest clients can differ by, each of them a minute off at most and one of them slept meanwhile."""

_CUT_MS: Final = 1_000
"""S3's HEAD cuts times to whole seconds: an object may be that much younger than its store says."""

_IDLE_MS: Final = 60_000
"""Whoever paused for so long looks whether its log is still there. A commit of a writer at work stays one PUT."""

_MOST_SLOTS: Final = 3
"""Slots of manifests that are found occupied, before a call that makes a checkpoint fails."""

_MOST_ADOPTIONS: Final = 8
_BETWEEN_ADOPTIONS_MS: Final = 200.0
"""Adoptions of one call, and the pause between two: where several clients adopt at once, the root may list another one
than the log has last."""


class Session:
    """The state of one namespace in one process; a handle without one (forked, unpickled) makes another.

    Attributes:
        began_ms: when it was made.
        requests: counts what is sent to the store.
        commit_times: what its commits took.
        ended: counts the transactions of all writers that end.
        segment_summaries: makes summaries of the segments of all topics.
        unlogged_aborts: transactions of this process whose abort, for this reason, did not reach the log, and which
            claim messages of this client, or are its own.
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
        owns_store: bool,
        min_commit_interval_ms: int,
        merge: MergeSmall,
        client: Callable[[], str] = str,
    ) -> None:
        self.name = name
        self.runtime = runtime
        self.began_ms = runtime.now_ms()
        self._read_only = read_only
        self._owns_store = owns_store
        self._min_commit_interval_ms = min_commit_interval_ms
        self._client = client
        self._appender = FirstOf[Appender]()
        self._may_write = False
        self._verdict: Verdict | None = None
        self._clock_lead_ms: float | None = None
        self._warned_of_time = False
        whole = HookStore(open_store(), before=refuse_after_end)
        self.requests = CountingStore(ReadOnlyStore(whole) if read_only else whole, keys.kind_of)
        self.store: Store = PrefixStore(self.requests, name)
        self._root = Root(self.requests, runtime)
        log = Log(self.store, runtime)
        if not log.exists():
            if create:
                self._create()
            else:
                error = not_found(self.requests, self.name, runtime)
                if not log.exists():  # it may have been made meanwhile
                    raise error
        never_make(self.requests, self.name)
        self.follower = Follower(log, runtime)
        self._append_ms = runtime.now_ms()
        self.commit_times = CommitTimes()
        self.ended = EndedTransactions(self.follower, runtime)
        self.segment_summaries = SegmentSummaries(self.follower)
        self.beginning = log.beginning()
        self.reader = SegmentReader(self.store, runtime, self.follower.missing)
        self.ledgers = Ledgers(runtime)
        self.unlogged_aborts: dict[int, AbortReason] = {}
        self.unended = Unended()
        self.heartbeats = Heartbeats(self.store, runtime)
        self.unsettled_epochs = UnsettledEpochs()
        self.checkpointer = Checkpointer(self.follower, self.store, runtime)
        self.auto_publisher = AutoPublisher(self.follower, self.store, runtime)
        self.auto_merger = AutoMerger(self.follower, runtime, merge)
        if not read_only:
            check_writable(self.follower.state)
            self.auto_publisher.watch()
            self.auto_merger.watch()

    def _shown_url(self) -> str:
        return shortened(self.requests.url(self.name))

    def txn_id(self, number: int) -> TxnId:
        """The TxnID of a number of the log."""
        return self.follower.state.txn_id(number)

    def _create(self) -> None:
        """Make the namespace, and the root if need be."""
        below = namespaces_below(PrefixStore(self.requests, self.name), self.runtime)
        if below is not None:
            raise InvalidInputError(
                f"{self._shown_url()} is a root, a folder of namespaces, and cannot be a namespace itself",
                advice=Words(
                    f"name one of its namespaces ({below}), or a new one: ",
                    Call("open", "root", Argument("namespace", ...), of="txnlog"),
                ),
            )
        error = remains(self.requests, self.name, self.runtime)
        if error is not None:
            raise error
        self._root.ensure_safe()
        try:
            record = self._root.register(self.name)
        except NamespaceNotFound:
            if Log(self.store, self.runtime).exists():
                return  # it was created, or its folder brought back, since this one looked
            raise
        may_make(self.requests, self.name)
        with finishing(Rest.OPEN):
            self._root.create_log_of(record, self.store)

    @property
    def identity(self) -> LogIdentity:
        """What distinguishes this log from all others."""
        return LogIdentity.of(self.follower.state.head, self.beginning)

    def check_identity(self) -> None:
        """Raise InvalidInputError where the folder holds another log than its root lists there: a copy, perhaps.

        Raises NamespaceNotFound for a writer where only the folder is left of a namespace that was dropped.
        """
        self._check_listed(self._root.check_at_open, writing=not self._read_only)

    def _check_listed(self, check: Callable[..., None], *, writing: bool) -> None:
        """Raise only what both logs show as they are now: one of them may have been read before an adoption.

        An adoption appends to the root log first, so that is read first.
        """
        try:
            check(self.name, self.identity, writing=writing)
        except (InvalidInputError, NamespaceNotFound):
            self._root.refresh()
            self.follower.refresh()
            check(self.name, self.identity, writing=writing)

    def adopt(self, *, force: bool) -> int:
        """Make the log, a copy, a namespace of its own; returns its new coordinator id.

        Raises:
            InvalidInputError: the root lists this very log already, unless ``force``, or another one under the name.
            InvalidTransactionState: somebody else adopts it at the same time.
            OutcomeUnknown, StoreError: call it again, which takes another coordinator id.
        """
        self.check_writes()
        self._root.ensure_safe(adopting=True)
        mine = {self._adopt(force=force)}
        with finishing(Rest.ADOPT):
            # An adoption has an entry in the root and one in the log. Where several are under way, or one ended between
            # its two, the root may list another one than the log has last, and then nobody could open the namespace.
            for _ in range(_MOST_ADOPTIONS):
                if self._is_listed():
                    break
                self.runtime.sleep_ms(self.runtime.spread(_BETWEEN_ADOPTIONS_MS))
                with contextlib.suppress(InvalidTransactionState):
                    mine.add(self._adopt(force=True))
        if self.identity.coordinator not in mine:
            raise adopted_meanwhile(self.name)
        return self.identity.coordinator

    def _is_listed(self) -> bool:
        """Whether the root lists what the log's newest adoption made of it; also where the root cannot be read.

        Whoever opens the namespace looks as well. Between the two entries of an adoption both are read once more.
        """
        try:
            for _ in range(2):
                self._root.refresh()
                self.follower.refresh()
                if standing(self._root.namespaces(), self.name, self.identity)[0] is Standing.LISTED:
                    return True
        except TxnLogError:
            return True
        return False

    def _adopt(self, *, force: bool) -> int:
        """Adopt it in the root, and then in the log, unless somebody else was quicker there. Returns the root's id.

        Raises InvalidTransactionState where nothing was written, since somebody else has adopted it in the root.
        """
        appender = self.appender
        seen = self._root.registration(self.name)
        self.follower.refresh()
        self.follower.log.check_end(self.follower.version, whole=True)
        head = self.follower.state.head
        record = self._root.adopt(self.name, self.identity, head.coordinators, seen, force=force)

        def decide(draft: Draft, _at: Header) -> list[Adopt] | Answer[None]:
            if draft.head.adoptions != head.adoptions:
                return Answer(None)
            return [Adopt(self.name, record.coordinator)]

        with finishing(Rest.ADOPT):
            self._may_write = True  # nobody else opens it to write before this is in its log
            appender.call(effect(decide, ONE_PROTOCOL))
        return record.coordinator

    def check_writes(self) -> None:
        """Raise ReadOnly for mode="r": for calls that look at something before they write, which a reader need not."""
        if self._read_only:
            raise ReadOnly(f'the namespace {self.name!r} was opened with mode="r"')

    @property
    def appender(self) -> Appender:
        """The writer of this process. Raises ReadOnly for mode="r"."""
        self.check_writes()
        return self._appender.get_or(self._make_appender)

    def _make_appender(self) -> Appender:
        is_local = identity_of(self.store).store_kind == "local"  # there folders are moved under writers at work
        return Appender(
            self.follower,
            self.store,
            self.runtime,
            SharedSegmentBuilder(self.runtime.unique, self.reader.keep_written),
            min_commit_interval_ms=self._min_commit_interval_ms,
            before_append=self._before_append,
            before_put=self.follower.log.check_there if is_local else lambda: None,
            after_append=self._after_append,
            riders=self._verdict_wanted,
            unlogged_aborts=self.unlogged_aborts,
            client=self._client(),
        )

    @property
    def append_counts(self) -> AppendCounts:
        """What the writer of this process met; zeros where it has appended nothing."""
        appender = self._appender.get()
        return AppendCounts() if appender is None else appender.counts

    def may_land(self, txn: int) -> bool:
        """As ``may_land`` of the writer of this process; False where it has appended nothing."""
        appender = self._appender.get()
        return appender is not None and appender.may_land(txn)

    def checkpoint(self) -> int:
        """Make a checkpoint of the newest version that names nothing unusable, and return its version.

        No object is overwritten: where the slot of its manifest is occupied, an entry without actions is appended,
        since the version of that has a free one. Where headers name an unusable checkpoint, one more such entry names
        the new one, so that whoever opens the log from then on finds it.
        """
        appender = self.appender
        self.follower.refresh()
        self.follower.log.check_there()
        self.follower.verify_checkpoints()
        made = self._checkpoint(appender)
        named = self.follower.state.head.checkpoint
        if named is not None and self.follower.log.checkpoints.is_unusable(named):
            appender.call(effect(lambda _draft, _at: ()))
        return made

    def name_checkpoint(self, made: int) -> None:
        """Have a checkpoint found by whoever opens the log: headers of entries name it, and its maker writes no more.

        So an entry without actions is appended, unless one names it, or one that is but one entry older.
        """
        named = self.follower.state.head.checkpoint
        if made - (-1 if named is None else named) > 1:
            self.appender.call(effect(lambda _draft, _at: ()))

    def _checkpoint(self, appender: Appender) -> int:
        for _ in range(_MOST_SLOTS):
            try:
                return self.checkpointer.make().version
            except SlotOccupied:
                self.follower.log.check_there()
                appender.call(effect(lambda _draft, _at: ()))
        return self.checkpointer.make().version

    def _before_append(self) -> Callable[[], None] | None:
        """What must be looked at before an append; None where that is nothing."""
        checks: list[Callable[[], None]] = []
        if not self._may_write:
            checks.append(self._check_may_write)
        now_ms = self.runtime.now_ms()
        if abs(now_ms - self._append_ms) > _IDLE_MS:
            checks.append(partial(self._check_log_after_pause, now_ms))
        else:
            self._append_ms = now_ms
        # The clock again whenever it moved against the one that never jumps.
        lead_ms = now_ms - self.runtime.elapsed_ms()
        if not self.runtime.trusts_clock and (
            self._clock_lead_ms is None or abs(lead_ms - self._clock_lead_ms) > _CLOCK_JUMP_MS
        ):
            checks.append(partial(self._check_clock, lead_ms))
        return partial(_call_all, checks) if checks else None

    def _check_log_after_pause(self, now_ms: int) -> None:
        self.follower.log.check_there()
        self._append_ms = now_ms

    def _check_may_write(self) -> None:
        """Once, for a writer."""
        self._ensure_safe()
        self._check_listed(self._root.check_identity, writing=True)
        self.follower.log.check_end(self.follower.version)
        self._may_write = True

    def _ensure_safe(self) -> None:
        """Make sure that there is a verdict on this store: the root's, which is only read, or one in this log.

        One that is made here goes into the log with whatever is appended next: whoever may write to the namespace
        needs no right to write to its root.
        """
        if not self.has_verdict():
            self._verdict = self._verdict or probed(self.store)

    def has_verdict(self) -> bool:
        """Whether the log of the root, or this one, has a verdict on this store."""
        if self._root.has_verdict():
            return True
        return self.follower.look(lambda state: has_verdict_on(self.store, state.verdicts))

    def _verdict_wanted(self, draft: Draft) -> list[AnyAction]:
        """The verdict that was made here, until it is in the log."""
        verdict = self._verdict
        return [] if verdict is None or has_verdict_on(self.store, draft.verdicts) else [verdict]

    def _after_append(self) -> None:
        """What is done in the background for the sake of those who read, and what a handle that writes is warned of."""
        self._warn_of_time_ahead()
        self.checkpointer.after_append()
        self.auto_publisher.after_append()
        self.auto_merger.after_append()

    def check_clock(self) -> None:
        """Raise ClockSkew where an append would. It takes two or three requests, and appends nothing."""
        if not self.runtime.trusts_clock:
            self._check_clock(self.runtime.now_ms() - self.runtime.elapsed_ms())

    def _check_clock(self, lead_ms: float) -> None:
        """Raise ClockSkew where this machine's clock would drag the log's time along."""
        key = f"{keys.PROBE_FOLDER}clock-{self.runtime.unique()}"
        before_ms = self.runtime.now_ms()
        with not_sent():
            self.store.put(key, b"")
        try:
            ahead = before_ms - self.store.info(key).modified_ms - _CUT_MS
        finally:
            with contextlib.suppress(TxnLogError):  # the right to delete is not needed to append
                self.store.delete(key)
        if ahead > MAX_CLOCK_AHEAD_MS:
            raise ClockSkew(f"this machine's clock is {ahead / 1000:.0f} s ahead of the store's")
        self._clock_lead_ms = lead_ms

    @property
    def time_ahead_ms(self) -> int:
        """How far the time of the log is ahead of this machine's clock; 0 where clocks that are right may differ so."""
        ahead_ms = self.follower.state.head.timestamp_ms - self.runtime.now_ms()
        return ahead_ms if ahead_ms > _TIME_AHEAD_MS else 0

    def _warn_of_time_ahead(self) -> None:
        """Warn, once: the log's time never goes back, and on a local disk no other clock shows that one was ahead."""
        ahead_ms = self.time_ahead_ms
        if not ahead_ms or self._warned_of_time:
            return
        self._warned_of_time = True
        _logger.warning(
            "The time of the log of %r is %s ahead of this machine's clock: the clock of a client was ahead once, or "
            "this one is behind. Until it gets there no lease of a shared subscription ends, and no deadline of a "
            "transaction that nobody ends: consumer.seek(...) frees the messages, and an abort by hand ends the "
            "transaction (docs/operations/damage.md says more).",
            self.name,
            rough_duration(ahead_ms),
        )

    def close(self, error: TxnLogError) -> None:
        """Finish what is under way and let go of the threads."""
        appender = self._appender.get()
        if appender is not None:
            appender.close(error)
        self.checkpointer.close()
        self.auto_publisher.close()
        self.runtime.close()
        if self._owns_store:  # one that was given is its giver's, who may use it elsewhere
            close_folders(self.requests)


def _call_all(calls: Iterable[Callable[[], None]]) -> None:
    for call in calls:
        call()


__all__ = ["Session"]
