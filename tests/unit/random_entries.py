"""Random entries, right and wrong ones mixed, and what must hold of a state after any of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st

from tests.memory_log import SCHEMA, WRITER, Log, ranges_of
from txnlog.common import ranges
from txnlog.common.names import folded
from txnlog.errors import TxnLogError
from txnlog.fold.apply import apply, begin_entry
from txnlog.fold.state import State
from txnlog.format.actions import (
    Abort,
    Acknowledge,
    Acknowledgement,
    AlterTopic,
    AnyAction,
    Begin,
    Close,
    Commit,
    Consumer,
    DeleteRecords,
    DropSubscription,
    DropTopic,
    ForgetApp,
    Lease,
    Prepare,
    Producer,
    Release,
    Renew,
    Replace,
    Reserve,
    Seek,
    Share,
    StreamBatch,
    Subscription,
    Topic,
    Vacuum,
)


class Dice:
    """Numbers for one entry, drawn beforehand so that examples shrink well."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self._numbers = list(numbers)
        self._next = 0

    def __call__(self, sides: int) -> int:
        value = self._numbers[self._next % len(self._numbers)] + self._next // len(self._numbers)
        self._next += 1
        return value % sides


entries = st.lists(
    st.lists(
        st.tuples(
            st.sampled_from(["work"] * 6 + ["end"] * 4 + ["read"] * 4 + ["world"] * 3 + ["care"] * 2),
            st.binary(min_size=6, max_size=6),
        ),
        min_size=1,
        max_size=4,
    ),
    max_size=30,
)
"""Each entry is a list of steps: what is roughly done, and the dice for it."""


