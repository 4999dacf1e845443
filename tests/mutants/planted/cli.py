"""Bugs planted in txnlog/cli: the command line."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant
from tests.mutants.names import (
    COMMAND_LINE_ADVICE,
)

MUTANTS: Final = (
    # --- what handles say, and what lies in the way -----------------------------------------------------------------
    Mutant(
        "a call is shown as Python on the command line",
        "txnlog/cli/rendering.py",
        "if path is None or command is None or",
        "if path is not None or command is None or",
        "whoever types a command is told to call a function",
        (COMMAND_LINE_ADVICE + "errors_speak_of_the_command_line",),
    ),
)
