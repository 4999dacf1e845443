"""One worker of a crash run: transactions of many kinds, until it is told to stop, killed, fenced, or gives up.

What it intends is in its journal before it does it, what came of it afterwards. A successor under the same name first
asks what became of its predecessors' last intents, and does again what is definitely not there.
"""

from __future__ import annotations

import base64
import contextlib
import os
import time
import traceback
from collections.abc import Callable, Container, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, TypeVar

import txnlog
from tests.crash import journal
from tests.crash.faulty_store import FaultyStore
from tests.crash.plan import LEASE_MS, NAMESPACE, ROLES, TOPICS, Board, Plan, Role, decision
from txnlog.api.messages import Messages
from txnlog.errors import (
    AbortableError,
    CoordinatorFenced,
    FencedError,
    InvalidTransactionState,
    OutcomeUnknown,
    RetriableError,
    StoreError,
    TransactionAborted,
    TransactionConflict,
    TransactionHasFailedOperation,
    TransactionNotFound,
    TransactionTimedOut,
)
from txnlog.results import Committed
from txnlog.store import Store, open_store

T = TypeVar("T")

DONE, FENCED, GAVE_UP, BROKEN = 0, 3, 4, 5
"""Exit codes: told to stop; a newer owner took over; must not go on in doubt; a finding."""

_CREATE_ATTEMPTS = 3
"""Puts of an entry before its outcome is unknown: the default is patient for a minute."""

_TRIES = 8
_EXPECTED = (TransactionTimedOut, TransactionAborted, TransactionHasFailedOperation)
"""Refusals that may happen here; sequences out of order may not, and conflicts only on a Shared subscription: nobody
else consumes or counts there."""


class MustNotGoOn(Exception):
    """The outcome of something is open on which everything further depends."""


@dataclass
class Attempt:
    """A transaction, or a plain produce, that this worker tries."""

    label: str
    item: str
    how: str
    contents: dict[str, int]
    txn: txnlog.Transaction | None = None
    messages: Messages | None = None
    sequence: tuple[str, int, int] | None = None
    future: Future[Committed] | None = None
    named: bool = True

    @property
    def blocks(self) -> bool:
        """Whether the worker's next steps depend on the outcome."""
        return self.sequence is not None or self.messages is not None


