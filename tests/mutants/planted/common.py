"""Bugs planted in txnlog/common: the arguments of users."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant
from tests.mutants.names import (
    COMMAND_LINE_ADVICE,
    METRICS,
    NO_NOTE,
)

MUTANTS: Final = (
    Mutant(
        "an error that takes no attribute gets no note",
        "txnlog/replies.py",
        '    BaseException.__setattr__(error, "__notes__", [*notes_of(error), text])\n',
        "    error.add_note(text)\n",
        "a time limit in a commit is another error, which no program waits for, and a store's own hangs the call",
        (
            NO_NOTE + "what_a_handler_raises_comes_out_of_the_call_that_it_interrupts",
            NO_NOTE + "a_call_whose_store_raises_a_frozen_error_ends",
        ),
    ),
    # --- what handles say, and what lies in the way -----------------------------------------------------------------
    Mutant(
        "a short retention needs no second word",
        "txnlog/common/validation.py",
        "if found < shortest and not allowed:",
        "if found < least and not allowed:",
        "seconds taken for milliseconds end time travel for everybody",
        (COMMAND_LINE_ADVICE + "errors_speak_of_the_command_line",),
    ),
    Mutant(
        "a time limit taken for an error of the data",
        "txnlog/common/signal_errors.py",
        "        if place.tb_frame.f_code in installed or _got_frame(place.tb_frame):\n            raise error\n",
        "",
        "rows that are sound are refused, or reported as damaged",
        (
            "tests/unit/common/test_signal_errors.py::test_a_time_limit_while_a_data_frame_is_converted_reaches_the_caller",
        ),
    ),
    Mutant(
        "a label ends where somebody's text says so",
        "txnlog/common/open_metrics.py",
        '{name}="{value.translate(_ESCAPED)}"',
        '{name}="{value}"',
        "one text makes all metrics unreadable",
        (METRICS + "text_of_others_stays_within_its_label",),
    ),
)
