"""What the open transactions of one client acknowledged, logged or not: its other calls meet it at once.

Whatever one transaction of a client holds, the log may not show yet. Without this, a second one would be told of the
conflict only at its commit, and a consumer would hand the messages out again.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from txnlog.common import ranges
from txnlog.common.ranges import EMPTY, Ranges
from txnlog.errors import TxnLogError
from txnlog.fold.acknowledgements import hold, not_held
from txnlog.fold.state import Draft
from txnlog.format.actions import Acknowledgement, PartitionRanges


class Claimant(Protocol):
    """The consumer that received messages, as their acknowledgement needs it: see :class:`txnlog.Consumer`."""

    @property
    def _connection(self) -> Any:
        """Its handle. Of any type here: a handle has claims, and claims need no more of it than which one it is."""

    def _check_usable(self, connection: Any = None) -> None:
        """Raise where it was closed, or where the call comes through another handle than its own."""

    def _check_delivered(self, taken: Taken) -> None:
        """Raise TransactionConflict where a cumulative acknowledgement would take what is still to be delivered."""

    def _give_back(self, taken: Taken) -> None:
        """Deliver the messages again, unless a seek began anew since."""


@dataclass(frozen=True, slots=True)
class Taken:
    """By partition the offsets that an acknowledgement takes off a consumer.

    Attributes:
        unnamed: those of them that a cumulative one takes because they lie before its messages.
        giving: who gives them back holds it, so that others wait until they can be handed out. On a Shared subscription
            that is while the log hears of it: nobody asks for it there under the lock of a fold.
    """

    consumer: Claimant
    subscription: int
    epoch: int
    ranges: Mapping[int, Ranges]
    unnamed: Mapping[int, Ranges]
    giving: threading.RLock = field(default_factory=threading.RLock, compare=False, repr=False)

    @property
    def connection(self) -> Any:
        """The handle of the consumer."""
        return self.consumer._connection

    def check_delivered(self) -> None:
        """Raise TransactionConflict where a cumulative one would take what its user is still to be handed.

        Makes no request.
        """
        self.consumer._check_delivered(self)

    def give_back(self) -> None:
        """The acknowledgement came to nothing: the consumer delivers them again."""
        self.consumer._give_back(self)


@dataclass(frozen=True, slots=True)
class _Held:
    """Of one transaction: its deadline, what it holds, joined by subscription, and what it took (its list)."""

    deadline_ms: int | None
    acknowledgements: tuple[Acknowledgement, ...]
    taken: list[Taken]


class Holds:
    """The holds of one client. Thread-safe."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._held: dict[int, _Held] = {}

    def note(
        self,
        txn: int,
        acknowledgements: Iterable[Acknowledgement],
        deadline_ms: int | None,
        taken: list[Taken],
    ) -> None:
        """All that an open transaction acknowledged so far; ``taken`` is given back where others end it."""
        held = _Held(deadline_ms, joined(acknowledgements), taken)
        with self._lock:
            self._held[txn] = held

    def release(self, txn: int) -> None:
        """The transaction ended."""
        with self._lock:
            self._held.pop(txn, None)

    def _live(self, ended: Callable[[int], bool]) -> tuple[list[tuple[int, _Held]], list[_Held]]:
        """Those that hold something, and those that do no more: past their deadline, or ended by the log, by whomever.

        A transaction that its owner forgot holds nothing for ever.
        """
        now_ms = self._now_ms()
        live: list[tuple[int, _Held]] = []
        over: list[_Held] = []
        forgotten: list[int] = []
        with self._lock:
            known = list(self._held.items())
        for txn, held in known:  # not under the lock: who asks whether one ended may wait for the log's
            if not ended(txn) and (held.deadline_ms is None or held.deadline_ms > now_ms):
                live.append((txn, held))
            elif held.taken:
                over.append(held)
            else:
                forgotten.append(txn)
        for txn in forgotten:
            self.release(txn)
        return live, over

    def of(self, subscription: int, epoch: int, ended: Callable[[int], bool]) -> dict[int, Ranges]:
        """By partition what is held of a subscription. What an older epoch took can no longer be committed.

        ``ended`` says whether a transaction ended in the log. What is held no more is given back to its consumers.
        """
        found: dict[int, Ranges] = {}
        live, over = self._live(ended)
        for held in over:
            for taken in [item for item in held.taken if item.subscription == subscription]:
                give_back(held.taken, taken)
        for _, held in live:
            for item in held.acknowledgements:
                if (item.subscription, item.epoch) == (subscription, epoch):
                    for own in item.ranges:
                        found[own.partition] = ranges.union(found.get(own.partition, EMPTY), own.ranges)
                    for partition, end in item.cumulative:
                        found[partition] = ranges.union(found.get(partition, EMPTY), ((0, end),))
        return found

    def check(self, draft: Draft, txn: int, wanted: Sequence[Acknowledgement], ended: Callable[[int], bool]) -> None:
        """Raise what stands against acknowledgements, by the log and by what the client holds. Changes the draft."""
        for number, held in self._live(ended)[0]:
            for item in held.acknowledgements:
                for part in not_held(draft, number, item):
                    mark = draft.savepoint()
                    try:
                        hold(draft, number, part)
                    except TxnLogError:
                        draft.rollback(mark)  # lost already: no obstacle of its own
        for item in wanted:
            hold(draft, txn, item)


def give_back(taken: list[Taken], item: Taken) -> None:
    """Give back what one acknowledgement took, and take it off the list: once, and who comes second waits for it.

    Else he would find it neither held nor to be handed out. After Ctrl-C it is still on the list: given back twice it
    is delivered once too often, not at all would lose it.
    """
    with item.giving:
        if item in taken:
            item.give_back()
            with contextlib.suppress(ValueError):  # its owner let go of it, or a handler of an interrupt was here
                taken.remove(item)


def joined(acknowledgements: Iterable[Acknowledgement]) -> tuple[Acknowledgement, ...]:
    """The same acknowledgements, one for each subscription and epoch: many small ones cost as much as one."""
    individual: dict[tuple[int, int], dict[int, Ranges]] = {}
    cumulative: dict[tuple[int, int], dict[int, int]] = {}
    for item in acknowledgements:
        key = (item.subscription, item.epoch)
        mine = individual.setdefault(key, {})
        for own in item.ranges:
            mine[own.partition] = ranges.union(mine.get(own.partition, EMPTY), own.ranges)
        ends = cumulative.setdefault(key, {})
        for partition, end in item.cumulative:
            ends[partition] = max(end, ends.get(partition, 0))
    return tuple(
        Acknowledgement(
            *key,
            tuple(PartitionRanges(partition, found) for partition, found in sorted(individual[key].items())),
            tuple(sorted(cumulative[key].items())),
        )
        for key in individual
    )


__all__ = ["Claimant", "Holds", "Taken", "give_back", "joined"]