class Maker:
    """Makes actions that have a fair chance of being accepted, and a fair one of being wrong."""

    def __init__(self, log: Log) -> None:
        self.log = log

    def actions(self, kind: str, dice: Dice) -> list[AnyAction]:
        """The actions of one step."""
        choices: dict[str, list[Callable[[Dice], list[AnyAction]]]] = {
            "work": [self._begin, self._pending, self._produce, self._produce, self._acknowledge],
            "end": [self._commit, self._acknowledge, self._abort, self._prepare, self._commit, self._pending],
            "read": [self._acknowledge, self._consumer, self._lease, self._release, self._seek],
            "world": [self._topic, self._subscription, self._producer, self._topic, self._drop],
            "care": [self._block, self._replace, self._delete, self._other],
        }
        return choices[kind][dice(len(choices[kind]))](dice)

    # --- picking ----------------------------------------------------------------------------------------------------

    def _number(self) -> int:
        return self.log.number()

    def _pick(self, items: Any, dice: Dice, otherwise: int = 3) -> int:
        known = sorted(items)
        return known[dice(len(known))] if known and dice(24) else otherwise

    def _txn(self, dice: Dice) -> int:
        state = self.log.state
        return self._pick(state.transactions if dice(8) else state.outcomes, dice, 900)

    def _topic_id(self, dice: Dice) -> int:
        live = [topic.id for topic in self.log.state.topics.values() if topic.dropped_version is None]
        return self._pick(live if dice(12) else self.log.state.topics, dice)

    def _owner(self, dice: Dice) -> dict[str, Any]:
        owner: dict[str, Any] = {}
        if dice(2) and self.log.state.producers:
            name = sorted(self.log.state.producers)[dice(len(self.log.state.producers))]
            epoch = self.log.state.producers[name].epoch
            owner |= {"producer": name, "epoch": epoch if dice(8) else epoch - 1}
        if not dice(4):
            owner |= {"app_id": f"app{dice(2)}", "app_version": dice(5)}
        return owner

    def _sequence(self, producer: str | None, topic: int, partition: int, dice: Dice) -> int | None:
        if producer is None or not dice(3):
            return None
        known = self.log.state.sequences.get((producer, topic, partition))
        return (0 if known is None else known.last + 1) + (0 if dice(6) else dice(3))

    def _place(self, dice: Dice, *, shared: bool) -> tuple[int, int, int, int]:
        """A subscription, a partition, an offset that is probably not taken, and the partition's end."""
        state = self.log.state
        records = [item for item in state.subscriptions.values() if not shared or item.type == "shared" or not dice(8)]
        filled = [item.id for item in records if any(state.ends.get((item.topic, p)) for p in range(2)) or not dice(8)]
        subscription = self._pick(filled, dice)
        record = state.subscriptions.get(subscription)
        if record is None:
            return subscription, 0, 0, 1
        partition = dice(2) if state.ends.get((record.topic, 1)) else 0
        end = state.ends.get((record.topic, partition), 0)
        cursor = state.cursors[subscription, partition]
        left = max(1, end - cursor.position)
        return subscription, partition, cursor.position + dice(min(left, 6)), max(end, 1)

    def _acknowledgement(self, dice: Dice) -> Acknowledgement:
        subscription, partition, start, end = self._place(dice, shared=False)
        record = self.log.state.subscriptions.get(subscription)
        epoch = 0 if record is None else record.epoch if dice(8) else record.epoch - 1
        if dice(2) or (record is not None and record.type == "shared" and dice(8)):
            spans = ranges.normalize(
                [(start, min(end, start + 1 + dice(3))), (start + 3, min(end, start + 3 + dice(2)))]
            )
            return Acknowledgement(subscription, max(epoch, 0), ranges_of({partition: spans}))
        expected = () if dice(3) else ((partition, max(0, start - dice(3))),)
        return Acknowledgement(
            subscription, max(epoch, 0), cumulative=((partition, start + dice(2)),), expected=expected
        )

    # --- steps ------------------------------------------------------------------------------------------------------

    def _begin(self, dice: Dice) -> list[AnyAction]:
        txn = self._number()
        return [Begin(txn, (None, 1_000, 60_000)[dice(3)], **self._owner(dice)), *self._pending(dice, txn)]

    def _pending(self, dice: Dice, txn: int | None = None) -> list[AnyAction]:
        txn = self._txn(dice) if txn is None else txn
        record = self.log.state.transactions.get(txn)
        topic = self._topic_id(dice)
        rows = {dice(2): 1 + dice(3)} if dice(3) else {0: 1 + dice(2), 1: 1}
        sequences = {
            partition: sequence
            for partition in rows
            if (sequence := self._sequence(None if record is None else record.producer, topic, partition, dice))
            is not None
        }
        return [self.log.segment(topic, rows, txn, sequences=sequences, compacted=len(rows) == 1 and not dice(5))]

    def _produce(self, dice: Dice) -> list[AnyAction]:
        topic = self._topic_id(dice)
        owners = [self._owner(dice) for _ in range(1 + dice(2))]
        claims = [(1 + dice(3), dice(2)) for _ in owners]
        rows: dict[int, int] = {}
        for count, partition in claims:
            rows[partition] = rows.get(partition, 0) + count
        if not dice(12):
            rows[claims[0][1]] += 1
        segment = self.log.segment(topic, rows)
        result: list[AnyAction] = [segment]
        for owner, (count, partition) in zip(owners, claims, strict=True):
            sequence = self._sequence(owner.get("producer"), topic, partition, dice)
            shares = (Share(segment.segment, partition, count, sequence),)
            if dice(5):
                result.append(Commit(self._number(), shares=shares, **owner))
            else:
                result.append(Commit(self._txn(dice), shares=shares))
        return result

    def _acknowledge(self, dice: Dice) -> list[AnyAction]:
        if dice(2):
            return [Acknowledge(self._txn(dice), self._acknowledgement(dice))]
        wanted = tuple(self._acknowledgement(dice) for _ in range(1 + dice(2)))
        return [Commit(self._number(), acknowledgements=wanted)]

    def _commit(self, dice: Dice) -> list[AnyAction]:
        stream = None if dice(4) else StreamBatch("stream", f"q{dice(2)}", dice(6), "d")
        wanted = () if dice(4) else (self._acknowledgement(dice),)
        return [Commit(self._txn(dice), ("", "d")[dice(2)], (), wanted, stream=stream, **self._dropped(dice))]

    def _dropped(self, dice: Dice) -> dict[str, Any]:
        """What a commit says was dropped, mostly rightly."""
        state = self.log.state
        topics = [topic.id for topic in state.topics.values() if topic.dropped]
        gone = [n for n in range(state.head.version + 2) if n not in state.subscriptions]
        return {
            "dropped_topics": (self._pick(topics, dice),) if topics and not dice(3) else (),
            "dropped_subscriptions": (self._pick(gone, dice),) if not dice(4) else (),
        }

    def _abort(self, dice: Dice) -> list[AnyAction]:
        reasons: list[Any] = ["user", "timeout", "fenced", "admin", "failed"]
        return [Abort(self._txn(dice) if dice(6) else self._number(), reasons[dice(5)])]

    def _prepare(self, dice: Dice) -> list[AnyAction]:
        return [Prepare(self._txn(dice), "d")]

    def _consumer(self, dice: Dice) -> list[AnyAction]:
        return [Consumer(self._pick(self.log.state.subscriptions, dice), f"c{dice(2)}")]

    def _grant(self, dice: Dice) -> tuple[int, str, Any]:
        subscription, partition, start, end = self._place(dice, shared=True)
        return subscription, f"c{dice(2)}", ranges_of({partition: [(start, min(end, start + 1 + dice(4)))]})

    def _lease(self, dice: Dice) -> list[AnyAction]:
        return [Lease(*self._grant(dice))]

    def _release(self, dice: Dice) -> list[AnyAction]:
        return [Release(*self._grant(dice), redeliver=bool(dice(2)))]

    def _seek(self, dice: Dice) -> list[AnyAction]:
        return [Seek(self._pick(self.log.state.subscriptions, dice), ((dice(2), dice(8)),))]

    def _topic(self, dice: Dice) -> list[AnyAction]:
        if not dice(4):
            return [AlterTopic(self._topic_id(dice), SCHEMA, {"a": str(dice(3))})]
        return [Topic(("orders", "Orders", "audit", "bad name")[dice(4)], SCHEMA, 2)]

    def _subscription(self, dice: Dice) -> list[AnyAction]:
        kinds: list[Any] = ["exclusive", "shared", "failover", "shared"]
        return [
            Subscription(
                self._topic_id(dice), f"s{dice(3)}", kinds[dice(4)], (dice(2) * dice(3), 0), (500, 5_000)[dice(2)]
            )
        ]

    def _producer(self, dice: Dice) -> list[AnyAction]:
        if len(self.log.state.producers) == 2 and dice(4):
            return self._begin(dice)
        return [Producer(f"p{dice(2)}")]

    def _drop(self, dice: Dice) -> list[AnyAction]:
        match dice(8):
            case 0 | 1:
                return [DropSubscription(self._pick(self.log.state.subscriptions, dice))]
            case 2:
                return [DropTopic(self._topic_id(dice))]
            case _:
                return self._subscription(dice)

    def _block(self, dice: Dice) -> list[AnyAction]:
        head = self.log.state.head
        match dice(4):
            case 0:
                return [Close(self._pick(head.open_blocks, dice))]
            case 1:
                return [Renew(self._pick(head.open_blocks, dice))]
            case _:
                return [Reserve(WRITER, head.next_number, 256)]

    def _replace(self, dice: Dice) -> list[AnyAction]:
        """Merge some neighbours of one partition, usually at the right offset."""
        topic, partition = self._topic_id(dice), dice(2)
        state = self.log.state
        found = sorted(
            (record.slices[0].offset or 0, record.number, record.rows)
            for record in state.segments.values()
            if (record.topic, record.state, len(record.slices)) == (topic, "visible", 1)
            and record.slices[0].partition == partition
            and record.number not in state.removals
        )
        chosen = found[dice(3) :][: 1 + dice(3)]
        txn = self._number()
        rows = sum(item[2] for item in chosen) + (not dice(6))
        if not rows:
            return [Begin(txn), Replace(topic, txn, tuple(item[1] for item in chosen), ())]
        offset = chosen[0][0] if chosen else 0
        merged = self.log.segment(topic, {partition: rows}, txn, compacted=True)
        return [Begin(txn), merged, Replace(topic, txn, tuple(item[1] for item in chosen), (offset,))]

    def _delete(self, dice: Dice) -> list[AnyAction]:
        return [DeleteRecords(self._topic_id(dice), ((dice(2), dice(6)),))]

    def _other(self, dice: Dice) -> list[AnyAction]:
        match dice(3):
            case 0:
                return [ForgetApp(f"app{dice(2)}")]
            case 1:
                return [Vacuum(dice(20))]
            case _:
                return []


