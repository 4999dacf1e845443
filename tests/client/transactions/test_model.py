"""Two clients on one log against a plain model of dicts and lists: rows of every snapshot, offsets, cursors.

The clients know only what their own calls made them look at, so each is often behind; a third one looks after every
step. Of each call the model says whether it must succeed, must fail, or may do either because a client that is behind
cannot know yet; of each success it says what must be there afterwards, of each failure that nothing is.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from tests.client.support import SCHEMA, Place, ids
from tests.effort import tries
from txnlog.common.format_limits import EXPIRY_GRACE_MS
from txnlog.errors import ConsumerFenced, TransactionConflict, TxnLogError
from txnlog.testing import ManualClock
from txnlog.testing.scheduler import START_MS

EXAMPLES = {"memory": tries(120, 20), "local": tries(20, 6), "s3": tries(4, 1)}
"""By kind of root: where a request takes its time there are fewer."""

TOPICS = {"orders": 2, "audit": 1}
PARTITIONS = [(topic, partition) for topic, count in TOPICS.items() for partition in range(count)]
TopicPartition = tuple[str, int]
Message = tuple[str, int, int]


@dataclass
class Begun:
    """A transaction: the real one, and all that the model knows of it."""

    txn: Any
    client: int
    timeout_ms: int
    producer: str | None = None
    epoch: int = 0
    rows: dict[TopicPartition, list[int]] = field(default_factory=dict)
    taken: dict[Message, int] = field(default_factory=dict)  # with the epoch of the consumer
    logged: set[Message] = field(default_factory=set)
    new_work: bool = False
    in_log: bool = False
    aborted: bool = False
    poisoned: bool = False
    closed: bool = False
    committed: bool = False
    finished: bool = False  # an empty one that was committed: the log knows nothing of it
    deadline_ms: int | None = None

    @property
    def empty(self) -> bool:
        return not self.rows and not self.taken

    def end(self) -> None:
        """The log, or its owner, ended it without effect."""
        self.aborted, self.in_log = True, False
        self.logged.clear()


class TwoClients(RuleBasedStateMachine):
    """Anything two clients may do, in any order; the model says what must come of it."""

    transactions: Bundle[Begun] = Bundle("transactions")

    @staticmethod
    def fresh_place() -> Place:
        """An empty root, of the kind that is tested."""
        raise NotImplementedError

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock(START_MS)
        self.place = self.fresh_place()
        self.numbers = itertools.count()
        self.epoch_counter = itertools.count(1)
        self.begun: list[Begun] = []
        self.rows: dict[TopicPartition, list[int]] = {at: [] for at in PARTITIONS}
        self.history: dict[int, dict[TopicPartition, int]] = {}
        self.metadata: dict[Message, tuple[Any, ...]] = {}
        self.taken: set[Message] = set()
        self.epochs: dict[str, int] = dict.fromkeys(TOPICS, 0)
        self.consumers: dict[str, tuple[int, Any]] = {}
        self.received: dict[str, list[Any]] = {topic: [] for topic in TOPICS}
        self.producers: dict[str, tuple[int, Any, int]] = {}
        self.clients = [self.open(), self.open()]
        for topic, count in TOPICS.items():
            self.clients[0].create_topic(topic, SCHEMA, partitions=count)
            self.clients[0].create_subscription(topic, "billing")
        self.watcher = self.open(mode="r")

    def open(self, **options: Any) -> Any:
        return self.place.open(clock=self.clock, **options)

    def teardown(self) -> None:
        self.place.close()

    # --- what the model says ----------------------------------------------------------------------------------------

    def held(self, mine: Begun | None = None) -> set[Message]:
        """What other transactions hold in the log."""
        return set().union(*(item.logged for item in self.begun if item is not mine))

    def held_by_client(self, client: int, *, surely: bool, mine: Begun | None = None) -> set[Message]:
        """What a client's transactions hold, logged or not; surely, or perhaps as far as the client may know."""
        found: set[Message] = set()
        for item in self.begun:
            perhaps = item is not mine and item.client == client and not item.committed and not item.closed
            if perhaps and not (surely and self.over(item)):
                found |= set(item.taken)
        return found

    def over(self, begun: Begun) -> bool:
        """Whether it can neither commit nor be added to, whoever knows of it."""
        return (
            begun.aborted
            or begun.poisoned
            or begun.closed
            or begun.committed
            or begun.finished
            or (begun.producer is not None and self.producers[begun.producer][2] != begun.epoch)
            or (begun.deadline_ms is not None and begun.deadline_ms <= self.clock.now_ms())
        )

    def surely_over(self, begun: Begun) -> bool:
        """Whether even a client that is behind must know."""
        expired = begun.deadline_ms is not None and begun.deadline_ms <= self.clock.now_ms()
        return begun.poisoned or begun.closed or begun.committed or begun.finished or expired

    def conflict(self, begun: Begun) -> bool:
        """Whether the log refuses what the transaction acknowledged and has not logged."""
        fresh = {message: epoch for message, epoch in begun.taken.items() if message not in begun.logged}
        return bool(fresh.keys() & (self.taken | self.held(begun))) or any(
            self.epochs[topic] != epoch for (topic, _, _), epoch in fresh.items()
        )

    def visible(self, wanted: dict[TopicPartition, list[int]]) -> dict[TopicPartition, range]:
        """Rows become visible; the offsets they must get."""
        offsets = {}
        for at, numbers in wanted.items():
            start = len(self.rows[at])
            self.rows[at].extend(numbers)
            offsets[at] = range(start, start + len(numbers))
        return offsets

    def produce_plainly(self, client: int, at: TopicPartition, count: int) -> None:
        numbers = [next(self.numbers) for _ in range(count)]
        result = self.clients[client].produce(at[0], _rows(numbers), partition=at[1])
        assert dict(result.offsets) == self.visible({at: numbers})

    def refused(self, call: Callable[[], Any]) -> TxnLogError | None:
        try:
            call()
        except TxnLogError as error:
            return error
        return None

    # --- producing --------------------------------------------------------------------------------------------------

    @rule(client=st.integers(0, 1), at=st.sampled_from(PARTITIONS), count=st.integers(1, 4))
    def produce(self, client: int, at: TopicPartition, count: int) -> None:
        self.produce_plainly(client, at, count)

    @rule(client=st.integers(0, 1), name=st.sampled_from(["a", "b"]))
    def start_producer(self, client: int, name: str) -> None:
        self.producers[name] = (client, self.clients[client].producer(name), next(self.epoch_counter))
        for item in self.begun:
            if item.producer == name and item.in_log:
                item.end()

    @rule(target=transactions, client=st.integers(0, 1), timeout_ms=st.sampled_from([60_000, 2_000]))
    def begin(self, client: int, timeout_ms: int) -> Begun:
        self.begun.append(Begun(self.clients[client].begin(timeout_ms=timeout_ms), client, timeout_ms))
        return self.begun[-1]

    @precondition(lambda self: self.producers)
    @rule(target=transactions, data=st.data())
    def begin_named(self, data: st.DataObject) -> Begun:
        name = data.draw(st.sampled_from(sorted(self.producers)))
        client, producer, epoch = self.producers[name]
        self.begun.append(Begun(producer.begin(), client, 60_000, name, epoch))
        return self.begun[-1]

    @rule(begun=transactions, at=st.sampled_from(PARTITIONS), count=st.integers(1, 3))
    def produce_in(self, begun: Begun, at: TopicPartition, count: int) -> None:
        numbers = [next(self.numbers) for _ in range(count)]
        error = self.refused(lambda: begun.txn.produce(at[0], _rows(numbers), partition=at[1]))
        if error is not None:
            assert self.over(begun), error
            self.note_deadline(begun)
            return
        assert not self.surely_over(begun)
        begun.rows.setdefault(at, []).extend(numbers)
        self.worked(begun)

    def worked(self, begun: Begun) -> None:
        begun.new_work = True
        if begun.deadline_ms is None:
            begun.deadline_ms = self.clock.now_ms() + begun.timeout_ms

    def note_deadline(self, begun: Begun) -> None:
        """An owner that finds its transaction past the deadline, or fenced, ends it in the log."""
        if not begun.committed and not begun.closed and not begun.poisoned:
            begun.end()

    @rule(begun=transactions)
    def flush(self, begun: Begun) -> None:
        over, conflict = self.over(begun), self.conflict(begun)
        error = self.refused(begun.txn.flush)
        if error is None:
            if begun.new_work:
                assert not over
                assert not conflict
                begun.in_log, begun.new_work, begun.logged = True, False, set(begun.taken)
            return
        assert over or conflict, error
        if over:
            self.note_deadline(begun)
        else:
            begun.poisoned = True

    @rule(begun=transactions, asynchronous=st.booleans())
    def commit(self, begun: Begun, asynchronous: bool) -> None:
        over, conflict, before = self.over(begun), self.conflict(begun), begun.txn.result
        results: list[Any] = []

        def call() -> None:
            results.append(begun.txn.commit_async().result(30) if asynchronous else begun.txn.commit())

        error = self.refused(call)
        if begun.committed:
            assert error is None
            assert results == [before]
        elif begun.empty and not begun.in_log:
            assert error is None or over
            begun.finished = begun.finished or error is None
        elif error is not None:
            assert over or conflict, error
            if not begun.closed:
                begun.end()
        else:
            assert not over
            assert not conflict
            begun.committed = True
            assert dict(results[0].offsets) == self.visible(begun.rows)
            self.taken |= begun.taken.keys()
            begun.logged.clear()

    @rule(begun=transactions)
    def abort(self, begun: Begun) -> None:
        error = self.refused(begun.txn.abort)
        if error is not None:
            assert begun.committed or begun.closed or begun.finished, error
        else:
            assert not begun.committed
            begun.end()

    @rule(begun=transactions, client=st.integers(0, 1))
    def abort_from_outside(self, begun: Begun, client: int) -> None:
        state = self.clients[client].abort(begun.txn.id).state
        assert state == ("COMMITTED" if begun.committed else "ABORTED")
        if not begun.committed:
            begun.end()

    # --- consuming --------------------------------------------------------------------------------------------------

    @rule(client=st.integers(0, 1), topic=st.sampled_from(sorted(TOPICS)))
    def open_consumer(self, client: int, topic: str) -> None:
        self.consumers[topic] = (client, self.clients[client].consumer(topic, "billing"))
        self.epochs[topic] = next(self.epoch_counter)
        self.received[topic] = []
        for item in self.begun:
            if any(message[0] == topic for message in item.logged):
                item.end()

    @precondition(lambda self: self.consumers)
    @rule(data=st.data(), most=st.integers(1, 5))
    def receive(self, data: st.DataObject, most: int) -> None:
        topic = data.draw(st.sampled_from(sorted(self.consumers)))
        client, consumer = self.consumers[topic]
        messages = consumer.receive(most, timeout_ms=0)
        assert len(messages) <= most
        for number, (_, partition, offset) in zip(ids(messages.table), messages.positions, strict=True):
            assert self.rows[topic, partition][offset] == number
            assert (topic, partition, offset) not in self.taken | self.held()
            assert (topic, partition, offset) not in self.held_by_client(client, surely=True)
        if len(messages):
            self.received[topic].append(messages)

    def draw_messages(self, data: st.DataObject) -> tuple[str, Any, set[Message]]:
        topic = data.draw(st.sampled_from(sorted(topic for topic, found in self.received.items() if found)))
        messages = data.draw(st.sampled_from(self.received[topic]))
        part = messages if data.draw(st.booleans()) else messages[[0]]
        return topic, part, {(topic, partition, offset) for _, partition, offset in part.positions}

    @precondition(lambda self: any(self.received.values()))
    @rule(data=st.data(), begun=transactions)
    def acknowledge(self, data: st.DataObject, begun: Begun) -> None:
        topic, part, wanted = self.draw_messages(data)
        error = self.refused(lambda: begun.txn.acknowledge(part))
        mine = set(begun.taken)
        if error is None:
            assert not self.surely_over(begun)
            assert not wanted & (mine | self.held_by_client(begun.client, surely=True, mine=begun))
            begun.taken |= dict.fromkeys(wanted, self.epochs[topic])
            self.worked(begun)
        elif self.over(begun):
            self.note_deadline(begun)
        else:
            against = self.taken | self.held(begun) | mine | self.held_by_client(begun.client, surely=False, mine=begun)
            assert isinstance(error, TransactionConflict | ConsumerFenced), error
            assert wanted & against, error
            begun.poisoned = True

    @precondition(lambda self: any(self.received.values()))
    @rule(data=st.data())
    def acknowledge_plainly(self, data: st.DataObject) -> None:
        topic, part, wanted = self.draw_messages(data)
        client, consumer = self.consumers[topic]
        wanted -= self.taken
        error = self.refused(lambda: consumer.acknowledge(part))
        if error is None:
            assert not wanted & (self.held() | self.held_by_client(client, surely=True))
            self.taken |= wanted
        else:
            assert isinstance(error, TransactionConflict), error
            assert wanted & (self.held() | self.held_by_client(client, surely=False)), error

    # --- time, checkpoints, new processes ---------------------------------------------------------------------------

    @rule(milliseconds=st.sampled_from([1, 900, 2_500, 8_000]), client=st.integers(0, 1))
    def advance(self, milliseconds: int, client: int) -> None:
        now_ms = self.clock.advance(milliseconds)
        for item in self.begun:
            if item.in_log and item.deadline_ms is not None and item.deadline_ms + EXPIRY_GRACE_MS <= now_ms:
                # Whoever appends next may end it: have it done now, so that the model knows.
                assert self.clients[client].abort(item.txn.id).state == "ABORTED"
                item.end()

    @rule(client=st.integers(0, 1))
    def checkpoint(self, client: int) -> None:
        self.clients[client].checkpoint()

    @rule(client=st.integers(0, 1), topic=st.sampled_from(sorted(TOPICS)), size=st.sampled_from([3_000, 20_000]))
    def optimize(self, client: int, topic: str, size: int) -> None:
        """No row changes; and a second one finds nothing to do."""
        done = self.clients[client].optimize(topic, size)
        again = self.clients[client].optimize(topic, size)
        assert done.finished
        assert (again.entries, again.version, again.finished) == (0, None, True)

    @rule(client=st.integers(0, 1), topic=st.sampled_from(sorted(TOPICS)), column=st.integers(0, 2))
    def alter(self, client: int, topic: str, column: int) -> None:
        """A column more, if it is not there."""
        assert f"c{column}" in self.clients[client].alter_topic(topic, [(f"c{column}", pa.int64())]).schema.names

    @rule(client=st.integers(0, 1))
    def open_again(self, client: int) -> None:
        """A process ends with all it had not logged; another opens and makes definite what it left."""
        self.clients[client].close()
        self.clients[client] = self.open()
        for item in self.begun:
            if item.client == client and not item.committed:
                item.closed = True
                if item.in_log:
                    self.clients[client].abort(item.txn.id)
                    item.end()
        for topic in [name for name, (owner, _) in self.consumers.items() if owner == client]:
            self.open_consumer(client, topic)
        for name in [name for name, (owner, _, _) in self.producers.items() if owner == client]:
            self.start_producer(client, name)

    # --- what must always hold --------------------------------------------------------------------------------------

    @invariant()
    def the_log_holds_what_the_model_holds(self) -> None:
        snapshot = self.watcher.snapshot()
        self.history[snapshot.version] = {at: len(found) for at, found in self.rows.items()}
        for topic, count in TOPICS.items():
            table = snapshot.read(topic, include_metadata=True)
            found: dict[int, list[int]] = {partition: [] for partition in range(count)}
            names = ("_partition", "_offset", "id", "_txn_id", "_version", "_timestamp")
            columns = (table.column(name).to_pylist() for name in names)
            for partition, offset, number, *metadata in zip(*columns, strict=True):
                assert offset == len(found[partition]), "offsets are dense and in order"
                found[partition].append(number)
                known = self.metadata.setdefault((topic, partition, offset), tuple(metadata))
                assert known == tuple(metadata), "what is known of a row stays so"
            assert found == {partition: self.rows[topic, partition] for partition in range(count)}
            assert snapshot.end_offsets(topic) == {p: len(numbers) for p, numbers in found.items()}
            for cursor in self.watcher.subscription(topic, "billing").cursors:
                taken = {*range(cursor.cursor), *(n for s, e in cursor.acknowledged for n in range(s, e))}
                assert taken == {o for t, p, o in self.taken if (t, p) == (topic, cursor.partition)}

    @invariant()
    def the_past_stays_as_it_was(self) -> None:
        for version in {min(self.history), max(self.history), sorted(self.history)[len(self.history) // 2]}:
            snapshot = self.watcher.snapshot(version=version)
            for (topic, partition), end in self.history[version].items():
                assert snapshot.end_offsets(topic)[partition] == end
                assert ids(snapshot.read(topic, offsets={partition: (0, end)})) == self.rows[topic, partition][:end]


def _rows(numbers: list[int]) -> list[dict[str, Any]]:
    return [{"id": number, "name": str(number)} for number in numbers]


@pytest.mark.clause("P-90", "P-93", "P-98", "P-99", "P-128")
def test_two_clients_do_what_a_plain_model_says(fresh_place: Callable[[], Place]) -> None:
    run_state_machine_as_test(
        type("TwoClientsHere", (TwoClients,), {"fresh_place": staticmethod(fresh_place)}),
        settings=settings(
            max_examples=EXAMPLES[fresh_place().kind],
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate],
            derandomize=True,
            database=None,
        ),
    )
