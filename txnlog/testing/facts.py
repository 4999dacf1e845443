"""A history sorted by what belongs together: transactions with all that was asked and answered about them, and the log.

The log is the version order: what the final read shows counts as the truth that everything else is compared with. A
history without a final read is compared with all of its reads together, and cannot show that a write was lost.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, groupby
from operator import attrgetter, itemgetter
from typing import Final, Literal, NamedTuple, TypeVar

from txnlog.common import ranges
from txnlog.common.ranges import Ranges
from txnlog.testing import operation_parts as parts
from txnlog.testing import operations as of
from txnlog.testing.history import History, Operation

Place = tuple[str, int]
"""Topic and partition."""

Subscribed = tuple[str, str]
"""Topic and subscription."""

Opened = Mapping[str, Sequence[tuple[int, Operation]]]
"""The epochs that calls opened, each with its call, sorted: of producers by name, of consumers by subscription."""

ENDED_ABORTED: Final = frozenset({"TransactionTimedOut", "TransactionAborted", "ProducerFenced"})
"""Errors of ``commit`` that say for ever that the transaction is aborted; others leave the next attempt open."""

NEVER: Final = 1 << 62
"""The event of what was not asked for."""

Result = TypeVar("Result")
Asked = TypeVar("Asked")


class Run(NamedTuple):
    """Neighbouring rows of one transaction in one partition."""

    topic: str
    partition: int
    rows: tuple[parts.Row, ...]

    @property
    def place(self) -> Place:
        """Topic and partition."""
        return self.topic, self.partition


class Answer(NamedTuple):
    """A definite answer about a transaction, given at an event."""

    event: int
    state: Literal["COMMITTED", "ABORTED"]
    version: int | None
    operation: Operation


@dataclass(slots=True, eq=False)
class Unit:
    """What becomes visible as a whole: a transaction, or a batch produced outside of one (with its retries)."""

    name: str
    plain: bool = False
    begun: bool = False
    producer: str | None = None
    epoch: int | None = None
    produces: list[Operation] = field(default_factory=list)
    acknowledges: list[Operation] = field(default_factory=list)
    commits: list[Operation] = field(default_factory=list)
    prepares: list[Operation] = field(default_factory=list)
    completes: list[Operation] = field(default_factory=list)
    aborts: list[Operation] = field(default_factory=list)
    truncates: list[Operation] = field(default_factory=list)
    asked: list[Operation] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    ended: parts.Ended | None = None

    def calls_of(self, kind: str) -> list[Operation]:
        """Those of a transaction that are of one kind."""
        return {
            "commit": self.commits,
            "abort": self.aborts,
            "truncate": self.truncates,
            "prepare": self.prepares,
            "complete": self.completes,
            "outcome": self.asked,
        }[kind]

    @property
    def attempts(self) -> list[Operation]:
        """The calls that can have made it visible."""
        if self.plain:
            return self.produces
        decided = [op for op in self.completes if asked(op, of.Complete).commit]
        return sorted((*self.commits, *decided), key=attrgetter("number")) if decided else self.commits

    @property
    def first_attempt(self) -> int:
        """The event of the first of them."""
        attempts = self.attempts
        return attempts[0].invoked if attempts else NEVER

    @property
    def shown_version(self) -> int | None:
        """The version of its first visible row."""
        return self.runs[0].rows[0].version if self.runs else None

    @property
    def version(self) -> int | None:
        """The version that shows it: of its rows, else as it was answered."""
        if self.runs:
            return self.runs[0].rows[0].version
        versions = [answer.version for answer in self.answers if answer.state == "COMMITTED"]
        return versions[0] if versions else None

    @property
    def unanswered(self) -> bool:
        """Whether somebody had to ask: an attempt did not say how it ended."""
        return any(op.possible and not op.succeeded for op in self.attempts)

    @property
    def has_effects(self) -> bool:
        """Whether there may be anything in it; of an empty transaction nothing is written, and nothing remembered."""
        return (
            any(op.possible and asked(op, of.Produce).values for op in self.produces)
            or any(op.possible and asked(op, of.Acknowledge).ranges for op in self.acknowledges)
            or any(op.possible for op in self.truncates)
        )

    def answers_of(self, state: Literal["COMMITTED", "ABORTED"]) -> list[Answer]:
        """The answers of one kind."""
        return [answer for answer in self.answers if answer.state == state]


def asked(operation: Operation, kind: type[Asked]) -> Asked:
    """The arguments of an operation whose kind is known."""
    arguments = operation.arguments
    assert isinstance(arguments, kind)
    return arguments


def result_of(operation: Operation, kind: type[Result]) -> Result:
    """The result of an operation that succeeded and whose kind is known."""
    result = operation.result
    assert isinstance(result, kind)
    return result


def epoch_of(receive: Operation) -> int | None:
    """The epoch with which a consumer received: it may have got it in this very call."""
    if isinstance(receive.result, of.Received) and receive.result.epoch is not None:
        return receive.result.epoch
    return asked(receive, of.Receive).epoch


def _name_of(folder: str) -> str:
    """The name of a topic's folder. A drop names what has the name when it lands, which may be a later incarnation."""
    return folder.partition("~")[0]