def append(log: Log, steps: Sequence[tuple[str, bytes]]) -> bool:
    """Try one entry as a writer does: what is refused falls out, the rest is appended. Says whether anything was."""
    maker = Maker(log)
    dice = [(kind, Dice(numbers)) for kind, numbers in steps]
    accepted: list[AnyAction] = []
    draft = log.state.draft()
    header = log.header(timestamp_ms=log.now_ms + 1_000)
    begin_entry(draft, header)
    for kind, numbers in dice:
        mark = draft.savepoint()
        actions = maker.actions(kind, numbers)
        try:
            for action in actions:
                apply(draft, action, header)
        except TxnLogError:
            draft.rollback(mark)
        else:
            accepted.extend(actions)
    try:
        log.entry(*accepted)
    except TxnLogError:
        return False
    return bool(accepted)


# --- invariants -------------------------------------------------------------------------------------------------------


class Watcher:
    """Looks at a state after every entry: at what must hold in it, and at what may not go back since the last look."""

    def __init__(self) -> None:
        self._before = State()
        self._epochs: dict[int, int] = {}
        self._producers: dict[str, int] = {}

    def look(self, state: State, actions: Sequence[AnyAction]) -> None:
        """Check everything, after an entry with these actions."""
        check_offsets(state)
        check_segments(state)
        check_cursors(state)
        check_numbers(state)
        check_names(state)
        check_producers(state)
        check_prepared(state)
        self._check_progress(state, actions)
        self._check_decisions(state, actions)
        self._before = state.copy()

    def _check_decisions(self, state: State, actions: Sequence[AnyAction]) -> None:
        before = self._before
        decided = {action.txn for action in actions if isinstance(action, Commit | Abort)}
        for number, transaction in before.transactions.items():
            if transaction.state == "PREPARED":
                assert number in decided or state.transactions[number] == transaction, "only a decision ends it"
        forgotten = {action.app_id for action in actions if isinstance(action, ForgetApp)}
        for app_id, app in before.apps.items():
            if app_id not in forgotten:
                assert state.apps[app_id].app_version >= app.app_version
        for app_id, app in state.apps.items():
            assert state.outcomes[app.txn].version == app.version
            old = before.apps.get(app_id)
            assert old is None or app == old or app_id in forgotten or app.app_version > old.app_version
        for identity, stream in before.streams.items():
            now = state.streams[identity]
            assert now == stream or now.batch > stream.batch
        for key, record in before.subscriptions.items():
            after = state.subscriptions.get(key)
            if after is not None and after.epoch > record.epoch and record.type != "shared":
                assert not self._held_open(before, state, key, actions), "nothing of an older epoch stays open"

    @staticmethod
    def _held_open(before: State, state: State, subscription: int, actions: Sequence[AnyAction]) -> set[int]:
        """OPEN transactions that held messages of a subscription before a consumer opened, and still do."""
        if not any(isinstance(action, Consumer) and action.subscription == subscription for action in actions):
            return set()
        return {
            number
            for number, transaction in before.transactions.items()
            if transaction.state == "OPEN"
            and any(held == subscription for held, _ in transaction.held)
            and number in state.transactions
            and state.transactions[number].state == "OPEN"
        }

    def _check_progress(self, state: State, actions: Sequence[AnyAction]) -> None:
        before = self._before
        sought = {(a.subscription, partition) for a in actions if isinstance(a, Seek) for partition, _ in a.positions}
        for place, cursor in before.cursors.items():
            now = state.cursors.get(place)
            if now is not None and place not in sought:
                assert now.position >= cursor.position, "a cursor moves back by seek alone"
        for key, record in state.subscriptions.items():
            assert record.epoch >= self._epochs.get(key, 0)
            assert record.epoch <= state.head.version
            self._epochs[key] = record.epoch
        for name, producer in state.producers.items():
            assert producer.epoch >= self._producers.get(name, 0)
            self._producers[name] = producer.epoch
        assert set(self._producers) == set(state.producers), "an epoch is never forgotten"
        for number, outcome in before.outcomes.items():
            assert state.outcomes[number] == outcome, "an outcome is for ever"
        for number, segment in before.segments.items():
            if segment.state != "pending":
                assert state.segments[number] == segment, "an ended segment does not change"
        assert all(state.ends[place] >= end for place, end in before.ends.items())
        assert all(state.starts[place] >= start for place, start in before.starts.items())
        assert all(state.sequences[key].last >= item.last for key, item in before.sequences.items())
        assert state.head.oldest_readable >= before.head.oldest_readable
        assert state.head.next_number >= before.head.next_number
        assert state.removals.items() >= before.removals.items()
        assert state.topics.keys() >= before.topics.keys()


