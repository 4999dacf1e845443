"""What may become of one store call of a client: it fails, before or after, comes late, comes twice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from txnlog.errors import (
    Durable,
    StoreError,
)
from txnlog.store import Created, HookStore, Store, StoreCall

T = TypeVar("T")


@dataclass(frozen=True)
class Fate:
    """What becomes of one call, and of its client.

    Attributes:
        name: for people.
        applied: now, after the client's ``next`` request, at its ``end``, after a fresh client ``asked``, or never.
        answer: ``error`` (in doubt), ``unknown`` (of a create, else as ``error``), ``refused`` or ``right``.
        down: all calls after it fail too, until the client was told of an error.
        dies: the client ends when it is told of an error.
        reads: whether it is a fate of calls that change nothing, too.
    """

    name: str
    applied: frozenset[str]
    answer: str
    down: bool = False
    dies: bool = False
    reads: bool = False


def _fate(name: str, applied: str, answer: str, after: str = "", *, reads: bool = False) -> Fate:
    return Fate(
        f"{name}{after and ', then '}{after}", frozenset(applied.split()), answer, after != "", after == "dead", reads
    )


FATES = (
    _fate("refused", "", "refused"),
    _fate("dropped", "", "error", reads=True),
    _fate("dropped without an error", "", "unknown"),
    _fate("applied, no answer", "now", "error"),
    _fate("applied, answered unknown", "now", "unknown"),
    _fate("late", "next", "error"),
    _fate("late, after the end", "end", "error"),
    _fate("twice", "now next", "right"),
    _fate("twice, the second time after the end", "now end", "right"),
    _fate("dropped", "", "error", "down", reads=True),
    _fate("applied, no answer", "now", "error", "down"),
    _fate("late", "next", "error", "down"),
    _fate("dropped", "", "error", "dead", reads=True),
    _fate("applied, no answer", "now", "error", "dead"),
    _fate("late, after the end", "end", "error", "dead"),
    _fate("late, after somebody asked", "asked", "error", "dead"),
)


def fates_of(call: str) -> list[Fate]:
    """Those that differ for this kind of call."""
    if call == "create":
        return list(FATES)
    if call in {"put", "delete"}:
        return [fate for fate in FATES if fate.answer != "unknown"]
    return [fate for fate in FATES if fate.reads]


class FateStore(HookStore):
    """Counts the calls of one client, and gives one of them its fate."""

    def __init__(self, inner: Store, at: int | None = None, fate: Fate | None = None) -> None:
        super().__init__(inner)
        self.calls: list[tuple[str, str]] = []
        self.counting = False
        self.down = False
        self._at = at
        self._fate = fate
        self._late: dict[str, list[Callable[[], object]]] = {"next": [], "end": [], "asked": []}

    def land(self, when: str) -> bool:
        """What was late arrives; whether there was anything."""
        late, self._late[when] = self._late[when], []
        for request in late:
            request()
        return bool(late)

    def _hooked(self, call: StoreCall, key: str, request: Callable[[], T]) -> T:
        writes = call in {StoreCall.CREATE, StoreCall.PUT, StoreCall.DELETE}
        if not self.counting:
            return request()
        if self.down:
            raise StoreError("the store is down", durable=Durable.MAYBE if writes else Durable.NOTHING)
        self.calls.append((call.value, key))
        if self._fate is None or len(self.calls) - 1 != self._at:
            result = request()
            self.land("next")
            return result
        for when, late in self._late.items():
            if when in self._fate.applied:
                late.append(request)
        self.down = self._fate.down
        if "now" in self._fate.applied:
            result = request()
            if self._fate.answer == "right":
                return result
        if self._fate.answer == "unknown" and call is StoreCall.CREATE:
            return Created.UNKNOWN  # type: ignore[return-value]  # T of a create
        certain = self._fate.answer == "refused" or not writes
        raise StoreError(f"the {call.value} failed", durable=Durable.NOTHING if certain else Durable.MAYBE)
