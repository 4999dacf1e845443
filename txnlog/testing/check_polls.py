"""Consumers in real time: what they received, in which order, and what was acknowledged before and after.

Who was fenced gets nothing. The rest is one pass over the events. Of a subscription it keeps what is surely
acknowledged (a commit succeeded), and what may be (somebody tried). Of a session, the time of one epoch, it keeps what
was delivered: *surely* still with the consumer, so that a second delivery is wrong, or *possibly*, so that leaving it
out is right. To acknowledge in a transaction and to release end the first at the call; an abort and a release end the
second at the return.

Sessions of several actors, and those of Shared subscriptions, are checked for order within one call and for redelivery
after an acknowledgement only: leases end by time, which a history does not show (``check_shared`` has their counts).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from operator import itemgetter

from txnlog.common import ranges
from txnlog.common.ranges import Ranges
from txnlog.testing import operation_parts as parts
from txnlog.testing import operations as of
from txnlog.testing.anomalies import Anomaly, Finding
from txnlog.testing.facts import NEVER, Facts, Subscribed, asked, epoch_of, result_of
from txnlog.testing.history import Operation

Sets = dict[int, Ranges]
"""Offsets by partition."""

_Event = tuple[int, Callable[[Operation], Iterator[Finding]], Operation]


def check(facts: Facts) -> Iterator[Finding]:
    """Findings of everything that consumers did and saw."""
    yield from _check_fenced(facts)
    yield from _Pass(facts).check()


def _check_fenced(facts: Facts) -> Iterator[Finding]:
    """A consumer looks at the log before it delivers anything: who was fenced before the call gets nothing."""
    for op in facts.ops("receive"):
        epoch = epoch_of(op)
        if not op.succeeded or epoch is None or not result_of(op, of.Received).messages:
            continue
        item = asked(op, of.Receive)
        for newer, other in facts.opened_consumers.get(f"{item.topic}:{item.subscription}", ()):
            if newer > epoch and (other.completed or NEVER) < op.invoked:
                text = (
                    f"{item.topic}:{item.subscription} gave messages to epoch {epoch}, after epoch {newer} was reported"
                )
                yield Finding(Anomaly.ZOMBIE_POLL, text, (other, op))
                break


def reach(op: Operation) -> Sets:
    """What an acknowledgement takes; a cumulative one everything below its end."""
    item = asked(op, of.Acknowledge)
    found: Sets = {}
    for part in item.ranges:
        add(found, part.partition, ((0 if item.cumulative else part.start, part.end),))
    return found


def shown_cursors(cursors: tuple[parts.CursorAt, ...]) -> dict[Subscribed, Sets]:
    """What cursors show as acknowledged, by subscription."""
    found: dict[Subscribed, Sets] = {}
    for at in cursors:
        taken = ranges.normalize(((0, at.cursor), *at.acknowledged))
        found.setdefault((at.topic, at.subscription), {})[at.partition] = taken
    return found


def add(sets: Sets, partition: int, found: Ranges) -> None:
    """Union in place."""
    sets[partition] = ranges.union(sets.get(partition, ()), ranges.normalize(found))


def remove(sets: Sets, partition: int, found: Ranges) -> None:
    """Difference in place."""
    if partition in sets:
        sets[partition] = ranges.subtract(sets[partition], found)


@dataclass(slots=True)
class _Session:
    """The time of one epoch of a subscription."""

    surely: Sets = field(default_factory=dict)
    possibly: Sets = field(default_factory=dict)
    received: Sets = field(default_factory=dict)
    skipped: Sets = field(default_factory=dict)
    actors: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Subscription:
    """What is known of a subscription at an event."""

    start: dict[int, int]
    taken: Sets = field(default_factory=dict)
    """Surely: a commit succeeded, or a cursor showed it."""
    tried: Sets = field(default_factory=dict)
    """By acknowledgements that may have had an effect, or still may."""
    trying: dict[int, Operation] = field(default_factory=dict)
    """Acknowledgements that are known to end without effect, until then."""
    lapsed: list[tuple[int, Operation]] = field(default_factory=list)
    """Those of before, with the event at which that was reported: whoever received meanwhile may have met them."""
    sessions: dict[int | None, _Session] = field(default_factory=dict)
    seeking: int = 0
    sought: int = -1
    """The last event of a seek; -1: nobody ever sought."""

    def session(self, epoch: int | None) -> _Session:
        return self.sessions.setdefault(epoch, _Session())


class _Pass:
    """One pass over the events of a history."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._subscriptions: dict[Subscribed, _Subscription] = {}
        self._known: dict[int, Sets] = {}
        """What was acknowledged when a call was made, by the number of the operation."""
        self._released: dict[int, list[Operation]] = {}
        """Acknowledgements that end without effect, by the number of the operation that says so."""
        self._lapsing: set[int] = set()
        self._everything: dict[Subscribed, Sets] = {}
        self._several: set[tuple[str, str, int | None]] = set()
        self._shared: set[Subscribed] = set()
        self._starts: dict[Subscribed, dict[int, int]] = {}

    def check(self) -> Iterator[Finding]:
        facts = self._facts
        if not (facts.ops("receive") or facts.ops("acknowledge") or facts.ops("cursors")):
            return
        self._prepare()
        for _, step, op in self._events():
            yield from step(op)

    def _prepare(self) -> None:
        actors: dict[tuple[str, str, int | None], str] = {}
        for op in self._facts.ops("receive"):
            item = asked(op, of.Receive)
            key = (item.topic, item.subscription, epoch_of(op))
            if actors.setdefault(key, op.actor) != op.actor:
                self._several.add(key)
        for op in self._facts.ops("create_subscription"):
            made = asked(op, of.CreateSubscription)
            if op.possible:
                self._starts[made.topic, made.subscription] = dict(made.positions)
            if made.shared:
                self._shared.add((made.topic, made.subscription))
        for unit in self._facts.transactions.values():
            aborted = [answer.operation for answer in unit.answers_of("ABORTED")] if unit.acknowledges else []
            if unit.ended is not None:
                # What a flush logged stays claimed after a deadline, until somebody ends it there too.
                aborted = [ended for ended in aborted if ended.error != "TransactionTimedOut"]
            if not aborted or self._facts.fate(unit) != "not committed":
                continue
            for op in unit.acknowledges:
                # Its own client delivers again at once; one that has not heard of it may still hold the messages.
                first = next((ended for ended in aborted if ended.actor == op.actor), None)
                if first is not None:
                    self._released.setdefault(first.number, []).append(op)
                    self._lapsing.add(op.number)

    def _events(self) -> list[_Event]:
        calls: Mapping[str, Callable[[Operation], Iterator[Finding]]] = {
            "receive": self._remember,
            "cursors": self._remember,
            "final": self._remember_all,
            "acknowledge": self._acknowledge,
            "negative_acknowledge": self._release_asked,
            "seek": self._seek,
        }
        returns: Mapping[str, Callable[[Operation], Iterator[Finding]]] = {
            "receive": self._received,
            "cursors": self._cursors,
            "final": self._final,
            "acknowledge": self._acknowledged,
            "negative_acknowledge": self._release_done,
            "seek": self._sought,
            "commit": self._ended,
            "complete": self._ended,
            "abort": self._ended,
            "outcome": self._ended,
        }
        events: list[_Event] = []
        for op in self._facts.operations:
            if (step := calls.get(op.kind)) is not None:
                events.append((op.invoked, step, op))
            if op.completed is not None and (step := returns.get(op.kind)) is not None:
                events.append((op.completed, step, op))
        events.sort(key=itemgetter(0))
        return events

    def _of(self, topic: str, subscription: str) -> _Subscription:
        key = (topic, subscription)
        known = self._subscriptions.get(key)
        if known is None:
            known = self._subscriptions[key] = _Subscription(self._starts.get(key, {}))
        return known

    # --- receiving --------------------------------------------------------------------------------------------------

    def _remember(self, op: Operation) -> Iterator[Finding]:
        item = op.arguments
        assert isinstance(item, of.Receive | of.Cursors)
        self._known[op.number] = dict(self._of(item.topic, item.subscription).taken)
        yield from ()

    def _received(self, op: Operation) -> Iterator[Finding]:
        if not op.succeeded:
            return
        item = asked(op, of.Receive)
        offsets: dict[int, list[int]] = {}
        for message in result_of(op, of.Received).messages:
            offsets.setdefault(message.partition, []).append(message.offset)
        for partition, found in offsets.items():
            if any(later <= earlier for earlier, later in pairwise(found)):
                text = f"{_name(item)}/{partition}: offsets {found[0]} to {found[-1]} came in another order"
                yield Finding(Anomaly.NON_MONOTONIC_POLL, text, (op,))
            yield from self._poll(op, item, partition, ranges.from_values(found))

    def _poll(self, op: Operation, item: of.Receive, partition: int, got: Ranges) -> Iterator[Finding]:
        subscription = self._of(item.topic, item.subscription)
        epoch = epoch_of(op)
        session = subscription.session(epoch)
        place = f"{_name(item)}/{partition}"
        taken = self._known[op.number].get(partition, ()) if subscription.sought < op.invoked else ()
        again = ranges.intersect(got, taken)
        if again:
            yield Finding(Anomaly.REDELIVERY, f"{place}: {again} came after it was acknowledged", (op,))
        alone = (item.topic, item.subscription, epoch) not in self._several
        if alone and (item.topic, item.subscription) not in self._shared:
            twice = ranges.subtract(ranges.intersect(got, session.surely.get(partition, ())), again)
            if twice:
                yield Finding(Anomaly.DUPLICATE_POLL, f"{place}: {twice} came again, not released", (op,))
            late = ranges.intersect(got, session.skipped.get(partition, ()))
            if late:
                yield Finding(Anomaly.NON_MONOTONIC_POLL, f"{place}: {late} came after later ones", (op,))
            skipped = self._skipped(op, subscription, session, partition, got)
            if skipped:
                yield Finding(Anomaly.SKIPPED_POLL, f"{place}: {got[-1][1] - 1} came, and {skipped} was free", (op,))
                add(session.skipped, partition, skipped)
                add(session.possibly, partition, skipped)
        session.actors.add(op.actor)
        add(session.surely, partition, got)
        add(session.possibly, partition, got)
        add(session.received, partition, got)

    def _skipped(
        self, op: Operation, subscription: _Subscription, session: _Session, partition: int, got: Ranges
    ) -> Ranges:
        """What lies before the last message of a delivery and was free, but did not come."""
        low = subscription.start.get(partition, 0)
        if subscription.sought >= 0 or subscription.seeking:
            # Where a seek of unknown outcome left the cursor, nobody knows: count from the first message.
            known = session.possibly.get(partition, ())
            low = min(got[0][0], known[0][0]) if known else got[0][0]
        left = ranges.subtract(((low, got[-1][1]),), got) if low < got[-1][1] else ()
        left = ranges.subtract(left, session.possibly.get(partition, ())) if left else left
        left = ranges.subtract(left, subscription.tried.get(partition, ())) if left else left
        gone = self._facts.may_be_deleted((asked(op, of.Receive).topic, partition), op.completed) if left else 0
        left = ranges.subtract(left, ((0, gone),)) if gone else left
        left = ranges.subtract(left, self._gone(asked(op, of.Receive), partition, op)) if left else left
        lapsed = [other for reported_at, other in subscription.lapsed if reported_at > op.invoked]
        for other in (*subscription.trying.values(), *lapsed):
            if not left:
                break
            left = ranges.subtract(left, reach(other).get(partition, ()))
        return left

    def _gone(self, item: of.Receive | of.Acknowledge, partition: int, op: Operation) -> Ranges:
        """Offsets that may have had no message any more when a call returned, or one that had expired."""
        holes = self._facts.holes((item.topic, partition), op.completed)
        expired = self._facts.expired_by((item.topic, item.subscription), partition, op.completed)
        return ranges.union(holes, expired) if expired else holes

    # --- acknowledging ----------------------------------------------------------------------------------------------

    def _acknowledge(self, op: Operation) -> Iterator[Finding]:
        item = asked(op, of.Acknowledge)
        subscription = self._of(item.topic, item.subscription)
        session = subscription.session(item.epoch)
        for partition, found in reach(op).items():
            if op.succeeded and not subscription.seeking:
                excused = session.received.get(partition, ())
                if item.cumulative:
                    # What it names may have been released since; what it takes besides must not (P-215).
                    named = ((part.start, part.end) for part in item.ranges if part.partition == partition)
                    excused = ranges.intersect(excused, ranges.normalize(named))
                    excused = ranges.union(excused, session.possibly.get(partition, ()))
                    below = subscription.start.get(partition, 0) if subscription.sought < 0 else NEVER
                    below = max(below, self._facts.may_be_deleted((item.topic, partition), op.completed))
                    excused = ranges.union(excused, ((0, min(below, found[-1][1])),) if below else ())
                    excused = ranges.union(excused, subscription.tried.get(partition, ()))
                    for other in subscription.trying.values():
                        excused = ranges.union(excused, reach(other).get(partition, ()))
                unread = ranges.subtract(found, excused)
                unread = ranges.subtract(unread, self._gone(item, partition, op)) if unread else unread
                if unread:
                    text = (
                        f"{_name(item)}/{partition}: {unread} was not received with epoch {item.epoch}, or was released"
                    )
                    yield Finding(Anomaly.ACKNOWLEDGE_WITHOUT_READ, text, (op,))
            remove(session.surely, partition, found)
        if op.number in self._lapsing or not op.possible:
            subscription.trying[op.number] = op
        else:
            for partition, found in reach(op).items():
                add(subscription.tried, partition, found)

    def _acknowledged(self, op: Operation) -> Iterator[Finding]:
        item = asked(op, of.Acknowledge)
        if not op.possible:
            self._of(item.topic, item.subscription).trying.pop(op.number, None)
        elif op.succeeded and item.txn is None:
            self._take(op)
        yield from ()

    def _take(self, op: Operation) -> None:
        """From here on it is surely acknowledged, unless somebody sought since, or does."""
        item = asked(op, of.Acknowledge)
        subscription = self._of(item.topic, item.subscription)
        if not subscription.seeking and subscription.sought < op.invoked:
            for partition, found in reach(op).items():
                add(subscription.taken, partition, found)

    def _ended(self, op: Operation) -> Iterator[Finding]:
        """A transaction ended, as far as this call says."""
        item = op.arguments
        assert isinstance(item, of.Commit | of.Complete | of.Abort | of.Outcome)
        unit = self._facts.transactions[item.txn]
        if any(answer.operation is op for answer in unit.answers_of("COMMITTED")):
            for taken in unit.acknowledges:
                if taken.succeeded:
                    self._take(taken)
        for released in self._released.get(op.number, ()):
            item = asked(released, of.Acknowledge)
            subscription = self._of(item.topic, item.subscription)
            if subscription.trying.pop(released.number, None) is not None:
                assert op.completed is not None, "it reported the end"
                subscription.lapsed.append((op.completed, released))
                _release(subscription.session(item.epoch), reach(released))
        yield from ()

    # --- releasing, seeking -----------------------------------------------------------------------------------------

    def _release_asked(self, op: Operation) -> Iterator[Finding]:
        session, returned = self._returned(op)
        for partition, found in returned.items():
            remove(session.surely, partition, found)
        yield from ()

    def _release_done(self, op: Operation) -> Iterator[Finding]:
        session, returned = self._returned(op)
        if op.succeeded:
            _release(session, returned)
        yield from ()

    def _returned(self, op: Operation) -> tuple[_Session, Sets]:
        item = asked(op, of.NegativeAcknowledge)
        session = self._of(item.topic, item.subscription).session(item.epoch)
        if not item.ranges:
            return session, dict(session.possibly)
        found: Sets = {}
        for part in item.ranges:
            add(found, part.partition, ((part.start, part.end),))
        return session, found

    def _seek(self, op: Operation) -> Iterator[Finding]:
        if op.possible:
            item = asked(op, of.Seek)
            subscription = self._of(item.topic, item.subscription)
            subscription.seeking += 1
            self._begin_anew(subscription, op.invoked)
        yield from ()

    def _sought(self, op: Operation) -> Iterator[Finding]:
        if op.succeeded:
            item = asked(op, of.Seek)
            subscription = self._of(item.topic, item.subscription)
            subscription.seeking -= 1
            assert op.completed is not None, "it succeeded"
            self._begin_anew(subscription, op.completed)
            for session in subscription.sessions.values():
                # Not of others: who has not heard of a new epoch has what was delivered to it.
                if op.actor in session.actors:
                    session.possibly.clear()
        yield from ()

    def _begin_anew(self, subscription: _Subscription, event: int) -> None:
        """All may come again, and what was acknowledged may be free; what was received with an epoch stays so."""
        subscription.sought = event
        subscription.taken.clear()
        for session in subscription.sessions.values():
            session.surely.clear()
            session.skipped.clear()

    # --- cursors ----------------------------------------------------------------------------------------------------

    def _cursors(self, op: Operation) -> Iterator[Finding]:
        if op.succeeded:
            for key, shown in shown_cursors(result_of(op, of.CursorsShown).cursors).items():
                yield from self._compare(op, key, shown, self._known[op.number])

    def _remember_all(self, _op: Operation) -> Iterator[Finding]:
        # It is the last of all and alone, but a pipeline that still runs does no harm.
        self._everything = {key: dict(item.taken) for key, item in self._subscriptions.items()}
        yield from ()

    def _final(self, op: Operation) -> Iterator[Finding]:
        if op.succeeded:
            for key, shown in shown_cursors(result_of(op, of.FinalState).cursors).items():
                yield from self._compare(op, key, shown, self._everything.get(key, {}))

    def _compare(self, op: Operation, key: Subscribed, shown: Sets, known: Sets) -> Iterator[Finding]:
        """What was acknowledged when the call was made is so still."""
        subscription = self._of(*key)
        if subscription.seeking or subscription.sought > op.invoked:
            return
        for partition, taken in known.items():
            lost = ranges.subtract(taken, shown.get(partition, ()))
            if lost:
                text = f"{key[0]}:{key[1]}/{partition}: {lost} was acknowledged, and is free again"
                yield Finding(Anomaly.CURSOR_MOVED_BACK, text, (op,))
        for partition, taken in shown.items():
            add(subscription.taken, partition, taken)


def _release(session: _Session, found: Sets) -> None:
    """Messages are free again, but for those that were delivered again before that was reported."""
    for partition, free in found.items():
        remove(session.possibly, partition, ranges.subtract(free, session.surely.get(partition, ())))


def _name(item: of.Receive | of.Acknowledge) -> str:
    return f"{item.topic}:{item.subscription}"


__all__ = ["Sets", "add", "check", "reach", "remove", "shown_cursors"]
