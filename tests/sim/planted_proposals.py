"""Known bugs of group commit between processes, planted as those of ``planted.py`` are."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import pytest

from tests.sim.planted import Mutant
from txnlog.log.entry_riders import EntryRiders
from txnlog.log.group_commit import Attempt, Riders
from txnlog.log.proposals import proposal_codec
from txnlog.log.proposals.collector import Proposal
from txnlog.log.proposals.proposer import Proposer
from txnlog.testing.faults import Faults


def refused_without_retraction(patch: pytest.MonkeyPatch) -> None:
    """What was proposed is refused by its owner, and may come true yet."""
    patch.setattr(Proposer, "retractions", lambda *_: [])


def refused_before_it_is_void(patch: pytest.MonkeyPatch) -> None:
    """The retraction goes along, and a refusal does not wait for it."""
    apply_to = EntryRiders.apply_to

    def apply(self: EntryRiders, draft: Any, header: Any) -> Riders:
        riders = apply_to(self, draft, header)
        return Riders(riders.actions, False, riders.looked)

    patch.setattr(EntryRiders, "apply_to", apply)


def proposed_is_not_sent(patch: pytest.MonkeyPatch) -> None:
    """Where the store fails, what was proposed is reported as if nothing of it could be in the log."""
    patch.setattr(Proposer, "open_txn_ids", lambda _self: frozenset())


def earlier_proposal_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A second proposal takes the place of the first, which may come true yet."""

    class Newest(dict[int, Any]):
        def __setitem__(self, number: int, txns: Any) -> None:
            self.clear()
            super().__setitem__(number, txns)

    original = Proposer.__init__

    def begin(self: Proposer, *arguments: Any) -> None:
        original(self, *arguments)
        self._open = Newest()

    def wants(self: Proposer, attempt: Attempt[Any]) -> bool:
        return self._races.collector is not None and all(self._can_propose(item.command) for item in attempt.members)

    patch.setattr(Proposer, "__init__", begin)
    patch.setattr(Proposer, "wants", wants)
    patch.setattr(Proposer, "retractions", lambda *_: [])


def void_proposal_brought(patch: pytest.MonkeyPatch) -> None:
    """A collector brings what its owner has retracted."""
    patch.setattr(Proposal, "is_void", lambda *_: False)


def rows_of_another_piece(patch: pytest.MonkeyPatch) -> None:
    """Of the rows of a topic each piece gets the first ones."""
    take = proposal_codec._Rows.take

    def taken(self: proposal_codec._Rows, rows: int) -> Any:
        known, self._next = self._next, 0
        found = take(self, rows)
        self._next = known + rows
        return found

    patch.setattr(proposal_codec._Rows, "take", taken)


def _without(patch: pytest.MonkeyPatch, **left_out: Any) -> None:
    """Commits are proposed without some of what they say."""
    plain = proposal_codec._plain

    def cut(command: Any) -> Any:
        found = plain(command)
        return msgspec.structs.replace(found, **left_out) if isinstance(found, proposal_codec.ProposedCommit) else found

    patch.setattr(proposal_codec, "_plain", cut)


def proposed_without_epoch(patch: pytest.MonkeyPatch) -> None:
    """Whoever was fenced gets its rows into the log by somebody else."""
    _without(patch, producer=None, epoch=None)


def proposed_without_acknowledgements(patch: pytest.MonkeyPatch) -> None:
    """Messages are processed, and come again."""
    _without(patch, acknowledgements=())


def proposed_without_sequences(patch: pytest.MonkeyPatch) -> None:
    """A batch that is sent again is there twice."""
    plain = proposal_codec._plain

    def cut(command: Any) -> Any:
        found = plain(command)
        if not isinstance(found, proposal_codec.ProposedCommit):
            return found
        pieces = tuple([msgspec.structs.replace(piece, sequence=None) for piece in found.pieces])
        return msgspec.structs.replace(found, pieces=pieces)

    patch.setattr(proposal_codec, "_plain", cut)


_UNSURE: Final = Faults({"clock": 0.6, "delayed": 0.4})
"""What a proposer refuses has to come true elsewhere yet: mostly a deadline, by a clock that is behind its own."""

PROPOSAL_MUTANTS: Final = (
    Mutant("refused, and proposed all the same", refused_without_retraction, faults=_UNSURE, workload="crowded"),
    Mutant("refused before the proposal is void", refused_before_it_is_void, faults=_UNSURE, workload="crowded"),
    Mutant("what was proposed was not sent", proposed_is_not_sent, faults=_UNSURE, workload="crowded"),
    Mutant("an earlier proposal is forgotten", earlier_proposal_forgotten, faults=_UNSURE, workload="crowded"),
    Mutant("a void proposal is brought", void_proposal_brought, faults=_UNSURE, workload="crowded"),
    Mutant("rows of another piece", rows_of_another_piece, workload="crowded"),
    Mutant("proposed without an epoch", proposed_without_epoch, workload="crowded"),
    Mutant("proposed without acknowledgements", proposed_without_acknowledgements, ("pipeline",), workload="crowded"),
    Mutant("proposed without sequences", proposed_without_sequences, workload="crowded"),
)
