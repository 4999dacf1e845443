"""What clients asked and what they were answered, in real time: the recorder, and the history that the checker judges.

A test calls ``invoke`` before a call and ``ok`` or ``failed`` after it; a call of a process that died stays open. Every
call and every return takes the next event number, so that "returned before the other was called" is a comparison.
``txnlog.testing.operations`` says which kinds of calls there are, what they take and what they return.

Values are whole numbers that are produced once in the run (a retry of the same batch sends them again). The name of a
topic or subscription is one incarnation: what is created again after a drop needs another name in the history. An abort
that took effect is ``ok``.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any, Literal, get_args

import msgspec

from txnlog.errors import Durable, TxnLogError
from txnlog.testing.operation_kinds import WITHOUT_RESULT, Kind
from txnlog.testing.operations import Arguments, Done, Result

DurableWord = Literal["nothing", "maybe"]
_WORDS: dict[Durable, DurableWord] = {
    Durable.NOTHING: "nothing",
    Durable.MAYBE: "maybe",
}


class Operation(msgspec.Struct, frozen=True, omit_defaults=True):
    """One call of one actor.

    Attributes:
        number: the operation's place in the history.
        actor: who called.
        kind: what was called.
        invoked: number of the event of the call.
        completed: number of the event of the return; None: it never returned.
        arguments: what was asked.
        result: what was answered; None unless it succeeded.
        error: the name of the error's type; None unless it failed.
        durable: what the error says of effects; None without an error, or where the error does not say.
    """

    number: int
    actor: str
    kind: Kind
    invoked: int
    completed: int | None
    arguments: Arguments
    result: Result | None = None
    error: str | None = None
    durable: DurableWord | None = None

    @property
    def succeeded(self) -> bool:
        """Whether it returned a result."""
        return self.result is not None

    @property
    def possible(self) -> bool:
        """Whether it may have had an effect: it succeeded, or nobody said that it did not."""
        return self.durable != "nothing"


class History(msgspec.Struct, frozen=True):
    """The operations of a run, by number, which is the order of their calls."""

    operations: tuple[Operation, ...]

    def to_lines(self) -> str:
        """The history as text, one operation a line (JSON): small enough for a bug report, and readable."""
        return "".join(f"{msgspec.json.encode(operation).decode()}\n" for operation in self.operations)

    @classmethod
    def from_lines(cls, lines: str | Iterable[str]) -> History:
        """The history that ``to_lines`` wrote; empty lines are left out. Raises msgspec.ValidationError."""
        found = lines.splitlines() if isinstance(lines, str) else lines
        return cls(tuple(_DECODER.decode(line) for line in found if line.strip()))


def merged(parts: Iterable[Iterable[Operation]]) -> History:
    """One history of what several processes wrote down, each with the readings of one clock as events.

    Raises nothing for equal readings: such calls count as made at the same time.
    """
    operations = sorted((operation for part in parts for operation in part), key=lambda item: item.invoked)
    readings = {at for item in operations for at in (item.invoked, item.completed) if at is not None}
    events: dict[int | None, int | None] = {at: number for number, at in enumerate(sorted(readings), 1)}
    return History(
        tuple(
            msgspec.structs.replace(
                item, number=number, invoked=events[item.invoked], completed=events.get(item.completed)
            )
            for number, item in enumerate(operations)
        )
    )


_DECODER = msgspec.json.Decoder(Operation)
_ARGUMENTS: dict[str, Any] = {str(item.__struct_config__.tag): item for item in get_args(Arguments)}
_RESULTS: dict[str, Any] = {str(item.__struct_config__.tag): item for item in get_args(Result)} | dict.fromkeys(
    WITHOUT_RESULT, Done
)
"""The type for each kind: a hundred times as quick to convert to as their union."""


class Recorder:
    """Writes a history down while it happens. Threads may share one.

    Args:
        earlier: what happened before; the history goes on with it.
    """

    def __init__(self, earlier: History | None = None) -> None:
        self._lock = threading.Lock()
        self._operations: list[Operation] = [] if earlier is None else list(earlier.operations)
        self._events = max((max(op.invoked, op.completed or 0) for op in self._operations), default=0)

    def invoke(self, actor: str, kind: Kind, **arguments: Any) -> int:
        """Just before a call. Returns the token for ``ok`` and ``failed``; raises msgspec.ValidationError."""
        if kind not in _ARGUMENTS:
            raise msgspec.ValidationError(f"no kind of operation is called {kind!r}")
        asked = msgspec.convert(_plain(arguments), _ARGUMENTS[kind])
        with self._lock:
            token = len(self._operations)
            operation = Operation(token, actor, kind, self._event(), None, asked)
            self._operations.append(operation)
            self._noted(operation)
        return token

    def amend(self, token: int, **arguments: Any) -> None:
        """Before the call's end is noted: arguments that only the call itself could find out."""
        with self._lock:
            asked = self._operations[token]
            assert asked.completed is None, "nothing is amended afterwards"
            amended = msgspec.structs.replace(asked.arguments, **arguments)
            if amended != asked.arguments:
                self._operations[token] = msgspec.structs.replace(asked, arguments=amended)
                self._noted(self._operations[token])

    def ok(self, token: int, **result: Any) -> None:
        """Just after the call returned."""
        answer = msgspec.convert(_plain(result), _RESULTS[self._operations[token].kind])
        self._complete(token, result=answer)

    def failed(self, token: int, error: BaseException) -> None:
        """Just after the call raised."""
        durable = _WORDS[error.durable] if isinstance(error, TxnLogError) else None
        self._complete(token, error=type(error).__name__, durable=durable)

    def history(self) -> History:
        """What happened so far; calls that did not return yet are in it as such."""
        with self._lock:
            return History(tuple(self._operations))

    def _complete(
        self,
        token: int,
        result: Result | None = None,
        error: str | None = None,
        durable: DurableWord | None = None,
    ) -> None:
        with self._lock:
            asked = self._operations[token]
            assert asked.completed is None, "a call returns once"
            operation = self._operations[token] = Operation(
                token, asked.actor, asked.kind, asked.invoked, self._event(), asked.arguments, result, error, durable
            )
            self._noted(operation)

    def _event(self) -> int:
        """The number of the next event."""
        self._events += 1
        return self._events

    def _noted(self, operation: Operation) -> None:
        """Called with the lock for each call and each return; one that outlives the process keeps them elsewhere."""