def goes_to(item: of.Produce, place: Place) -> bool:
    """Whether rows of a call may lie in a partition.

    A plain one, like a drop, takes what has the name when it is decided; what a transaction has is for one topic.
    """
    topic, partition = place
    same = item.topic == topic or (item.txn is None and _name_of(item.topic) == _name_of(topic))
    return same and item.partition == partition


class Facts:
    """All that the checks ask of a history, computed once."""

    def __init__(self, history: History) -> None:
        self.operations: Final = history.operations
        self.by_kind: Final[dict[str, list[Operation]]] = {}
        for operation in self.operations:
            self.by_kind.setdefault(operation.kind, []).append(operation)
        self.transactions: Final[dict[str, Unit]] = {}
        self.batches: Final[dict[tuple[str, int, tuple[int, ...]], Unit]] = {}
        self.owners: Final[dict[int, list[Unit]]] = {}
        self._collect()
        self._answers()
        dropped = self.ops("drop_topic")
        self.dropped: Final = frozenset(_name_of(asked(op, of.DropTopic).topic) for op in dropped if op.possible)
        self.reads: Final = [op for op in self.ops("read") if op.succeeded]
        finals = [op for op in self.ops("final") if op.succeeded]
        self.final: Final = finals[-1] if finals else None
        self.log: Final[dict[Place, tuple[parts.Row, ...]]] = {}
        self.runs: Final[dict[Place, list[Run]]] = {}
        self.strange: Final[list[Run]] = []
        self._take_log()
        ending = of.FinalState(()) if self.final is None else result_of(self.final, of.FinalState)
        self.expired: Final = ending.expired
        self.keyed: Final = ending.keyed
        self.removed: Final = ending.removed
        self.truncated: Final = ending.truncated
        self.newest: Final = Newest(self.operations)
        self.deletions: Final = [op for op in self.ops("delete_records") if op.possible]
        self.erasures: Final = [op for op in self.ops("erase") if op.possible]
        truncating = [op for unit in self.transactions.values() if unit.truncates for op in unit.attempts]
        self.removals_asked: Final = [op for op in (*self.ops("compact"), *truncating) if op.possible]

    @property
    def units(self) -> Iterator[Unit]:
        """All transactions and plain batches."""
        yield from self.transactions.values()
        yield from self.batches.values()

    def ops(self, *kinds: str) -> list[Operation]:
        """The operations of some kinds, by number."""
        if len(kinds) == 1:
            return self.by_kind.get(kinds[0], [])
        return sorted((op for kind in kinds for op in self.by_kind.get(kind, [])), key=attrgetter("number"))

    @cached_property
    def visible_values(self) -> frozenset[int]:
        """Every value that is visible anywhere."""
        return frozenset(row.value for rows in self.log.values() for row in rows)

    @cached_property
    def opened_producers(self) -> Opened:
        """The epochs of producers, by name."""
        found: dict[str, list[tuple[int, Operation]]] = {}
        for op in self.ops("open_producer"):
            if op.succeeded:
                epoch = result_of(op, of.ProducerOpened).epoch
                found.setdefault(asked(op, of.OpenProducer).name, []).append((epoch, op))
        return _sorted(found)

    @cached_property
    def opened_consumers(self) -> Opened:
        """The epochs of consumers, by ``<topic>:<subscription>``; those of seeks are among them."""
        found: dict[str, list[tuple[int, Operation]]] = {}
        for op in self.ops("open_consumer", "seek"):
            item, result = op.arguments, op.result
            if not isinstance(item, of.OpenConsumer | of.Seek) or not isinstance(result, of.ConsumerOpened | of.Sought):
                continue
            if result.epoch is not None:
                found.setdefault(f"{item.topic}:{item.subscription}", []).append((result.epoch, op))
        return _sorted(found)

    def lives(self, topic: str) -> bool:
        """Whether a topic surely was not dropped."""
        return _name_of(topic) not in self.dropped

    def row(self, place: Place, offset: int) -> parts.Row | None:
        """The row of the log at an offset."""
        rows = self.log.get(place, ())
        if 0 <= offset < len(rows) and rows[offset].offset == offset:
            return rows[offset]
        return next((row for row in rows if row.offset == offset), None)

    def upto(self, place: Place, version: int) -> tuple[parts.Row, ...]:
        """What a read of a partition at a version has to show."""
        rows = self.log.get(place, ())
        if not rows or rows[-1].version <= version:
            return rows
        return rows[: bisect_right(rows, version, key=attrgetter("version"))]

    def may_be_deleted(self, place: Place, event: int | None) -> int:
        """The offset below which messages of a partition may be deleted by an event, None the end of all."""
        found = 0
        for op in self.deletions:
            item = asked(op, of.DeleteRecords)
            if event is None or op.invoked < event:
                bounds = [at.offset for at in item.before if (at.topic, at.partition) == place]
                found = max(found, NEVER if item.unbounded else 0, *bounds)
        return found

    def surely_deleted(self, place: Place, version: int) -> int:
        """The offset below which nothing can be read at a version or a later one."""
        found = 0
        for op in self.deletions:
            if op.succeeded and (result_of(op, of.Deleted).version or NEVER) <= version:
                bounds = [at.offset for at in asked(op, of.DeleteRecords).before if (at.topic, at.partition) == place]
                found = max(found, *bounds, 0)
        return found

    def may_be_erased(self, topic: str, event: int | None) -> frozenset[int]:
        """The values of a topic that may be erased by an event, None the end of all."""
        found: set[int] = set()
        for op in self.erasures:
            item = asked(op, of.Erase)
            if item.topic == topic and (event is None or op.invoked < event):
                found.update(item.values)
        return frozenset(found)

    def surely_erased(self, topic: str, row: parts.Row, version: int) -> bool:
        """Whether a row cannot be read at a version or a later one because somebody erased it."""
        for op in self.erasures:
            item = asked(op, of.Erase)
            named = op.succeeded and item.topic == topic and row.value in item.values and row.version <= item.upto
            if named and version >= result_of(op, of.Erased).version:
                return True
        return False

    @cached_property
    def removals(self) -> dict[Place, dict[int, int]]:
        """By partition and offset the version since which a compaction or a truncation has a message not shown."""
        found: dict[Place, dict[int, int]] = {}
        gone = [(item.topic, item.partition, item.offset, item.version) for item in self.removed]
        gone += [(item.topic, item.partition, item.offset, item.version) for item in self.truncated]
        for topic, partition, offset, version in gone:
            found.setdefault((topic, partition), {}).setdefault(offset, version)
        return found

    def left_at(self, place: Place, rows: tuple[parts.Row, ...], version: int) -> tuple[parts.Row, ...]:
        """Of some messages of a partition those that compactions and truncations had left at a version."""
        gone = self.removals.get(place)
        return tuple(row for row in rows if gone.get(row.offset, NEVER) > version) if gone else rows

    def may_exist(self, version: int, event: int) -> bool:
        """Whether an entry may have been there by an event.

        A commit gets no version that was there when it was asked for: nor was any behind it.
        """
        versions, latest = self._asked_for
        at = bisect_left(versions, version)
        return at == 0 or latest[at - 1] < event

    @cached_property
    def _asked_for(self) -> tuple[list[int], list[int]]:
        """The versions that show something, and by each the last event at which one of these commits was asked for."""
        shown = sorted(
            (unit.shown_version, unit.first_attempt) for unit in self.units if unit.shown_version is not None
        )
        asked_at = (0 if event == NEVER else event for _, event in shown)
        return [version for version, _ in shown], list(accumulate(asked_at, max))

    def holes(self, place: Place, event: int | None) -> Ranges:
        """The offsets of a partition that may have no message any more by an event, None the end of all."""
        erased = self.may_be_erased(place[0], event)
        found = [row.offset for row in self.log.get(place, ()) if row.value in erased] if erased else []
        gone = self.removals.get(place)
        if gone and (event is None or any(op.invoked < event for op in self.removals_asked)):
            found += [offset for offset, version in gone.items() if event is None or self.may_exist(version, event)]
        return ranges.from_values(sorted(found))

    def expired_by(self, key: Subscribed, partition: int, event: int | None) -> Ranges:
        """What has expired of a partition for a subscription, if by an event somebody had begun to look after that."""
        if not self.expired or not any(event is None or op.invoked < event for op in self.deletions):
            return ranges.EMPTY
        items = (item for item in self.expired if (item.topic, item.subscription, item.partition) == (*key, partition))
        return ranges.normalize(found for item in items for found in item.ranges)

    def owner(self, row: parts.Row) -> Unit | None:
        """The transaction or batch of a row; None if nobody produced it there."""
        unit = self.transactions.get(row.txn)
        if unit is not None and (unit.begun or unit.produces):
            return unit
        owners = self.owners.get(row.value, ())
        return next((owner for owner in owners if owner.plain), None)

    # --- how it ended -----------------------------------------------------------------------------------------------

    def contents(self, unit: Unit) -> dict[Place, list[Operation]]:
        """The calls that surely are in a unit if it is visible, by partition: topics that were dropped are left out."""
        found: dict[Place, list[Operation]] = {}
        for op in unit.produces:
            item = asked(op, of.Produce)
            sure = unit.plain or (op.succeeded and not result_of(op, of.Produced).duplicate)
            if sure and item.values and self.lives(item.topic):
                found.setdefault((item.topic, item.partition), []).append(op)
        return found

    def fate(self, unit: Unit) -> Literal["committed", "not committed", "open"]:
        """How a unit ended, by the best evidence: rows, then the end of the history, then the answers."""
        if unit.runs or (unit.ended is not None and unit.ended.state == "COMMITTED"):
            return "committed"
        if unit.ended is not None and unit.ended.state == "ABORTED":
            return "not committed"
        if unit.answers_of("COMMITTED"):
            return "committed"
        if unit.answers_of("ABORTED") or not any(op.possible for op in unit.attempts):
            return "not committed"
        if self.final is not None and self.contents(unit):
            return "not committed"
        return "open"

    # --- sorting ----------------------------------------------------------------------------------------------------

    def _transaction(self, txn: str) -> Unit:
        unit = self.transactions.get(txn)
        if unit is None:
            unit = self.transactions[txn] = Unit(txn)
        return unit

    def _collect(self) -> None:
        opened: dict[str, Operation] = {}
        for op in self.operations:
            item = op.arguments
            if isinstance(item, of.Produce):
                self._produce(op, item, opened.get(op.actor))
            elif isinstance(item, of.Begin):
                unit = self._transaction(item.txn)
                unit.begun, unit.producer, unit.epoch = True, item.producer, item.epoch
            elif isinstance(item, of.Acknowledge):
                if item.txn is not None:
                    self._transaction(item.txn).acknowledges.append(op)
            elif isinstance(item, of.Commit | of.Abort | of.Truncate | of.Prepare | of.Complete | of.Outcome):
                # A plain call has a TxnID too, whose outcome is asked for without its having been begun.
                self._transaction(item.txn).calls_of(op.kind).append(op)
            elif isinstance(item, of.OpenProducer) and op.succeeded:
                opened[op.actor] = op

    def _produce(self, op: Operation, item: of.Produce, opened: Operation | None) -> None:
        if item.txn is not None:
            unit = self._transaction(item.txn)
        else:
            key = (item.topic, item.partition, item.values)
            known = self.batches.get(key)
            if known is None:
                name = f"plain {shown_values(item.values)} in {item.topic}/{item.partition}"
                known = self.batches[key] = Unit(name, plain=True)
            unit = known
            producer, epoch = item.producer, item.epoch
            if producer is None and item.sequence is not None and opened is not None:
                # Only a named producer has sequences: the one that this actor opened.
                producer, epoch = asked(opened, of.OpenProducer).name, result_of(opened, of.ProducerOpened).epoch
            unit.producer = producer or unit.producer
            if epoch is not None and op.possible and (unit.epoch is None or epoch > unit.epoch):
                unit.epoch = epoch  # It may have been sent again by a successor.
        unit.produces.append(op)
        for value in item.values:
            owners = self.owners.get(value)
            if owners is None:
                self.owners[value] = [unit]
            elif unit not in owners:
                owners.append(unit)

    def _answers(self) -> None:
        for unit in self.transactions.values():
            calls = sorted((*unit.commits, *unit.completes, *unit.aborts, *unit.asked), key=attrgetter("number"))
            unit.answers.extend(answer for op in calls if (answer := _answer(op)) is not None)
            unit.answers.sort(key=itemgetter(0))
        for unit in self.batches.values():
            unit.answers.extend(answer for op in unit.produces if (answer := _answer(op)) is not None)

    def _take_log(self) -> None:
        outcomes: dict[str, parts.Ended] = {}
        if self.final is not None:
            result = result_of(self.final, of.FinalState)
            self.log.update(((item.topic, item.partition), item.rows) for item in result.rows)
            outcomes = {ended.txn: ended for ended in result.outcomes}
            for transaction in self.transactions.values():
                transaction.ended = outcomes.get(transaction.name)
        else:
            self._merge_reads()
        for place, rows in self.log.items():
            runs = self.runs[place] = []
            for _, group in groupby(rows, itemgetter(2)):
                run = Run(*place, tuple(group))
                runs.append(run)
                unit = self.owner(run.rows[0])
                if unit is None:
                    self.strange.append(run)
                    continue
                unit.runs.append(run)
                if unit.plain and unit.ended is None:
                    # Only now is it known under which TxnID a plain call was carried out, for which others asked.
                    asked_for = self.transactions.get(run.rows[0].txn)
                    unit.answers.extend(asked_for.answers if asked_for is not None else ())
                    unit.ended = outcomes.get(run.rows[0].txn)

    def _merge_reads(self) -> None:
        found: dict[Place, dict[int, parts.Row]] = {}
        for op in self.reads:
            for item in result_of(op, of.Shown).rows:
                rows = found.setdefault((item.topic, item.partition), {})
                for row in item.rows:
                    rows.setdefault(row.offset, row)
        for place, rows in found.items():
            self.log[place] = tuple(rows[offset] for offset in sorted(rows))