def check_offsets(state: State) -> None:
    """Offsets are dense: given out once, shown once, and told to exactly one commit."""
    given: dict[tuple[int, int], list[tuple[int, int]]] = {}
    shown: dict[tuple[int, int], list[tuple[int, int]]] = {}
    told: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for record in state.segments.values():
        for item in record.slices:
            assert (item.offset is not None) == (record.state == "visible")
            if item.offset is not None:
                span = (item.offset, item.offset + item.rows)
                if not record.compacted:
                    given.setdefault((record.topic, item.partition), []).append(span)
                if record.number not in state.removals:
                    shown.setdefault((record.topic, item.partition), []).append(span)
    for outcome in state.outcomes.values():
        for found in outcome.offsets or ():
            told.setdefault((found.topic, found.partition), []).append((found.start, found.end))
    for place, end in state.ends.items():
        for spans in (given.pop(place, []), told.pop(place, [])):
            assert sum(stop - start for start, stop in spans) == end, "no offset twice"
            assert ranges.normalize(spans) == (((0, end),) if end else ()), "no offset missing"
        spans = shown.pop(place, [])
        start = state.starts.get(place, 0)
        assert ranges.size(ranges.normalize(spans)) == sum(stop - first for first, stop in spans)
        visible = ranges.intersect(ranges.normalize(spans), ((start, end),) if start < end else ())
        assert visible == (((start, end),) if start < end else ())
    assert not given
    assert not shown
    assert not told
    for place, start in state.starts.items():
        assert 0 <= start <= state.ends[place]


