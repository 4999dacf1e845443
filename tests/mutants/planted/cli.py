"""Bugs planted in txnlog/cli: the command line."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant
from tests.mutants.names import (
    COMMAND_LINE_ADVICE,
    LISTINGS,
)

MUTANTS: Final = (
    Mutant(
        "rows reach the terminal as they are",
        "txnlog/cli/output.py",
        "else printable(plain) if isinstance(plain, str) else",
        "else plain if isinstance(plain, str) else",
        "who may produce controls the terminal of whoever looks, and what he reads there",
        (LISTINGS + "nothing_that_others_wrote_controls_the_terminal",),
    ),
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