class Worker:
    """See the module."""

    topics: ClassVar[Mapping[str, int]] = TOPICS
    roles: ClassVar[Sequence[Role]] = ROLES

    def __init__(self, plan: Plan, board: Board, worker: int, generation: int, unsettled: Container[int] = ()) -> None:
        """``unsettled`` are earlier generations that may have left something open."""
        self._plan = plan
        self._board = board
        self._worker = worker
        self._generation = generation
        self._unsettled = unsettled
        self._role = self.roles[worker] if worker < len(self.roles) else None
        self._name = journal.name_of(worker, generation)
        self._chance = plan.random("worker", worker, generation)
        self._journal = journal.Journal(plan.journals / f"{self._name}.jsonl")
        self._count = 0
        self._parent = os.getppid()
        self._next_sequence: dict[tuple[str, int], int] = {}

    def run(self) -> int:
        """Work; returns the exit code."""
        try:
            self._start()
            self._recover()
            while not self._is_over():
                self._step()
                time.sleep(self._chance.uniform(0, self._plan.pause_ms) / 1e3)
        except FencedError as error:
            self._journal.write("fenced", error=repr(error))
            return FENCED
        except MustNotGoOn as error:
            self._journal.write("gave up", error=str(error))
            return GAVE_UP
        except Exception:  # noqa: BLE001 - whatever it is, it is a finding, and the journal says which
            self._journal.write("broken", error=traceback.format_exc())
            return BROKEN
        self._journal.write("done")
        return DONE

    def _is_over(self) -> bool:
        return self._board.stopped

    def _open(self) -> None:
        store = self._store()
        self._ns = persist(lambda: txnlog.open(self._plan.root, NAMESPACE, store=store, clock=self._board))
        self._ns._connection.appender.create_attempts = _CREATE_ATTEMPTS
        self._board.begin_work(self._worker)

    def _store(self) -> Store:
        plan = self._plan
        chance = plan.random("faults", self._worker, self._generation)
        return FaultyStore(open_store(plan.root, plan.options), chance, plan.spool, plan.faults)

    def _start(self) -> None:
        self._open()
        name = journal.producer_of(self._name)
        self._producer = persist(lambda: self._ns.producer(name))
        self._journal.write("start", producer=name, epoch=self._producer.epoch)
        self._consumer = None
        role = self._role
        if role is not None:
            self._consumer = persist(lambda: self._ns.consumer("orders", role.subscription, name=self._name))

    # --- what predecessors left -------------------------------------------------------------------------------------

    def _recover(self) -> None:
        """Ask for the outcome of every intent that nobody knows it of; do again what is aborted now."""
        for line in open_intents(self._plan, self._worker, self._generation, self._unsettled):
            if line["how"] == "plain":
                first, state = self._ask_sequence(line)
            else:
                first, state, _ = persist(partial(make_definite, self._ns, line["txn"], "recovery"))
            self._journal.write("answer", label=line["label"], txn=line["txn"], first=first, state=state)
            if state == "ABORTED" and line["how"] == "commit":
                self._transaction(item=line["item"])
        self._board.note_recovered(self._worker, self._generation)

    def _ask_sequence(self, line: journal.Line) -> tuple[str, str]:
        """Whether a plain produce is there. Definite, since this producer fenced the one that produced."""
        topic, partition, sequence = line["sequence"]
        last = persist(lambda: self._producer.last_sequence(topic, partition))
        there = last is not None and last >= sequence + line["contents"][topic] - 1
        return "UNKNOWN", "COMMITTED" if there else "ABORTED"

    # --- steps ------------------------------------------------------------------------------------------------------

    def _step(self) -> None:
        self._begin_work()
        steps: dict[Callable[[], None], float] = {
            self._transaction: 40,
            self._together: 12,
            self._plain: 10,
            self._aborted: 7,
            self._expired: 1,
            self._checkpoint: 1,
            self._prepare: 8,
        }
        if self._role is not None:
            # One of those on Failover is active, and waited for the lease of the one before.
            steps[self._consume] = 60 if self._role.type == "failover" else 25
            steps[self._prepare] = 8 if self._cumulative else 25
        (step,) = self._chance.choices(list(steps), list(steps.values()))
        step()

    def _begin_work(self) -> None:
        if os.getppid() != self._parent:
            raise MustNotGoOn("the run is over, and nobody said so")
        self._board.begin_work(self._worker)

    def _transaction(self, *, item: str | None = None) -> None:
        attempt = self._begin("commit", item=item)
        if self._fill(attempt, flushes=0.25):
            self._commit(attempt)

    def _together(self) -> None:
        """Several transactions whose commits share entries."""
        attempts = [self._begin("commit") for _ in range(self._chance.randint(2, 4))]
        for attempt in attempts:
            if self._fill(attempt, flushes=0.1, sequenced=0):
                assert attempt.txn is not None, "just begun"
                attempt.future = attempt.txn.commit_async()
        for attempt in attempts:
            if attempt.future is not None:
                self._commit(attempt)

    def _consume(self) -> None:
        """Consume, produce what comes of it, acknowledge: in one transaction, which some abort."""
        assert self._consumer is not None, "only consumers consume"
        messages = self._receive()
        if not len(messages):
            return
        if self._chance.random() < 0.2:
            attempt = self._begin("abort", messages=messages)
            if self._fill(attempt, flushes=0.6):
                self._abort(attempt)
            else:
                self._give_back(messages)
            return
        attempt = self._begin("commit", messages=messages, named=self._chance.random() < 0.7)
        if self._fill(attempt, flushes=0.3):
            self._commit(attempt)
        else:
            self._give_back(messages)

    def _give_back(self, messages: Messages) -> None:
        """An attempt may have failed before it acknowledged them; a cumulative one further on would take them."""
        assert self._consumer is not None, "only consumers have messages"
        persist(partial(self._consumer.negative_acknowledge, messages))

    def _receive(self) -> Messages:
        """Some messages; some of them are given back at once."""
        assert self._consumer is not None, "only consumers consume"
        consumer = self._consumer
        if self._chance.random() < 0.1:
            persist(consumer.redeliver_unacknowledged)
        most = self._chance.randint(1, 40)
        # On Failover it may have to wait for the lease of the one before: so long that it then is the active one.
        waits_ms = 2 * LEASE_MS if self._role is not None and self._role.type == "failover" else 0
        messages = persist(lambda: consumer.receive(most, timeout_ms=waits_ms))
        if not self._cumulative and len(messages) > 1 and self._chance.random() < 0.5:
            messages, others = messages[::2], messages[1::2]
            self._give_back(others)
        return messages

    @property
    def _cumulative(self) -> bool:
        return self._role is not None and self._role.cumulative

    def _prepare(self) -> None:
        """Work about which an outside system decides, whatever becomes of this process."""
        messages = None
        if self._consumer is not None and not self._cumulative and self._chance.random() < 0.8:
            # What is cumulative could not go past what is prepared.
            messages = self._receive() or None
        attempt = self._begin("prepare", messages=messages)
        if self._fill(attempt, flushes=0.3, sequenced=0):
            self._make_prepared(attempt)
        elif messages is not None:
            self._give_back(messages)

    def _plain(self) -> None:
        """Produce outside of a transaction, with a sequence: repeated until there is an answer."""
        topic = self._chance.choice(("orders", "audit"))
        partition = self._chance.randrange(self.topics[topic])
        rows = self._chance.randint(1, 3)
        attempt = self._new("plain", {topic: rows})
        sequence = self._sequence(topic, partition)
        attempt.sequence = (topic, partition, sequence)
        self._intend(attempt)
        data = self._rows(attempt, topic, sequence)
        for _ in range(_TRIES):
            try:
                result = self._producer.produce(topic, data, partition=partition, sequence=sequence)
            except (RetriableError, StoreError) as error:
                self._no_answer(attempt, error)
                continue
            except CoordinatorFenced as error:  # nothing of this call is in the log: again, with another number
                self._no_answer(attempt, error)
                continue
            self._next_sequence[topic, partition] = sequence + rows
            self._committed(attempt, result)
            return
        raise MustNotGoOn(f"{attempt.label} is in doubt")

    def _aborted(self) -> None:
        """A transaction that nobody ever commits."""
        attempt = self._begin("abort")
        if self._fill(attempt, flushes=0.6):
            self._abort(attempt)

    def _expired(self) -> None:
        """A transaction that its owner forgets until it is too late."""
        attempt = self._begin("expire", timeout_ms=150)
        if self._fill(attempt, flushes=0.7):
            time.sleep(0.2)
            self._commit(attempt)

    def _checkpoint(self) -> None:
        try:
            self._ns.checkpoint()
        except (RetriableError, StoreError) as error:
            self._journal.write("checkpoint", error=repr(error))

    # --- parts of a step --------------------------------------------------------------------------------------------

    def _new(self, how: str, contents: dict[str, int], item: str | None = None) -> Attempt:
        self._count += 1
        label = f"{self._name}a{self._count}"
        return Attempt(label, item or label, how, contents)

    def _begin(
        self,
        how: str,
        *,
        item: str | None = None,
        named: bool = True,
        messages: Messages | None = None,
        timeout_ms: int | None = None,
    ) -> Attempt:
        if messages is None:
            topics = self._chance.sample(sorted(self.topics), self._chance.randint(2, 3))
            contents = {topic: self._chance.randint(1, 3) for topic in topics}
        else:
            contents = {"derived": len(messages), "audit": 1}
        attempt = self._new(how, contents, item)
        begin: Callable[..., txnlog.Transaction] = self._producer.begin if named else self._ns.begin
        attempt.txn = persist(lambda: begin(timeout_ms=timeout_ms))
        attempt.messages = messages
        attempt.named = named
        return attempt

    def _fill(self, attempt: Attempt, *, flushes: float, sequenced: float = 0.3) -> bool:
        """Produce and acknowledge. False where the transaction ended meanwhile."""
        txn = attempt.txn
        assert txn is not None, "only transactions are filled"
        partition = None
        if attempt.messages is None and "audit" in attempt.contents and self._chance.random() < sequenced:
            attempt.sequence = ("audit", 0, self._sequence("audit", 0))
        self._intend(attempt)
        try:
            for topic in self._chance.sample(sorted(attempt.contents), len(attempt.contents)):
                sequence = None
                if attempt.sequence is not None and topic == attempt.sequence[0]:
                    _, partition, sequence = attempt.sequence
                rows = self._rows(attempt, topic, sequence)
                chosen = partition if sequence is not None else self._partition(topic)
                split = self._chance.randint(0, len(rows)) if sequence is None else 0
                for part in (rows[:split], rows[split:]):
                    if part:
                        txn.produce(topic, part, partition=chosen, sequence=sequence)
                if self._chance.random() < flushes:
                    self._flush(attempt)
            if attempt.messages is not None:
                txn.acknowledge(attempt.messages, cumulative=self._cumulative)
                if self._chance.random() < flushes:
                    self._flush(attempt)
        except (RetriableError, StoreError) as error:
            self._no_answer(attempt, error)
            self._abort(attempt)
            return False
        except AbortableError as error:
            self._refused(attempt, error)
            return False
        except FencedError as error:
            self._fenced(attempt, error)
            return False
        return True

    def _flush(self, attempt: Attempt) -> None:
        assert attempt.txn is not None, "only transactions are flushed"
        try:
            attempt.txn.flush()
        except (RetriableError, StoreError) as error:
            self._journal.write("flush", label=attempt.label, error=repr(error))

    def _commit(self, attempt: Attempt) -> None:
        """Commit; in doubt ask again, abort, or leave it to a successor."""
        txn = attempt.txn
        assert txn is not None, "only transactions are committed"
        for _ in range(_TRIES):
            try:
                future, attempt.future = attempt.future, None
                result = future.result(timeout=60) if future is not None else txn.commit()
            except OutcomeUnknown as error:
                self._note(attempt, "unknown", error=repr(error))
                what = self._chance.choices(("again", "abort", "leave"), (6, 3, 1))[0]
                if what == "leave":
                    break
                if what == "abort":
                    self._abort(attempt)
                    return
            except (
                TransactionNotFound
            ) as error:  # in doubt, and then its block was closed: the log cannot tell any more
                self._no_answer(attempt, error)
                break
            except (RetriableError, StoreError) as error:
                self._no_answer(attempt, error)
                if self._chance.random() < 0.4:
                    self._abort(attempt)
                    return
            except AbortableError as error:
                self._refused(attempt, error)
                return
            except FencedError as error:
                self._fenced(attempt, error)
                return
            else:
                self._committed(attempt, result)
                return
        if attempt.blocks:
            raise MustNotGoOn(f"{attempt.label} is in doubt")

    def _make_prepared(self, attempt: Attempt) -> None:
        """Prepare; in doubt ask again, or take it back: nobody outside was told that it is prepared."""
        txn = attempt.txn
        assert txn is not None, "only transactions are prepared"
        for _ in range(_TRIES):
            try:
                txn.prepare()
            except (RetriableError, StoreError) as error:
                self._no_answer(attempt, error)
                if self._chance.random() < 0.2:
                    self._abort(attempt)
                    return
            except TransactionNotFound as error:
                self._no_answer(attempt, error)
                break
            except InvalidTransactionState as error:
                self._told(attempt, error)  # the decision came before the answer
                return
            except AbortableError as error:
                self._refused(attempt, error)
                return
            except FencedError as error:
                self._fenced(attempt, error)
                return
            else:
                self._note(attempt, "prepared")
                return
        if attempt.blocks:
            raise MustNotGoOn(f"{attempt.label} is in doubt")

    def _abort(self, attempt: Attempt) -> None:
        txn = attempt.txn
        assert txn is not None, "only transactions are aborted"
        for _ in range(_TRIES):
            try:
                txn.abort()
            except (RetriableError, StoreError) as error:
                self._no_answer(attempt, error)
            except InvalidTransactionState as error:
                self._told(attempt, error)
                return
            except TransactionNotFound as error:  # its block was closed before the log saw it: it never will
                self._note(attempt, "aborted", error=repr(error))
                return
            else:
                self._note(attempt, "aborted")
                return
        if attempt.blocks:
            raise MustNotGoOn(f"{attempt.label} is in doubt")

    def _told(self, attempt: Attempt, error: InvalidTransactionState) -> None:
        """The error says that it was committed."""
        txn = attempt.txn
        if txn is None or txn.state != "COMMITTED" or txn.result is None:
            raise error
        self._note(attempt, "told", error=repr(error))
        self._committed(attempt, txn.result)

    def _fenced(self, attempt: Attempt, error: FencedError) -> None:
        """A newer owner ends this process. A block that was closed in a long night ends one transaction."""
        self._note(attempt, "refused", error=repr(error))
        if not isinstance(error, CoordinatorFenced):
            raise error

    def _refused(self, attempt: Attempt, error: AbortableError) -> None:
        self._note(attempt, "refused", error=repr(error))
        causes = (error, error.__cause__)
        shared = self._role is not None and self._role.type == "shared" and attempt.messages is not None
        expected = (*_EXPECTED, FencedError, *((TransactionConflict,) if shared else ()))
        if not any(isinstance(cause, expected) for cause in causes):
            raise error
        if attempt.txn is not None and attempt.txn.state == "OPEN":
            self._abort(attempt)

    def _committed(self, attempt: Attempt, result: Committed) -> None:
        offsets = result.offsets or {}
        self._note(
            attempt,
            "committed",
            version=result.version,
            offsets=[[topic, partition, span.start, span.stop] for (topic, partition), span in offsets.items()],
        )
        if attempt.sequence is not None:
            topic, partition, sequence = attempt.sequence
            self._next_sequence[topic, partition] = sequence + attempt.contents[topic]

    def _sequence(self, topic: str, partition: int) -> int:
        known = self._next_sequence.get((topic, partition))
        if known is None:
            last = persist(lambda: self._producer.last_sequence(topic, partition))
            known = self._next_sequence[topic, partition] = 0 if last is None else last + 1
        return known

    def _partition(self, topic: str) -> int | None:
        """Where rows without a sequence go."""
        return self._chance.randrange(self.topics[topic])

    def _rows(self, attempt: Attempt, topic: str, sequence: int | None) -> list[dict[str, Any]]:
        contents = ",".join(f"{name}:{count}" for name, count in sorted(attempt.contents.items()))
        rows = [
            {
                "label": attempt.label,
                "part": part,
                "contents": contents,
                "sequence": None if sequence is None else sequence + part,
                "padding": None,
            }
            for part in range(attempt.contents[topic])
        ]
        if attempt.messages is not None and topic == "derived":
            assert self._role is not None, "only consumers have messages"
            for row, (_, partition, offset) in zip(rows, attempt.messages.positions, strict=True):
                row |= {"source": self._role.subscription, "source_partition": partition, "source_offset": offset}
        elif self._chance.random() < 0.005:
            rows[0]["padding"] = base64.b64encode(self._chance.randbytes(900_000))
        return rows

    def _intend(self, attempt: Attempt) -> None:
        self._journal.write(
            "intent",
            label=attempt.label,
            item=attempt.item,
            how=attempt.how,
            contents=attempt.contents,
            named=attempt.named,
            txn=None if attempt.txn is None else str(attempt.txn.id),
            sequence=attempt.sequence,
        )

    def _no_answer(self, attempt: Attempt, error: Exception) -> None:
        self._note(attempt, "unknown" if isinstance(error, OutcomeUnknown) else "failed", error=repr(error))

    def _note(self, attempt: Attempt, answer: str, **fields: Any) -> None:
        txn = None if attempt.txn is None else str(attempt.txn.id)
        self._journal.write("outcome", label=attempt.label, txn=txn, answer=answer, **fields)


