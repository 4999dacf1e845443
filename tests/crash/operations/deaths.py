"""Stores between an operation and the real ones, at which its process kills itself: a chosen call, a chosen moment."""

from __future__ import annotations

import itertools
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from txnlog.store import HookStore, Store, StoreCall, posix
from txnlog.store.base import ObjectNotFound

BEFORE, TORN, UNLINKED, UNRENAMED, AFTER = "before", "torn", "unlinked", "unrenamed", "after"
"""Moments of a call: before it; half of the bytes are in a file that has no name yet, or a temporary one; all of them
are; they have a temporary name, and are to take the place of another object; done, but not answered."""

MIDDLE: Final = frozenset({TORN, UNLINKED, UNRENAMED})

_WRITES: Final = frozenset({StoreCall.CREATE, StoreCall.PUT})
_CHANGES: Final = _WRITES | {StoreCall.DELETE}


@dataclass(frozen=True)
class Place:
    """Where a process dies: at the call of this number, counted over all of its stores."""

    call: int
    moment: str

    def __str__(self) -> str:
        return f"{self.moment} of call {self.call}"


@dataclass(frozen=True)
class Made:
    """A call that an undisturbed process made."""

    call: StoreCall
    key: str
    replaces: bool

    @property
    def changes(self) -> bool:
        """Whether it changes what is on the store: who dies between two reads leaves what was there before both."""
        return self.call in _CHANGES

    @property
    def moments(self) -> tuple[str, ...]:
        """Where a process can die at it."""
        if self.call not in _WRITES:
            return (BEFORE, AFTER)
        return (BEFORE, TORN, UNLINKED, *((UNRENAMED,) if self.replaces else ()), AFTER)


class Deaths:
    """Counts the calls of all stores of one process, writes them down, and kills the process at a place."""

    def __init__(self, place: Place | None = None) -> None:
        self._place = place
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._here = threading.local()
        self._armed = ""
        self.made: dict[int, Made] = {}

    def over(self, store: Store) -> Store:
        """A store whose calls are counted."""

        def before(call: StoreCall, key: str) -> None:
            replaces = call is StoreCall.PUT and _is_there(store, key)
            with self._lock:
                number = next(self._numbers)
                self.made[number] = Made(call, key, replaces)
            self._here.number = number
            self._die_at(number, BEFORE)
            if self._place is not None and self._place.call == number:
                self._armed = self._place.moment

        def after(_call: StoreCall, _key: str, _result: object) -> None:
            self._die_at(self._here.number, AFTER)

        return HookStore(store, before=before, after=after)

    def install(self, *, named: bool) -> None:
        """Take part in the writes of local files, for the rest of this process.

        Whichever write is first once the call has begun is the one: a store may have another thread make it.

        Args:
            named: as on systems without files that have no name: what is not finished has a temporary one.
        """
        write_all, link, replace = posix.write_all, os.link, os.replace
        if named:
            setattr(posix, "open_nameless", lambda _folder: None)  # noqa: B010 - likewise

        def dying_write(file: int, data: bytes) -> None:
            if self._armed == TORN:
                write_all(file, data[: len(data) // 2])
                die()
            write_all(file, data)

        setattr(posix, "write_all", dying_write)  # noqa: B010 - for this process alone
        setattr(os, "link", self._dying(link, UNLINKED))  # noqa: B010 - likewise
        setattr(os, "replace", self._dying(replace, UNRENAMED))  # noqa: B010 - likewise

    def _dying(self, call: Callable[..., Any], moment: str) -> Callable[..., Any]:
        def dying(*arguments: Any, **options: Any) -> Any:
            # What is written without a link has its name by the renaming alone.
            if self._armed == moment or (moment == UNRENAMED and self._armed == UNLINKED):
                die()
            return call(*arguments, **options)

        return dying

    def _die_at(self, number: int, moment: str) -> None:
        if self._place == Place(number, moment):
            die()


def die() -> None:
    """SIGKILL to this process."""
    os.kill(os.getpid(), signal.SIGKILL)


def _is_there(store: Store, key: str) -> bool:
    try:
        store.info(key)
    except ObjectNotFound:
        return False
    return True


__all__ = ["AFTER", "BEFORE", "MIDDLE", "TORN", "UNLINKED", "UNRENAMED", "Deaths", "Made", "Place", "die"]
