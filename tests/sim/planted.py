"""Known bugs, planted into the client while a simulation runs: each has to be found within 2,000 schedules.

A mutant is a function that patches the client through a ``pytest.MonkeyPatch``. What the tests in ``tests/mutants`` do
by changing source is done here in place, so that thousands of schedules can run in one process.
"""

from __future__ import annotations

import contextlib
import copy
import re
import zlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from txnlog.api import transaction_admin
from txnlog.api.namespace import Namespace
from txnlog.api.snapshot import Snapshot, snapshot_at
from txnlog.api.transaction import Transaction
from txnlog.client import acknowledgement_conflicts, dead_letters, delivery
from txnlog.client.ledger import Ledger
from txnlog.client.transaction_machine import TransactionMachine
from txnlog.client.transaction_work import TransactionWork
from txnlog.data.scan_planner import ScanPlan
from txnlog.data.segment_file import decode
from txnlog.data.segment_reader import SegmentReader
from txnlog.data.segment_rows import PlannedSegment, file_schema
from txnlog.errors import Durable, InvalidTransactionState, StoreError, TransactionTimedOut, TxnLogError
from txnlog.fold import (
    acknowledgements,
    apply,
    garbage,
    leases,
    producers,
    sequences,
    subscriptions,
    transaction_ends,
    transactions,
)
from txnlog.fold import (
    number_blocks as numbers,
)
from txnlog.fold.state import HEAD, Sequences
from txnlog.format.actions import Acknowledgement, Commit, Seek, Segment
from txnlog.format.codec import decode_entry
from txnlog.format.keys import entry_key
from txnlog.log import checkpoint_codec, transaction_commands
from txnlog.log.appender import Appender
from txnlog.log.commands import Simple
from txnlog.log.follower import Follower
from txnlog.log.log_reader import Log
from txnlog.log.number_pool import _Range
from txnlog.maintenance import merging, vacuum
from txnlog.maintenance.merge_plan import Part
from txnlog.maintenance.merging import Numbers, Rows
from txnlog.store.base import Created, ObjectNotFound
from txnlog.testing.actors import ACTOR_KINDS
from txnlog.testing.client import Client
from txnlog.testing.faults import Faults
from txnlog.testing.runner import Tally, run_seeds
from txnlog.testing.simulation import Simulation
from txnlog.testing.workloads import Workload

MOST_SCHEDULES: Final = 2_000
"""Within which every mutant has to be found, from whatever seed on."""


_MISFIT: Final = re.compile(r"\b(TypeError|AttributeError|NameError|ImportError)\b")
"""In a failure: what was planted broke the client, and no bug of the planted kind was found."""


@dataclass(frozen=True)
class Mutant:
    """One planted bug.

    Attributes:
        name: what it does.
        plant: patches the client.
        kinds: the actors that it concerns; all of them, if none are named.
        faults: the faults that it concerns; drawn ones, if none are given.
        workload: what has to be there besides.
    """

    name: str
    plant: Callable[[pytest.MonkeyPatch], None]
    kinds: tuple[str, ...] = ()
    faults: Faults | None = None
    workload: Workload = "plain"

    def simulation(self, seed: int) -> Simulation:
        """The run of a seed that looks for it."""
        kinds = {kind: ACTOR_KINDS[kind] for kind in self.kinds} or None
        return Simulation(seed, kinds=kinds, faults=self.faults, workload=self.workload)


def schedules_until_found(mutant: Mutant, first: int = 0) -> int | None:
    """How many seeds, from the first one on, it takes until something is found; None if those allowed were too few."""
    tally = run_planted(mutant, range(first, first + MOST_SCHEDULES))
    return tally.schedules if tally.failures else None


def run_planted(mutant: Mutant, seeds: Iterable[int]) -> Tally:
    """Run seeds with the bug, until one fails. Raises AssertionError where that is not by the bug."""
    with pytest.MonkeyPatch.context() as patch:
        mutant.plant(patch)
        tally = run_seeds(seeds, make=mutant.simulation, each=lambda report: not report.failures)
    texts = [str(failure) for failures in tally.failures.values() for failure in failures]
    misfits = [text for text in texts if _MISFIT.search(text)]
    assert not misfits, f"{mutant.name!r} does not fit the code any more: {misfits[0]}"
    return tally


