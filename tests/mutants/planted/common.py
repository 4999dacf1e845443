"""Bugs planted in txnlog/common: the arguments of users."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant
from tests.mutants.names import (
    COMMAND_LINE_ADVICE,
)

MUTANTS: Final = (
    # --- what handles say, and what lies in the way -----------------------------------------------------------------
    Mutant(
        "a short retention needs no second word",
        "txnlog/common/validation.py",
        "if found < shortest and not allowed:",
        "if found < least and not allowed:",
        "seconds taken for milliseconds end time travel for everybody",
        (COMMAND_LINE_ADVICE + "errors_speak_of_the_command_line",),
    ),
)
