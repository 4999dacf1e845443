"""One worker: transactions of many kinds, until it is told to stop, killed, fenced, or gives up.

A successor under the same name first asks what became of its predecessors' last calls, and does again what is
definitely not there: with the same values, so that the history shows one that is there twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import txnlog
from tests.crash.core.consumers import ByRole, consumer_of
from tests.crash.core.workload import LEASE_MS, ROLES, TOPICS, Role
from tests.crash.harness import journal
from tests.crash.harness.member import Member, MustNotGoOn, make_definite, persist
from tests.crash.harness.plan import Board, Plan
from txnlog.api.messages import Messages
from txnlog.errors import (
    AbortableError,
    CoordinatorFenced,
    FencedError,
    InvalidTransactionState,
    OutcomeUnknown,
    OutOfOrderSequence,
    RetriableError,
    StoreError,
    TransactionAborted,
    TransactionConflict,
    TransactionHasFailedOperation,
    TransactionNotFound,
    TransactionTimedOut,
)
from txnlog.results import Committed
from txnlog.testing import operations as of
from txnlog.testing.actors.ending import commit
from txnlog.testing.client import reported_commit, reported_produce
from txnlog.testing.facts import Facts, Unit, asked
from txnlog.testing.history import merged

_TRIES = 8
_EXPECTED = (TransactionTimedOut, TransactionAborted, TransactionHasFailedOperation)
"""Refusals that may happen here; sequences out of order may not, and conflicts only on a Shared subscription: nobody
else consumes or counts there."""


@dataclass(frozen=True)
class Batch:
    """Values for a topic; without a partition the key decides, with a sequence they are one call."""

    topic: str
    partition: int | None
    values: tuple[int, ...]
    sequence: int | None = None


@dataclass
class Attempt:
    """A transaction that this worker tries."""

    txn: txnlog.Transaction
    batches: list[Batch]
    identity: dict[str, Any]
    messages: Messages | None = None
    committing: tuple[int, Future[Committed]] | None = None

    @property
    def sequenced(self) -> Batch | None:
        """The batch that has a sequence."""
        return next((batch for batch in self.batches if batch.sequence is not None), None)

    @property
    def blocks(self) -> bool:
        """Whether the worker's next steps depend on the outcome."""
        return self.sequenced is not None or self.messages is not None