# --- appending --------------------------------------------------------------------------------------------------------


PutEntry = Callable[[Appender, Any, Callable[[], None]], Awaitable[bool]]


def _putting(find: Callable[[Appender, Any], bytes]) -> PutEntry:
    """A put of an entry: ``find`` makes the requests, and returns what it takes for the content of the slot."""

    async def put(self: Appender, entry: Any, before: Callable[[], None] = lambda: None) -> bool:
        def made() -> bytes:
            before()
            return find(self, entry)

        self._unresolved = None
        found = await self._runtime.request(made)
        if found != entry.data:
            self._apply_other(decode_entry(found, entry.version))
        return found == entry.data

    return put


def _put_entry(on_doubt: Callable[[Appender, Any], bytes]) -> PutEntry:
    """A put of an entry that asks once, and decides by itself where the outcome is unknown."""

    def find(self: Appender, entry: Any) -> bytes:
        try:
            if self._store.create(entry_key(entry.version), entry.data) is Created.CREATED:
                return bytes(entry.data)
            return self._store.get(entry_key(entry.version))
        except TxnLogError as error:
            if error.durable is Durable.NOTHING:
                raise
        return on_doubt(self, entry)

    return _putting(find)


def absent_means_failed(patch: pytest.MonkeyPatch) -> None:
    """ "Not found" after a doubt is taken for an answer."""

    def on_doubt(self: Appender, entry: Any) -> bytes:
        try:
            return self._store.get(entry_key(entry.version))
        except ObjectNotFound:
            raise StoreError("the entry was not created", durable=Durable.NOTHING) from None

    patch.setattr(Appender, "_put_entry", _put_entry(on_doubt))


def unknown_means_created(patch: pytest.MonkeyPatch) -> None:
    """A doubt is taken for success."""
    patch.setattr(Appender, "_put_entry", _put_entry(lambda _self, entry: bytes(entry.data)))


def unknown_means_failed(patch: pytest.MonkeyPatch) -> None:
    """A doubt is taken for failure: the caller is told that nothing was written."""

    def on_doubt(_self: Appender, _entry: Any) -> bytes:
        raise StoreError("the entry was not created", durable=Durable.NOTHING)

    patch.setattr(Appender, "_put_entry", _put_entry(on_doubt))


def commits_overtake(patch: pytest.MonkeyPatch) -> None:
    """Commits in the background come in the order in which they are ready, not in that of the calls."""
    patch.setattr(TransactionWork, "needs_files", property(lambda work: work.has_many_rows))


def errors_are_absence(patch: pytest.MonkeyPatch) -> None:
    """A slot that cannot be read is taken for a free one."""
    get = Log.get

    def mutated(self: Log, version: int) -> bytes | None:
        try:
            return get(self, version)
        except StoreError:
            return None

    patch.setattr(Log, "get", mutated)


def listing_is_truth(patch: pytest.MonkeyPatch) -> None:
    """The tail of the log is where a listing ends."""
    get = Log.get

    def mutated(self: Log, version: int) -> bytes | None:
        key = entry_key(version)
        listed = {item.key for item in self.store.list(key.rpartition("/")[0] + "/")}
        return get(self, version) if key in listed or version == 0 else None

    patch.setattr(Log, "get", mutated)


def missing_slot_skipped(patch: pytest.MonkeyPatch) -> None:
    """An entry that cannot be read is passed over while the log is folded."""

    def refresh(self: Follower) -> int:
        version = self.version
        while True:
            version += 1
            try:
                data = self.log.get(version)
            except StoreError:
                continue
            if data is None:
                return self.version
            entry = decode_entry(data, version)
            before = msgspec.structs.replace(
                self.state.head, version=version - 1, digest=entry.header.previous or self.state.head.digest
            )
            self.state.heads[HEAD] = before
            self.apply_entry(entry)

    patch.setattr(Follower, "refresh", refresh)


