"""What was used last stays in memory, up to a bound."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
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
        self._lock = threading.Lock()
        self._values: OrderedDict[K, V] = OrderedDict()
        self._weight = 0

    @property
    def weight(self) -> int:
        """The sum of the weights of what is kept."""
        return self._weight

    def values(self) -> list[V]:
        """What is kept, the least recently used first."""
        with self._lock:
            return list(self._values.values())

    def get(self, key: K) -> V | None:
        """The value of a key, which is used by this; None where it is not kept."""
        with self._lock:
            value = self._values.get(key)
            if value is not None:
                self._values.move_to_end(key)
            return value

    def put(self, key: K, value: V) -> None:
        """Keep a value. One that another thread was faster to bring stays."""
        with self._lock:
            if key in self._values:
                return
            self._values[key] = value
            self._weight += self._weigh(value)
            while self._weight > self._most and len(self._values) > self._least:
                _, old = self._values.popitem(last=False)
                self._weight -= self._weigh(old)

    def drop(self, key: K) -> None:
        """Keep it no longer."""
        with self._lock:
            old = self._values.pop(key, None)
            self._weight -= 0 if old is None else self._weigh(old)


__all__ = ["Recent"]
