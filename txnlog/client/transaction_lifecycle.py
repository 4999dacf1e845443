"""The life of a transaction as a table: what each call, and what became of it, makes of the stage that it is in. Pure.

The stages are those that the owner of a transaction knows. The log's own states are in ``txnlog.fold.state``. A call
that a stage has no cell for is refused before anything is sent. What was sent may be in the log from then on, whatever
becomes of the call: so it is ``sent`` until its fate is known.

The client looks up whether a stage has a cell for a call, and where each fate leads that comes before an end. An end it
notes as the log has it (``Life.ended``), whoever brought it: that the cells say the same is for the tests to see.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from txnlog.fold.state import TransactionState


class Stage(StrEnum):
    """Where a transaction is, as its owner knows it."""

    OPEN = "OPEN"
    FAILED = "FAILED"
    """An operation was refused. It can only be aborted."""
    PREPARE_UNKNOWN = "PREPARE_UNKNOWN"
    """A prepare was sent, and its outcome is unknown."""
    PREPARED = "PREPARED"
    """Others decide about it."""
    COMMITTING = "COMMITTING"
    """A commit was sent, and there is no answer yet."""
    COMMIT_UNKNOWN = "COMMIT_UNKNOWN"
    """A commit was sent, and its outcome is unknown."""
    COMMITTED = "COMMITTED"
    ABORTED = "ABORTED"


class OwnerCall(StrEnum):
    """A call of the owner."""

    WORK = "work"
    """``produce()`` and ``acknowledge()``."""
    FLUSH = "flush"
    PREPARE = "prepare"
    COMMIT = "commit"
    ABORT = "abort"


class Fate(StrEnum):
    """What became of a call."""

    DONE = "done"
    NOTHING = "nothing"
    """It failed, and nothing of it is durable or will be."""
    REFUSED = "refused"
    """The log's rules refused it: another end was first, or can be the only one."""
    UNKNOWN = "unknown"
    """It was sent, and the answer is missing."""
    SENT = "sent"
    """It is on its way."""


_Cell = Mapping[Fate, Stage]


def _abort(stage: Stage) -> _Cell:
    """Where the abort did not reach the log, the transaction is what it was: the abort is made again."""
    return {Fate.DONE: Stage.ABORTED, Fate.NOTHING: stage, Fate.UNKNOWN: stage}


def _commit(stage: Stage) -> _Cell:
    return {
        Fate.DONE: Stage.COMMITTED,
        Fate.NOTHING: stage,
        Fate.REFUSED: Stage.ABORTED,
        Fate.UNKNOWN: Stage.COMMIT_UNKNOWN,
        Fate.SENT: Stage.COMMITTING,
    }


def _prepare(stage: Stage) -> _Cell:
    return {
        Fate.DONE: Stage.PREPARED,
        Fate.NOTHING: stage,
        Fate.REFUSED: Stage.FAILED,
        Fate.UNKNOWN: Stage.PREPARE_UNKNOWN,
        Fate.SENT: Stage.PREPARE_UNKNOWN,
    }


TABLE: Final[Mapping[Stage, Mapping[OwnerCall, _Cell]]] = {
    Stage.OPEN: {
        OwnerCall.WORK: {Fate.DONE: Stage.OPEN, Fate.NOTHING: Stage.OPEN, Fate.REFUSED: Stage.FAILED},
        OwnerCall.FLUSH: {
            Fate.DONE: Stage.OPEN,
            Fate.NOTHING: Stage.OPEN,
            Fate.REFUSED: Stage.FAILED,
            Fate.UNKNOWN: Stage.OPEN,
            Fate.SENT: Stage.OPEN,
        },
        OwnerCall.PREPARE: _prepare(Stage.OPEN),
        OwnerCall.COMMIT: _commit(Stage.OPEN),
        OwnerCall.ABORT: _abort(Stage.OPEN),
    },
    Stage.FAILED: {
        OwnerCall.COMMIT: {Fate.REFUSED: Stage.ABORTED},
        OwnerCall.ABORT: _abort(Stage.FAILED),
    },
    Stage.PREPARE_UNKNOWN: {
        OwnerCall.PREPARE: _prepare(Stage.PREPARE_UNKNOWN),
        OwnerCall.ABORT: _abort(Stage.PREPARE_UNKNOWN),
    },
    Stage.COMMITTING: {
        # Both wait for it, and what becomes of it counts from the stage that it began in.
        OwnerCall.COMMIT: {},
        OwnerCall.ABORT: {},
    },
    Stage.COMMIT_UNKNOWN: {
        OwnerCall.COMMIT: _commit(Stage.COMMIT_UNKNOWN),
        OwnerCall.ABORT: {**_abort(Stage.COMMIT_UNKNOWN), Fate.REFUSED: Stage.COMMITTED},
    },
    Stage.PREPARED: {
        OwnerCall.PREPARE: {Fate.DONE: Stage.PREPARED},
        # Of what others decided; as long as nobody has, both are refused.
        OwnerCall.COMMIT: {Fate.DONE: Stage.COMMITTED, Fate.REFUSED: Stage.ABORTED},
        OwnerCall.ABORT: {Fate.DONE: Stage.ABORTED, Fate.REFUSED: Stage.COMMITTED},
    },
    Stage.COMMITTED: {OwnerCall.COMMIT: {Fate.DONE: Stage.COMMITTED}},
    Stage.ABORTED: {OwnerCall.ABORT: {Fate.DONE: Stage.ABORTED}},
}
"""By stage and call where each fate leads. Besides, the log may show at any call that the transaction has ended."""

ENDED: Final = frozenset({Stage.COMMITTED, Stage.ABORTED})
"""Nothing leads out of these."""

UNANSWERED: Final = frozenset({Stage.PREPARE_UNKNOWN, Stage.COMMITTING, Stage.COMMIT_UNKNOWN})
"""An end was sent, which may be durable, and there is no answer yet."""


class Life(NamedTuple):
    """A moment in the life of a transaction.

    Attributes:
        stage: where it is.
        logged: whether the log may show it as open: then its abort must be logged, too.
    """

    stage: Stage = Stage.OPEN
    logged: bool = False

    @property
    def state(self) -> TransactionState:
        """What users see of it."""
        match self.stage:
            case Stage.PREPARED:
                return "PREPARED"
            case Stage.COMMITTED:
                return "COMMITTED"
            case Stage.ABORTED:
                return "ABORTED"
        return "OPEN"

    def after(self, call: OwnerCall, fate: Fate) -> Life:
        """What it is after a call that began here."""
        sent = fate in {Fate.DONE, Fate.SENT, Fate.UNKNOWN} and call in {OwnerCall.FLUSH, OwnerCall.PREPARE}
        return Life(TABLE[self.stage][call][fate], self.logged or sent)

    def ended(self, stage: Stage) -> Life:
        """The life of a transaction that has ended, by whomever."""
        return self._replace(stage=stage)


__all__ = ["ENDED", "TABLE", "UNANSWERED", "Fate", "Life", "OwnerCall", "Stage"]
