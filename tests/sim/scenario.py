"""A scenario: a small script of one client, whose every call to its store has in turn every fate that it may have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from tests.sim.fates import Fate, FateStore
from tests.sim.scopes import Effect
from txnlog.api.namespace import Namespace
from txnlog.api.transaction import Transaction
from txnlog.errors import Durable, OutcomeUnknown, TxnLogError
from txnlog.testing import ManualClock

T = TypeVar("T")


class Dead(Exception):
    """The client is no more: what was under way stays as it is."""


@dataclass
class Promise:
    """What became of an effect, as the client was told: ``none`` before it asked for it, ``done``, ``refused``,
    ``unknown``, or ``never`` once it must not come about any more."""

    effect: Effect
    told: str = "none"
    txn_ids: tuple[str, ...] = ()


@dataclass
class Run:
    """One run of a scenario: the client's side."""

    store: FateStore
    clock: ManualClock
    fate: Fate | None
    ns: Namespace = field(init=False)
    promises: list[Promise] = field(default_factory=list)
    checks: list[Callable[[Namespace], None]] = field(default_factory=list)

    def expect(self, effect: Effect, txn: Transaction | None = None) -> Promise:
        """An effect that is asked for later; until then it must not be there."""
        promise = Promise(effect, txn_ids=() if txn is None else (str(txn.id),))
        self.promises.append(promise)
        return promise

    def does(
        self,
        call: Callable[[], T],
        promise: Promise | None = None,
        again: Callable[[], Any] | None = None,
        *,
        repeats: bool = True,
    ) -> T:
        """Make a call, and make it again (or ``again``) after an error, unless the client dies of it.

        Without ``repeats`` the effect stays as the client was told, and the client goes on.
        """
        try:
            result = call()
        except TxnLogError as error:
            if promise is not None:
                unknown = error.durable is not Durable.NOTHING
                promise.told = "unknown" if unknown else "refused"
                if isinstance(error, OutcomeUnknown) and not promise.txn_ids:
                    promise.txn_ids = error.txn_ids
            if self.fate is not None and self.fate.dies:
                raise Dead from error
            self.store.down = False
            if not repeats:
                return None
            result = (again or call)()
        if promise is not None:
            promise.told = "done"
        return result

    def commits(self, txn: Transaction, promise: Promise) -> None:
        """Commit, again after an error; and once more for the same answer."""
        first = self.does(txn.commit, promise)
        assert first == self.does(txn.commit)

    def never(self, promise: Promise) -> None:
        """From here on the effect must not come about."""
        promise.told = "never"


@dataclass(frozen=True)
class Scenario:
    """A script, and what is there before it."""

    script: Callable[[Run], None]
    prepare: Callable[[Namespace], object] = lambda _ns: None
    opens: bool = True
    later_ms: int = 0


def scenario(**options: Any) -> Callable[[Callable[[Run], None]], Scenario]:
    """A scenario whose script is what follows."""
    return partial(Scenario, **options)


def subscribed(ns: Namespace) -> None:
    ns.create_subscription("orders", "billing")


def pooled(ns: Namespace) -> None:
    ns.create_subscription("orders", "pool", type="shared", max_redeliveries=1, dead_letter_topic="dead")