def check_segments(state: State) -> None:
    """Pending segments are those of open transactions; an ended one went the way of its transaction."""
    listed = [number for record in state.transactions.values() for number in record.segments]
    assert len(listed) == len(set(listed))
    assert set(listed) == {record.number for record in state.segments.values() if record.state == "pending"}
    for record in state.segments.values():
        assert (record.ended_version is None) == (record.state == "pending")
        if record.txn is None:
            assert record.state == "visible"
        elif record.state == "pending":
            assert record.number in state.transactions[record.txn].segments
        else:
            outcome = state.outcomes[record.txn]
            assert record.ended_version == outcome.version
            if outcome.state == "ABORTED" or record.topic in outcome.dropped_topics:
                assert record.state == "aborted"
            else:
                assert record.state == "visible"
    for number in state.removals:
        removed = state.segments.get(number)
        assert removed is None or removed.state == "visible"


def check_cursors(state: State) -> None:
    """Holds are of live transactions, nothing is taken or held twice, ranges are normal."""
    for (subscription, partition), cursor in state.cursors.items():
        record = state.subscriptions[subscription]
        assert state.topics[record.topic].dropped_version is None
        assert 0 <= cursor.position <= state.ends.get((record.topic, partition), 0)
        assert ranges.is_normal(cursor.acknowledged)
        assert not cursor.acknowledged or cursor.acknowledged[0][0] > cursor.position
        taken = ranges.union(((0, cursor.position),) if cursor.position else (), cursor.acknowledged)
        owners = [hold.txn for hold in cursor.holds]
        if cursor.cumulative is not None:
            owners.append(cursor.cumulative.txn)
            assert record.type != "shared"
            assert cursor.cumulative.end > cursor.position
            for hold in cursor.holds:
                assert hold.txn == cursor.cumulative.txn or hold.ranges[0][0] >= cursor.cumulative.end
        for hold in cursor.holds:
            assert ranges.is_normal(hold.ranges)
            assert not ranges.overlaps(hold.ranges, taken), "what is held is not taken, and held once"
            taken = ranges.union(taken, hold.ranges)
        for txn in owners:
            assert (subscription, partition) in state.transactions[txn].held
        for lease in cursor.leases:
            assert record.type == "shared"
            assert ranges.is_normal(lease.ranges)
        counted = tuple((item.start, item.end) for item in cursor.redeliveries)
        assert list(counted) == sorted(counted)
        assert ranges.size(ranges.normalize(counted)) == ranges.size(counted), "a message has one count"
        assert all(item.count > 0 for item in cursor.redeliveries)
    for record in state.subscriptions.values():
        for partition in range(state.topics[record.topic].partitions):
            assert (record.id, partition) in state.cursors