def fresh_bytes(patch: pytest.MonkeyPatch) -> None:
    """A retry of an entry is encoded anew."""

    def find(self: Appender, entry: Any) -> bytes:
        for attempt in range(9):
            data: bytes = entry.data if not attempt else entry.data.replace(b'"writer":"', b'"writer":"' + b"f", 1)
            try:
                if self._store.create(entry_key(entry.version), data) is Created.CREATED:
                    return bytes(entry.data)
                return self._store.get(entry_key(entry.version))
            except (ObjectNotFound, StoreError):
                self._runtime.sleep_ms(50)
        raise StoreError("the store does not answer", durable=Durable.MAYBE)

    patch.setattr(Appender, "_put_entry", _putting(find))


# --- owners -----------------------------------------------------------------------------------------------------------


def epoch_not_checked(patch: pytest.MonkeyPatch) -> None:
    """A producer's epoch is written down, and compared with nothing."""

    def check_producer(draft: Any, name: str, _epoch: int | None) -> Any:
        return draft.producers.get(name)

    for module in (producers, transactions, transaction_commands):
        patch.setattr(module, "check_producer", check_producer)
    patch.setattr("txnlog.client.connection.check_producer", check_producer)


def no_fence(patch: pytest.MonkeyPatch) -> None:
    """A new producer leaves its predecessor's transactions open, and whoever owns them may commit."""
    epoch_not_checked(patch)
    for module in (producers, subscriptions, transaction_ends):
        patch.setattr(module, "end_aborted", lambda *_arguments, **_options: None)


def subscription_epoch_not_checked(patch: pytest.MonkeyPatch) -> None:
    """Acknowledgements of a consumer that was fenced count."""
    patch.setattr(acknowledgements, "check_received", lambda _record, _epoch: None)
    patch.setattr(subscriptions, "_abort_holders", lambda _draft, _record, _at: None)


def timeout_then_commit(patch: pytest.MonkeyPatch) -> None:
    """The owner reports a timeout without a word to the log, and commits all the same when asked again."""

    async def mutated(self: TransactionMachine, error: TransactionTimedOut) -> TransactionTimedOut:
        self._opening.deadline_ms = None
        self._opening.timeout_ms = None
        return error

    patch.setattr(TransactionMachine, "_end_timed_out", mutated)


def sequences_not_checked(patch: pytest.MonkeyPatch) -> None:
    """A batch that was sent again is appended again."""
    patch.setattr(transaction_commands.CommitCommand, "_is_duplicate", lambda _self, _draft, _producer: False)
    patch.setattr(sequences, "_check", lambda *_arguments, **_options: None)


# --- subscriptions ----------------------------------------------------------------------------------------------------


def produce_and_acknowledge_apart(patch: pytest.MonkeyPatch) -> None:
    """A commit is two entries: what it produced, then what it acknowledged."""
    commit = Transaction.commit

    def mutated(self: Transaction) -> Any:
        work = self._machine.work
        taken = list(work.acknowledged)
        self._connection.runtime.engine.look(work.collect)
        if not taken or not (work.pieces or work.staged) or self._machine.life.logged:
            return commit(self)
        work.acknowledged = ()
        result = commit(self)
        number = self._connection.appender.take_numbers(1)[0]
        action = Commit(number, "", (), tuple(taken))
        self._connection.appender.call(Simple(lambda _draft, _at: [action], lambda _draft, _at: None, None, (number,)))
        return result

    patch.setattr(Transaction, "commit", mutated)


def acknowledged_twice(patch: pytest.MonkeyPatch) -> None:
    """What was acknowledged before, or is pending elsewhere, may be received and acknowledged again."""
    patch.setattr(acknowledgements, "_check_individual", lambda *_arguments: None)
    patch.setattr(Ledger, "claims", lambda _self: {})
    patch.setattr(Ledger, "unavailable", lambda self, consumer, **_how: dict(self.delivered(consumer)))
    patch.setattr(acknowledgement_conflicts, "check_claim", lambda *_arguments: None)


# --- reading and folding ----------------------------------------------------------------------------------------------


def stale_snapshots(patch: pytest.MonkeyPatch) -> None:
    """The newest snapshot is of what the client happens to know."""

    def stale(self: Namespace, version: int | None = None) -> Snapshot:
        return snapshot_at(self._connection, version or self._connection.follower.version)

    patch.setattr(Namespace, "snapshot", stale)


