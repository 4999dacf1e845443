"""The order of commits of one handle: each has its place from its call on, however long it is prepared.

A commit may have to put files before it can wait for an entry, and one that truncates a topic may have to be prepared
again. Whoever was called later and is ready before would overtake it: a later version of an application, a later
sequence, or a later value of a key would come first, and rows that were committed behind a truncation would go with it
(docs/decisions/0046-the-order-of-commits.md).
"""

from __future__ import annotations

from collections import deque

from txnlog.engine.effects import Reply


class Place:
    """The place of one commit. It is left when the commit waits for an entry, or comes to its end without one."""

    __slots__ = ("_is_left", "_order", "_reached")

    def __init__(self, order: deque[Place]) -> None:
        self._order = order
        self._is_left = False
        self._reached: Reply[None] | None = None

    async def reach(self) -> None:
        """Wait until all before it were left."""
        if self._order[0] is not self:
            self._reached = Reply()
            await self._reached

    def leave(self) -> None:
        """Let those behind it go on. A second call changes nothing."""
        self._is_left = True
        order = self._order
        while order and order[0]._is_left:
            order.popleft()
        if order and (first := order[0]._reached) is not None:
            first.give(None)


class CommitOrder:
    """The places of the commits of one handle. In the engine."""

    def __init__(self) -> None:
        self._places: deque[Place] = deque()

    def take(self) -> Place:
        """The place behind all that were taken before: of whoever was called last."""
        place = Place(self._places)
        self._places.append(place)
        return place


__all__ = ["CommitOrder", "Place"]
