"""What is made when it is first needed, and then kept: the first one that anybody made."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

T = TypeVar("T")


class FirstOf(Generic[T]):
    """One of what several may make at the same time: all get the first one, and the others are for nothing.

    There is no lock: the handler of a signal, or a finalizer, would wait for ever for the thread that it interrupts.
    What is kept is set in one step.
    """

    __slots__ = ("_found", "get")

    def __init__(self) -> None:
        self._found: dict[str, T] = {}
        self.get: Callable[[], T | None] = partial(self._found.get, "first")
        """What was made first; None where nothing was. Some ask several times in each call of a user."""

    def get_or(self, make: Callable[[], T]) -> T:
        """What was made first: by this call, where nobody was quicker."""
        found = self._found.get("first")
        return self._found.setdefault("first", make()) if found is None else found

    def clear(self) -> None:
        """Forget it, so that another one is made: in a forked child."""
        self._found.clear()


__all__ = ["FirstOf"]
