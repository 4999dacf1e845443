"""Bugs planted in txnlog/format: what is stored."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant
from tests.mutants.names import (
    NAMES,
)

MUTANTS: Final = (
    # --- what handles say, and what lies in the way -----------------------------------------------------------------
    Mutant(
        "a property without a meaning is kept",
        "txnlog/format/topic_settings.py",
        "if value is not None and not (name.startswith(_LABEL) and name != _LABEL):",
        "if value is not None and not name:",
        "a retention that was set deletes nothing",
        (NAMES + "a_property_that_would_do_nothing_is_refused",),
    ),
)