def persist(call: Callable[[], T]) -> T:
    """Call again while the store gives no answer, or a block was closed on the way."""
    for attempt in range(60):
        try:
            return call()
        except (RetriableError, StoreError, CoordinatorFenced):
            time.sleep(min(0.2, 0.01 * 2**attempt))
    raise MustNotGoOn("no answer for a long time")


def make_definite(ns: txnlog.Namespace, txn: str, why: str) -> tuple[str, str, int]:
    """What the log shows of a transaction, and its definite end: state and version.

    A prepared one ends as the outside system decides. One that the log cannot show any more, because the block of its
    number was closed, is aborted at version -1: in a run no outcome is forgotten.
    """
    seen = ns.transaction(txn).state
    if seen == "PREPARED":
        return (seen, *carry_out(ns, txn))
    try:
        end = ns.abort(txn, by="crash test", why=why)
    except InvalidTransactionState:
        return (seen, *carry_out(ns, txn))  # it was prepared meanwhile
    except TransactionNotFound:
        return seen, "ABORTED", -1
    assert end.version is not None, "an end has its version"
    return seen, end.state, end.version


def carry_out(ns: txnlog.Namespace, txn: str) -> tuple[str, int]:
    """Carry out what the outside system decided about a prepared transaction; its end: state and version."""
    with contextlib.suppress(InvalidTransactionState):  # its owner was in doubt about prepare(), and took it back
        ns.complete(txn, commit=decision(txn))
    end = ns.transaction(txn)
    assert end.version is not None, "an end has its version"
    return end.state, end.version


FINAL = frozenset({"committed", "aborted", "refused", "prepared"})
"""Answers after which a worker has nothing more to do about a transaction."""


def open_intents(plan: Plan, worker: int, generation: int, unsettled: Container[int]) -> list[journal.Line]:
    """Intents of a worker's processes whose outcome no journal says.

    Those of later generations, too: one that was stopped before it started its producer comes after them.
    """
    found = journal.read_some(plan.journals, worker, lambda other: other > generation or other in unsettled)
    lines = [line for _, journaled in found for line in journaled]
    closed = {
        line["label"]
        for line in lines
        if line["kind"] == "answer" or (line["kind"] == "outcome" and line["answer"] in FINAL)
    }
    return [line for line in lines if line["kind"] == "intent" and line["label"] not in closed]