class Worker(Member):
    """See the module."""

    topics: ClassVar[Mapping[str, int]] = TOPICS
    roles: ClassVar[Sequence[Role]] = ROLES

    def __init__(self, plan: Plan, board: Board, worker: int, generation: int, unsettled: Container[int] = ()) -> None:
        super().__init__(plan, board, worker, generation, unsettled)
        self._role = self.roles[worker] if worker < len(self.roles) else None
        self._next_sequence: dict[tuple[str, int], int] = {}

    def _start(self) -> None:
        super()._start()
        name = journal.producer_of(self._worker)
        open_producer = partial(self._ns.producer, name)
        self._producer = persist(
            lambda: self._client.call("open_producer", open_producer, lambda item: {"epoch": item.epoch}, name=name)
        )
        self._identity: dict[str, Any] = {"producer": name, "epoch": self._producer.epoch}
        self._consumer: ByRole | None = None
        if self._role is not None:
            self._consumer = consumer_of(self._client, self._ns, self._role)
            persist(self._consumer.reopen)

    # --- what predecessors left -------------------------------------------------------------------------------------

    def _recover(self) -> None:
        """Ask how everything ended that nobody knows it of; do again what is aborted now."""
        for unit in open_work(self._plan, self._worker, self._generation, self._unsettled):
            batches = [
                Batch(item.topic, item.partition, item.values, item.sequence)
                for item in (asked(op, of.Produce) for op in unit.produces)
            ]
            if unit.plain:
                self._send_again(batches[0])
            elif persist(partial(make_definite, self._client, self._ns, unit.name)) == "ABORTED" and unit.commits:
                self._transaction([replace(batch, sequence=None) for batch in batches])
        super()._recover()

    def _send_again(self, batch: Batch) -> None:
        """With its sequence: it is there once, whoever sent it first, unless that went to another one meanwhile."""
        try:
            self._send(batch)
        except OutOfOrderSequence:
            self._note("taken", sequence=batch.sequence)
        self._next_sequence.clear()

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
            steps[self._prepare] = 8 if self._role.cumulative else 25
        (step,) = self._chance.choices(list(steps), list(steps.values()))
        step()

    def _transaction(self, batches: list[Batch] | None = None) -> None:
        attempt = self._begin(self._draw(0.3) if batches is None else batches)
        if self._fill(attempt, flushes=0.25):
            self._commit(attempt)

    def _together(self) -> None:
        """Several transactions whose commits share entries."""
        attempts = [self._begin(self._draw()) for _ in range(self._chance.randint(2, 4))]
        for attempt in attempts:
            if self._fill(attempt, flushes=0.1):
                token = self._client.journal.invoke(self._name, "commit", txn=str(attempt.txn.id))
                attempt.committing = token, attempt.txn.commit_async()
        for attempt in attempts:
            if attempt.committing is not None:
                self._commit(attempt)

    def _consume(self) -> None:
        """Consume, produce what comes of it, acknowledge: in one transaction, which some abort."""
        messages = self._receive()
        if not len(messages):
            return
        aborts = self._chance.random() < 0.2
        attempt = self._begin(self._derived(messages), messages, named=aborts or self._chance.random() < 0.7)
        if not self._fill(attempt, flushes=0.6 if aborts else 0.3):
            self._release(messages)
        elif aborts:
            self._abort(attempt)
        else:
            self._commit(attempt)

    def _release(self, messages: Messages) -> None:
        """An attempt may have failed before it acknowledged them; a cumulative one further on would take them."""
        assert self._consumer is not None, "only consumers have messages"
        persist(partial(self._consumer.release, messages))

    def _receive(self) -> Messages:
        """Some messages; some of them are released at once."""
        assert self._consumer is not None, "only consumers consume"
        if self._chance.random() < 0.1:
            persist(self._consumer.release_all)
        most = self._chance.randint(1, 40)
        # On Failover it may have to wait for the lease of the one before: so long that it then is the active one.
        waits_ms = 2 * LEASE_MS if self._consumer.role.type == "failover" else 0
        messages = persist(partial(self._consumer.receive, most, waits_ms))
        if not self._consumer.role.cumulative and len(messages) > 1 and self._chance.random() < 0.5:
            messages, others = messages[::2], messages[1::2]
            self._release(others)
        return messages

    def _prepare(self) -> None:
        """Work about which an outside system decides, whatever becomes of this process."""
        messages = None
        if self._consumer is not None and not self._consumer.role.cumulative and self._chance.random() < 0.8:
            # What is cumulative could not go past what is prepared.
            messages = self._receive() or None
        attempt = self._begin(self._draw() if messages is None else self._derived(messages), messages)
        if self._fill(attempt, flushes=0.3):
            self._make_prepared(attempt)
        elif messages is not None:
            self._release(messages)

    def _plain(self) -> None:
        """Produce outside of a transaction, with a sequence."""
        topic = self._chance.choice(("orders", "audit"))
        partition = self._chance.randrange(self.topics[topic])
        values = self._client.world.values(self._chance.randint(1, 3))
        self._send(Batch(topic, partition, values, self._sequence(topic, partition)))

    def _send(self, batch: Batch) -> None:
        """Repeated until there is an answer."""
        assert batch.partition is not None, "sequences are of partitions"
        rows = self._rows(batch)
        for _ in range(_TRIES):
            try:
                self._client.call(
                    "produce",
                    lambda: self._producer.produce(batch.topic, rows, batch.partition, sequence=batch.sequence),
                    partial(reported_produce, self._client),
                    txn=None,
                    topic=batch.topic,
                    partition=batch.partition,
                    values=batch.values,
                    sequence=batch.sequence,
                    **self._identity,
                )
            except (RetriableError, StoreError, CoordinatorFenced):
                continue  # of a fenced coordinator's call nothing is in the log: again, with another number
            self._goes_on(batch)
            return
        raise MustNotGoOn(f"the outcome of {batch} is unknown")

    def _aborted(self) -> None:
        """A transaction that nobody ever commits."""
        attempt = self._begin(self._draw(0.3))
        if self._fill(attempt, flushes=0.6):
            self._abort(attempt)

    def _expired(self) -> None:
        """A transaction that its owner forgets until it is too late."""
        attempt = self._begin(self._draw(0.3), timeout_ms=150)
        if self._fill(attempt, flushes=0.7):
            time.sleep(0.2)
            self._commit(attempt)

    def _checkpoint(self) -> None:
        try:
            self._ns.checkpoint()
        except (RetriableError, StoreError) as error:
            self._note("checkpoint", error=repr(error))

    # --- parts of a step --------------------------------------------------------------------------------------------

    def _draw(self, sequenced: float = 0.0) -> list[Batch]:
        """Something for two or three topics."""
        batches: list[Batch] = []
        for topic in self._chance.sample(sorted(self.topics), self._chance.randint(2, 3)):
            values = self._client.world.values(self._chance.randint(1, 3))
            if topic == "audit" and self._chance.random() < sequenced:
                batches.append(Batch(topic, 0, values, self._sequence(topic, 0)))
            else:
                split = self._chance.randint(0, len(values))
                place = self._partition(topic)
                batches += [Batch(topic, place, part) for part in (values[:split], values[split:]) if part]
        return batches

    def _derived(self, messages: Messages) -> list[Batch]:
        """What comes of messages."""
        values = self._client.world.values
        place = self._partition("derived")
        return [Batch("derived", place, values(len(messages))), Batch("audit", 0, values(1))]

    def _begin(
        self,
        batches: list[Batch],
        messages: Messages | None = None,
        *,
        named: bool = True,
        timeout_ms: int | None = None,
    ) -> Attempt:
        identity = self._identity if named else {}
        begin: Callable[..., txnlog.Transaction] = self._producer.begin if named else self._ns.begin
        txn = persist(lambda: begin(timeout_ms=timeout_ms))
        self._client.call("begin", lambda: None, txn=str(txn.id), **identity)
        return Attempt(txn, batches, identity, messages)

    def _fill(self, attempt: Attempt, *, flushes: float) -> bool:
        """Produce and acknowledge. False where the transaction ended meanwhile."""
        try:
            for batch in attempt.batches:
                self._produce(attempt, batch)
                if self._chance.random() < flushes:
                    self._flush(attempt)
            if attempt.messages is not None:
                assert self._consumer is not None, "only consumers have messages"
                self._consumer.acknowledge(attempt.txn, attempt.messages)
                if self._chance.random() < flushes:
                    self._flush(attempt)
        except (RetriableError, StoreError):
            self._abort(attempt)
            return False
        except AbortableError as error:
            self._refused(attempt, error)
            return False
        except FencedError as error:
            self._fenced(error)
            return False
        return True

    def _produce(self, attempt: Attempt, batch: Batch) -> None:
        """One call; in the history it is one for each partition that its rows go to."""
        rows = self._rows(batch)
        txn = str(attempt.txn.id)
        tokens = [
            self._client.journal.invoke(
                self._name,
                "produce",
                txn=txn,
                topic=batch.topic,
                partition=partition,
                values=values,
                sequence=batch.sequence,
                **attempt.identity,
            )
            for partition, values in self._places(batch, rows).items()
        ]
        try:
            attempt.txn.produce(batch.topic, rows, partition=batch.partition, sequence=batch.sequence)
        except Exception as error:
            for token in tokens:
                self._client.failed(token, "produce", error)
            raise
        for token in tokens:
            self._client.journal.ok(token)

    def _flush(self, attempt: Attempt) -> None:
        try:
            attempt.txn.flush()
        except (RetriableError, StoreError) as error:
            self._note("flush", txn=str(attempt.txn.id), error=repr(error))

    def _commit(self, attempt: Attempt) -> None:
        """Commit; where the outcome is unknown ask again, abort, or leave it to a successor."""
        for _ in range(_TRIES):
            try:
                self._ask_to_commit(attempt)
            except OutcomeUnknown:
                what = self._chance.choices(("again", "abort", "leave"), (6, 3, 1))[0]
                if what == "leave":
                    break
                if what == "abort":
                    self._abort(attempt)
                    return
            except TransactionNotFound:
                break  # of unknown outcome, and then its block was closed: the log cannot tell any more
            except (RetriableError, StoreError):
                if self._chance.random() < 0.4:
                    self._abort(attempt)
                    return
            except AbortableError as error:
                self._refused(attempt, error)
                return
            except FencedError as error:
                self._fenced(error)
                return
            else:
                self._goes_on(attempt.sequenced)
                return
        self._leave(attempt)

    def _ask_to_commit(self, attempt: Attempt) -> None:
        if attempt.committing is None:
            commit(self._client, attempt.txn)
            return
        (token, future), attempt.committing = attempt.committing, None
        try:
            result = future.result(timeout=60)
        except Exception as error:
            self._client.failed(token, "commit", error)
            raise
        self._client.journal.ok(token, **reported_commit(self._client, result))

    def _make_prepared(self, attempt: Attempt) -> None:
        """Prepare; where the outcome is unknown ask again, or take it back: nobody outside knows of it."""
        for _ in range(_TRIES):
            try:
                self._client.call("prepare", attempt.txn.prepare, txn=str(attempt.txn.id))
            except (RetriableError, StoreError):
                if self._chance.random() < 0.2:
                    self._abort(attempt)
                    return
            except TransactionNotFound:
                break
            except InvalidTransactionState as error:
                self._committed_already(attempt, error)  # the decision came before the answer
                return
            except AbortableError as error:
                self._refused(attempt, error)
                return
            except FencedError as error:
                self._fenced(error)
                return
            else:
                return
        self._leave(attempt)

    def _abort(self, attempt: Attempt) -> None:
        for _ in range(_TRIES):
            try:
                self._client.call("abort", attempt.txn.abort, txn=str(attempt.txn.id))
            except (RetriableError, StoreError):
                continue
            except InvalidTransactionState as error:
                self._committed_already(attempt, error)
                return
            except TransactionNotFound:  # its block was closed before the log saw it: it never will
                return
            else:
                return
        self._leave(attempt)

    def _leave(self, attempt: Attempt) -> None:
        """Leave the transaction to others, who ask how it ended."""
        if attempt.blocks:
            raise MustNotGoOn(f"the outcome of {attempt.txn.id} is unknown")

    def _committed_already(self, attempt: Attempt, error: InvalidTransactionState) -> None:
        """The error says that it was committed."""
        if attempt.txn.state != "COMMITTED" or attempt.txn.result is None:
            raise error
        self._goes_on(attempt.sequenced)

    def _fenced(self, error: FencedError) -> None:
        """A newer owner ends this process. A block that was closed in a long night ends one transaction."""
        if not isinstance(error, CoordinatorFenced):
            raise error

    def _refused(self, attempt: Attempt, error: AbortableError) -> None:
        causes = (error, error.__cause__)
        shared = self._role is not None and self._role.type == "shared" and attempt.messages is not None
        expected = (*_EXPECTED, FencedError, *((TransactionConflict,) if shared else ()))
        if not any(isinstance(cause, expected) for cause in causes):
            raise error
        if attempt.txn.state == "OPEN":
            self._abort(attempt)

    def _goes_on(self, batch: Batch | None) -> None:
        """Behind a batch with a sequence that is there."""
        if batch is not None and batch.partition is not None and batch.sequence is not None:
            self._next_sequence[batch.topic, batch.partition] = batch.sequence + len(batch.values)

    def _sequence(self, topic: str, partition: int) -> int:
        known = self._next_sequence.get((topic, partition))
        if known is None:
            last = persist(lambda: self._producer.last_sequence(topic, partition))
            known = self._next_sequence[topic, partition] = 0 if last is None else last + 1
        return known

    def _partition(self, topic: str) -> int | None:
        """Where rows without a sequence go."""
        return self._chance.randrange(self.topics[topic])

    def _places(self, batch: Batch, _rows: list[dict[str, Any]]) -> Mapping[int, tuple[int, ...]]:
        """The values by the partition that each goes to."""
        assert batch.partition is not None, "no topic has a key"
        return {batch.partition: batch.values}

    def _rows(self, batch: Batch) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = [{"value": value, "padding": None} for value in batch.values]
        if batch.topic != "derived" and self._chance.random() < 0.005:
            rows[0]["padding"] = self._chance.randbytes(900_000)
        return rows


def open_work(plan: Plan, worker: int, generation: int, unsettled: Container[int]) -> Iterator[Unit]:
    """What a worker's processes began, and of which no journal says how it ended.

    Those of later generations, too: one that was stopped before it started its producer comes after them.
    """
    found = journal.read_some(plan.journals, worker, lambda other: other > generation or other in unsettled)
    facts = Facts(merged([list(found)]))
    for unit in facts.units:
        ended = unit.answers or any(op.succeeded for op in (*unit.prepares, *(unit.produces if unit.plain else ())))
        if not ended and unit.produces:
            yield unit