def checksum_not_verified(patch: pytest.MonkeyPatch) -> None:
    """Whatever lies where a segment should be is decoded."""

    def trusting(
        self: SegmentReader, plan: ScanPlan, segment: PlannedSegment, *_columns: object, **_how: object
    ) -> pa.Table:
        data = self._store.get(segment.key)
        schema = file_schema(self._arrow_schema(plan), segment)
        rows = pq.ParquetFile(pa.BufferReader(data)).metadata.num_rows
        return decode(data, f"crc32:{zlib.crc32(data):08x}", schema=schema, rows=rows, columns=None, key=segment.key)

    patch.setattr(SegmentReader, "decode", trusting)


def checkpoint_forgets_sequences(patch: pytest.MonkeyPatch) -> None:
    """A table is missing in every checkpoint."""
    hot = {name: decoder for name, decoder in checkpoint_codec._HOT.items() if name != "sequences"}
    patch.setattr(checkpoint_codec, "_HOT", hot)


# --- collection, numbers, sequences, decisions ------------------------------------------------------------------------


def vacuum_by_age(patch: pytest.MonkeyPatch) -> None:
    """A file that no entry names is deleted when its writer was silent for long, and the writer may still name it."""

    def announced(connection: Any, _target: int, grace_ms: int, horizon: int) -> Any:
        return vacuum._foreseen(connection, 0, connection.runtime.now_ms(), grace_ms, horizon)

    patch.setattr(vacuum, "_announced", announced)


def vacuum_takes_pending(patch: pytest.MonkeyPatch) -> None:
    """What an open or prepared transaction has in the log is taken for the rest of an aborted one."""
    unneeded_from = garbage.unneeded_from

    def mutated(record: Any, removals: Any, dropped: Any) -> int | None:
        return record.logged_version if record.state == "pending" else unneeded_from(record, removals, dropped)

    patch.setattr(garbage, "unneeded_from", mutated)


def sequences_advance_at_produce(patch: pytest.MonkeyPatch) -> None:
    """A sequence counts as used when its rows are logged, whatever becomes of their transaction."""

    def add_segment(draft: Any, action: Any, at: Any) -> None:
        transactions.add_segment(draft, action, at)
        transaction = None if action.txn is None else draft.transactions.get(action.txn)
        for item in action.slices:
            if transaction is not None and transaction.producer is not None and item.sequence is not None:
                place = (transaction.producer, action.topic, item.partition)
                known = draft.sequences.get(place)
                last = max(item.sequence + item.rows - 1, known.last if known is not None else 0)
                draft.sequences.put(place, Sequences(last, known.recent if known is not None else ()))

    handlers: dict[type[Any], Any] = dict(apply._HANDLERS)
    handlers[Segment] = add_segment
    patch.setattr(apply, "_HANDLERS", handlers)
    patch.setattr(sequences, "_check", lambda *_arguments, **_options: None)


def number_accepted_twice(patch: pytest.MonkeyPatch) -> None:
    """A number that was used is used again by the next commit, whatever is remembered of it."""
    decide = transaction_commands.CommitCommand.decide

    def decide_anew(self: transaction_commands.CommitCommand, draft: Any, at: Any, shared: Any) -> Any:
        number = self.opening.txn
        if draft.outcomes.get(number) is not None:
            draft.outcomes.remove(number)
        return decide(self, draft, at, shared)

    def use(draft: Any, number: int, at: Any) -> None:
        with contextlib.suppress(InvalidTransactionState):
            use_once(draft, number, at)

    use_once = numbers.use
    patch.setattr(numbers, "use", use)
    for module in (transactions, transaction_ends):
        patch.setattr(module, "refuse_ended", lambda _draft, _number: None)
    patch.setattr(transaction_commands.CommitCommand, "decide", decide_anew)


def checkpoint_moves_back(patch: pytest.MonkeyPatch) -> None:
    """A header names the checkpoint from which its client came, whatever the headers before it name."""
    header = Appender._header

    def mutated(self: Appender, draft: Any) -> Any:
        base = self._follower.base
        return msgspec.structs.replace(header(self, draft), checkpoint=None if base is None else base.version)

    patch.setattr(Appender, "_header", mutated)


