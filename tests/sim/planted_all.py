"""All known bugs that a simulation finds, by what they are bugs of."""

from __future__ import annotations

from typing import Final

from tests.sim.planted import MUTANTS
from tests.sim.planted_backups import BACKUP_MUTANTS
from tests.sim.planted_compaction import COMPACTION_MUTANTS
from tests.sim.planted_holes import HOLES_MUTANTS
from tests.sim.planted_proposals import PROPOSAL_MUTANTS
from tests.sim.planted_retention import RETENTION_MUTANTS
from tests.sim.planted_truncation import TRUNCATION_MUTANTS

ALL_MUTANTS: Final = (
    *MUTANTS,
    *PROPOSAL_MUTANTS,
    *RETENTION_MUTANTS,
    *HOLES_MUTANTS,
    *BACKUP_MUTANTS,
    *COMPACTION_MUTANTS,
    *TRUNCATION_MUTANTS,
)