def _sorted(opened: Mapping[str, list[tuple[int, Operation]]]) -> Opened:
    return {name: sorted(found, key=lambda pair: (pair[0], pair[1].number)) for name, found in opened.items()}


class Newest:
    """Which versions were known to exist at an event, because somebody had an answer that shows it."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        reported_at: list[tuple[int, int]] = []
        for op in operations:
            version = revealed(op)
            if version is not None and op.completed is not None:
                reported_at.append((op.completed, version))
        reported_at.sort()
        self._events = [event for event, _ in reported_at]
        self._versions: list[int] = []
        newest = -1
        for _, version in reported_at:
            newest = max(newest, version)
            self._versions.append(newest)

    def before(self, event: int) -> int:
        """The newest version that any answer had shown before an event; -1 if none."""
        at = bisect_right(self._events, event)
        return self._versions[at - 1] if at else -1


def revealed(op: Operation) -> int | None:
    """The version of the log that a result proves to exist."""
    result = op.result
    shows = (
        of.Committed
        | of.Completed
        | of.Produced
        | of.Acknowledged
        | of.OutcomeShown
        | of.Shown
        | of.Deleted
        | of.Compacted
    )
    if isinstance(result, shows):
        return result.version
    if isinstance(result, of.ProducerOpened | of.ConsumerOpened | of.Sought | of.Received):
        return result.epoch
    return None


def _answer(op: Operation) -> Answer | None:
    """What a call says definitely of its transaction or batch; None: nothing."""
    if op.completed is None:
        return None
    result = op.result
    if result is None:
        timed_out = op.kind == "commit" and op.error in ENDED_ABORTED and not op.possible
        return Answer(op.completed, "ABORTED", None, op) if timed_out else None
    if isinstance(result, of.Committed):
        written = not result.skipped and not result.duplicate
        return Answer(op.completed, "COMMITTED", result.version, op) if written else None
    if isinstance(result, of.Completed):
        return Answer(op.completed, "COMMITTED" if asked(op, of.Complete).commit else "ABORTED", result.version, op)
    if isinstance(result, of.Produced):
        return None if result.duplicate else Answer(op.completed, "COMMITTED", result.version, op)
    if isinstance(result, of.OutcomeShown):
        if result.state == "COMMITTED":
            return Answer(op.completed, "COMMITTED", result.version, op)
        return Answer(op.completed, "ABORTED", result.version, op) if result.state == "ABORTED" else None
    assert op.kind == "abort", "nothing else is said of the end of a transaction"
    return Answer(op.completed, "ABORTED", None, op)


def shown_values(values: tuple[int, ...]) -> str:
    """A batch of values, for messages."""
    return f"{values[0]}…{values[-1]}" if len(values) > 1 else "".join(map(str, values)) or "nothing"


__all__ = [
    "ENDED_ABORTED",
    "NEVER",
    "Answer",
    "Facts",
    "Opened",
    "Place",
    "Run",
    "Subscribed",
    "Unit",
    "asked",
    "epoch_of",
    "goes_to",
    "result_of",
]