def cursor_by_maximum(patch: pytest.MonkeyPatch) -> None:
    """A cumulative acknowledgement sets the cursor to the higher of two, wherever it is by then."""
    patch.setattr(acknowledgements, "_check_cumulative", lambda *_arguments: None)
    patch.setattr(Ledger, "claims", lambda _self: {})
    patch.setattr(Ledger, "unavailable", lambda self, consumer, **_how: dict(self.delivered(consumer)))
    patch.setattr(acknowledgement_conflicts, "check_claim", lambda *_arguments: None)


def abort_ends_prepared(patch: pytest.MonkeyPatch) -> None:
    """Whoever asks for the outcome of a prepared transaction aborts it."""
    abort = transaction_admin.abort

    def mutated(connection: Any, txn: Any, by: Any, why: Any, **_options: Any) -> Any:
        return abort(connection, txn, by, why, force=True)

    patch.setattr(transaction_admin, "abort", mutated)


def redeliveries_not_counted(patch: pytest.MonkeyPatch) -> None:
    """A lease that ended is forgotten."""
    for module in (acknowledgements, subscriptions, leases):
        patch.setattr(module, "count_redelivery", lambda cursor, _again: cursor)


def dead_letters_stay(patch: pytest.MonkeyPatch) -> None:
    """A message goes to the dead letters, and stays where it was."""
    patch.setattr(
        dead_letters, "Acknowledgement", lambda subscription, epoch, _taken: Acknowledgement(subscription, epoch)
    )


def taken_over_unheard(patch: pytest.MonkeyPatch) -> None:
    """A consumer does not look whether another one took its place before it hands messages out."""
    patch.setattr(delivery, "check_epoch", lambda _record, _epoch: None)


def given_back_is_taken(patch: pytest.MonkeyPatch) -> None:
    """A cumulative acknowledgement takes whatever lies before its messages, also what is to be handed out again."""
    patch.setattr(delivery.TopicDelivery, "check_delivered", lambda _self, _ledger, _unnamed: None)


def seek_keeps_epoch(patch: pytest.MonkeyPatch) -> None:
    """Whoever consumes a Shared subscription goes on after a seek, with what was received before it."""

    def seek(draft: Any, action: Any, at: Any) -> None:
        before = draft.subscriptions.get(action.subscription)
        subscriptions.seek(draft, action, at)
        if before.type == "shared":
            draft.subscriptions.put(action.subscription, before)

    handlers: dict[type[Any], Any] = dict(apply._HANDLERS)
    handlers[Seek] = seek
    patch.setattr(apply, "_HANDLERS", handlers)


def copied(item: _Range) -> _Range:
    """The same numbers, to be given once more."""
    found = _Range(item.first, 0)
    found._numbers = copy.copy(item._numbers)
    found.take = partial(next, found._numbers, None)
    return found


def fork_keeps_identity(patch: pytest.MonkeyPatch) -> None:
    """A client goes on with the numbers of another one, as a forked process would that did not notice."""
    open_client = Client.open

    def mutated(self: Client, mode: Any = "rw") -> Namespace:
        ns = open_client(self, mode)
        parents = [item.ns for item in self.world.clients.values() if item is not self and item.ns is not None]
        writers = [item for item in parents if item._connection.session._appender.get()]
        if mode == "rw" and writers and self.hits(0.5):
            mine, theirs = ns._connection.appender.numbers, writers[0]._connection.appender.numbers
            mine._ranges = tuple(map(copied, theirs._ranges))
        return ns

    patch.setattr(Client, "open", mutated)


def the_alarm(patch: pytest.MonkeyPatch) -> None:
    """Every topic seems to be longer than it is: found in every run, or nothing is ever found."""
    end_offsets = Snapshot.end_offsets
    patch.setattr(
        Snapshot, "end_offsets", lambda self, topic: {p: end + 1 for p, end in end_offsets(self, topic).items()}
    )


# --- merging ----------------------------------------------------------------------------------------------------------


