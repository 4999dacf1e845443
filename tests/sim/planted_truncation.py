"""Known bugs of truncation, planted as those of ``planted.py`` are."""

from __future__ import annotations

from typing import Any, Final

import pytest
from msgspec.structs import replace

from tests.sim.planted import Mutant
from txnlog.client import truncation
from txnlog.client.transaction_work import TransactionWork
from txnlog.client.truncation import TruncatingCommit, Truncation
from txnlog.format.actions import AnyAction, Replace
from txnlog.log.append_queue import AppendQueue


def only_what_was_known_goes(patch: pytest.MonkeyPatch) -> None:
    """Segments that came since it was planned stay."""
    actions = Truncation.actions

    def known(self: Truncation, draft: Any, txn: int, acknowledgements: Any) -> list[AnyAction]:
        return [
            replace(item, removed=tuple(number for number in item.removed if number in self.visible))
            if isinstance(item, Replace)
            else item
            for item in actions(self, draft, txn, acknowledgements)
        ]

    patch.setattr(Truncation, "actions", known)


def subscriptions_need_nothing(patch: pytest.MonkeyPatch) -> None:
    """What a subscription has not acknowledged goes, whether that is allowed or not."""
    patch.setattr(truncation, "_check_acknowledged", lambda *_: None)


def shared_with_others(patch: pytest.MonkeyPatch) -> None:
    """Others are in its entry, before it and behind it."""
    patch.setattr(TruncatingCommit, "alone", None)


def overtaken_while_it_waits(patch: pytest.MonkeyPatch) -> None:
    """Where there is one ahead of it in the entry, who comes behind it goes first."""
    take = AppendQueue.take_batch

    def others_first(self: AppendQueue) -> Any:
        own = [asked for asked in self._asked if isinstance(asked.command, TruncatingCommit)]
        for asked in own:
            self._asked.remove(asked)
            self._asked.append(asked)
        return take(self)

    patch.setattr(AppendQueue, "take_batch", others_first)


def nothing_goes_after_a_failure(patch: pytest.MonkeyPatch) -> None:
    """A commit that is tried again brings its rows, and the topic keeps what it has."""
    plan = TransactionWork.plan_truncations

    async def once(self: Any, **how: bool) -> None:
        if self.truncations:
            self.truncations, self.truncated = [], {}
            return
        await plan(self, **how)

    patch.setattr(TransactionWork, "plan_truncations", once)


def _mutant(name: str, plant: Any, *kinds: str) -> Mutant:
    return Mutant(name, plant, ("writer", *kinds), workload="truncated")


TRUNCATION_MUTANTS: Final = (
    _mutant("a truncation takes what it knew", only_what_was_known_goes),
    _mutant("a truncation passes cursors", subscriptions_need_nothing, "pipeline"),
    _mutant("a truncation shares its entry", shared_with_others),
    _mutant("a truncation is overtaken", overtaken_while_it_waits),
    _mutant("a truncation is forgotten when it is tried again", nothing_goes_after_a_failure),
)
