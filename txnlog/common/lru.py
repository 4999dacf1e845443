"""What was used last stays in memory, up to a bound."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(Generic[K, V]):
    """Values by key: above a bound the least recently used ones are dropped, but for the newest few. Thread-safe.

    Args:
        most: the sum of their weights that may stay.
        weigh: the weight of a value; left out, each weighs 1.
        least: so many stay, whatever they weigh.
    """

    def __init__(self, most: int, weigh: Callable[[V], int] = lambda _value: 1, *, least: int = 0) -> None:
        self._most = most
        self._weigh = weigh
        self._least = least
        # A lock that nobody waits for: who has it may be interrupted by the handler of a signal, which comes here, too.
        # Who does not get it leaves the order as it is, and keeps nothing.
        self._lock = threading.Lock()
        self._values: OrderedDict[K, V] = OrderedDict()
        self._weight = 0
        self._dropped: deque[V] = deque()

    @property
    def weight(self) -> int:
        """The sum of the weights of what is kept."""
        return self._weight - sum([self._weigh(value) for value in list(self._dropped)])

    def values(self) -> list[V]:
        """What is kept, the least recently used first."""
        return list(self._values.values())

    def get(self, key: K) -> V | None:
        """The value of a key, which is used by this; None where it is not kept."""
        value = self._values.get(key)
        if value is not None and self._lock.acquire(blocking=False):
            try:
                with suppress(KeyError):  # dropped just now
                    self._values.move_to_end(key)
            finally:
                self._lock.release()
        return value

    def peek(self, key: K) -> V | None:
        """``get`` for who only looks whether to use it: nothing is kept longer for this."""
        return self._values.get(key)

    def put(self, key: K, value: V) -> None:
        """Keep a value. One that another thread was faster to bring stays."""
        if self._lock.acquire(blocking=False):
            try:
                self._put(key, value)
            finally:
                self._lock.release()

    def _put(self, key: K, value: V) -> None:
        while self._dropped:
            self._weight -= self._weigh(self._dropped.popleft())
        if key in self._values:
            return
        self._values[key] = value
        self._weight += self._weigh(value)
        while self._weight > self._most and len(self._values) > self._least:
            _, old = self._values.popitem(last=False)
            self._weight -= self._weigh(old)

    def drop(self, key: K) -> None:
        """Keep it no longer."""
        old = self._values.pop(key, None)
        if old is not None:
            self._dropped.append(old)


__all__ = ["Recent"]