def check_numbers(state: State) -> None:
    """A number is one thing, and the bitmaps of the open blocks know exactly those that were used."""
    transactions, ended = set(state.transactions), set(state.outcomes)
    segments = set(state.segments)
    assert not transactions & ended
    assert not (transactions | ended) & segments
    used = transactions | ended | segments
    assert all(number < state.head.next_number for number in used)
    assert state.head.open_blocks == tuple(sorted(state.blocks))
    in_blocks: set[int] = set()
    for block in state.blocks.values():
        in_blocks |= set(range(block.first, block.first + block.count))
    adopted = state.head.adoptions[-1][0] if state.head.adoptions else 0  # an adoption closes every block
    assert {number for number in transactions if number >= adopted} <= in_blocks, "a block with an open one is open"
    marked = {chunk * 256 + bit for chunk, bits in state.used.items() for bit in range(256) if bits >> bit & 1}
    assert marked == used & in_blocks


def check_names(state: State) -> None:
    """Names of living topics and subscriptions are found, no folder is shared."""
    living = {topic.id: topic for topic in state.topics.values() if topic.dropped_version is None}
    assert state.topic_names == {folded(topic.name): topic.id for topic in living.values()}
    assert len({topic.folder.casefold() for topic in state.topics.values()}) == len(state.topics)
    assert state.subscription_names == {(item.topic, item.name): item.id for item in state.subscriptions.values()}
    assert all(record.topic in living for record in state.subscriptions.values())


def check_producers(state: State) -> None:
    """A producer lists its open transactions; its batches follow each other without a gap."""
    for name, producer in state.producers.items():
        assert set(producer.open) == {t.number for t in state.transactions.values() if t.producer == name}
        for number in producer.open:
            record = state.transactions[number]
            assert record.state == "PREPARED" or record.epoch == producer.epoch
    by_place: dict[Any, list[Any]] = {}
    for key, batch in sorted(state.batches.items()):
        by_place.setdefault(key[:3], []).append(batch)
    assert set(by_place) == set(state.sequences)
    for place, batches in by_place.items():
        following = batches[0].sequence
        for batch in batches:
            assert batch.sequence == following
            following += batch.rows
        assert state.sequences[place].last == following - 1
        assert state.sequences[place].recent == tuple(batches[-5:])


def check_prepared(state: State) -> None:
    """A prepared transaction can be committed, now and in any order with the others."""
    prepared = sorted(number for number, record in state.transactions.items() if record.state == "PREPARED")
    for order in (prepared, prepared[::-1]):
        draft = state.draft()
        head = state.head
        header = Log(begun=False).header(
            version=head.version + 1, timestamp_ms=head.timestamp_ms, previous=head.digest, checkpoint=None
        )
        begin_entry(draft, header)
        for number in order:
            apply(draft, Commit(number), header)