def _plain(fields: dict[str, Any]) -> dict[str, Any]:
    """Mappings as sorted tuples, so that what is kept is immutable, in one order, and goes into JSON."""
    for name in _FLATTEN.keys() & fields.keys():
        fields[name] = _FLATTEN[name](fields[name])
    return fields


def _flat_offsets(offsets: Any) -> Any:
    """``{(topic, partition): (start, end)}``, or ranges for the pairs; None where history no longer shows it."""
    if not isinstance(offsets, Mapping):
        return offsets or ()
    spans = {key: (at.start, at.stop) if isinstance(at, range) else at for key, at in offsets.items()}
    return tuple(sorted((*key, *at) for key, at in spans.items()))


def _flat_rows(rows: Any) -> Any:
    if not isinstance(rows, Mapping):
        return rows
    return tuple(sorted((*key, tuple(found)) for key, found in rows.items()))


def _flat_positions(positions: Any) -> Any:
    return tuple(sorted(positions.items())) if isinstance(positions, Mapping) else positions


def _flat_outcomes(outcomes: Any) -> Any:
    if not isinstance(outcomes, Mapping):
        return outcomes
    return tuple(sorted(((txn, *ended) for txn, ended in outcomes.items()), key=lambda item: item[0]))


def _flat_cursors(cursors: Any) -> Any:
    if not isinstance(cursors, Mapping):
        return cursors
    return tuple(
        sorted(
            (*key, partition, cursor, tuple(acknowledged))
            for key, partitions in cursors.items()
            for partition, (cursor, acknowledged) in partitions.items()
        )
    )


_FLATTEN: dict[str, Any] = {
    "offsets": _flat_offsets,
    "rows": _flat_rows,
    "positions": _flat_positions,
    "outcomes": _flat_outcomes,
    "cursors": _flat_cursors,
}


__all__ = ["History", "Operation", "Recorder", "merged"]
