"""The calls of a consumer, as commands of the engine.

Those of one consumer have their turn: each sees what the one before it left, also where its caller was interrupted. A
call that waits for messages leaves its turn to the others meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from txnlog.client.acknowledgement_conflicts import ending_overdue
from txnlog.client.delivery import Received, Receiving, TopicDelivery
from txnlog.client.ledger import Delivery, Offsets
from txnlog.client.subscription_ownership import raising_epochs
from txnlog.common.pauses import pause_between_looks
from txnlog.common.ranges import EMPTY, intersect
from txnlog.engine.effects import STILL_WANTED, Turn
from txnlog.engine.engine import Work
from txnlog.errors import InvalidInputError, InvalidTransactionState
from txnlog.fold.state import Draft
from txnlog.format.actions import AnyAction, Header
from txnlog.sentences import Call, Words

if TYPE_CHECKING:
    from txnlog.client.connection import Connection

R = TypeVar("R")


class ConsumerMachine:
    """One consumer of this process.

    Attributes:
        is_closed: whether it was closed, or somebody is about to.
    """

    __slots__ = ("_appender", "_connection", "_deliveries", "_has_ended", "_next", "_owner", "_turn", "is_closed")

    def __init__(self, connection: Connection, deliveries: Sequence[TopicDelivery]) -> None:
        self._connection = connection
        self._deliveries = tuple(deliveries)
        self._appender = connection.appender
        self._owner = connection.identity
        self._next = 0
        self._turn = Turn()
        self.is_closed = False
        self._has_ended = False

    # --- from any thread --------------------------------------------------------------------------------------------

    def check_usable(self, connection: Connection | None = None) -> None:
        """Raise unless this consumer may still be used by this process, in the given namespace."""
        if connection is not None and not self._connection.same_namespace(connection):
            raise InvalidInputError(
                f"the messages come from the namespace {self._connection.name!r}, not from "
                f"{connection.name!r} of this root",
                advice="a transaction takes messages of its own namespace",
            )
        self._connection.check_owner(self._owner, "consumer")
        if self.is_closed:
            raise InvalidTransactionState(
                "the consumer is closed", advice=Words("open another with ", Call("consumer", "..."))
            )

    def begin_to_close(self) -> bool:
        """Let nobody use it any more, and whether ``close`` is to follow: not for another process."""
        self.is_closed = True
        return self._owner is self._connection.identity and not self._has_ended

    def run(self, work: Work[R], *, goes_on: bool = False) -> R:
        """Run a task of the engine, and wait for it: ``Appender.run``. Also where the handle was closed."""
        return self._appender.run(work, goes_on=goes_on)

    def receive(
        self, call: Receiving, wait_ms: float, reply: Callable[[TopicDelivery, Received, Delivery], R]
    ) -> R | None:
        """The next messages, of one topic, as ``reply`` gives them; None where there were none for so long.

        They are delivered, unless the wait is interrupted. ``reply`` is called in the engine: nothing comes between it
        and the return.
        """

        async def receive() -> R | None:
            found = await self._receive(call, wait_ms)
            return None if found is None else reply(*found)

        return self._appender.run(receive, undo=call.withdraw)

    # --- in the engine ----------------------------------------------------------------------------------------------

    async def _receive(self, call: Receiving, wait_ms: float) -> tuple[TopicDelivery, Received, Delivery] | None:
        runtime = self._connection.runtime
        began = runtime.elapsed_ms()
        while True:
            async with self._turn:
                self.check_usable()  # it may have been closed during the wait
                looked = runtime.elapsed_ms()
                found = await self._look_for(call)
                if found is not None:
                    await STILL_WANTED  # from here on nothing comes between the messages and the reply
                    by, received = found
                    return by, received, by.deliver(received, call)
            call.is_new = False
            now = runtime.elapsed_ms()
            left = began + wait_ms - now
            if left <= 0:
                return None
            await runtime.pause(min(runtime.spread(pause_between_looks(now - began, now - looked)), left))

    async def _look_for(self, call: Receiving) -> tuple[TopicDelivery, Received] | None:
        # Before anything is delivered: a consumer that was fenced must hear of it at its next call.
        await self._look(is_new=call.is_new)
        await ending_overdue(self._connection, [item.subscription for item in self._deliveries])
        for _ in range(len(self._deliveries)):
            item = self._deliveries[self._next % len(self._deliveries)]
            self._next += 1
            received = await item.receive(call)
            if received is not None:
                return item, received
        return None

    async def negative_acknowledge(self, delivery: Delivery, offsets: Offsets) -> None:
        """Release messages of a delivery: they are delivered again."""
        async with self._turn:
            await self._look()
            for item in self._deliveries:
                if item.ledger is delivery.ledger:
                    mine = delivery.offsets
                    await item.negative_acknowledge(
                        {p: intersect(found, mine.get(p, EMPTY)) for p, found in offsets.items()}
                    )

    async def redeliver(self) -> None:
        """Release everything that was received and not acknowledged."""
        async with self._turn:
            await self._look()
            for item in self._deliveries:
                await item.redeliver()

    async def _look(self, *, is_new: bool = False) -> None:
        await self._connection.follower.refreshing_if_new()
        for item in self._deliveries:
            await item.look(is_new=is_new)

    async def seek(self, chosen: Sequence[TopicDelivery], positions: Sequence[Mapping[int, int]]) -> None:
        """Move the subscriptions of some topics. In its turn: what was chosen before would count as delivered after."""

        def decide(draft: Draft, _at: Header) -> list[AnyAction]:
            return [
                action
                for item, wanted in zip(chosen, positions, strict=True)
                for action in item.seek_actions(draft, wanted)
            ]

        async with self._turn:
            moved = [item.subscription for item in chosen]
            epoch = await raising_epochs(self._connection, moved, decide, lambda _draft, at: at.version)
            for item in chosen:
                await item.sought(epoch)

    async def close(self) -> None:
        """Release what it has. A call under way ends first: behind it nothing is leased, claimed or beaten."""
        async with self._turn:
            if not self._has_ended:
                for item in self._deliveries:
                    await item.close()
                self._has_ended = True


__all__ = ["ConsumerMachine"]