def merged_rows_are_new(patch: pytest.MonkeyPatch) -> None:
    """Merged rows get another version than that of the commit that brought them."""
    with_metadata = merging._with_metadata

    def later(several: Sequence[Rows], schema: pa.Schema, *, has_holes: bool) -> pa.Table:
        table = with_metadata(several, schema, has_holes=has_holes)
        index = table.schema.get_field_index("_version")
        numbers = pa.array([rows.segment.number for rows in several for _ in range(rows.table.num_rows)], pa.int64())
        return table.set_column(index, table.schema.field(index), numbers)

    patch.setattr(merging, "_with_metadata", later)


def first_rows_are_merged(patch: pytest.MonkeyPatch) -> None:
    """Of a segment of several partitions each gets the first rows."""

    def first(part: Part, table: pa.Table) -> tuple[Numbers, pa.Table]:
        return np.arange(part.offset, part.end), table.slice(0, part.width)

    patch.setattr(merging, "_rows_of", first)


ALARM: Final = Mutant("the alarm", the_alarm)

MUTANTS: Final = (
    Mutant('"not found" taken for an answer', absent_means_failed),
    Mutant("a doubt taken for success", unknown_means_created),
    Mutant("a doubt taken for failure", unknown_means_failed),
    Mutant("an error taken for a free slot", errors_are_absence),
    Mutant("LIST as truth", listing_is_truth, ("writer", "reader"), Faults({"stale_list": 0.4})),
    Mutant("missing slot skipped", missing_slot_skipped),
    Mutant("a commit that puts a file is overtaken", commits_overtake, ("writer",)),
    Mutant("retried entry with fresh bytes", fresh_bytes),
    Mutant("epoch not checked", epoch_not_checked),
    Mutant("no fence", no_fence),
    Mutant("subscription epoch not checked", subscription_epoch_not_checked, ("pipeline", "writer")),
    Mutant(
        "timeout reported, then committed",
        timeout_then_commit,
        ("writer", "reader"),
        Faults({"lost": 0.4, "pause": 0.5}),
    ),
    Mutant("a repeated batch appended again", sequences_not_checked),
    Mutant("produce and acknowledge in two entries", produce_and_acknowledge_apart, ("pipeline", "writer")),
    Mutant("acknowledged twice", acknowledged_twice, ("pipeline", "writer")),
    Mutant("stale snapshots", stale_snapshots),
    Mutant("checksum not verified", checksum_not_verified, ("reader", "writer"), Faults({"damage": 0.6})),
    Mutant("a checkpoint without sequences", checkpoint_forgets_sequences),
    Mutant("vacuum by age without closing the block", vacuum_by_age, ("writer", "vacuumer")),
    Mutant("vacuum takes what is pending", vacuum_takes_pending, ("writer", "vacuumer")),
    Mutant(
        "sequences advance at produce", sequences_advance_at_produce, ("writer",), Faults({"lost": 0.2, "pause": 0.5})
    ),
    Mutant("a number accepted twice", number_accepted_twice, ("writer", "admin")),
    Mutant("checkpoint pointer moves back", checkpoint_moves_back),
    Mutant("cursor by maximum instead of compare", cursor_by_maximum, ("pipeline", "writer"), Faults({"pause": 0.3})),
    Mutant("whoever asks ends what is prepared", abort_ends_prepared, ("writer", "admin"), Faults({"lost": 0.2})),
    Mutant("redeliveries are not counted", redeliveries_not_counted, ("shared", "writer")),
    Mutant("dead letters stay where they were", dead_letters_stay, ("shared", "writer")),
    Mutant("who was taken over is not told", taken_over_unheard, ("pipeline", "writer")),
    Mutant("what was given back is taken", given_back_is_taken, ("pipeline", "writer")),
    Mutant("a seek of a Shared subscription keeps its epoch", seek_keeps_epoch, ("shared", "writer", "admin")),
    Mutant("a fork keeps its parent's identity", fork_keeps_identity, ("writer", "pipeline"), Faults({"lost": 0.2})),
    Mutant("merged rows are new", merged_rows_are_new, ("writer", "reader"), workload="maintained"),
    Mutant("the first rows of a file are merged", first_rows_are_merged, ("writer", "reader"), workload="maintained"),
    ALARM,
)
